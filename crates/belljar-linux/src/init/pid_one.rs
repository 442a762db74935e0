//! Pid 1 of a sandbox: raises the walls, starts guests, counts processes, reaps, reports.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, Signal};
use rustix::time::Timespec;

use super::adopt::Adoption;
use super::guests::{Running, backstop};
use super::perform::Raising;
use super::{exit_slot, files, steps};
use crate::policies::PreparedFilters;
use crate::sys;
use crate::weaken;
use crate::wire::{self, Incoming, InitEvent, InitRequest, Note, RootSpec, ShellSpec, StepFailure, Tree};

/// Runs as pid 1 until the engine hangs up, then waits for its exit slot and ends its guests. Never returns.
pub(crate) fn run(
    root: &RootSpec,
    spec: &ShellSpec,
    control: &OwnedFd,
    exit_slot: &OwnedFd,
    late: &[(&Tree, OwnedFd)],
    filters: &PreparedFilters,
) -> ! {
    let mut raising = Raising {
        root,
        spec,
        control: control.as_fd(),
        exit_slot: exit_slot.as_fd(),
        late,
        notes: Vec::new(),
    };
    for step in steps::shell(spec) {
        if weaken::is_off(&format!("{step:?}").to_lowercase()) {
            continue;
        }
        if let Err(error) = raising.perform(&step) {
            give_up(control, &format!("{step:?}"), error);
        }
    }
    let notes = raising.notes;
    let has_proc = notes.contains(&Note::ProcMounted);
    // The trees are attached now; their descriptors would only be something to leak.
    let stand = above_streams(control.as_fd()).and_then(|control| {
        let exit_slot = above_streams(exit_slot.as_fd())?;
        close_all_but([&control, &exit_slot].into_iter())?;
        Ok((PidOne::new(control, has_proc, filters)?, exit_slot))
    });
    match stand {
        Ok((mut init, exit_slot)) => {
            let served = init.serve(notes);
            exit_slot::take(&exit_slot);
            end_guests();
            sys::process::exit_now(if served.is_ok() { 0 } else { 1 })
        }
        Err(error) => give_up(control, "TakeStand", error),
    }
}

/// Kills every process of the jail and waits until all of them are gone, before this process's own exit gives back its slot.
fn end_guests() {
    sys::process::kill_everything_else();
    while let Ok(Some(_)) = sys::process::reap_next() {}
}

/// The same descriptor under a number that no stream of a guest will have.
fn above_streams(fd: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    Ok(rustix::io::fcntl_dupfd_cloexec(fd, STREAMS)?)
}

/// Tells the engine why there will be no shell.
fn give_up(control: &OwnedFd, step: &str, error: io::Error) -> ! {
    let _ = wire::send(
        control,
        &[InitEvent::SetupFailed(StepFailure::new(step, error))],
        &[],
    );
    sys::process::exit_now(1)
}

fn close_all_but<'a>(kept: impl Iterator<Item = &'a OwnedFd>) -> io::Result<()> {
    if weaken::is_off("closeforeigndescriptors") {
        return Ok(());
    }
    sys::process::close_all_but(kept.map(AsFd::as_fd))
}

/// Standard input, output and error, and the control channel of a runner.
pub(super) const STREAMS: i32 = 4;

pub(super) struct PidOne<'a> {
    pub(super) control: OwnedFd,
    /// Whether there is a `/proc` here.
    pub(super) has_proc: bool,
    pub(super) children: OwnedFd,
    /// Where the engine's files are put.
    pub(super) work_dir: OwnedFd,
    pub(super) incoming: Incoming,
    pub(super) filters: &'a PreparedFilters,
    pub(super) guest: Option<Running>,
    /// A guest that is on its way in.
    pub(super) adoption: Option<Adoption>,
    pub(super) sealed: bool,
    /// What the engine was not told yet, with what goes with it.
    unsaid: Vec<(InitEvent, Option<OwnedFd>)>,
}

/// Waits until somebody has something to say, or it is time.
fn wait(waits: &mut [PollFd<'_>], timeout: Option<&Timespec>) -> io::Result<()> {
    match poll(waits, timeout) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        // More than the limit of open files allows at once. Init's own allows it, so somebody has lowered that, as a
        // guest without its filter can; it is no way to be rid of init.
        Err(Errno::INVAL) if waits.len() > 1 => {
            let at_once = Timespec::default();
            for one in waits.chunks_mut(1) {
                poll(one, Some(&at_once))?;
            }
            if waits.iter().all(|wait| wait.revents().is_empty()) {
                std::thread::sleep(Duration::from_millis(1));
            }
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}

/// Who may have something to say to init.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Engine,
    Children,
    /// New threads and record locks that wait for an answer.
    Calls,
    /// The end of a guest that is not init's own child.
    Adopted,
    /// The end of the process that holds the guest's memory.
    Holder,
    /// A guest on its way in.
    Coming,
}

impl<'a> PidOne<'a> {
    fn new(control: OwnedFd, has_proc: bool, filters: &'a PreparedFilters) -> io::Result<Self> {
        // These descriptors must be taken: something opened later must never become a stream.
        let null = rustix::fs::open("/dev/null", OFlags::RDWR, Mode::empty())?;
        for _ in 1..STREAMS {
            std::mem::forget(rustix::io::dup(&null)?);
        }
        std::mem::forget(null);
        let work_dir = rustix::fs::open("/workspace", OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Self {
            control,
            has_proc,
            children: sys::process::child_events()?,
            work_dir,
            incoming: Incoming::default(),
            filters,
            guest: None,
            adoption: None,
            sealed: false,
            unsaid: Vec::new(),
        })
    }

    fn serve(&mut self, notes: Vec<Note>) -> io::Result<()> {
        let work_dir = self.work_dir.try_clone()?;
        self.unsaid.push((InitEvent::Ready { notes }, Some(work_dir)));
        loop {
            // Told with what is to come, where there is more to do: nobody is woken for what he cannot use yet.
            if !self.unsaid.is_empty() && self.adoption.is_none() && !self.is_asked()? {
                self.say()?;
            }
            let guest = self.guest.as_ref();
            let sources = [
                (Source::Engine, Some(&self.control)),
                (Source::Children, Some(&self.children)),
                (Source::Calls, guest.and_then(|guest| guest.listener.as_ref())),
                (Source::Adopted, guest.and_then(|guest| guest.adopted.as_ref())),
                (Source::Holder, guest.and_then(|guest| guest.holder.as_ref())),
                (
                    Source::Coming,
                    self.adoption.as_ref().map(|adoption| &adoption.channel),
                ),
            ];
            let (kinds, mut waits): (Vec<Source>, Vec<PollFd<'_>>) = sources
                .into_iter()
                .filter_map(|(source, fd)| {
                    Some((source, PollFd::from_borrowed_fd(fd?.as_fd(), PollFlags::IN)))
                })
                .unzip();
            let left = self
                .guest
                .as_ref()
                .and_then(|guest| guest.backstop)
                .map(|at| at.saturating_duration_since(Instant::now()));
            let settle = self.guest.as_ref().and_then(|guest| guest.room.settles_in());
            let retry = self
                .guest
                .as_ref()
                .and_then(|guest| guest.file_locks.retries_in());
            let soonest = left.into_iter().chain(settle).chain(retry).min();
            let timeout = soonest.and_then(|soonest| Timespec::try_from(soonest).ok());
            wait(&mut waits, timeout.as_ref())?;
            let seen: Vec<(Source, PollFlags)> = kinds
                .into_iter()
                .zip(waits.iter().map(PollFd::revents))
                .filter(|(_, seen)| !seen.is_empty())
                .collect();
            drop(waits);
            if left == Some(Duration::ZERO) {
                self.expire();
            }
            if settle == Some(Duration::ZERO)
                && let Some(guest) = &mut self.guest
            {
                guest.room.settle()?;
            }
            if retry.is_some() {
                self.retry_locks();
            }
            // Whoever asks for room is served before anybody's end is looked at, the engine last.
            for source in [
                Source::Calls,
                Source::Children,
                Source::Adopted,
                Source::Holder,
                Source::Coming,
                Source::Engine,
            ] {
                let Some((_, flags)) = seen.iter().find(|(seen, _)| *seen == source) else {
                    continue;
                };
                match source {
                    Source::Calls => self.answer_call(flags.contains(PollFlags::IN))?,
                    Source::Children => self.reap()?,
                    Source::Adopted => self.end_adopted()?,
                    Source::Holder => self.holder_ended()?,
                    Source::Coming => self.welcome()?,
                    Source::Engine => {
                        if !self.obey()? {
                            return Ok(());
                        }
                    }
                }
            }
        }
    }

    /// Takes what the engine says; false once it has hung up.
    fn obey(&mut self) -> io::Result<bool> {
        let (request, fds) = match self.incoming.receive_some::<InitRequest>(self.control.as_fd()) {
            Ok(Some(message)) => message,
            Ok(None) => return Ok(true),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(false),
            Err(error) => return Err(error),
        };
        let event = match request {
            // Only before anything else.
            InitRequest::Join => return Err(io::ErrorKind::InvalidData.into()),
            InitRequest::PutFile { path, executable } => {
                let put = match fds.first() {
                    Some(content) => files::put(self.work_dir.as_fd(), &path, executable, content),
                    None => Err(io::ErrorKind::InvalidInput.into()),
                };
                let event = match put {
                    Ok(()) => InitEvent::FilePut,
                    Err(error) => InitEvent::FileFailed(StepFailure::new("PutFile", error)),
                };
                self.unsaid.push((event, None));
                return Ok(true);
            }
            InitRequest::Adopt { spec, held } => match self.adopt(spec, held, fds) {
                // The answer comes when the fork has come in.
                Ok(()) => return Ok(true),
                Err(failure) => InitEvent::NotStarted(failure),
            },
            InitRequest::Interrupt => {
                if let Some(pid) = self.guest.as_ref().and_then(|guest| Pid::from_raw(guest.pid)) {
                    // It may have ended by now.
                    let _ = rustix::process::kill_process(pid, Signal::INT);
                }
                return Ok(true);
            }
            InitRequest::Backstop { wall_millis } => {
                if let Some(guest) = &mut self.guest {
                    guest.backstop = backstop(wall_millis);
                }
                return Ok(true);
            }
            InitRequest::EndGuest => {
                // Its end is reported like any other.
                sys::process::kill_everything_else();
                return Ok(true);
            }
            InitRequest::Exec(spec) => match self.start(&spec, &fds) {
                Ok(notes) => InitEvent::Started { notes },
                Err(failure) => InitEvent::NotStarted(failure),
            },
        };
        self.tell(event, None)?;
        Ok(true)
    }

    /// Tells the engine, after what it was not told yet.
    pub(super) fn tell(&mut self, event: InitEvent, fd: Option<OwnedFd>) -> io::Result<()> {
        self.unsaid.push((event, fd));
        self.say()
    }

    /// Tells what was not told yet.
    fn say(&mut self) -> io::Result<()> {
        let (events, fds): (Vec<_>, Vec<_>) = self.unsaid.drain(..).unzip();
        let fds: Vec<_> = fds.iter().flatten().map(AsFd::as_fd).collect();
        wire::send(&self.control, &events, &fds)
    }

    /// Whether the engine has something to say.
    fn is_asked(&self) -> io::Result<bool> {
        let mut control = [PollFd::from_borrowed_fd(self.control.as_fd(), PollFlags::IN)];
        wait(&mut control, Some(&Timespec::default()))?;
        Ok(!control[0].revents().is_empty())
    }
}
