//! The names under which a service may be addressed: what a request's `Host` and a page's `Origin` are compared with.
//!
//! A web page can have its own name resolve to 127.0.0.1 (DNS rebinding) and is then of the same origin as the service.
//! The `Host` header still has the page's name, so a service on loopback answers to loopback names only.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use axum::http::Uri;
use axum::http::uri::Authority;

/// The longest name that DNS has.
const MAX_NAME_LEN: usize = 253;

/// A host name by which callers address the service, such as `api.example.com` or `api.example.com:8443`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllowedHost {
    name: String,
    /// The only port that is accepted in `Host`; none: any.
    port: Option<u16>,
}

/// Why a text is no host name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a host name, which has letters, digits, `-` and `.`, and may end in `:PORT`")]
pub struct AllowedHostError;

impl FromStr for AllowedHost {
    type Err = AllowedHostError;

    fn from_str(text: &str) -> Result<Self, AllowedHostError> {
        let (name, port) = match text.rsplit_once(':') {
            Some((name, port)) if !text.ends_with(']') => {
                let digits = port.bytes().all(|byte| byte.is_ascii_digit());
                let port = port.parse().ok().filter(|port| digits && *port != 0);
                (name, Some(port.ok_or(AllowedHostError)?))
            }
            _ => (text, None),
        };
        let plain = |label: &str| {
            let known = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
            !label.is_empty() && label.bytes().all(known)
        };
        let is_name = name.len() <= MAX_NAME_LEN && name.split('.').all(plain);
        match is_name || ip_literal(name).is_some() {
            true => Ok(Self {
                name: name.to_ascii_lowercase(),
                port,
            }),
            false => Err(AllowedHostError),
        }
    }
}

impl fmt::Display for AllowedHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.port {
            Some(port) => write!(f, "{}:{port}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

/// Which `Host` headers a service accepts.
#[derive(Clone, Debug)]
pub struct Hosts {
    rule: Rule,
    names: Vec<AllowedHost>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    /// Every `Host`, or none at all.
    Any,
    /// Names and addresses of loopback, and the configured names.
    Loopback,
    /// The configured names and every address: rebinding needs a name.
    Named,
}

impl Hosts {
    /// Accepts every `Host`: for connections that only the owner of the service can make.
    pub const fn any() -> Self {
        Self {
            rule: Rule::Any,
            names: Vec::new(),
        }
    }

    /// Chooses the rule for a listening address. On loopback, loopback names are always accepted and others must be
    /// configured. Elsewhere nobody knows by which names callers come, so `Host` is compared only where names are configured;
    /// such a service has keys, which no foreign page has.
    pub fn of_listener(address: SocketAddr, names: Vec<AllowedHost>) -> Self {
        let rule = match (address.ip().is_loopback(), names.is_empty()) {
            (true, _) => Rule::Loopback,
            (false, false) => Rule::Named,
            (false, true) => Rule::Any,
        };
        Self { rule, names }
    }

    /// Whether a request without `Host` is accepted.
    pub(super) fn may_be_missing(&self) -> bool {
        self.rule == Rule::Any
    }

    /// Whether the service answers to this `Host`.
    pub(super) fn accepts(&self, host: &Authority) -> bool {
        // A user name before the host is no part of a `Host` header.
        if host.as_str().contains('@') {
            return false;
        }
        let name = host.host();
        let configured = |allowed: &AllowedHost| {
            allowed.name.eq_ignore_ascii_case(name)
                && allowed.port.is_none_or(|port| host.port_u16() == Some(port))
        };
        match self.rule {
            Rule::Any => true,
            Rule::Loopback => is_loopback(name) || self.names.iter().any(configured),
            Rule::Named => {
                is_loopback(name) || ip_literal(name).is_some() || self.names.iter().any(configured)
            }
        }
    }

    /// Whether an `Origin` is the service's own: the one of `Host`, or one with a configured name, which is what a browser
    /// sends through a proxy that changes `Host`.
    pub(super) fn owns_origin(&self, origin: &str, host: Option<&Authority>) -> bool {
        let Ok(origin) = origin.parse::<Uri>() else {
            return false;
        };
        let default_port = match origin.scheme_str() {
            Some("http") => 80,
            Some("https") => 443,
            _ => return false,
        };
        let Some(from) = origin.authority() else {
            return false;
        };
        let port = from.port_u16().unwrap_or(default_port);
        let is_same = |host: &Authority| {
            host.host().eq_ignore_ascii_case(from.host()) && host.port_u16().unwrap_or(default_port) == port
        };
        // Another port of the same name is another origin.
        let configured = |allowed: &AllowedHost| {
            allowed.name.eq_ignore_ascii_case(from.host()) && allowed.port.unwrap_or(default_port) == port
        };
        host.is_some_and(is_same) || self.names.iter().any(configured)
    }
}

/// The address that a host is, where it is no name.
fn ip_literal(host: &str) -> Option<IpAddr> {
    match host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        Some(within) => within.parse::<Ipv6Addr>().ok().map(IpAddr::V6),
        None => host.parse::<Ipv4Addr>().ok().map(IpAddr::V4),
    }
}

fn is_loopback(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost") || ip_literal(host).is_some_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(listen: &str, names: &[&str]) -> Hosts {
        let names = names.iter().map(|name| name.parse().unwrap()).collect();
        Hosts::of_listener(listen.parse().unwrap(), names)
    }

    fn accepted<'a>(hosts: &Hosts, among: &[&'a str]) -> Vec<&'a str> {
        let is_accepted = |text: &&&str| text.parse().is_ok_and(|host| hosts.accepts(&host));
        among.iter().filter(is_accepted).copied().collect()
    }

    const LOOPBACK: [&str; 7] = [
        "localhost",
        "LocalHost:8377",
        "127.0.0.1",
        "127.0.0.1:8377",
        "127.9.8.7:1",
        "[::1]",
        "[::1]:8377",
    ];
    const FOREIGN: [&str; 12] = [
        "rebind.example",
        "rebind.example:8377",
        "localhost.example",
        "example.localhost",
        "127.0.0.1.example",
        "0.0.0.0",
        "10.0.0.1:8377",
        "[::]",
        "[::2]:8377",
        "localhost@rebind.example",
        "rebind.example@localhost",
        "2130706433",
    ];

    #[test]
    fn s9_a_loopback_listener_accepts_loopback_hosts_alone() {
        for listen in ["127.0.0.1:8377", "[::1]:0"] {
            let hosts = hosts(listen, &[]);
            assert_eq!(accepted(&hosts, &LOOPBACK), LOOPBACK, "{listen}");
            assert_eq!(accepted(&hosts, &FOREIGN), [""; 0], "{listen}");
            assert!(!hosts.may_be_missing());
        }
    }

    #[test]
    fn s9_configured_names_are_accepted_beside() {
        let hosts = hosts("127.0.0.1:8377", &["Api.Example", "other.example:8443"]);
        let tried = [
            "api.example",
            "api.example:9",
            "other.example:8443",
            "other.example",
            "other.example:9",
            "x.api.example",
            "localhost",
        ];
        let expected = ["api.example", "api.example:9", "other.example:8443", "localhost"];
        assert_eq!(accepted(&hosts, &tried), expected);
    }

    #[test]
    fn s9_other_listeners_compare_hosts_where_names_are_configured() {
        let open = hosts("0.0.0.0:8377", &[]);
        assert!(open.may_be_missing());
        assert_eq!(accepted(&open, &["rebind.example:8377"]), ["rebind.example:8377"]);
        let named = hosts("0.0.0.0:8377", &["api.example"]);
        let tried = ["api.example", "10.0.0.1:8377", "localhost", "rebind.example"];
        assert_eq!(
            accepted(&named, &tried),
            ["api.example", "10.0.0.1:8377", "localhost"]
        );
    }

    #[test]
    fn s9_an_origin_is_own_with_the_name_and_the_port_of_the_host() {
        let hosts = hosts("127.0.0.1:8377", &["api.example", "other.example:8443"]);
        let own = |origin: &str, host: &str| hosts.owns_origin(origin, Some(&host.parse().unwrap()));
        for (origin, host) in [
            ("http://127.0.0.1:8377", "127.0.0.1:8377"),
            ("http://LOCALHOST:8377", "localhost:8377"),
            ("http://[::1]:8377", "[::1]:8377"),
            ("http://localhost", "localhost:80"),
            ("https://api.example", "api.example"),
            ("https://api.example", "127.0.0.1:8377"),
            ("https://other.example:8443", "127.0.0.1:8377"),
        ] {
            assert!(own(origin, host), "{origin} {host}");
        }
        for (origin, host) in [
            ("null", "127.0.0.1:8377"),
            ("", "127.0.0.1:8377"),
            ("127.0.0.1:8377", "127.0.0.1:8377"),
            ("http://localhost:8377", "127.0.0.1:8377"),
            ("http://127.0.0.1:3000", "127.0.0.1:8377"),
            ("http://127.0.0.1", "127.0.0.1:8377"),
            ("https://api.example:3000", "127.0.0.1:8377"),
            ("https://other.example", "127.0.0.1:8377"),
            ("http://evil.example", "127.0.0.1:8377"),
            ("chrome-extension://127.0.0.1:8377", "127.0.0.1:8377"),
        ] {
            assert!(!own(origin, host), "{origin} {host}");
        }
        assert!(!hosts.owns_origin("http://127.0.0.1:8377", None));
    }

    #[test]
    fn names_that_are_no_hosts_cannot_be_configured() {
        for good in [
            "a",
            "api.example",
            "api.example:8443",
            "10.0.0.1",
            "[::1]",
            "[::1]:80",
        ] {
            assert_eq!(good.parse::<AllowedHost>().unwrap().to_string(), good);
        }
        let long = "x".repeat(MAX_NAME_LEN + 1);
        let bad = [
            "",
            ".",
            "a..b",
            "a.",
            "*",
            "*.example",
            "a b",
            "a/b",
            "http://a",
            "a:",
            "a:0",
            "a:x",
            "a:+1",
            "a:65536",
            "u@a",
            "a\n",
            "é.example",
            "::1",
            "[x]",
            &long,
        ];
        for bad in bad {
            assert_eq!(bad.parse::<AllowedHost>(), Err(AllowedHostError), "{bad:?}");
        }
    }
}
