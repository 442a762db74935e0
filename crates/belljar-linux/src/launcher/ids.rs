//! Host ids for sandboxes: each live one has an id that no other sandbox and no person has.

use std::collections::BTreeSet;
use std::io;

use rustix::rand::{GetRandomFlags, getrandom};

/// Where the range starts: above what distributions hand to people, services and containers.
const BASE: u32 = 0x4000_0000;
/// How many ids one launcher has.
const PER_LAUNCHER: u32 = 1 << 12;
/// How many launchers the range has room for.
const LAUNCHERS: u32 = 1 << 18;

/// The ends of the whole range.
pub(crate) const FIRST_ID: u32 = BASE;
pub(crate) const LAST_ID: u32 = BASE + (LAUNCHERS * PER_LAUNCHER - 1);

/// The ids of one launcher: a block that it picks at random, so that launchers that know nothing
/// of each other do not meet.
#[derive(Debug)]
pub(super) struct IdRange {
    first: u32,
    taken: BTreeSet<u32>,
    next: u32,
}

/// One id in use.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lease(u32);

impl Lease {
    pub(super) const fn id(self) -> u32 {
        self.0
    }
}

impl IdRange {
    pub(super) fn new() -> io::Result<Self> {
        let mut bytes = [0u8; 4];
        getrandom(&mut bytes, GetRandomFlags::empty())?;
        let block = u32::from_ne_bytes(bytes) % LAUNCHERS;
        Ok(Self {
            first: BASE + block * PER_LAUNCHER,
            taken: BTreeSet::new(),
            next: 0,
        })
    }

    /// An id that no live sandbox has, and that the last few did not have either.
    pub(super) fn take(&mut self) -> Option<Lease> {
        for _ in 0..PER_LAUNCHER {
            let id = self.first + self.next;
            self.next = (self.next + 1) % PER_LAUNCHER;
            if self.taken.insert(id) {
                return Some(Lease(id));
            }
        }
        None
    }

    pub(super) fn give_back(&mut self, lease: Lease) {
        self.taken.remove(&lease.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_never_shared_by_live_sandboxes() {
        let mut range = IdRange::new().unwrap();
        let leases: Vec<Lease> = std::iter::from_fn(|| range.take()).collect();
        assert_eq!(leases.len(), PER_LAUNCHER as usize);
        let distinct: BTreeSet<u32> = leases.iter().map(|lease| lease.id()).collect();
        assert_eq!(distinct.len(), leases.len());
        assert!(distinct.iter().all(|id| (BASE..=i32::MAX as u32).contains(id)));
        range.give_back(leases[7]);
        assert_eq!(range.take().map(Lease::id), Some(leases[7].id()));
    }
}
