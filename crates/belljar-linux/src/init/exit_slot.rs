//! Lets the jails of a spawner exit a few at a time.
//!
//! A guest's exit frees its system-call filter, and the kernel frees a filter through its shared work queue, under a mutex (`bpf_prog_pack_free`).
//! When the holder of that mutex itself needs the queue while a thousand workers of a processor wait for the mutex, nobody goes on: on
//! Linux 6.18 that was seen after some thousands of filters had been freed at once, and the machine had to be restarted. So
//! when an engine is killed while it has thousands of sessions, their inits take turns: each waits for a slot, ends its guests, and gives the
//! slot back by its own exit. A slot is a record lock on an empty file, which the kernel releases for whoever dies in possession of it.

use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::{FlockOperation, MemfdFlags};

/// How many jails of a spawner exit at a time. The smallest work queue that is known has 256 workers for each processor.
pub(crate) const EXIT_SLOTS: usize = 32;

/// The slots of one spawner, each made for the first jail that has it.
#[derive(Debug, Default)]
pub(crate) struct ExitSlots(Vec<OwnedFd>);

impl ExitSlots {
    /// The slot that a jail with this number shares with others. Jails are numbered in order.
    pub(crate) fn slot(&mut self, jail: u64) -> io::Result<&OwnedFd> {
        let index = jail as usize % EXIT_SLOTS;
        while self.0.len() <= index {
            self.0
                .push(rustix::fs::memfd_create("belljar-exit", MemfdFlags::CLOEXEC)?);
        }
        Ok(&self.0[index])
    }
}

/// Waits until no other jail with this slot is exiting. The slot is held until this process exits.
pub(super) fn take(slot: &OwnedFd) {
    // Where that fails, exiting at once is better than not exiting.
    let _ = rustix::io::retry_on_intr(|| rustix::fs::fcntl_lock(slot, FlockOperation::LockExclusive));
}
