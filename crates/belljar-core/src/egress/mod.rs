//! Which hosts a guest may reach, and what came of it. What the network itself is, is a provider's.

pub mod address;
mod event;
mod host;
mod rule;
mod secret;

pub use address::{Block, is_public};
pub use event::{Event, Log, Met};
pub use host::{Host, HostError, HostName};
pub use rule::{Protocol, Rule, RuleError, RuleFields, RuleText};
pub use secret::{Secret, SecretError, SecretFields, SecretSource, TRUST_FILE, is_plain};

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};

use serde::{Deserialize, Serialize};

use crate::denial::{Denial, DenialCode};
use crate::units::Bytes;

/// Where the resolver of a sandbox is asked that may reach somebody: an address that no host in the world has.
pub const RESOLVER: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
pub const RESOLVER_PORT: u16 = 53;
/// What a root says of it in `/etc/resolv.conf`. Somebody answers there where hosts may be reached; elsewhere nobody can be asked.
pub const RESOLV_CONF: &str = "nameserver 198.18.0.1\noptions timeout:10 attempts:2\n";

/// The most rules of one policy.
pub const MOST_RULES: usize = 1000;
/// The most ports of all rules together: somebody has to listen on each.
pub const MOST_PORTS: usize = 48;
/// The most connections at once that a policy can permit.
pub const MOST_CONNECTIONS: u32 = 10_000;

/// How much a run may send and receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EgressLimits {
    /// Connections at once.
    pub connections: u32,
    /// Bytes that come in, of one run or session.
    pub incoming: Bytes,
    /// Bytes that go out, of one run or session.
    pub outgoing: Bytes,
}

impl Default for EgressLimits {
    fn default() -> Self {
        Self {
            connections: 512,
            incoming: Bytes::from_mib(4096),
            outgoing: Bytes::from_mib(1024),
        }
    }
}

/// Ports of a sandbox that somebody listens on.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Ports {
    These(BTreeSet<u16>),
    All,
}

/// What a plan lets its guest reach.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Egress {
    pub rules: Vec<Rule>,
    /// What its hosts are told.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<Secret>,
    pub limits: EgressLimits,
}

impl Egress {
    /// Ports that somebody has to listen on.
    pub fn ports(&self) -> Ports {
        if self.rules.iter().any(|rule| rule.host == Host::World) {
            return Ports::All;
        }
        let ports = self.rules.iter().flat_map(|rule| rule.ports.iter().copied());
        Ports::These(ports.collect())
    }

    /// What is too much in these rules, if anything is.
    pub fn too_much(rules: &[Rule]) -> Option<String> {
        if rules.len() > MOST_RULES {
            return Some(format!("at most {MOST_RULES} rules can be, not {}", rules.len()));
        }
        let ports: BTreeSet<u16> = rules.iter().flat_map(|rule| rule.ports.iter().copied()).collect();
        let many = ports.len() > MOST_PORTS;
        many.then(|| format!("at most {MOST_PORTS} different ports can be, not {}", ports.len()))
    }

    /// Whether that name means anything here.
    pub fn knows(&self, name: &HostName) -> bool {
        self.rules.iter().any(|rule| rule.host.has_name(name))
    }

    /// The rules for that name and port.
    pub fn rules_of<'a>(&'a self, name: &HostName, port: u16) -> impl Iterator<Item = &'a Rule> {
        self.rules
            .iter()
            .filter(move |rule| rule.host.has_name(name) && rule.has_port(port))
    }

    /// The rules for that address and port, by itself and not because of a name.
    pub fn rules_of_address(&self, address: IpAddr, port: u16) -> impl Iterator<Item = &Rule> {
        self.rules
            .iter()
            .filter(move |rule| rule.host.has_address(address) && rule.has_port(port))
    }
}

/// What a guest chose, short enough to be told to somebody.
pub fn cut(text: &str) -> String {
    let short: String = text.chars().take(100).collect();
    let more = if short.len() < text.len() { "…" } else { "" };
    format!("{}{more}", short.escape_debug())
}

/// A refusal of one host, with the line that would let it through.
pub fn refusal(value: impl Into<String>, message: impl Into<String>, line: &str) -> Denial {
    Denial::new(
        DenialCode::HostNotAllowed,
        "allowed_hosts",
        value,
        message,
        format!("add {line} to allowed_hosts in the policy"),
    )
}
