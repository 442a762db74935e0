//! Addresses of this machine itself, and of its neighbours: they may be the world's, and are for guests only where a rule names them.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// For how long what was read is believed.
const BELIEVED: Duration = Duration::from_secs(5);
/// A wider network than this has more than neighbours in it.
const WIDEST: u8 = 48;

/// What the kernel says of this machine's addresses.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Own {
    four: Vec<Ipv4Addr>,
    /// With how much of each its neighbours have in common.
    six: Vec<(Ipv6Addr, u8)>,
}

impl Own {
    /// As it is now, or was a moment ago.
    pub(super) fn look() -> Arc<Self> {
        static KNOWN: Mutex<Option<(Instant, Arc<Own>)>> = Mutex::new(None);
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        match known.as_ref() {
            Some((since, own)) if since.elapsed() < BELIEVED => Arc::clone(own),
            _ => {
                let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
                let own = Arc::new(Self::read(
                    &read("/proc/self/net/fib_trie"),
                    &read("/proc/self/net/if_inet6"),
                ));
                *known = Some((Instant::now(), Arc::clone(&own)));
                own
            }
        }
    }

    fn read(routes: &str, interfaces: &str) -> Self {
        let mut four = Vec::new();
        let mut last: Option<Ipv4Addr> = None;
        for line in routes.lines() {
            let text = line.trim_start_matches([' ', '|']);
            if let Some(address) = text.strip_prefix("-- ") {
                last = address.trim().parse().ok();
            } else if text.trim() == "/32 host LOCAL" {
                four.extend(last);
            }
        }
        let six = interfaces.lines().filter_map(|line| {
            let mut words = line.split_whitespace();
            let address = u128::from_str_radix(words.next()?, 16).ok()?;
            let length = u8::from_str_radix(words.nth(1)?, 16).ok()?;
            Some((Ipv6Addr::from_bits(address), length))
        });
        Self {
            four,
            six: six.collect(),
        }
    }

    /// Whether it is this machine, or beside it.
    pub(super) fn has(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(address) => self.four.contains(&address),
            IpAddr::V6(address) => self.six.iter().any(|(own, length)| {
                let differs = own.to_bits() ^ address.to_bits();
                let common = (*length).clamp(WIDEST, 128);
                differs.checked_shr(128 - u32::from(common)).unwrap_or(0) == 0
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_and_its_neighbours_are_known() {
        let routes = "Main:\n  +-- 0.0.0.0/0 2 0 2\n     |-- 0.0.0.0\n        /0 universe UNICAST\nLocal:\n     +-- 203.0.113.0/24 2 0 2\n\
                      \x20       |-- 203.0.113.0\n           /24 link UNICAST\n        |-- 203.0.113.7\n           /32 host LOCAL\n\
                      \x20       |-- 203.0.113.255\n           /32 link BROADCAST\n     |-- 127.0.0.1\n           /32 host LOCAL\n";
        let interfaces = "20010db8000100020000000000000005 02 40 00 80     eth0\n20010db8000900000000000000000001 03 80 00 80     eth1\n";
        let own = Own::read(routes, interfaces);
        for (address, has) in [
            ("203.0.113.7", true),
            ("127.0.0.1", true),
            ("203.0.113.8", false),
            ("203.0.113.255", false),
            ("0.0.0.0", false),
            ("2001:db8:1:2::5", true),
            ("2001:db8:1:2:ffff::", true),
            ("2001:db8:1:3::5", false),
            ("2001:db8:9::1", true),
            ("2001:db8:9::2", false),
        ] {
            assert_eq!(own.has(address.parse().unwrap()), has, "{address}");
        }
        assert_eq!(Own::read("", "nonsense\n"), Own::default());
        assert!(Own::look().has("127.0.0.1".parse().unwrap()));
    }
}
