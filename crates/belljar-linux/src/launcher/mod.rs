//! The launcher: one thread, small, the parent of every nursery.
//!
//! It runs in a sealed copy of the executable with an empty environment, hears the engine on its
//! standard input, makes nurseries, reaps them, and dies with the engine, taking everything along.

mod make;

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::time::Timespec;

use crate::host::cgroup;
use crate::nursery::IdBlock;
use crate::policies::PreparedFilters;
use crate::sys;
use crate::wire::{self, Incoming, LauncherEvent, LauncherRequest};

/// How long nurseries may take to exit by themselves: thousands of jails exit a few at a time.
const EXIT_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a nursery may take to die once it is killed. A process that hangs in the kernel never does.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);

/// Runs until the engine hangs up. Never returns.
pub(crate) fn main() -> ! {
    let code = match serve() {
        Ok(()) => 0,
        Err(_) => 1,
    };
    sys::process::exit_now(code)
}

fn serve() -> io::Result<()> {
    let control = rustix::stdio::stdin().try_clone_to_owned()?;
    rustix::io::fcntl_setfd(&control, rustix::io::FdFlags::CLOEXEC)?;
    let _ = rustix::thread::set_name(c"bj-launcher");
    // A terminal's Ctrl-C is for the engine, which ends things in order.
    let _ = rustix::process::setsid();
    raise_limits();
    let mut launcher = Launcher {
        children: sys::process::child_events()?,
        nurseries: HashMap::new(),
        filters: PreparedFilters::for_launcher(),
        own_namespace: false,
        groups: None,
    };
    let heard = launcher.hear(&control);
    // However it came to its end, also while the engine was being told of another's: nothing is left.
    launcher.end_everything();
    heard
}

/// Raises the limits that the kernel counts for all sandboxes of this launcher together: descriptors in flight, pending signals, tasks,
/// bytes of message queues. A user
/// namespace remembers the limits of the process that made it, and the sum of all sandboxes below it cannot exceed them. A
/// guest's own limits are set for each guest.
fn raise_limits() {
    for resource in [
        Resource::Nofile,
        Resource::Sigpending,
        Resource::Nproc,
        Resource::Msgqueue,
    ] {
        let limit = getrlimit(resource);
        let unlimited = Rlimit {
            current: None,
            maximum: None,
        };
        // With CAP_SYS_RESOURCE there need be no limit. Descriptors have one all the same, which is the kernel's.
        if resource == Resource::Nofile || setrlimit(resource, unlimited).is_err() {
            let _ = setrlimit(
                resource,
                Rlimit {
                    current: limit.maximum,
                    ..limit
                },
            );
        }
    }
}

struct Launcher {
    children: OwnedFd,
    /// Live nurseries by pid.
    nurseries: HashMap<i32, Nursery>,
    filters: PreparedFilters,
    /// Whether it has moved into a user namespace of its own.
    own_namespace: bool,
    /// Where the engine's groups are, and how their names begin.
    groups: Option<(Vec<PathBuf>, String)>,
}

struct Nursery {
    number: u64,
    pidfd: OwnedFd,
    /// Tells the nursery, as long as it is open, that the launcher is there.
    alive: OwnedFd,
    /// Host ids that no other nursery has meanwhile.
    ids: Option<IdBlock>,
}

impl Launcher {
    /// Does what the engine asks for, until it hangs up.
    fn hear(&mut self, control: &OwnedFd) -> io::Result<()> {
        let mut incoming = Incoming::default();
        loop {
            let mut waits = [
                PollFd::from_borrowed_fd(control.as_fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(self.children.as_fd(), PollFlags::IN),
            ];
            match poll(&mut waits, None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            let (asked, ended) = (!waits[0].revents().is_empty(), !waits[1].revents().is_empty());
            if ended {
                for nursery in self.reap()? {
                    wire::send(control, &LauncherEvent::Ended { nursery }, &[])?;
                }
            }
            if asked {
                match incoming.receive_some::<LauncherRequest>(control.as_fd()) {
                    Ok(Some((LauncherRequest::MakeNursery { nursery, spec }, fds))) => {
                        if !self.make_nursery(nursery, &spec, &fds) {
                            wire::send(control, &LauncherEvent::Ended { nursery }, &[])?;
                        }
                    }
                    Ok(Some((LauncherRequest::Groups { subtrees, prefix }, _))) => {
                        self.groups = Some((subtrees.into_iter().map(PathBuf::from).collect(), prefix));
                    }
                    Ok(None) => {}
                    Err(_) => return Ok(()),
                }
            }
        }
    }

    /// Reaps nurseries that have ended; their numbers.
    fn reap(&mut self) -> io::Result<Vec<u64>> {
        let mut drain = [0u8; 1024];
        let _ = rustix::io::read(&self.children, &mut drain);
        let mut ended = Vec::new();
        while let Some(reaped) = sys::process::reap()? {
            ended.extend(self.nurseries.remove(&reaped.pid).map(|nursery| nursery.number));
        }
        Ok(ended)
    }

    /// Ends everything: nothing may outlive the engine. Each nursery exits by itself, and first ends its jails, a few at a time
    /// (see `init/exit_slot.rs`). One that does not is killed, and its whole pid namespace with it.
    fn end_everything(&mut self) {
        for nursery in self.nurseries.values() {
            // This side says nothing more, which the nursery sees as the launcher's exit.
            let _ = rustix::net::shutdown(&nursery.alive, rustix::net::Shutdown::Both);
        }
        self.wait_for_nurseries(EXIT_TIMEOUT);
        for nursery in self.nurseries.values() {
            let _ = rustix::process::pidfd_send_signal(&nursery.pidfd, rustix::process::Signal::KILL);
        }
        self.wait_for_nurseries(KILL_TIMEOUT);
        if let Some((subtrees, prefix)) = &self.groups {
            cgroup::remove_all(subtrees, prefix);
        }
    }

    /// Waits until all nurseries are gone, or so long.
    fn wait_for_nurseries(&mut self, timeout: Duration) {
        let deadline = Instant::now() + timeout;
        while !self.nurseries.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let mut waits = [PollFd::from_borrowed_fd(self.children.as_fd(), PollFlags::IN)];
            let _ = poll(&mut waits, Timespec::try_from(left).ok().as_ref());
            if self.reap().is_err() {
                return;
            }
        }
    }
}
