//! Host ids for sandboxes: each live one has an id that no other sandbox and no person has.
//!
//! Each nursery has a block of host ids, which its user namespace maps. Within, its own id is 0 and
//! each shell has one of the others.

use std::collections::BTreeSet;
use std::io;

use rustix::rand::{GetRandomFlags, getrandom};

/// Where the range starts: above what distributions hand to people, services and containers.
const BASE: u32 = 0x4000_0000;
/// How many ids one nursery has.
const PER_NURSERY: u32 = 1 << 12;
/// How many nurseries the range has room for.
const NURSERIES: u32 = 1 << 18;

/// The ends of the whole range.
pub(crate) const FIRST_ID: u32 = BASE;
pub(crate) const LAST_ID: u32 = BASE + (NURSERIES * PER_NURSERY - 1);

/// The host ids of one nursery: a block picked at random, so that launchers that know nothing of
/// each other do not meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IdBlock(u32);

impl IdBlock {
    /// A block that is none of `taken`.
    pub(crate) fn pick(taken: impl Iterator<Item = Self>) -> io::Result<Self> {
        let taken: Vec<Self> = taken.collect();
        loop {
            let mut bytes = [0u8; 4];
            getrandom(&mut bytes, GetRandomFlags::empty())?;
            let block = Self(u32::from_ne_bytes(bytes) % NURSERIES);
            if !taken.contains(&block) {
                return Ok(block);
            }
        }
    }

    /// The lines for the kernel: the nursery itself keeps root's id, without root's rights.
    pub(crate) fn map(self) -> String {
        format!("0 0 1\n1 {} {}", self.first(), PER_NURSERY - 1)
    }

    /// The host's number of the first shell's id.
    pub(crate) const fn first(self) -> u32 {
        BASE + self.0 * PER_NURSERY + 1
    }
}

/// The ids of one nursery's shells, as the nursery numbers them.
#[derive(Debug)]
pub(super) struct Ids {
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

impl Ids {
    pub(super) const fn new() -> Self {
        Self {
            taken: BTreeSet::new(),
            next: 1,
        }
    }

    /// An id that no live sandbox has, and that the last few did not have either.
    pub(super) fn take(&mut self) -> Option<Lease> {
        for _ in 1..PER_NURSERY {
            let id = self.next;
            self.next = if id + 1 < PER_NURSERY { id + 1 } else { 1 };
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
        let mut ids = Ids::new();
        let leases: Vec<Lease> = std::iter::from_fn(|| ids.take()).collect();
        assert_eq!(leases.len(), PER_NURSERY as usize - 1);
        let distinct: BTreeSet<u32> = leases.iter().map(|lease| lease.id()).collect();
        assert_eq!(distinct.len(), leases.len());
        // Zero is the nursery's own.
        assert_eq!(distinct.first(), Some(&1));
        ids.give_back(leases[7]);
        assert_eq!(ids.take().map(Lease::id), Some(leases[7].id()));
    }

    #[test]
    fn blocks_lie_within_the_range_and_apart() {
        let last = IdBlock(NURSERIES - 1);
        assert!(last.first() + PER_NURSERY - 2 <= LAST_ID && LAST_ID <= i32::MAX as u32);
        assert!(IdBlock(0).first() > FIRST_ID);
        assert_eq!(IdBlock(1).first() - IdBlock(0).first(), PER_NURSERY);
        assert!(!IdBlock::pick([IdBlock(3)].into_iter()).is_ok_and(|block| block == IdBlock(3)));
    }
}
