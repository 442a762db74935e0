//! The launcher: one thread, small, the parent of every sandbox.
//!
//! It runs in a sealed copy of the executable with an empty environment, hears the engine on its
//! standard input, makes shells, reaps them, and dies with the engine, taking everything along.

mod ids;
mod make;

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;

use rustix::event::{PollFd, PollFlags, poll};

pub(crate) use ids::{FIRST_ID, LAST_ID};

use crate::host::cgroup::remove;
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
    let mut launcher = Launcher {
        children: sys::process::child_events()?,
        ids: ids::IdRange::new()?,
        shells: HashMap::new(),
        filters: PreparedFilters::all().map_err(|error| io::Error::other(error.to_string()))?,
        own_namespace: false,
    };
    let mut incoming = Incoming::default();
    loop {
        let mut waits = [
            PollFd::from_borrowed_fd(control.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(launcher.children.as_fd(), PollFlags::IN),
        ];
        match poll(&mut waits, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let (asked, ended) = (!waits[0].revents().is_empty(), !waits[1].revents().is_empty());
        if ended {
            for shell in launcher.reap()? {
                wire::send(&control, &LauncherEvent::Ended { shell }, &[])?;
            }
        }
        if asked {
            match incoming.receive_some::<LauncherRequest>(control.as_fd()) {
                Ok(Some((LauncherRequest::MakeShell { shell, spec }, fds))) => {
                    launcher.make_shell(shell, &spec, &fds, &control)?;
                }
                Ok(None) => {}
                Err(_) => {
                    launcher.end_everything();
                    return Ok(());
                }
            }
        }
    }
}

struct Launcher {
    children: OwnedFd,
    ids: ids::IdRange,
    /// Live shells by init's pid.
    shells: HashMap<i32, Shell>,
    filters: PreparedFilters,
    /// Whether it has moved into a user namespace of its own.
    own_namespace: bool,
}

struct Shell {
    number: u64,
    pidfd: OwnedFd,
    ids: Option<ids::Lease>,
    cgroup_dirs: Vec<String>,
}

impl Launcher {
    /// Reaps shells that have ended; their numbers.
    fn reap(&mut self) -> io::Result<Vec<u64>> {
        let mut drain = [0u8; 1024];
        let _ = rustix::io::read(&self.children, &mut drain);
        let mut ended = Vec::new();
        while let Some(reaped) = sys::process::reap()? {
            if let Some(shell) = self.shells.remove(&reaped.pid) {
                if let Some(lease) = shell.ids {
                    self.ids.give_back(lease);
                }
                ended.push(shell.number);
            }
        }
        Ok(ended)
    }

    /// The engine is gone: nothing may outlive it.
    fn end_everything(&mut self) {
        for shell in self.shells.values() {
            let _ = rustix::process::pidfd_send_signal(&shell.pidfd, rustix::process::Signal::KILL);
        }
        let dirs: Vec<PathBuf> = self
            .shells
            .values()
            .flat_map(|shell| shell.cgroup_dirs.iter().map(PathBuf::from))
            .collect();
        while !self.shells.is_empty() {
            let mut waits = [PollFd::from_borrowed_fd(self.children.as_fd(), PollFlags::IN)];
            let _ = poll(&mut waits, None);
            if self.reap().is_err() {
                break;
            }
        }
        let _ = remove(&dirs);
    }
}
