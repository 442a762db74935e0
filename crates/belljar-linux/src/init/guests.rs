//! The guests of a sandbox as its init has them: started or taken in, given room, ended, and reported.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::mount::{OpenTreeFlags, open_tree};
use rustix::process::Pid;

use super::adopt::Adoption;
use super::file_locks::FileLocks;
use super::guest::{GuestReport, become_guest};
use super::locks::RecordLocks;
use super::perform::seal_writable;
use super::pid_one::{PidOne, STREAMS};
use super::plan::Plan;
use super::room::Room;
use super::steps::Start;
use crate::sys::{self, process::Side};
use crate::weaken;
use crate::wire::{self, GuestSpec, InitEvent, Note, StepFailure};

/// How long after the engine's deadline init waits for the engine.
const GRACE: Duration = Duration::from_millis(500);

/// The guest of the moment.
pub(super) struct Running {
    pub(super) pid: i32,
    /// Of one that is not init's own child: becomes readable when it ends.
    pub(super) adopted: Option<OwnedFd>,
    /// Becomes readable when the process ends that holds its memory.
    pub(super) holder: Option<OwnedFd>,
    /// Where new threads and record locks wait for an answer.
    pub(super) listener: Option<OwnedFd>,
    pub(super) room: Room,
    pub(super) locks: RecordLocks,
    pub(super) file_locks: FileLocks,
    /// When init ends it by itself.
    pub(super) backstop: Option<Instant>,
}

impl PidOne<'_> {
    /// The plan of a guest with these streams, where one may be started.
    fn plan(&mut self, spec: &GuestSpec, start: Start, streams: usize) -> Result<Plan, StepFailure> {
        if self.guest.is_some() || self.adoption.is_some() || !(3..=STREAMS as usize).contains(&streams) {
            return Err(StepFailure::new("Start", io::ErrorKind::InvalidInput));
        }
        if !spec.file_write && !self.sealed {
            self.seal(spec)
                .map_err(|error| StepFailure::new("SealWritable", error))?;
        }
        Plan::new(spec, start, streams, self.filters)
    }

    /// Takes the right to write from the guest. The engine's own files still have to get in, by a mount of
    /// the work directory that is attached nowhere.
    fn seal(&mut self, spec: &GuestSpec) -> io::Result<()> {
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        self.work_dir = open_tree(rustix::fs::CWD, "/workspace", flags)?;
        seal_writable(&spec.writable[..])?;
        self.sealed = true;
        Ok(())
    }

    pub(super) fn start(&mut self, spec: &GuestSpec, streams: &[OwnedFd]) -> Result<Vec<Note>, StepFailure> {
        let plan = self.plan(spec, Start::Exec, streams.len())?;
        let (ours, theirs) = wire::pair().map_err(|error| StepFailure::new("Channel", error))?;
        let pid = match sys::process::clone_child(0, None).map_err(|error| StepFailure::new("Fork", error))? {
            Side::Child => {
                drop(ours);
                become_guest(spec, &plan, streams, &theirs);
            }
            Side::Parent { pid, .. } => pid,
        };
        drop(theirs);
        let listener = hear_guest(&ours)?;
        self.guest = Some(self.running(spec, pid, listener, None, false));
        Ok(plan.notes)
    }

    pub(super) fn adopt(
        &mut self,
        spec: Box<GuestSpec>,
        held: bool,
        mut fds: Vec<OwnedFd>,
    ) -> Result<(), StepFailure> {
        if fds.is_empty() {
            return Err(StepFailure::new("Adopt", io::ErrorKind::InvalidInput));
        }
        let channel = fds.remove(0);
        let plan = self.plan(&spec, Start::Warm { held }, fds.len())?;
        let adoption = Adoption::begin(channel, spec, held, plan, &fds)
            .map_err(|error| StepFailure::new("Adopt", error))?;
        self.adoption = Some(adoption);
        Ok(())
    }

    /// A guest has come in, or said why it could not.
    pub(super) fn welcome(&mut self) -> io::Result<()> {
        let Some(adoption) = self.adoption.take() else {
            return Ok(());
        };
        let welcomed = adoption.finish().and_then(|arrival| {
            let pid = Pid::from_raw(arrival.pid)
                .ok_or_else(|| StepFailure::new("Adopt", io::ErrorKind::InvalidData))?;
            let ended = watch_end(pid)?;
            let (spec, held) = (&adoption.spec, adoption.held);
            let mut guest = self.running(spec, arrival.pid, arrival.listener, Some(ended), held);
            let holder = arrival.holder.and_then(Pid::from_raw);
            guest.holder = holder.map(watch_end).transpose()?;
            if let Some(holder) = holder {
                guest.room.reserve_for_holder(holder);
            }
            if held && holder.is_none() && guest.listener.is_some() {
                // There is room for one, which is not to be filled by another.
                guest
                    .room
                    .settle()
                    .map_err(|error| StepFailure::new("Room", error))?;
            }
            Ok(guest)
        });
        let event = match welcomed {
            Ok(guest) => {
                self.guest = Some(guest);
                InitEvent::Started {
                    notes: adoption.notes,
                }
            }
            Err(failure) => InitEvent::NotStarted(failure),
        };
        // It is no child of ours, so whoever adds up what a sandbox uses has to be shown where it is.
        let guest = self.guest.as_ref().and_then(|guest| guest.adopted.as_ref());
        let pidfd = guest.map(OwnedFd::try_clone).transpose()?;
        self.tell(event, pidfd)
    }

    fn running(
        &self,
        spec: &GuestSpec,
        pid: i32,
        listener: Option<OwnedFd>,
        adopted: Option<OwnedFd>,
        held: bool,
    ) -> Running {
        Running {
            pid,
            adopted,
            holder: None,
            listener,
            room: Room::new(
                self.has_proc,
                spec.limits.processes,
                spec.limits.tasks + u64::from(held),
            ),
            locks: RecordLocks::default(),
            file_locks: FileLocks::default(),
            backstop: backstop(spec.wall_millis),
        }
    }

    /// The engine did not end the guest in time, so init does.
    pub(super) fn expire(&mut self) {
        if let Some(guest) = &mut self.guest {
            guest.backstop = None;
        }
        sys::process::kill_everything_else();
    }

    /// Tries again to take the file locks that guests wait for.
    pub(super) fn retry_locks(&mut self) {
        if let Some(guest) = &mut self.guest
            && let Some(listener) = &guest.listener
        {
            guest.file_locks.retry(listener.as_fd());
        }
    }

    /// Answers one call that waits: makes room for a new thread, counts a record lock, takes a file lock. Forgets the listener once
    /// nobody can ask.
    pub(super) fn answer_call(&mut self, asked: bool) -> io::Result<()> {
        let Some(guest) = &mut self.guest else {
            return Ok(());
        };
        if !asked {
            guest.listener = None;
        }
        let Some(listener) = &guest.listener else {
            return Ok(());
        };
        match sys::filter::receive(listener.as_fd()) {
            Ok(Some(notice)) if i64::from(notice.number) == libc::SYS_fcntl => {
                if guest.locks.admit() {
                    sys::filter::let_go_on(listener.as_fd(), notice)
                } else {
                    sys::filter::refuse(listener.as_fd(), notice, libc::ENOLCK)
                }
            }
            Ok(Some(notice)) if i64::from(notice.number) == libc::SYS_flock => {
                let scratch = self.work_dir.as_fd();
                guest.file_locks.ask(listener.as_fd(), notice, scratch)
            }
            Ok(Some(notice)) => {
                // Where no room could be made, for want of memory perhaps, the kernel refuses the thread.
                let _ = guest.room.one_more(notice.task);
                sys::filter::let_go_on(listener.as_fd(), notice)
            }
            Ok(None) => Ok(()),
            Err(_) => {
                // Nobody is left who could ask.
                guest.listener = None;
                Ok(())
            }
        }
    }

    /// The process that held the guest's memory is dead: its task is no longer reserved.
    pub(super) fn holder_ended(&mut self) -> io::Result<()> {
        let Some(guest) = &mut self.guest else {
            return Ok(());
        };
        guest.holder = None;
        guest.room.release_holder()
    }

    /// Reaps whatever has ended. When the guest itself has, everything it left behind goes with it.
    pub(super) fn reap(&mut self) -> io::Result<()> {
        let mut drain = [0u8; 1024];
        let _ = rustix::io::read(&self.children, &mut drain);
        let mut ended = None;
        while let Some(reaped) = sys::process::reap()? {
            let is_guest = |guest: &Running| guest.adopted.is_none() && guest.pid == reaped.pid;
            if self.guest.as_ref().is_some_and(is_guest) {
                ended = Some(reaped);
            }
        }
        match ended {
            Some(ended) => self.clear(Some(ended.status), ended.cpu_time),
            None => Ok(()),
        }
    }

    pub(super) fn end_adopted(&mut self) -> io::Result<()> {
        self.clear(None, Duration::ZERO)
    }

    /// The guest has ended: nothing it left behind may outlive it.
    fn clear(&mut self, status: Option<i32>, mut cpu_time: Duration) -> io::Result<()> {
        self.guest = None;
        if !weaken::is_off("killrest") {
            sys::process::kill_everything_else();
        }
        // A process whose parent dies becomes our child before that parent can be reaped, and all of
        // them are dying: once we have no child, the namespace is empty.
        while let Some(reaped) = sys::process::reap_next()? {
            cpu_time += reaped.cpu_time;
        }
        let event = InitEvent::Ended {
            status,
            cpu_micros: u64::try_from(cpu_time.as_micros()).unwrap_or(0),
        };
        self.tell(event, None)
    }
}

/// A descriptor that becomes readable when the process ends.
fn watch_end(pid: Pid) -> Result<OwnedFd, StepFailure> {
    rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty())
        .map_err(|error| StepFailure::new("Adopt", error))
}

/// When init ends a guest by itself that has so long.
pub(super) fn backstop(wall_millis: u64) -> Option<Instant> {
    Instant::now().checked_add(Duration::from_millis(wall_millis).saturating_add(GRACE))
}

/// Waits until the fork has become the guest, or says why it could not.
fn hear_guest(channel: &OwnedFd) -> Result<Option<OwnedFd>, StepFailure> {
    let mut listener = None;
    loop {
        match wire::receive::<GuestReport>(channel) {
            Ok((GuestReport::Ready, fds)) => listener = fds.into_iter().next(),
            // It exits by itself; its status belongs to no guest.
            Ok((GuestReport::Failed(failure), _)) => return Err(failure),
            // The channel closed: exec replaced the fork.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(listener),
            Err(error) => return Err(StepFailure::new("Channel", error)),
        }
    }
}
