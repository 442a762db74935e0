//! Pid 1 of a sandbox: raises the walls, starts guests, counts processes, reaps, reports.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags};
use rustix::mount::{OpenTreeFlags, open_tree};
use rustix::process::{Pid, Signal};

use super::adopt::Adoption;
use super::guest::{GuestReport, become_guest};
use super::perform::{Raising, seal_writable};
use super::plan::Plan;
use super::room::Room;
use super::steps::Start;
use super::{files, steps};
use crate::policies::PreparedFilters;
use crate::sys::{self, process::Side};
use crate::weaken;
use crate::wire::{
    self, GuestSpec, Incoming, InitEvent, InitRequest, Note, RootSpec, ShellSpec, StepFailure, Tree,
};

/// Runs as pid 1 until the engine hangs up. Never returns.
pub(crate) fn run(
    root: &RootSpec,
    spec: &ShellSpec,
    control: &OwnedFd,
    late: &[(&Tree, OwnedFd)],
    tasks: &[OwnedFd],
    filters: &PreparedFilters,
) -> ! {
    let mut raising = Raising {
        root,
        spec,
        control: control.as_fd(),
        late,
        tasks,
        proc: None,
        notes: Vec::new(),
    };
    for step in steps::shell(spec) {
        if weaken::is_off(&format!("{step:?}").to_lowercase()) {
            continue;
        }
        if let Err(error) = raising.perform(&step) {
            give_up(control, &format!("{step:?}"), &error);
        }
    }
    let notes = raising.notes;
    // The trees are attached now; their descriptors would only be something to leak.
    let stand = above_streams(control.as_fd())
        .and_then(|control| {
            Ok((
                control,
                raising.proc.map(|proc| above_streams(proc.as_fd())).transpose()?,
            ))
        })
        .and_then(|(control, proc)| {
            close_all_but(control.as_fd(), proc.as_ref())?;
            PidOne::new(control, proc, filters)
        });
    match stand {
        Ok(mut init) => sys::process::exit_now(if init.serve(notes).is_ok() { 0 } else { 1 }),
        Err(error) => give_up(control, "TakeStand", &error),
    }
}

/// The same descriptor under a number that no stream of a guest will have.
fn above_streams(fd: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    Ok(rustix::io::fcntl_dupfd_cloexec(fd, STREAMS)?)
}

/// Tells the engine why there will be no shell.
fn give_up(control: &OwnedFd, step: &str, error: &io::Error) -> ! {
    let _ = wire::send(control, &InitEvent::SetupFailed(failure(step, error)), &[]);
    sys::process::exit_now(1)
}

fn close_all_but(control: BorrowedFd<'_>, proc: Option<&OwnedFd>) -> io::Result<()> {
    if weaken::is_off("closeforeigndescriptors") {
        return Ok(());
    }
    let keep = [Some(control), proc.map(AsFd::as_fd)];
    sys::process::close_all_but(keep.into_iter().flatten())
}

/// Standard input, output and error, and the control channel of a runner.
const STREAMS: i32 = 4;

struct PidOne<'a> {
    control: OwnedFd,
    /// Where all processes can be seen.
    proc: Option<OwnedFd>,
    children: OwnedFd,
    /// Where the engine's files are put.
    work_dir: OwnedFd,
    incoming: Incoming,
    filters: &'a PreparedFilters,
    guest: Option<Running>,
    /// A guest that is on its way in.
    adoption: Option<Adoption>,
    sealed: bool,
}

/// Who may have something to say to init.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Engine,
    Children,
    /// Threads that ask to be let in.
    Threads,
    /// The end of a guest that is not init's own child.
    Adopted,
    /// A guest on its way in.
    Coming,
}

/// How long after the engine's deadline init waits for the engine.
const GRACE: Duration = Duration::from_millis(500);

/// The guest of the moment.
struct Running {
    pid: i32,
    /// Of one that is not init's own child: becomes readable when it ends.
    adopted: Option<OwnedFd>,
    /// Where new threads ask to be let in.
    listener: Option<OwnedFd>,
    room: Room,
    /// When init ends it by itself.
    backstop: Option<Instant>,
}

impl<'a> PidOne<'a> {
    fn new(control: OwnedFd, proc: Option<OwnedFd>, filters: &'a PreparedFilters) -> io::Result<Self> {
        // These descriptors must be taken: something opened later must never become a stream.
        for _ in 0..STREAMS {
            let null = rustix::fs::open("/dev/null", OFlags::RDWR, Mode::empty())?;
            std::mem::forget(null);
        }
        let work_dir = rustix::fs::open("/workspace", OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Self {
            control,
            proc,
            children: sys::process::child_events()?,
            work_dir,
            incoming: Incoming::default(),
            filters,
            guest: None,
            adoption: None,
            sealed: false,
        })
    }

    fn serve(&mut self, notes: Vec<Note>) -> io::Result<()> {
        wire::send(
            &self.control,
            &InitEvent::Ready { notes },
            &[self.work_dir.as_fd()],
        )?;
        loop {
            let guest = self.guest.as_ref();
            let sources = [
                (Source::Engine, Some(&self.control)),
                (Source::Children, Some(&self.children)),
                (Source::Threads, guest.and_then(|guest| guest.listener.as_ref())),
                (Source::Adopted, guest.and_then(|guest| guest.adopted.as_ref())),
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
            let soonest = left.into_iter().chain(settle).min();
            let timeout = soonest.and_then(|soonest| rustix::time::Timespec::try_from(soonest).ok());
            match poll(&mut waits, timeout.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
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
            // Whoever asks for room is served before anybody's end is looked at, the engine last.
            for source in [
                Source::Threads,
                Source::Children,
                Source::Adopted,
                Source::Coming,
                Source::Engine,
            ] {
                let Some((_, flags)) = seen.iter().find(|(seen, _)| *seen == source) else {
                    continue;
                };
                match source {
                    Source::Threads => self.let_in(flags.contains(PollFlags::IN))?,
                    Source::Children => self.reap()?,
                    Source::Adopted => self.end_adopted()?,
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
            InitRequest::PutFile { path, executable } => match fds.first() {
                Some(content) => match files::put(self.work_dir.as_fd(), &path, executable, content) {
                    Ok(()) => InitEvent::FilePut,
                    Err(error) => InitEvent::FileFailed(failure("PutFile", &error)),
                },
                None => InitEvent::FileFailed(failure("PutFile", &io::ErrorKind::InvalidInput.into())),
            },
            InitRequest::Adopt(spec) => match self.adopt(spec, fds) {
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
        wire::send(&self.control, &event, &[])?;
        Ok(true)
    }

    /// The plan of a guest with these streams, where one may be started.
    fn plan(&mut self, spec: &GuestSpec, start: Start, streams: usize) -> Result<Plan, StepFailure> {
        if self.guest.is_some() || self.adoption.is_some() || !(3..=STREAMS as usize).contains(&streams) {
            return Err(failure("Start", &io::ErrorKind::InvalidInput.into()));
        }
        if !spec.file_write && !self.sealed {
            self.seal(spec).map_err(|error| failure("SealWritable", &error))?;
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

    fn start(&mut self, spec: &GuestSpec, streams: &[OwnedFd]) -> Result<Vec<Note>, StepFailure> {
        let plan = self.plan(spec, Start::Exec, streams.len())?;
        let (ours, theirs) = wire::pair().map_err(|error| failure("Channel", &error))?;
        let pid = match sys::process::clone_child(0, None).map_err(|error| failure("Fork", &error))? {
            Side::Child => {
                drop(ours);
                become_guest(spec, &plan, streams, &theirs);
            }
            Side::Parent { pid, .. } => pid,
        };
        drop(theirs);
        let listener = hear_guest(&ours)?;
        self.guest = Some(self.running(spec, pid, listener, None)?);
        Ok(plan.notes)
    }

    fn adopt(&mut self, spec: Box<GuestSpec>, mut fds: Vec<OwnedFd>) -> Result<(), StepFailure> {
        if fds.is_empty() {
            return Err(failure("Adopt", &io::ErrorKind::InvalidInput.into()));
        }
        let channel = fds.remove(0);
        let plan = self.plan(&spec, Start::Warm, fds.len())?;
        let adoption =
            Adoption::begin(channel, spec, plan, &fds).map_err(|error| failure("Adopt", &error))?;
        self.adoption = Some(adoption);
        Ok(())
    }

    /// A guest has come in, or said why it could not.
    fn welcome(&mut self) -> io::Result<()> {
        let Some(adoption) = self.adoption.take() else {
            return Ok(());
        };
        let welcomed = adoption.finish().and_then(|arrival| {
            let ended = Pid::from_raw(arrival.pid)
                .ok_or(rustix::io::Errno::SRCH)
                .and_then(|pid| rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()))
                .map_err(|error| failure("Adopt", &error.into()))?;
            let mut guest = self.running(&adoption.spec, arrival.pid, arrival.listener, Some(ended))?;
            guest.room.leave_out(arrival.holder);
            if arrival.holder.is_none() && guest.listener.is_some() {
                // There is room for one, which is not to be filled by another.
                guest.room.settle().map_err(|error| failure("Room", &error))?;
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
        let fds: Vec<_> = guest.map(AsFd::as_fd).into_iter().collect();
        wire::send(&self.control, &event, &fds)
    }

    fn running(
        &self,
        spec: &GuestSpec,
        pid: i32,
        listener: Option<OwnedFd>,
        adopted: Option<OwnedFd>,
    ) -> Result<Running, StepFailure> {
        let proc = self
            .proc
            .as_ref()
            .map(OwnedFd::try_clone)
            .transpose()
            .map_err(|error| failure("Room", &error))?;
        let adopted_one = adopted.is_some();
        Ok(Running {
            pid,
            adopted,
            listener,
            room: Room::new(
                proc,
                spec.limits.processes,
                spec.limits.tasks + u64::from(adopted_one),
            ),
            backstop: backstop(spec.wall_millis),
        })
    }

    /// The engine did not end the guest in time, so init does.
    fn expire(&mut self) {
        if let Some(guest) = &mut self.guest {
            guest.backstop = None;
        }
        sys::process::kill_everything_else();
    }

    /// Makes room for one thread that is about to be made and lets it go on, or forgets the listener
    /// once nobody can ask.
    fn let_in(&mut self, asked: bool) -> io::Result<()> {
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
            Ok(Some(notice)) => {
                guest.room.one_more(notice.task)?;
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

    /// Reaps whatever has ended. When the guest itself has, everything it left behind goes with it.
    fn reap(&mut self) -> io::Result<()> {
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

    fn end_adopted(&mut self) -> io::Result<()> {
        self.clear(None, Duration::ZERO)
    }

    /// The guest has ended: nothing it left behind may outlive it.
    fn clear(&mut self, status: Option<i32>, mut cpu_time: Duration) -> io::Result<()> {
        self.guest = None;
        if !weaken::is_off("killrest") {
            sys::process::kill_everything_else();
        }
        // A process whose parent dies becomes our child before that parent can be reaped, and all of
        // them are dying: once we have no child, the namespace is empty. (Of an adopted guest its holder may
        // be left, which is no child of ours and already on its way out: it runs no instruction any more.)
        while let Some(reaped) = sys::process::reap_next()? {
            cpu_time += reaped.cpu_time;
        }
        let event = InitEvent::Ended {
            status,
            cpu_micros: u64::try_from(cpu_time.as_micros()).unwrap_or(0),
        };
        wire::send(&self.control, &event, &[])
    }
}

/// When init ends a guest by itself that has so long.
fn backstop(wall_millis: u64) -> Option<Instant> {
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
            Err(error) => return Err(failure("Channel", &error)),
        }
    }
}

fn failure(step: &str, error: &io::Error) -> StepFailure {
    StepFailure {
        step: step.to_owned(),
        errno: error.raw_os_error().unwrap_or(0),
    }
}
