//! What the launcher's clones and a nursery's have in common between their birth and their first step.

use std::os::fd::OwnedFd;

use rustix::process::{Signal, set_parent_process_death_signal};

use crate::sys;

/// In a clone: dies with its parent, and waits until that has written the map of its ids. Where `go` is closed instead,
/// its parent has gone already, and so does the clone.
pub(crate) fn wait_for_parent(go: &OwnedFd) {
    let tied = set_parent_process_death_signal(Some(Signal::KILL));
    let mut word = [0u8; 8];
    let told = rustix::io::retry_on_intr(|| rustix::io::read(go, &mut word));
    if tied.is_err() || !matches!(told, Ok(1..)) {
        sys::process::exit_now(1);
    }
}
