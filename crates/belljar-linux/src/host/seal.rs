//! Memory that nobody can change any more.

use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::{SealFlags, fcntl_add_seals};
use rustix::io::Errno;

/// How often it is tried while the kernel has other business with the memory's pages: for each, it waits a
/// sixth of a second by itself.
const TRIES: usize = 4;

/// Seals what is in `memory`: its bytes and its size stay as they are.
pub(crate) fn seal(memory: &OwnedFd) -> io::Result<()> {
    let seals = SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    let mut left = TRIES;
    loop {
        left -= 1;
        match fcntl_add_seals(memory, seals) {
            // Whoever moves or reclaims pages holds on to them for a moment, which looks like somebody who might write.
            Err(Errno::BUSY) if left > 0 => {}
            result => return Ok(result?),
        }
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::{MemfdFlags, memfd_create};

    use super::*;

    #[test]
    fn what_is_sealed_stays() {
        let memory = memfd_create("seal", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).expect("memory");
        rustix::io::write(&memory, b"fixed").expect("a write");
        seal(&memory).expect("a seal");
        assert_eq!(rustix::io::write(&memory, b"more"), Err(Errno::PERM));
        assert_eq!(rustix::fs::ftruncate(&memory, 0), Err(Errno::PERM));
        assert!(seal(&memory).is_err(), "no further seals");
    }
}
