//! An address of its own for each name that a guest may ask for. It is good within the sandbox and nowhere else.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use belljar_core::egress::HostName;

/// Addresses that the world uses for measuring networks alone: no host has them. The first of them is the resolver's.
const FIRST_V4: u32 = Ipv4Addr::new(198, 18, 1, 0).to_bits();
/// A prefix for use within one site, drawn once.
const FIRST_V6: u128 = Ipv6Addr::new(0xfd62, 0x656c, 0x6c6a, 0x6172, 0, 0, 0, 0x100).to_bits();
/// The most names of one sandbox.
const MOST: u32 = 16_384;

/// Names and their addresses.
#[derive(Debug, Default)]
pub(super) struct Names {
    numbers: HashMap<HostName, u32>,
    names: Vec<HostName>,
}

impl Names {
    /// The number of a name; nothing where there are too many.
    fn number(&mut self, name: &HostName) -> Option<u32> {
        if let Some(number) = self.numbers.get(name) {
            return Some(*number);
        }
        let number = u32::try_from(self.names.len())
            .ok()
            .filter(|number| *number < MOST)?;
        self.names.push(name.clone());
        self.numbers.insert(name.clone(), number);
        Some(number)
    }

    pub(super) fn v4(&mut self, name: &HostName) -> Option<IpAddr> {
        let number = self.number(name)?;
        Some(Ipv4Addr::from_bits(FIRST_V4 + number).into())
    }

    pub(super) fn v6(&mut self, name: &HostName) -> Option<IpAddr> {
        let number = self.number(name)?;
        Some(Ipv6Addr::from_bits(FIRST_V6 + u128::from(number)).into())
    }

    /// The name that was given this address.
    pub(super) fn name(&self, address: IpAddr) -> Option<&HostName> {
        let number = match address {
            IpAddr::V4(address) => address.to_bits().checked_sub(FIRST_V4).map(usize::try_from),
            IpAddr::V6(address) => address.to_bits().checked_sub(FIRST_V6).map(usize::try_from),
        };
        self.names.get(number?.ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_has_one_address_of_each_kind() {
        let mut names = Names::default();
        let (one, other) = (HostName::new("a.b").unwrap(), HostName::new("c.d").unwrap());
        assert_eq!(names.v4(&one), Some("198.18.1.0".parse().unwrap()));
        assert_eq!(names.v6(&one), Some("fd62:656c:6c6a:6172::100".parse().unwrap()));
        assert_eq!(names.v4(&other), Some("198.18.1.1".parse().unwrap()));
        assert_eq!(names.v4(&one), Some("198.18.1.0".parse().unwrap()));
        assert_eq!(names.name("198.18.1.0".parse().unwrap()), Some(&one));
        assert_eq!(
            names.name("fd62:656c:6c6a:6172::101".parse().unwrap()),
            Some(&other)
        );
        for nobody in [
            "198.18.1.2",
            "198.18.0.255",
            "0.0.0.0",
            "255.255.255.255",
            "::",
            "::1",
            "198.18.0.1",
        ] {
            assert_eq!(names.name(nobody.parse().unwrap()), None, "{nobody}");
        }
    }

    #[test]
    fn there_is_an_end_to_names() {
        let mut names = Names::default();
        for number in 0..MOST {
            assert!(
                names
                    .v4(&HostName::new(&format!("n{number}.a")).unwrap())
                    .is_some()
            );
        }
        assert_eq!(names.v4(&HostName::new("more.a").unwrap()), None);
        assert!(names.v4(&HostName::new("n7.a").unwrap()).is_some());
    }
}
