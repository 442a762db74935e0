//! Requests of HTTP in the clear, one after the other on one connection: each is looked at before a byte of it goes on.
//!
//! The bytes are the guest's, and a server at the other end reads them as well. So whatever two readers could take for different
//! things is refused: two lengths, a length and chunks, folded lines, bare line ends, odd spaces. A server may also answer without
//! reading what a request brings, and take that for the next request; `Expect: 100-continue` even invites it to. So every request that
//! brings something says `Connection: close`, after which a server reads nothing more, and `Expect` goes to nobody.

#[cfg(test)]
mod tests;

use crate::weaken;

/// The longest head of a request.
const LONGEST_HEAD: usize = 64 << 10;
/// The most digits of a chunk's size: what has more is cut to another number where sizes have 32 bits.
const MAX_CHUNK_DIGITS: usize = 7;
/// The longest line of a chunk's size, or of what follows the last one.
const LONGEST_LINE: usize = 8 << 10;

/// Headers that say where a request ends or whom it is for. None of them may come a second time in another spelling, after the end of
/// a request, or on the list of those that the next in line leaves out.
const FRAMING: [&str; 9] = [
    "host",
    "content-length",
    "transfer-encoding",
    "connection",
    "keep-alive",
    "proxy-connection",
    "upgrade",
    "expect",
    "te",
];

/// What no server is told, since its answer could leave open whether the rest of the request is still to come.
const NOT_TOLD: [(&str, &[u8]); 1] = [("expect", b"")];

/// What the last request of a connection says of it.
const LAST_REQUEST: [(&str, &[u8]); 4] = [
    ("connection", b"Connection: close\r\n"),
    ("keep-alive", b""),
    ("proxy-connection", b""),
    ("expect", b""),
];

/// What a request's head says.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub method: String,
    /// Without a query.
    pub path: String,
    /// Whom it is for, each time it says so.
    pub hosts: Vec<String>,
    /// Whether it asks for another protocol.
    pub upgrade: bool,
    /// Whether it has whoever comes next leave headers out.
    pub drops_headers: bool,
    /// Whether it says elsewhere what some servers take for its method or path.
    pub overrides: bool,
    /// Whether it waits for a word before it goes on.
    expects: bool,
    body: Body,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Body {
    Sized(u64),
    Chunked,
}

/// Why a request does not go on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refused {
    #[error("a request could be read in two ways: {0}")]
    Ambiguous(&'static str),
    /// Whoever looked at it said no.
    #[error("{0}")]
    ByRule(String),
}

/// Where in the stream of requests it is.
#[derive(Debug, PartialEq, Eq)]
enum At {
    Head,
    Sized(u64),
    ChunkSize,
    Chunk(u64),
    /// Between a chunk and its line end; how much of that has come.
    ChunkEnd,
    Trailer,
    /// After a request for another protocol: what comes next depends on the answer.
    Waiting,
    /// Another protocol.
    Opaque,
}

/// Looks at requests as they come.
#[derive(Debug)]
pub(super) struct Requests {
    at: At,
    /// What of a head or a line has come.
    held: Vec<u8>,
    count: u64,
    /// Headers that every request has as these lines, whatever it says itself: names in lower case, and the lines.
    told: Vec<(String, Vec<u8>)>,
    /// Whether a request that brings something has its server close the connection.
    ends_after_body: bool,
    /// Whether the request of the moment does.
    is_last: bool,
    /// Whether the guest waits for a word before it sends more of its first request.
    waits_to_continue: bool,
}

impl Default for Requests {
    fn default() -> Self {
        Self {
            at: At::Head,
            held: Vec::new(),
            count: 0,
            told: Vec::new(),
            ends_after_body: false,
            is_last: false,
            waits_to_continue: false,
        }
    }
}

impl Requests {
    /// Puts these headers into every request.
    pub(super) fn telling(told: Vec<(String, Vec<u8>)>) -> Self {
        Self {
            told,
            ..Self::default()
        }
    }

    /// Has a request that brings something say that it is the last one.
    #[must_use]
    pub(super) fn ending_after_body(mut self) -> Self {
        self.ends_after_body = !weaken::is_off("bodies");
        self
    }

    /// What the connection itself has every request say.
    const fn connection_headers(&self) -> &'static [(&'static str, &'static [u8])] {
        match (self.ends_after_body, self.is_last) {
            (false, _) => &[],
            (true, false) => &NOT_TOLD,
            (true, true) => &LAST_REQUEST,
        }
    }

    /// Passes a head on, with what it is to say and without what it says in its place.
    fn tell(&self, pass: &mut Vec<u8>) {
        let of_connection = self.connection_headers();
        for (at, line) in self.held.split_inclusive(|byte| *byte == b'\n').enumerate() {
            let is_own = || of_connection.iter().any(|(name, _)| is_called(line, name));
            if at > 0 && (self.names_told(line) || is_own()) {
                continue;
            }
            pass.extend_from_slice(line);
            if at == 0 {
                for (_, line) in &self.told {
                    pass.extend_from_slice(line);
                }
                for (_, line) in of_connection {
                    pass.extend_from_slice(line);
                }
            }
        }
    }

    /// Whether a line is a header that is told.
    fn names_told(&self, line: &[u8]) -> bool {
        self.told.iter().any(|(name, _)| is_called(line, name))
    }

    /// Takes what came, and gives to `pass` what may go on. Heads go to `permit` first.
    pub(super) fn take(
        &mut self,
        mut bytes: &[u8],
        permit: &mut dyn FnMut(&Head) -> Result<(), String>,
        pass: &mut Vec<u8>,
    ) -> Result<(), Refused> {
        while !bytes.is_empty() {
            match self.at {
                At::Head => {
                    let taken = self.hold_head(bytes)?;
                    bytes = &bytes[taken..];
                    if self.held.ends_with(b"\r\n\r\n") {
                        self.begin(permit)?;
                        self.tell(pass);
                        self.held.clear();
                    }
                }
                At::Sized(left) | At::Chunk(left) => {
                    let count = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
                    let (now, rest) = bytes.split_at(count);
                    pass.extend_from_slice(now);
                    bytes = rest;
                    let left = left - count as u64;
                    self.at = match (&self.at, left) {
                        (At::Sized(_), 0) => At::Head,
                        (At::Sized(_), left) => At::Sized(left),
                        (_, 0) => At::ChunkEnd,
                        (_, left) => At::Chunk(left),
                    };
                }
                At::ChunkSize | At::ChunkEnd | At::Trailer => {
                    let taken = self.hold_line(bytes)?;
                    bytes = &bytes[taken..];
                    if self.held.ends_with(b"\r\n") {
                        self.after_line()?;
                        pass.append(&mut self.held);
                    }
                }
                // Nobody sends before it has been answered.
                At::Waiting => {
                    return Err(Refused::Ambiguous(
                        "more of it came before another protocol was agreed on",
                    ));
                }
                At::Opaque => {
                    pass.extend_from_slice(bytes);
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Whether the answer to another protocol has to come first.
    pub(super) fn waits(&self) -> bool {
        self.at == At::Waiting
    }

    /// The answer to a request for another protocol has come.
    pub(super) fn answered(&mut self, agreed: bool) {
        if self.waits() {
            self.at = if agreed { At::Opaque } else { At::Head };
        }
    }

    /// Whether no request is half sent.
    pub(super) fn is_between(&self) -> bool {
        self.at == At::Head && self.held.is_empty()
    }

    /// Whether the guest has to be told now that it may send more. That is known only of its first request: later there may be an
    /// answer on its way that it would be put into.
    pub(super) fn continues(&mut self) -> bool {
        std::mem::take(&mut self.waits_to_continue)
    }

    fn hold_head(&mut self, bytes: &[u8]) -> Result<usize, Refused> {
        // The end may have begun in what is held.
        let begin = self.held.len().saturating_sub(3);
        let before = self.held.len();
        let room = LONGEST_HEAD.saturating_sub(before).min(bytes.len());
        self.held.extend_from_slice(&bytes[..room]);
        let end = self.held[begin..].windows(4).position(|four| four == b"\r\n\r\n");
        match end {
            Some(at) => {
                self.held.truncate(begin + at + 4);
                Ok(self.held.len() - before)
            }
            None if self.held.len() >= LONGEST_HEAD => Err(Refused::Ambiguous("its head is too long")),
            None => Ok(room),
        }
    }

    fn hold_line(&mut self, bytes: &[u8]) -> Result<usize, Refused> {
        let end = bytes
            .iter()
            .position(|byte| *byte == b'\n')
            .map_or(bytes.len(), |at| at + 1);
        if self.held.len() + end > LONGEST_LINE {
            return Err(Refused::Ambiguous("a line of a chunk is too long"));
        }
        self.held.extend_from_slice(&bytes[..end]);
        if self.held.ends_with(b"\n") && !self.held.ends_with(b"\r\n") {
            return Err(Refused::Ambiguous("a line ends oddly"));
        }
        Ok(end)
    }

    fn begin(&mut self, permit: &mut dyn FnMut(&Head) -> Result<(), String>) -> Result<(), Refused> {
        let head = read(&self.held)?;
        permit(&head).map_err(Refused::ByRule)?;
        self.count += 1;
        self.is_last = self.ends_after_body && head.body != Body::Sized(0);
        self.waits_to_continue = self.is_last && head.expects && self.count == 1;
        self.at = match head.body {
            // The answer can only be told apart where it is the first.
            _ if head.upgrade && (self.count > 1 || head.body != Body::Sized(0)) => {
                return Err(Refused::Ambiguous("another protocol is asked for in the middle"));
            }
            _ if head.upgrade => At::Waiting,
            Body::Sized(0) => At::Head,
            Body::Sized(size) => At::Sized(size),
            Body::Chunked => At::ChunkSize,
        };
        Ok(())
    }

    fn after_line(&mut self) -> Result<(), Refused> {
        let line = &self.held[..self.held.len() - 2];
        self.at = match self.at {
            At::ChunkSize => {
                // What may follow the size is for nobody.
                let digits = line.len();
                let plain =
                    (1..=MAX_CHUNK_DIGITS).contains(&digits) && line.iter().all(u8::is_ascii_hexdigit);
                let size = std::str::from_utf8(line).ok().filter(|_| plain);
                match size.and_then(|text| u64::from_str_radix(text, 16).ok()) {
                    Some(0) => At::Trailer,
                    Some(size) => At::Chunk(size),
                    None => return Err(Refused::Ambiguous("the size of a chunk is none")),
                }
            }
            At::ChunkEnd if line.is_empty() => At::ChunkSize,
            At::Trailer if line.is_empty() => At::Head,
            At::Trailer => {
                header(line).ok_or(Refused::Ambiguous("a line after the last chunk is none"))?;
                if self.names_told(line) || FRAMING.iter().any(|name| is_called(line, name)) {
                    return Err(Refused::Ambiguous(
                        "it has a header after its end that is not its own",
                    ));
                }
                At::Trailer
            }
            _ => return Err(Refused::Ambiguous("a chunk ends oddly")),
        };
        Ok(())
    }
}

/// Whether these bytes begin a request; nothing while that cannot be told.
pub(super) fn begins(bytes: &[u8]) -> Option<bool> {
    const METHODS: [&str; 9] = [
        "GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT",
    ];
    // Servers pass over empty lines and all kinds of space, and some take methods in any case, methods of their own, and requests
    // without a version.
    let is_space = |byte: u8| matches!(byte, b' ' | b'\t'..=b'\r' | 0x1c..=0x1f);
    let start = bytes.iter().position(|byte| !is_space(*byte));
    let start = start.unwrap_or(bytes.len());
    let text = &bytes[start..];
    let line = text.split(|byte| *byte == b'\n').next().unwrap_or(text);
    let mut words = line.split(|byte| *byte <= b' ').filter(|word| !word.is_empty());
    let word = words.next().unwrap_or_default();
    let known = METHODS
        .iter()
        .any(|method| word.eq_ignore_ascii_case(method.as_bytes()));
    if known && word.len() < line.len() {
        return Some(true);
    }
    // Nobody else begins with a word and a path.
    if words.next().is_some_and(|word| word.starts_with(b"/")) {
        return Some(true);
    }
    if line.windows(5).any(|five| five.eq_ignore_ascii_case(b"HTTP/")) {
        return Some(true);
    }
    // A byte that is in no line of text tells it from HTTP at once.
    let is_binary = line.iter().any(|byte| *byte < b' ' && !is_space(*byte));
    if is_binary || line.len() < text.len() {
        return Some(false);
    }
    // A line without end is for nobody to pass on unseen.
    (line.len() >= LONGEST_LINE).then_some(true)
}

/// Whether a line is a header of that name, in any spelling: some servers take `_` for `-`.
fn is_called(line: &[u8], name: &str) -> bool {
    let plain = |byte: u8| {
        if byte == b'_' {
            b'-'
        } else {
            byte.to_ascii_lowercase()
        }
    };
    let said = line.split(|byte| *byte == b':').next().unwrap_or(line);
    name.bytes().map(plain).eq(said.iter().copied().map(plain))
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// A header's name, in lower case, and its value.
fn header(line: &[u8]) -> Option<(String, String)> {
    let colon = line.iter().position(|byte| *byte == b':')?;
    let (name, value) = (&line[..colon], &line[colon + 1..]);
    let plain = |byte: &u8| *byte == b'\t' || (0x20..0x7f).contains(byte) || *byte >= 0x80;
    if name.is_empty() || !name.iter().copied().all(is_token) || !value.iter().all(plain) {
        return None;
    }
    let value = String::from_utf8_lossy(value.trim_ascii()).into_owned();
    Some((String::from_utf8_lossy(name).to_ascii_lowercase(), value))
}

fn read(head: &[u8]) -> Result<Head, Refused> {
    let no = Refused::Ambiguous;
    let text = head.strip_suffix(b"\r\n\r\n").unwrap_or(head);
    let mut lines = text.split(|byte| *byte == b'\n');
    let mut next = || -> Result<Option<&[u8]>, Refused> {
        let Some(line) = lines.next() else { return Ok(None) };
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.contains(&b'\r') || line.contains(&0) {
            return Err(no("a line ends oddly"));
        }
        Ok(Some(line))
    };
    // Every line but the last ended in one way: what was split at was a line end without a return otherwise.
    if text.windows(2).any(|two| two[1] == b'\n' && two[0] != b'\r') || text.first() == Some(&b'\n') {
        return Err(no("a line ends oddly"));
    }
    let first = next()?.unwrap_or_default();
    let first = std::str::from_utf8(first).map_err(|_| no("its first line is no text"))?;
    let mut words = first.split(' ');
    let (Some(method), Some(target), Some(version), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(no("its first line is none"));
    };
    let version_one = match version {
        "HTTP/1.1" => true,
        "HTTP/1.0" => false,
        _ => return Err(no("its version is neither 1.0 nor 1.1")),
    };
    if method.is_empty() || method.len() > 32 || !method.bytes().all(|byte| byte.is_ascii_uppercase()) {
        return Err(no("its method is none"));
    }
    if target.is_empty() || !target.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(no("what it asks for is no path"));
    }
    if method == "CONNECT" {
        return Err(no("it asks for a way to somebody else"));
    }
    let mut hosts = Vec::new();
    let path = match target.strip_prefix("http://") {
        Some(rest) => {
            let end = rest.find(['/', '?']).unwrap_or(rest.len());
            let (host, path) = rest.split_at(end);
            hosts.push(host.to_owned());
            path
        }
        None if target.starts_with('/') || (target == "*" && method == "OPTIONS") => target,
        None => return Err(no("what it asks for is no path")),
    };
    let path = path.split('?').next().unwrap_or(path);
    let path = if path.is_empty() { "/" } else { path };
    let (mut length, mut chunked, mut upgrade, mut named) = (None, false, false, 0);
    let (mut overrides, mut drops_headers, mut expects) = (false, false, false);
    while let Some(line) = next()? {
        let (name, value) = header(line).ok_or(no("a line of its head is none"))?;
        let is_framing = |name: &&&str| is_called(line, name);
        if let Some(framing) = FRAMING.iter().find(is_framing)
            && *framing != name
        {
            return Err(no("a header is spelled in a way that servers read differently"));
        }
        match name.as_str() {
            "host" => {
                named += 1;
                hosts.push(value);
            }
            "content-length" => {
                let plain =
                    (1..=18).contains(&value.len()) && value.bytes().all(|byte| byte.is_ascii_digit());
                let plain = plain && (value == "0" || !value.starts_with('0'));
                let size: Option<u64> = if plain { value.parse().ok() } else { None };
                if length.replace(size.ok_or(no("its length is none"))?).is_some() {
                    return Err(no("it has two lengths"));
                }
            }
            "transfer-encoding" => {
                if chunked || !value.eq_ignore_ascii_case("chunked") || !version_one {
                    return Err(no("it is encoded in a way that is not plain"));
                }
                chunked = true;
            }
            "upgrade" => {
                if upgrade || !value.eq_ignore_ascii_case("websocket") {
                    return Err(no("it asks for another protocol than websocket"));
                }
                upgrade = true;
            }
            "connection" => {
                let usual = |word: &str| {
                    let usual = ["", "close", "keep-alive", "upgrade"];
                    usual.iter().any(|usual| usual.eq_ignore_ascii_case(word.trim()))
                };
                drops_headers |= !value.split(',').all(usual);
                let ends_it = |word: &str| {
                    let word = word.trim();
                    ["host", "content-length", "transfer-encoding", "expect"]
                        .iter()
                        .any(|name| is_called(word.as_bytes(), name))
                };
                if value.split(',').any(ends_it) {
                    return Err(no(
                        "it has the next in line leave out where it ends or whom it is for",
                    ));
                }
            }
            "expect" => {
                if expects || !value.eq_ignore_ascii_case("100-continue") {
                    return Err(no("it expects something else than to be continued"));
                }
                expects = true;
            }
            "x-original-url"
            | "x-rewrite-url"
            | "x-original-uri"
            | "x-forwarded-uri"
            | "x-http-method-override"
            | "x-http-method"
            | "x-method-override" => overrides = true,
            "http2-settings" => return Err(no("it asks for HTTP/2")),
            _ => {}
        }
    }
    if named != 1 {
        return Err(no("it names its host not exactly once"));
    }
    // Many servers do not read what these bring, and take it for the next request.
    let brings_nothing = matches!(method, "GET" | "HEAD" | "OPTIONS" | "TRACE");
    if brings_nothing && (chunked || length.is_some_and(|size| size > 0)) {
        return Err(no("it brings what its method has no place for"));
    }
    let body = match (length, chunked) {
        (Some(_), true) => return Err(no("it has a length and chunks")),
        (None, true) => Body::Chunked,
        (size, false) => Body::Sized(size.unwrap_or(0)),
    };
    Ok(Head {
        method: method.to_owned(),
        path: path.to_owned(),
        hosts,
        upgrade,
        drops_headers,
        overrides,
        expects,
        body,
    })
}

/// What of an answer's first line has come: whether another protocol was agreed on, where that is known.
pub(super) fn agreed(answer: &[u8]) -> Option<bool> {
    const SWITCHING: &[u8] = b"HTTP/1.1 101 ";
    if answer.len() >= SWITCHING.len() {
        return Some(answer.starts_with(SWITCHING));
    }
    (!SWITCHING.starts_with(answer)).then_some(false)
}
