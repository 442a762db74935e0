//! The launcher: one thread, small, the parent of every nursery.
//!
//! It runs in a sealed copy of the executable with an empty environment, hears the engine on its
//! standard input, makes nurseries, reaps them, and dies with the engine, taking everything along.

mod make;

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;

use rustix::event::{PollFd, PollFlags, poll};

use crate::host::cgroup;
use crate::nursery::IdBlock;
use crate::policies::PreparedFilters;
use crate::sys;
use crate::wire::{self, Incoming, LauncherEvent, LauncherRequest};

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
    // Descriptors of many sandboxes pass through here at once. A guest's limit is its own.
    let files = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let most = rustix::process::Rlimit {
        current: files.maximum,
        ..files
    };
    let _ = rustix::process::setrlimit(rustix::process::Resource::Nofile, most);
    let mut launcher = Launcher {
        children: sys::process::child_events()?,
        nurseries: HashMap::new(),
        filters: PreparedFilters::all(),
        own_namespace: false,
        groups: None,
    };
    let heard = launcher.hear(&control);
    // However it came to its end, also while the engine was being told of another's: nothing is left.
    launcher.end_everything();
    heard
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

    /// The engine is gone: nothing may outlive it. With a nursery goes its whole pid namespace.
    fn end_everything(&mut self) {
        for nursery in self.nurseries.values() {
            let _ = rustix::process::pidfd_send_signal(&nursery.pidfd, rustix::process::Signal::KILL);
        }
        while !self.nurseries.is_empty() {
            let mut waits = [PollFd::from_borrowed_fd(self.children.as_fd(), PollFlags::IN)];
            let _ = poll(&mut waits, None);
            if self.reap().is_err() {
                break;
            }
        }
        if let Some((subtrees, prefix)) = &self.groups {
            cgroup::remove_all(subtrees, prefix);
        }
    }
}
