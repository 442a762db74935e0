//! A nursery: one process for each root, whose clones are the shells with that root.
//!
//! It is a clone of the launcher in a user, mount and pid namespace of its own. It raises the root that
//! its shells will have and moves into it: a shell that is cloned from it stands in the right root
//! from its first instruction and has nothing of the host's tree to detach. It is pid 1 of its
//! namespace, so with it goes everything below. Root's privileges on the host are behind it.

mod ids;
mod make;
mod network;
pub(crate) mod root;
mod zygote;

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Signal};
use rustix::time::Timespec;

pub(crate) use ids::{FIRST_ID, IdBlock, LAST_ID};

use crate::init::exit_slot::{EXIT_SLOTS, ExitSlots};
use crate::init::steps;
use crate::policies::PreparedFilters;
use crate::sys;
use crate::weaken;
use crate::wire::{self, Incoming, Note, NurseryEvent, NurseryRequest, RootSpec, StepFailure, Tree};

/// How long jails may take to exit before the spawner exits without waiting for them, which kills them.
const EXIT_TIMEOUT: Duration = Duration::from_secs(10);

/// Runs until the engine or the launcher is gone: the other end of `control` or of `launcher` closes. Never returns.
pub(crate) fn run(
    spec: &RootSpec,
    control: &OwnedFd,
    launcher: &OwnedFd,
    trees: Vec<OwnedFd>,
    notes: Vec<Note>,
    filters: &PreparedFilters,
) -> ! {
    let _ = rustix::thread::set_name(c"bj-nursery");
    let served = raise(spec, [control, launcher], trees, notes, filters).and_then(|mut nursery| {
        let served = nursery.serve();
        nursery.end_jails();
        served.map_err(|error| StepFailure::new("Serve", error))
    });
    match served {
        Ok(()) => sys::process::exit_now(0),
        Err(failure) => {
            let _ = wire::send(control, &NurseryEvent::SetupFailed(failure), &[]);
            sys::process::exit_now(1)
        }
    }
}

/// Raises the root and says that it stands.
fn raise<'a>(
    spec: &'a RootSpec,
    [control, launcher]: [&'a OwnedFd; 2],
    trees: Vec<OwnedFd>,
    notes: Vec<Note>,
    filters: &'a PreparedFilters,
) -> Result<Nursery<'a>, StepFailure> {
    let at = |step: &str, error: io::Error| StepFailure::new(step, error);
    // Maps of ids are written through it once the host's tree is gone.
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let host_proc =
        rustix::fs::open("/proc", flags, Mode::empty()).map_err(|error| at("HostProc", error.into()))?;
    let mut raising = root::Raising {
        spec,
        keep: [control.as_fd(), launcher.as_fd(), host_proc.as_fd()],
        trees: &trees,
        root: None,
        notes,
    };
    for step in steps::root() {
        let name = format!("{step:?}");
        if !weaken::is_off(&name.to_lowercase()) {
            raising.perform(&step).map_err(|error| at(&name, error))?;
        }
    }
    let notes = raising.notes;
    // Asked once, and known to every clone.
    sys::process::capabilities();
    let trees = spec.trees.iter().zip(trees);
    let late: Vec<(&Tree, OwnedFd)> = trees
        .filter(|(tree, _)| root::is_below_scratch(&tree.guest))
        .collect();
    // From here on it sees by itself that the launcher is gone, and ends its jails before it exits.
    rustix::process::set_parent_process_death_signal(None).map_err(|error| at("Launcher", error.into()))?;
    let nursery = Nursery {
        spec,
        control,
        launcher,
        exit_slots: ExitSlots::default(),
        children: sys::process::child_events().map_err(|error| at("ChildEvents", error))?,
        host_proc,
        late,
        filters,
        ids: ids::Ids::new(),
        network: network::Network::default(),
        shells: HashMap::new(),
    };
    wire::send(control, &NurseryEvent::Ready { notes }, &[]).map_err(|error| at("Ready", error))?;
    Ok(nursery)
}

struct Nursery<'a> {
    spec: &'a RootSpec,
    control: &'a OwnedFd,
    /// Its other end closes when the launcher exits.
    launcher: &'a OwnedFd,
    exit_slots: ExitSlots,
    children: OwnedFd,
    host_proc: OwnedFd,
    /// Trees that go below a shell's own scratch memory. Such a nursery has a single shell.
    late: Vec<(&'a Tree, OwnedFd)>,
    filters: &'a PreparedFilters,
    ids: ids::Ids,
    network: network::Network,
    /// Live shells by init's pid.
    shells: HashMap<i32, Shell>,
}

struct Shell {
    number: u64,
    ids: Option<ids::Lease>,
}

impl Nursery<'_> {
    fn serve(&mut self) -> io::Result<()> {
        let mut incoming = Incoming::default();
        loop {
            let mut waits = [
                PollFd::from_borrowed_fd(self.control.as_fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(self.children.as_fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(self.launcher.as_fd(), PollFlags::IN),
            ];
            match poll(&mut waits, self.network.pause()) {
                Ok(0) => self.network.make_ahead(),
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            let (asked, ended) = (!waits[0].revents().is_empty(), !waits[1].revents().is_empty());
            let launcher_gone = !waits[2].revents().is_empty();
            if ended {
                self.reap()?;
            }
            if launcher_gone {
                return Ok(());
            }
            if asked {
                match incoming.receive_some::<NurseryRequest>(self.control.as_fd()) {
                    Ok(Some((NurseryRequest::MakeShell { shell, spec }, fds))) => {
                        self.make_shell(shell, &spec, &fds)?;
                    }
                    Ok(Some((NurseryRequest::StartZygote(spec), fds))) => {
                        // Where it cannot be started its channel closes, which says as much.
                        let _ = self.start_zygote(&spec, &fds);
                    }
                    Ok(None) => {}
                    // The engine hung up.
                    Err(_) => return Ok(()),
                }
            }
        }
    }

    /// Reaps what has ended and reports jails to the engine.
    fn reap(&mut self) -> io::Result<()> {
        for number in self.reap_jails()? {
            wire::send(self.control, &NurseryEvent::Ended { shell: number }, &[])?;
        }
        Ok(())
    }

    /// Reaps what has ended. Returns the numbers of jails.
    fn reap_jails(&mut self) -> io::Result<Vec<u64>> {
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

    /// Kills all jails, a few at a time (see `init/exit_slot.rs`). Jails that do not exit in time are left to this process's own exit, which
    /// kills everything in its pid namespace.
    fn end_jails(&mut self) {
        while !self.shells.is_empty() {
            let dying: Vec<i32> = self.shells.keys().copied().take(EXIT_SLOTS).collect();
            for pid in dying.iter().copied().filter_map(Pid::from_raw) {
                let _ = rustix::process::kill_process(pid, Signal::KILL);
            }
            let deadline = Instant::now() + EXIT_TIMEOUT;
            while dying.iter().any(|pid| self.shells.contains_key(pid)) {
                let left = deadline.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return;
                }
                let mut waits = [PollFd::from_borrowed_fd(self.children.as_fd(), PollFlags::IN)];
                let _ = poll(&mut waits, Timespec::try_from(left).ok().as_ref());
                if self.reap_jails().is_err() {
                    return;
                }
            }
        }
    }
}
