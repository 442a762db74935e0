//! The beginning of TLS: which name a client says that it wants. The bytes are the guest's.

/// As long as a beginning may be before it says anything.
const LONGEST: usize = 64 << 10;
const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const SERVER_NAME: u16 = 0;
const HOST_NAME: u8 = 0;

/// What is known of a client's first bytes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Hello {
    /// There is more to come.
    Unfinished,
    /// It is no beginning of TLS.
    Nonsense,
    /// It names the server it wants.
    Named(String),
    /// It names none.
    Unnamed,
}

/// Whether these bytes could be TLS.
pub(super) const fn could_be(first: u8) -> bool {
    first == HANDSHAKE
}

/// Reads the first message of a client, as far as it has come.
pub(super) fn read(bytes: &[u8]) -> Hello {
    let (mut message, mut rest) = (Vec::new(), bytes);
    loop {
        // A message may be spread over records.
        if let [CLIENT_HELLO, a, b, c, body @ ..] = message.as_slice() {
            let length = u32::from_be_bytes([0, *a, *b, *c]) as usize;
            if length > LONGEST {
                return Hello::Nonsense;
            }
            if let Some(body) = body.get(..length) {
                return server_name(body).unwrap_or(Hello::Nonsense);
            }
        } else if message.first().is_some_and(|kind| *kind != CLIENT_HELLO) {
            return Hello::Nonsense;
        }
        let [kind, major, _, a, b, after @ ..] = rest else {
            let begins = rest.first().is_none_or(|kind| *kind == HANDSHAKE);
            return if begins {
                Hello::Unfinished
            } else {
                Hello::Nonsense
            };
        };
        let length = usize::from(u16::from_be_bytes([*a, *b]));
        if *kind != HANDSHAKE || *major != 3 || length == 0 || length > (16 << 10) {
            return Hello::Nonsense;
        }
        if message.len() + length > LONGEST {
            return Hello::Nonsense;
        }
        match after.split_at_checked(length) {
            Some((record, after)) => {
                message.extend_from_slice(record);
                rest = after;
            }
            None => {
                return if bytes.len() > LONGEST {
                    Hello::Nonsense
                } else {
                    Hello::Unfinished
                };
            }
        }
    }
}

/// Takes so many bytes off the front.
fn take<'a>(bytes: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (taken, rest) = bytes.split_at_checked(count)?;
    *bytes = rest;
    Some(taken)
}

fn take_u8(bytes: &mut &[u8]) -> Option<usize> {
    take(bytes, 1)?.first().map(|byte| usize::from(*byte))
}

fn take_u16(bytes: &mut &[u8]) -> Option<usize> {
    let &[a, b] = take(bytes, 2)?.first_chunk()?;
    Some(usize::from(u16::from_be_bytes([a, b])))
}

fn server_name(mut body: &[u8]) -> Option<Hello> {
    // A version and what is random.
    take(&mut body, 34)?;
    let session = take_u8(&mut body)?;
    take(&mut body, session)?;
    let ciphers = take_u16(&mut body)?;
    take(&mut body, ciphers)?;
    let compressions = take_u8(&mut body)?;
    take(&mut body, compressions)?;
    if body.is_empty() {
        return Some(Hello::Unnamed);
    }
    let length = take_u16(&mut body)?;
    let mut extensions = take(&mut body, length)?;
    if !body.is_empty() {
        return None;
    }
    let mut found = Hello::Unnamed;
    while !extensions.is_empty() {
        let kind = take_u16(&mut extensions)?;
        let length = take_u16(&mut extensions)?;
        let mut content = take(&mut extensions, length)?;
        if kind != usize::from(SERVER_NAME) {
            continue;
        }
        // One name, said once: whoever says two wants us to look at the wrong one.
        if found != Hello::Unnamed {
            return None;
        }
        let length = take_u16(&mut content)?;
        let mut names = take(&mut content, length)?;
        if !content.is_empty() || take_u8(&mut names)? != usize::from(HOST_NAME) {
            return None;
        }
        let length = take_u16(&mut names)?;
        let name = take(&mut names, length)?;
        if !names.is_empty() {
            return None;
        }
        found = Hello::Named(String::from_utf8(name.to_vec()).ok()?);
    }
    Some(found)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A beginning as a client sends it, with these names in it.
    pub(in super::super) fn hello(names: &[&str]) -> Vec<u8> {
        let mut extensions = Vec::new();
        extensions.extend([0, 43, 0, 3, 2, 3, 4]);
        for name in names {
            let length = name.len() as u16;
            extensions.extend(SERVER_NAME.to_be_bytes());
            extensions.extend((length + 5).to_be_bytes());
            extensions.extend((length + 3).to_be_bytes());
            extensions.push(HOST_NAME);
            extensions.extend(length.to_be_bytes());
            extensions.extend(name.as_bytes());
        }
        let mut body = vec![3, 3];
        body.extend([7; 32]);
        body.extend([0, 0, 2, 0x13, 1, 1, 0]);
        body.extend((extensions.len() as u16).to_be_bytes());
        body.extend(extensions);
        let mut message = vec![CLIENT_HELLO, 0];
        message.extend((body.len() as u16).to_be_bytes());
        message.extend(body);
        message
    }

    /// The same in records of so many bytes.
    pub(in super::super) fn records(message: &[u8], size: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        for part in message.chunks(size) {
            bytes.extend([HANDSHAKE, 3, 1]);
            bytes.extend((part.len() as u16).to_be_bytes());
            bytes.extend(part);
        }
        bytes
    }

    #[test]
    fn the_name_is_read_however_it_is_spread() {
        let message = hello(&["example.com"]);
        for size in [1, 3, 50, 4096] {
            let bytes = records(&message, size);
            assert_eq!(read(&bytes), Hello::Named("example.com".to_owned()));
            for length in 0..bytes.len() {
                assert_eq!(read(&bytes[..length]), Hello::Unfinished, "{length} of {size}");
            }
        }
        assert_eq!(read(&records(&hello(&[]), 4096)), Hello::Unnamed);
    }

    #[test]
    fn two_names_and_nonsense_are_refused() {
        assert_eq!(read(&records(&hello(&["a.b", "c.d"]), 4096)), Hello::Nonsense);
        assert_eq!(read(b"GET / HTTP/1.1\r\n"), Hello::Nonsense);
        assert_eq!(read(&[22, 2, 0, 0, 1, 1]), Hello::Nonsense);
        assert_eq!(read(&[22, 3, 1, 0, 0]), Hello::Nonsense);
        assert_eq!(read(&[22, 3, 1, 0, 1, 2]), Hello::Nonsense);
        // A length that never ends.
        assert_eq!(read(&[22, 3, 1, 0, 4, 1, 0xff, 0xff, 0xff]), Hello::Nonsense);
        let mut endless = Vec::new();
        for _ in 0..20 {
            endless.extend([22, 3, 1, 0x20, 0]);
            endless.extend([1, 0, 0xff, 0xff].iter().copied().chain([0; 0x1ffc]));
        }
        assert_eq!(read(&endless), Hello::Nonsense);
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_a_beginning_or_none(bytes in proptest::collection::vec(0u8..=255, 0..200)) {
            read(&bytes);
            read(&records(&[&[CLIENT_HELLO, 0, 0, bytes.len() as u8][..], &bytes].concat(), 64));
        }
    }
}
