//! Addresses: which of them are the world's, and which are somebody's own.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// A range of addresses: `10.0.0.0/8`, `fd00::/8`, or a single one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Block {
    first: IpAddr,
    /// How many bits all of its addresses have in common.
    length: u8,
}

/// Why a text is no range of addresses.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no range of addresses: write 10.1.2.3, 10.0.0.0/8 or fd00::/8")]
pub struct BlockError(String);

impl Block {
    const fn v4(a: u8, b: u8, c: u8, length: u8) -> Self {
        Self {
            first: IpAddr::V4(Ipv4Addr::new(a, b, c, 0)),
            length,
        }
    }

    const fn v6(a: u16, b: u16, c: u16, length: u8) -> Self {
        Self {
            first: IpAddr::V6(Ipv6Addr::new(a, b, c, 0, 0, 0, 0, 0)),
            length,
        }
    }

    /// Whether `address` is in it. Addresses of different versions are never the same.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.first, address) {
            (IpAddr::V4(first), IpAddr::V4(address)) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.length)).unwrap_or(0);
                first.to_bits() & mask == address.to_bits() & mask
            }
            (IpAddr::V6(first), IpAddr::V6(address)) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.length)).unwrap_or(0);
                first.to_bits() & mask == address.to_bits() & mask
            }
            _ => false,
        }
    }

    /// Whether all of `other` is in it.
    pub fn covers(&self, other: &Self) -> bool {
        self.length <= other.length && self.contains(other.first)
    }
}

impl FromStr for Block {
    type Err = BlockError;

    fn from_str(text: &str) -> Result<Self, BlockError> {
        let wrong = || BlockError(text.escape_default().to_string());
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length)),
            None => (text, None),
        };
        let first: IpAddr = address.parse().map_err(|_| wrong())?;
        let longest = if first.is_ipv4() { 32 } else { 128 };
        let plain = |length: &&str| length.len() <= 3 && length.bytes().all(|byte| byte.is_ascii_digit());
        let length = match length {
            None => longest,
            Some(length) => Some(length)
                .filter(plain)
                .and_then(|length| length.parse().ok())
                .filter(|length| *length <= longest)
                .ok_or_else(wrong)?,
        };
        Ok(Self { first, length })
    }
}

impl fmt::Display for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let longest = if self.first.is_ipv4() { 32 } else { 128 };
        if self.length == longest {
            write!(f, "{}", self.first)
        } else {
            write!(f, "{}/{}", self.first, self.length)
        }
    }
}

/// What of the fourth version's space is nobody's, somebody's own, or means something else.
const NOT_PUBLIC_V4: [Block; 16] = [
    Block::v4(0, 0, 0, 8),
    Block::v4(10, 0, 0, 8),
    Block::v4(100, 64, 0, 10),
    Block::v4(127, 0, 0, 8),
    Block::v4(169, 254, 0, 16),
    // Where one of the large clouds has its machines' own service.
    Block {
        first: IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
        length: 32,
    },
    Block::v4(172, 16, 0, 12),
    Block::v4(192, 0, 0, 24),
    Block::v4(192, 0, 2, 24),
    Block::v4(192, 88, 99, 24),
    Block::v4(192, 168, 0, 16),
    Block::v4(198, 18, 0, 15),
    Block::v4(198, 51, 100, 24),
    Block::v4(203, 0, 113, 24),
    Block::v4(224, 0, 0, 4),
    Block::v4(240, 0, 0, 4),
];

/// All of the sixth version that is handed out to the world.
const HANDED_OUT_V6: Block = Block::v6(0x2000, 0, 0, 3);
/// What of that carries an address of the fourth version, is for documents, or is for a protocol's own use.
const NOT_PUBLIC_V6: [Block; 4] = [
    Block::v6(0x2001, 0, 0, 23),
    Block::v6(0x2001, 0xdb8, 0, 32),
    Block::v6(0x2002, 0, 0, 16),
    Block::v6(0x3fff, 0, 0, 20),
];

/// Whether an address is one of the world's: no private, loopback, link-local, metadata, multicast or reserved one, and none
/// that carries another address within.
pub fn is_public(address: IpAddr) -> bool {
    let is_in = |blocks: &[Block]| blocks.iter().any(|block| block.contains(address));
    match address {
        IpAddr::V4(_) => !is_in(&NOT_PUBLIC_V4),
        IpAddr::V6(_) => HANDED_OUT_V6.contains(address) && !is_in(&NOT_PUBLIC_V6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p43_p44_only_the_worlds_addresses_are_public() {
        for public in [
            "1.1.1.1",
            "8.8.8.8",
            "100.63.255.255",
            "100.128.0.1",
            "172.15.0.1",
            "172.32.0.1",
            "192.167.1.1",
            "192.169.1.1",
            "223.255.255.255",
            "2606:4700::1111",
            "2a00:1450::1",
            "2001:4860:4860::8888",
        ] {
            assert!(is_public(public.parse().unwrap()), "{public}");
        }
        for other in [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "100.64.0.1",
            "100.127.255.255",
            "127.0.0.1",
            "127.255.255.255",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.1",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.1.1",
            "198.18.0.1",
            "198.19.255.255",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.1",
            "239.1.1.1",
            "240.0.0.1",
            "255.255.255.255",
            "168.63.129.16",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:8.8.8.8",
            "::7f00:1",
            "64:ff9b::7f00:1",
            "64:ff9b::808:808",
            "64:ff9b:1::1",
            "100::1",
            "fe80::1",
            "fc00::1",
            "fd00:ec2::254",
            "ff02::1",
            "2001::1",
            "2001:db8::1",
            "2002:7f00:1::",
            "3fff::1",
            "5f00::1",
            "4000::1",
        ] {
            assert!(!is_public(other.parse().unwrap()), "{other}");
        }
    }

    #[test]
    fn blocks_are_read_and_shown_again() {
        for text in ["10.0.0.0/8", "127.0.0.1", "fd00::/8", "::1", "0.0.0.0/0", "::/0"] {
            assert_eq!(text.parse::<Block>().unwrap().to_string(), text);
        }
        for text in [
            "",
            "10.0.0.0/33",
            "::/129",
            "10.0.0/8",
            "a",
            "10.0.0.0/",
            "10.0.0.0/+8",
            "010.0.0.1",
            "1.2.3.4/8/8",
        ] {
            assert!(text.parse::<Block>().is_err(), "{text}");
        }
    }

    #[test]
    fn blocks_hold_their_own_version_alone() {
        let block = |text: &str| text.parse::<Block>().unwrap();
        assert!(block("0.0.0.0/0").contains("9.9.9.9".parse().unwrap()));
        assert!(!block("0.0.0.0/0").contains("::1".parse().unwrap()));
        assert!(!block("::/0").contains("9.9.9.9".parse().unwrap()));
        assert!(block("10.0.0.0/8").covers(&block("10.1.0.0/16")));
        assert!(!block("10.1.0.0/16").covers(&block("10.0.0.0/8")));
    }
}
