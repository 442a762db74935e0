//! Rules: which host, on which ports, and what may be said to it.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize, Serializer};

use super::RESOLVER_PORT;
use super::address::{Block, BlockError, is_public};
use super::host::{Host, HostError, HostName};
use crate::status::words;

/// The ports of a rule that names none.
const USUAL_PORTS: [u16; 2] = [80, 443];
/// The most ports, methods, paths or ranges that one rule names.
const MOST: usize = 64;

/// One host, or all below a name, that may be reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    pub host: Host,
    pub ports: BTreeSet<u16>,
    /// What is spoken with it.
    pub protocol: Protocol,
    /// Methods of HTTP that may be used; empty means any.
    pub methods: BTreeSet<String>,
    /// Beginnings of paths that may be asked for; empty means any.
    pub paths: Vec<String>,
    /// Private addresses that its name may have.
    pub addresses: Vec<Block>,
}

words! {
    /// What is spoken with a host.
    #[derive(Default)]
    Protocol {
        /// TLS on 443, HTTP on 80; elsewhere whatever it begins like.
        #[default]
        Auto = "auto",
        /// HTTP in the clear, every request of it looked at.
        Http = "http",
        /// TLS, with the host's name at its beginning.
        Tls = "tls",
        /// Anything. Nobody looks into it.
        Tcp = "tcp",
    }
}

/// What is wrong with a rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    #[error(transparent)]
    Host(#[from] HostError),
    #[error("`{0}` is no port: a port is a number from 1 to 65535, and not 53, which is the resolver's")]
    Port(String),
    #[error(transparent)]
    Block(#[from] BlockError),
    #[error("`{0}` is no method of HTTP, such as GET")]
    Method(String),
    #[error("`{0}` is no beginning of a path: it starts with `/` and has no `..`, `%` or `?` in it")]
    Path(String),
    #[error(
        "methods and paths can only be seen in HTTP in the clear: leave out the ports of TLS, such as 443, or the methods and paths"
    )]
    Unseen,
    #[error("`{0}` is an address already, and has no others")]
    AddressOfAddress(String),
    #[error("`{0}` is this machine itself as everyone calls it: name its address, such as 127.0.0.1:8000")]
    Localhost(String),
    #[error("a rule names at most {MOST} {0}")]
    TooMany(&'static str),
}

/// A rule as it is written: a text, or a table with more to say.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RuleFields {
    pub host: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<Protocol>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub methods: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<String>,
}

impl Rule {
    /// A rule for one host on these ports, and nothing more to say.
    fn plain(host: Host, ports: BTreeSet<u16>) -> Result<Self, RuleError> {
        let rule = Self {
            host,
            ports,
            protocol: Protocol::Auto,
            methods: BTreeSet::new(),
            paths: Vec::new(),
            addresses: Vec::new(),
        };
        match &rule.host {
            Host::Name(name) if is_localhost(name) => Err(RuleError::Localhost(name.to_string())),
            Host::Below(above) if is_localhost(above) => Err(RuleError::Localhost(above.to_string())),
            _ => Ok(rule),
        }
    }

    /// Everyone, on any port, with anything: what the network `full` means.
    pub(crate) fn world() -> Self {
        Self {
            host: Host::World,
            ports: BTreeSet::new(),
            protocol: Protocol::Tcp,
            methods: BTreeSet::new(),
            paths: Vec::new(),
            addresses: Vec::new(),
        }
    }

    /// Whether its hosts may be reached on that port.
    pub fn has_port(&self, port: u16) -> bool {
        self.host == Host::World || self.ports.contains(&port)
    }

    /// Whether HTTP in the clear may be spoken on that port.
    pub fn speaks_http(&self, port: u16) -> bool {
        self.protocol == Protocol::Http || (self.protocol == Protocol::Auto && port != 443)
    }

    /// Whether TLS may be.
    pub fn speaks_tls(&self, port: u16) -> bool {
        self.protocol == Protocol::Tls || (self.protocol == Protocol::Auto && port != 80)
    }

    /// Whether what is neither may be, unless it looks like one of them.
    pub fn speaks_anything(&self, port: u16) -> bool {
        self.protocol == Protocol::Auto && !matches!(port, 80 | 443)
    }

    /// Whether methods or paths are held to something.
    pub fn looks_into_requests(&self) -> bool {
        !self.methods.is_empty() || !self.paths.is_empty()
    }

    /// Whether one of its hosts may have that address.
    pub fn permits_address(&self, address: IpAddr) -> bool {
        match &self.host {
            Host::Address(own) => *own == address,
            _ => is_public(address) || self.addresses.iter().any(|block| block.contains(address)),
        }
    }

    /// Whether that address was meant, whoever's it is, and not only because it is the world's.
    pub fn names_address(&self, address: IpAddr) -> bool {
        self.host == Host::Address(address) || self.addresses.iter().any(|block| block.contains(address))
    }

    /// Whether that method and path may be asked for; the path as it was sent, without a query.
    pub fn permits_request(&self, method: &str, path: &str) -> bool {
        (self.methods.is_empty() || self.methods.contains(method)) && self.permits_path(path)
    }

    fn permits_path(&self, path: &str) -> bool {
        let begins = |beginning: &String| {
            path.strip_prefix(beginning.as_str())
                .is_some_and(|rest| beginning.ends_with('/') || rest.is_empty() || rest.starts_with('/'))
        };
        self.paths.is_empty() || (is_straight(path) && self.paths.iter().any(begins))
    }

    /// Whether everything that `other` permits is permitted.
    pub fn covers(&self, other: &Self) -> bool {
        let methods =
            self.methods.is_empty() || (!other.methods.is_empty() && other.methods.is_subset(&self.methods));
        let begins = |path: &String| self.permits_path(path);
        let paths = self.paths.is_empty() || (!other.paths.is_empty() && other.paths.iter().all(begins));
        let held = |block: &Block| self.addresses.iter().any(|own| own.covers(block));
        // What `auto` looks at on a port stays looked at.
        let protocol = match (self.protocol, other.protocol) {
            (Protocol::Tcp, _) => true,
            (Protocol::Auto, Protocol::Http) => other.ports.iter().all(|port| self.speaks_http(*port)),
            (Protocol::Auto, Protocol::Tls) => other.ports.iter().all(|port| self.speaks_tls(*port)),
            (own, other) => own == other,
        };
        self.host.covers(&other.host)
            && other.ports.iter().all(|port| self.has_port(*port))
            && protocol
            && methods
            && paths
            && other.addresses.iter().all(held)
    }

    /// How it is written in a policy's file.
    pub fn line(&self) -> String {
        if self.is_plain() {
            return format!("\"{self}\"");
        }
        let list = |values: Vec<String>| format!("[{}]", values.join(", "));
        let texts = |values: &[String]| list(values.iter().map(|text| format!("{text:?}")).collect());
        let fields = self.fields();
        let mut words = vec![format!("host = \"{}\"", self.host)];
        words.push(format!(
            "ports = {}",
            list(fields.ports.iter().map(ToString::to_string).collect())
        ));
        if let Some(protocol) = fields.protocol {
            words.push(format!("protocol = \"{protocol}\""));
        }
        for (field, values) in [
            ("methods", fields.methods),
            ("paths", fields.paths),
            ("addresses", fields.addresses),
        ] {
            if !values.is_empty() {
                words.push(format!("{field} = {}", texts(&values)));
            }
        }
        format!("{{ {} }}", words.join(", "))
    }

    fn fields(&self) -> RuleFields {
        RuleFields {
            host: self.host.to_string(),
            ports: self.ports.iter().map(|port| i64::from(*port)).collect(),
            protocol: (self.protocol != Protocol::Auto).then_some(self.protocol),
            methods: self.methods.iter().cloned().collect(),
            paths: self.paths.clone(),
            addresses: self.addresses.iter().map(ToString::to_string).collect(),
        }
    }

    fn is_plain(&self) -> bool {
        self.protocol == Protocol::Auto && !self.looks_into_requests() && self.addresses.is_empty()
    }
}

/// Whether a path is what it looks like: nothing in it that a server may read as another one.
fn is_straight(path: &str) -> bool {
    // Some servers leave out what follows a semicolon.
    let odd = |part: &str| matches!(part.split(';').next(), Some("." | ".."));
    let lower = path.to_ascii_lowercase();
    !path.contains(['\\', '#'])
        && !path.split('/').any(odd)
        && !["%2e", "%2f", "%5c", "%00", "%25", "%3b", "%c0", "%u"]
            .iter()
            .any(|code| lower.contains(code))
        && !path.contains("//")
}

fn is_localhost(name: &HostName) -> bool {
    let text = name.as_str();
    text == "localhost" || text.ends_with(".localhost")
}

fn port(number: i64) -> Result<u16, RuleError> {
    u16::try_from(number)
        .ok()
        .filter(|port| *port > 0 && *port != RESOLVER_PORT)
        .ok_or_else(|| RuleError::Port(number.to_string()))
}

/// `HOST` or `HOST:PORT[,PORT…]`; an address of the sixth version in brackets where a port follows.
impl FromStr for Rule {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        let (host, ports) = match text.rsplit_once(':') {
            // What has several colons and no brackets is one address.
            Some((host, ports)) if !host.contains(':') || host.ends_with(']') => (host, Some(ports)),
            _ => (text, None),
        };
        // `https://a` would be a port that is none.
        if text.contains("://") {
            return Err(text.parse::<Host>().err().unwrap_or(HostError::Empty).into());
        }
        let host = host.parse()?;
        let ports = match ports {
            None => USUAL_PORTS.into(),
            Some(ports) => ports
                .split(',')
                .map(|word| {
                    let plain = word.len() <= 5 && word.bytes().all(|byte| byte.is_ascii_digit());
                    let number = if plain { word.parse().ok() } else { None };
                    number
                        .and_then(|number| port(number).ok())
                        .ok_or_else(|| RuleError::Port(word.escape_default().to_string()))
                })
                .collect::<Result<BTreeSet<_>, _>>()?,
        };
        if ports.len() > MOST {
            return Err(RuleError::TooMany("ports"));
        }
        Self::plain(host, ports)
    }
}

impl TryFrom<RuleFields> for Rule {
    type Error = RuleError;

    fn try_from(fields: RuleFields) -> Result<Self, RuleError> {
        for (count, what) in [
            (fields.ports.len(), "ports"),
            (fields.methods.len(), "methods"),
            (fields.paths.len(), "paths"),
            (fields.addresses.len(), "addresses"),
        ] {
            if count > MOST {
                return Err(RuleError::TooMany(what));
            }
        }
        let mut rule: Self = fields.host.parse()?;
        if !fields.ports.is_empty() {
            rule.ports = fields.ports.into_iter().map(port).collect::<Result<_, _>>()?;
        }
        rule.protocol = fields.protocol.unwrap_or_default();
        for method in fields.methods {
            let plain = !method.is_empty()
                && method.len() <= 32
                && method.bytes().all(|byte| byte.is_ascii_uppercase());
            if !plain || method == "CONNECT" {
                return Err(RuleError::Method(method.escape_default().to_string()));
            }
            rule.methods.insert(method);
        }
        for path in fields.paths {
            let plain = |c: char| c.is_ascii_graphic() && !matches!(c, '%' | '?');
            if !path.starts_with('/') || !path.chars().all(plain) || !is_straight(&path) {
                return Err(RuleError::Path(path.escape_default().to_string()));
            }
            rule.paths.push(path);
        }
        for block in fields.addresses {
            rule.addresses.push(block.parse()?);
        }
        if let (Host::Address(address), false) = (&rule.host, rule.addresses.is_empty()) {
            return Err(RuleError::AddressOfAddress(address.to_string()));
        }
        if rule.looks_into_requests() {
            match rule.protocol {
                // Nothing else was meant: methods and paths are there to be seen.
                Protocol::Auto
                    if fields.host.parse::<Self>().is_ok_and(|usual| {
                        usual.ports == rule.ports && usual.ports == USUAL_PORTS.into()
                    }) =>
                {
                    rule.ports = [80].into();
                    rule.protocol = Protocol::Http;
                }
                Protocol::Auto if !rule.ports.contains(&443) => rule.protocol = Protocol::Http,
                Protocol::Http => {}
                _ => return Err(RuleError::Unseen),
            }
        }
        Ok(rule)
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.host)?;
        if self.ports == USUAL_PORTS.into() {
            return Ok(());
        }
        for (at, port) in self.ports.iter().enumerate() {
            write!(f, "{}{port}", if at == 0 { ':' } else { ',' })?;
        }
        Ok(())
    }
}

impl Serialize for Rule {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.is_plain() {
            serializer.collect_str(self)
        } else {
            self.fields().serialize(serializer)
        }
    }
}

impl<'de> Deserialize<'de> for Rule {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let written = RuleText::deserialize(deserializer)?;
        Self::try_from(written).map_err(serde::de::Error::custom)
    }
}

/// Either way of writing a rule.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(
    untagged,
    expecting = "expected a host such as \"example.com:443\", or a table with `host`"
)]
pub enum RuleText {
    Plain(String),
    Table(RuleFields),
}

impl TryFrom<RuleText> for Rule {
    type Error = RuleError;

    fn try_from(written: RuleText) -> Result<Self, RuleError> {
        match written {
            RuleText::Plain(text) => text.parse(),
            RuleText::Table(fields) => Self::try_from(fields),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(text: &str) -> Rule {
        text.parse().unwrap()
    }

    fn table(value: serde_json::Value) -> Result<Rule, String> {
        serde_json::from_value::<Rule>(value).map_err(|error| error.to_string())
    }

    #[test]
    fn rules_are_read_and_shown_again() {
        for text in [
            "example.com",
            "*.example.com:443",
            "a.b:80,8080",
            "10.0.0.1:5432",
            "[::1]:80",
            "[fd00::1]",
        ] {
            assert_eq!(rule(text).to_string(), text);
            let json = serde_json::to_value(rule(text)).unwrap();
            assert_eq!(json, serde_json::json!(text));
            assert_eq!(table(json), Ok(rule(text)));
        }
        assert_eq!(rule("a.b").ports, [80, 443].into());
        assert_eq!(rule("::1").to_string(), "[::1]");
    }

    #[test]
    fn bad_rules_are_refused_with_what_is_wrong() {
        for (text, word) in [
            ("", "missing"),
            (":80", "missing"),
            ("a.b:", "port"),
            ("a.b:0", "port"),
            ("a.b:65536", "port"),
            ("a.b:+1", "port"),
            ("a.b:80,", "port"),
            ("https://a.b", "scheme"),
            ("a.b/c", "path"),
            ("u@a.b", "before"),
            ("127.1:80", "disguise"),
            ("2130706433", "disguise"),
            ("a.*:80", "`*`"),
            ("localhost:80", "127.0.0.1"),
            ("*.localhost", "127.0.0.1"),
            ("a b", "characters"),
        ] {
            let error = text.parse::<Rule>().unwrap_err().to_string();
            assert!(error.contains(word), "{text}: {error}");
        }
        for (value, word) in [
            (serde_json::json!({"ports": [80]}), "missing"),
            (serde_json::json!({"host": "a.b", "ports": [0]}), "port"),
            (serde_json::json!({"host": "a.b", "ports": [70000]}), "port"),
            (serde_json::json!({"host": "a.b", "methods": ["get"]}), "method"),
            (
                serde_json::json!({"host": "a.b", "methods": ["CONNECT"]}),
                "method",
            ),
            (serde_json::json!({"host": "a.b", "paths": ["v1"]}), "path"),
            (serde_json::json!({"host": "a.b", "paths": ["/a/../b"]}), "path"),
            (
                serde_json::json!({"host": "a.b", "addresses": ["10.0.0.0/99"]}),
                "range",
            ),
            (
                serde_json::json!({"host": "10.0.0.1", "addresses": ["10.0.0.0/8"]}),
                "address already",
            ),
            (
                serde_json::json!({"host": "a.b:443", "methods": ["GET"]}),
                "clear",
            ),
            (
                serde_json::json!({"host": "a.b", "protocol": "tls", "paths": ["/"]}),
                "clear",
            ),
            (serde_json::json!({"host": "a.b", "more": 1}), "expected a host"),
            (serde_json::json!(7), "expected a host"),
        ] {
            let error = table(value.clone()).unwrap_err();
            assert!(error.contains(word), "{value}: {error}");
        }
    }

    #[test]
    fn methods_and_paths_are_held() {
        let rule = table(serde_json::json!({"host": "a.b", "methods": ["GET"], "paths": ["/v1", "/open/"]}))
            .unwrap();
        assert_eq!((rule.protocol, &rule.ports), (Protocol::Http, &[80].into()));
        for path in ["/v1", "/v1/", "/v1/x", "/open/", "/open/a%20b"] {
            assert!(rule.permits_request("GET", path), "{path}");
        }
        for path in [
            "/",
            "/v2",
            "/v1x",
            "/open",
            "/v1/../admin",
            "/v1/%2e%2e/x",
            "/v1/%2E./x",
            "/v1//x",
            "/v1\\x",
            "/v1/%2f",
            "/v1/%252e",
        ] {
            assert!(!rule.permits_request("GET", path), "{path}");
        }
        assert!(!rule.permits_request("POST", "/v1"));
    }

    #[test]
    fn a_wider_rule_covers_a_narrower_one() {
        for (wide, narrow) in [
            ("*.a.b", "x.a.b"),
            ("*.a.b", "*.x.a.b:443"),
            ("a.b", "a.b:80"),
            ("10.0.0.1:1,2", "10.0.0.1:2"),
        ] {
            assert!(rule(wide).covers(&rule(narrow)), "{wide} {narrow}");
            assert!(!rule(narrow).covers(&rule(wide)), "{narrow} {wide}");
        }
        let held =
            table(serde_json::json!({"host": "a.b", "methods": ["GET", "HEAD"], "paths": ["/v1"]})).unwrap();
        let less = table(serde_json::json!({"host": "a.b", "methods": ["GET"], "paths": ["/v1/x"]})).unwrap();
        assert!(held.covers(&less) && !less.covers(&held));
        assert!(!held.covers(&rule("a.b:80")) && rule("a.b:80").covers(&held));
        let private = table(serde_json::json!({"host": "a.b", "addresses": ["10.0.0.0/8"]})).unwrap();
        let one = table(serde_json::json!({"host": "a.b", "addresses": ["10.1.0.0/16"]})).unwrap();
        assert!(private.covers(&one) && !one.covers(&private) && !rule("a.b").covers(&one));
        let opaque = table(serde_json::json!({"host": "a.b", "protocol": "tcp"})).unwrap();
        assert!(opaque.covers(&rule("a.b")) && !rule("a.b").covers(&opaque));
    }

    #[test]
    fn what_is_looked_at_stays_looked_at() {
        let http = table(serde_json::json!({"host": "a.b", "ports": [443], "protocol": "http"})).unwrap();
        let tls = table(serde_json::json!({"host": "a.b", "ports": [80], "protocol": "tls"})).unwrap();
        assert!(!rule("a.b").covers(&http) && !rule("a.b").covers(&tls));
        let elsewhere = table(serde_json::json!({"host": "a.b", "ports": [80], "protocol": "http"})).unwrap();
        assert!(rule("a.b").covers(&elsewhere));
        let v1 = table(serde_json::json!({"host": "a.b", "paths": ["/v1"]})).unwrap();
        for path in ["/v1/..;/admin", "/v1/%3b", "/v1/;/../x", "/v1/%c0%ae"] {
            assert!(!v1.permits_request("GET", path), "{path}");
        }
        assert!("a.b:53".parse::<Rule>().is_err());
    }

    #[test]
    fn private_addresses_must_be_named() {
        let private = table(serde_json::json!({"host": "a.b", "addresses": ["127.0.0.0/8"]})).unwrap();
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        assert!(private.permits_address(address("127.0.0.1")) && private.permits_address(address("8.8.8.8")));
        assert!(
            !private.permits_address(address("10.0.0.1"))
                && !rule("a.b").permits_address(address("127.0.0.1"))
        );
        assert!(rule("127.0.0.1:80").permits_address(address("127.0.0.1")));
        assert!(!rule("127.0.0.1:80").permits_address(address("8.8.8.8")));
    }
}
