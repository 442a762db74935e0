//! Names that nobody has used before.

use rustix::rand::{GetRandomFlags, getrandom};

/// `prefix` and sixteen random hexadecimal digits.
pub fn fresh_id(prefix: &str) -> String {
    let mut bytes = [0u8; 8];
    // The kernel's generator blocks only before the machine has gathered its first entropy, and
    // eight bytes are never cut short after that.
    while !matches!(getrandom(&mut bytes, GetRandomFlags::empty()), Ok(8)) {}
    format!("{prefix}-{:016x}", u64::from_ne_bytes(bytes))
}
