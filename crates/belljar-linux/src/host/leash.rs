//! A handle of a sandbox's init.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Signal, pidfd_send_signal};

/// Init's pidfd. Dropping it kills everything in the sandbox.
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

    /// Waits until init is dead, but not long.
    fn wait(&self) {
        const TIMEOUT: Timespec = Timespec {
            tv_sec: 1,
            tv_nsec: 0,
        };
        let mut ended = [PollFd::from_borrowed_fd(self.0.as_fd(), PollFlags::IN)];
        let _ = poll(&mut ended, Some(&TIMEOUT));
    }
}

impl Drop for Leash {
    fn drop(&mut self) {
        self.kill();
        if is_burst(Instant::now()) {
            self.wait();
        }
    }
}

/// A burst is more than this many sandboxes for each processor that are killed within `WINDOW`.
const BURST_PER_PROCESSOR: usize = 128;
const WINDOW: Duration = Duration::from_millis(100);

/// Whether sandboxes are being killed faster than they run, as when a service with thousands of sessions shuts down. Then each is
/// waited for, since too many exits at once can hang the kernel (see `init/exit_slot.rs`).
fn is_burst(now: Instant) -> bool {
    static RECENT: Mutex<Option<(Instant, usize)>> = Mutex::new(None);
    static LIMIT: LazyLock<usize> = LazyLock::new(|| {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        BURST_PER_PROCESSOR * processors
    });
    let mut recent = RECENT.lock().unwrap_or_else(PoisonError::into_inner);
    let (since, count) = match *recent {
        Some((since, count)) if now.duration_since(since) < WINDOW => (since, count + 1),
        _ => (now, 1),
    };
    *recent = Some((since, count));
    count > *LIMIT
}
