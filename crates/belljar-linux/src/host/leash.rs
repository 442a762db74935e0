//! A handle of a sandbox's init.

use std::os::fd::OwnedFd;

use rustix::process::{Signal, pidfd_send_signal};

/// Init's pidfd. Letting go of it kills everything in the sandbox.
#[derive(Debug)]
pub(crate) struct Leash(OwnedFd);

impl Leash {
    pub(crate) const fn new(pidfd: OwnedFd) -> Self {
        Self(pidfd)
    }

    pub(crate) const fn pidfd(&self) -> &OwnedFd {
        &self.0
    }

    /// Kills init, and with it every process of the sandbox.
    pub(crate) fn kill(&self) {
        let _ = pidfd_send_signal(&self.0, Signal::KILL);
    }
}

impl Drop for Leash {
    fn drop(&mut self) {
        self.kill();
    }
}
