//! Hosts by name, as rules and guests write them.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::address::is_public;

/// The longest name that the domain name system has.
const LONGEST_NAME: usize = 253;
const LONGEST_LABEL: usize = 63;

/// A host's full name: lower case, without the dot at its end.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HostName(String);

/// Why a text is no host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    #[error("a host is missing")]
    Empty,
    #[error("`{0}` is an address in disguise: write all four numbers of it, in decimal")]
    Disguised(String),
    #[error("`{0}` has characters that no host has; a name in another script is written as xn--…")]
    Characters(String),
    #[error("`{0}` is longer than a host's name can be")]
    TooLong(String),
    #[error("`{0}`: a `*` stands for everything below a name, as in `*.example.com`, and only there")]
    Star(String),
    #[error("`{0}` has more than a host in it: leave out {1}")]
    More(String, &'static str),
}

impl HostName {
    /// Reads a name in any case, with or without the dot at its end.
    pub fn new(text: &str) -> Result<Self, HostError> {
        let shown = || text.escape_default().to_string();
        let name = text.strip_suffix('.').unwrap_or(text);
        if name.is_empty() {
            return Err(HostError::Empty);
        }
        if name.len() > LONGEST_NAME {
            return Err(HostError::TooLong(shown()));
        }
        for label in name.split('.') {
            let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
            if label.len() > LONGEST_LABEL {
                return Err(HostError::TooLong(shown()));
            }
            if label.is_empty() || !label.chars().all(plain) || label.starts_with('-') || label.ends_with('-')
            {
                return Err(HostError::Characters(shown()));
            }
        }
        let name = name.to_ascii_lowercase();
        // Such a name would be read as an address by whoever looks it up: 127.1, 2130706433, 0x7f.0.0.1.
        let last = name.rsplit('.').next().unwrap_or_default();
        let hexadecimal = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        if last.bytes().all(|byte| byte.is_ascii_digit()) || last.strip_prefix("0x").is_some_and(hexadecimal)
        {
            return Err(HostError::Disguised(shown()));
        }
        Ok(Self(name))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it is below `other`, and not `other` itself.
    pub fn is_below(&self, other: &Self) -> bool {
        self.0
            .strip_suffix(&other.0)
            .is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'))
    }
}

impl TryFrom<String> for HostName {
    type Error = HostError;

    fn try_from(text: String) -> Result<Self, HostError> {
        Self::new(&text)
    }
}

impl From<HostName> for String {
    fn from(name: HostName) -> Self {
        name.0
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Which hosts a rule is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Host {
    Name(HostName),
    /// `*.example.com`: all below it, and not itself.
    Below(HostName),
    /// One that is named by its address, whoever it belongs to.
    Address(IpAddr),
    /// Everyone with an address that is the world's. No rule is written like that: it is what the network `full` means.
    World,
}

impl Host {
    /// Whether that name is meant.
    pub fn has_name(&self, name: &HostName) -> bool {
        match self {
            Self::Name(own) => own == name,
            Self::Below(above) => name.is_below(above),
            Self::Address(_) => false,
            Self::World => true,
        }
    }

    /// Whether that address is meant, by itself and not because of a name.
    pub fn has_address(&self, address: IpAddr) -> bool {
        match self {
            Self::Address(own) => *own == address,
            Self::World => is_public(address),
            Self::Name(_) | Self::Below(_) => false,
        }
    }

    /// Whether everything that `other` means is meant.
    pub fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Below(above), Self::Below(other)) => above == other || other.is_below(above),
            (_, Self::Name(name)) => self.has_name(name),
            (_, Self::Address(other)) => self.has_address(*other),
            (Self::World, _) => true,
            _ => false,
        }
    }
}

impl FromStr for Host {
    type Err = HostError;

    fn from_str(text: &str) -> Result<Self, HostError> {
        let shown = || text.escape_default().to_string();
        for (mark, what) in [
            ("://", "the scheme"),
            ("@", "what stands before `@`"),
            ("/", "the path"),
        ] {
            if text.contains(mark) {
                return Err(HostError::More(shown(), what));
            }
        }
        let address = text
            .strip_prefix('[')
            .and_then(|text| text.strip_suffix(']'))
            .unwrap_or(text);
        if let Ok(address) = address.parse::<IpAddr>() {
            return Ok(Self::Address(address));
        }
        match text.strip_prefix("*.") {
            Some(above) if !above.contains('*') => HostName::new(above).map(Self::Below),
            None if !text.contains('*') => HostName::new(text).map(Self::Name),
            _ => Err(HostError::Star(shown())),
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => write!(f, "{name}"),
            Self::Below(above) => write!(f, "*.{above}"),
            Self::Address(IpAddr::V4(address)) => write!(f, "{address}"),
            Self::Address(IpAddr::V6(address)) => write!(f, "[{address}]"),
            Self::World => f.write_str("*"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_in_one_form() {
        for (text, name) in [
            ("example.com", "example.com"),
            ("EXAMPLE.com.", "example.com"),
            ("xn--bcher-kva.example", "xn--bcher-kva.example"),
            ("_dmarc.example.com", "_dmarc.example.com"),
            ("localhost", "localhost"),
            ("1.example", "1.example"),
        ] {
            assert_eq!(HostName::new(text).unwrap().as_str(), name);
        }
    }

    /// P44: every spelling of an address that is not one, and what no name has.
    #[test]
    fn p44_disguised_addresses_and_odd_names_are_refused() {
        for text in [
            "",
            ".",
            "..",
            "a..b",
            ".a",
            "a.b..",
            "-a.b",
            "a-.b",
            "a b",
            "a\0b",
            "a%00b",
            "a%2eb",
            "bücher.example",
            "a/b",
            "a:b",
            "ok@evil",
            "a\nb",
            "0177.0.0.1",
            "2130706433",
            "127.1",
            "0x7f.0.0.1",
            "0x7f000001",
            "1.2.3.0x4",
            "256.256.256.256",
            "1.2.3.4.5",
            "*",
            "*.a",
        ] {
            assert!(HostName::new(text).is_err(), "{text:?}");
        }
        assert!(HostName::new(&format!("{}.a", "a".repeat(64))).is_err());
        assert!(HostName::new(&"a.".repeat(127)).is_ok());
        assert!(HostName::new(&"a.".repeat(128)).is_err());
    }

    #[test]
    fn hosts_of_rules_are_read_and_shown_again() {
        for text in ["example.com", "*.example.com", "10.0.0.1", "[::1]"] {
            assert_eq!(text.parse::<Host>().unwrap().to_string(), text);
        }
        assert_eq!("::1".parse::<Host>().unwrap().to_string(), "[::1]");
        for text in [
            "*",
            "a.*.b",
            "*a.b",
            "*.",
            "**.a",
            "https://a",
            "a/b",
            "ok@evil",
            "*.*.a",
            "127.1",
            "[a]",
        ] {
            assert!(text.parse::<Host>().is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_below_a_name_is_not_the_name() {
        let host = |text: &str| text.parse::<Host>().unwrap();
        let name = |text: &str| HostName::new(text).unwrap();
        assert!(host("*.a.b").has_name(&name("x.a.b")) && host("*.a.b").has_name(&name("y.x.a.b")));
        assert!(!host("*.a.b").has_name(&name("a.b")) && !host("*.a.b").has_name(&name("xa.b")));
        assert!(!host("a.b").has_name(&name("x.a.b")));
        assert!(host("*.b").covers(&host("*.a.b")) && host("*.b").covers(&host("a.b")));
        assert!(!host("*.a.b").covers(&host("*.b")) && !host("*.b").covers(&host("b")));
        assert!(host("10.0.0.1").covers(&host("10.0.0.1")) && !host("10.0.0.1").covers(&host("10.0.0.2")));
    }
}
