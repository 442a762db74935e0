//! Pid 1 of a sandbox: raises the walls, starts guests, counts processes, reaps, reports.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{Pid, Signal};

use super::guest::{self, GuestReport, become_guest};
use super::perform::{Raising, seal_writable};
use super::room::Room;
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
    work_dir: OwnedFd,
    incoming: Incoming,
    filters: &'a PreparedFilters,
    guest: Option<Running>,
    sealed: bool,
}

/// How long after the engine's deadline init waits for the engine.
const GRACE: Duration = Duration::from_millis(500);

/// The guest of the moment.
struct Running {
    pid: i32,
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
            let listener = self.guest.as_ref().and_then(|guest| guest.listener.as_ref());
            let mut waits = vec![
                PollFd::from_borrowed_fd(self.control.as_fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(self.children.as_fd(), PollFlags::IN),
            ];
            waits.extend(listener.map(|listener| PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN)));
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
            let seen: Vec<PollFlags> = waits.iter().map(PollFd::revents).collect();
            drop(waits);
            if left == Some(Duration::ZERO) {
                self.expire();
            }
            if settle == Some(Duration::ZERO)
                && let Some(guest) = &mut self.guest
            {
                guest.room.settle()?;
            }
            if let Some(seen) = seen.get(2).filter(|seen| !seen.is_empty()) {
                self.let_in(seen.contains(PollFlags::IN))?;
            }
            if !seen[1].is_empty() {
                self.reap()?;
            }
            if !seen[0].is_empty() && !self.obey()? {
                return Ok(());
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
            InitRequest::Interrupt => {
                if let Some(pid) = self.guest.as_ref().and_then(|guest| Pid::from_raw(guest.pid)) {
                    // It may have ended by now.
                    let _ = rustix::process::kill_process(pid, Signal::INT);
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

    fn start(&mut self, spec: &GuestSpec, stdio: &[OwnedFd]) -> Result<Vec<Note>, StepFailure> {
        if self.guest.is_some() || !(3..=4).contains(&stdio.len()) {
            return Err(failure("Start", &io::ErrorKind::InvalidInput.into()));
        }
        if !spec.file_write && !self.sealed {
            seal_writable(&spec.writable[..]).map_err(|error| failure("SealWritable", &error))?;
            self.sealed = true;
        }
        let Some(filter) = self.filters.get(guest::filter_options(spec)) else {
            return Err(failure("Seccomp", &io::ErrorKind::NotFound.into()));
        };
        let (ours, theirs) = socketpair(
            AddressFamily::UNIX,
            SocketType::STREAM,
            SocketFlags::CLOEXEC,
            None,
        )
        .map_err(|error| failure("Channel", &error.into()))?;
        let pid = match sys::process::clone_child(0, None).map_err(|error| failure("Fork", &error))? {
            Side::Child => {
                drop(ours);
                become_guest(spec, filter, stdio, &theirs);
            }
            Side::Parent { pid, .. } => pid,
        };
        drop(theirs);
        self.hear_guest(spec, pid, &ours)
    }

    /// Waits until the fork has become the guest, or says why it could not.
    fn hear_guest(
        &mut self,
        spec: &GuestSpec,
        pid: i32,
        channel: &OwnedFd,
    ) -> Result<Vec<Note>, StepFailure> {
        let (mut seen, mut listener) = (Vec::new(), None);
        loop {
            match wire::receive::<GuestReport>(channel) {
                Ok((GuestReport::Ready { notes }, fds)) => {
                    seen = notes;
                    listener = fds.into_iter().next();
                }
                Ok((GuestReport::Failed(failure), _)) => {
                    // It exits by itself; its status belongs to no guest.
                    return Err(failure);
                }
                // The channel closed: exec replaced the fork.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => break,
                Err(error) => return Err(failure("Channel", &error)),
            }
        }
        let backstop =
            Instant::now().checked_add(Duration::from_millis(spec.wall_millis).saturating_add(GRACE));
        let proc = self
            .proc
            .as_ref()
            .map(OwnedFd::try_clone)
            .transpose()
            .map_err(|error| failure("Room", &error))?;
        self.guest = Some(Running {
            pid,
            listener,
            room: Room::new(proc, spec.limits.processes, spec.limits.tasks),
            backstop,
        });
        Ok(seen)
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
            if self.guest.as_ref().is_some_and(|guest| guest.pid == reaped.pid) {
                ended = Some(reaped);
            }
        }
        let Some(ended) = ended else { return Ok(()) };
        self.guest = None;
        if !weaken::is_off("killrest") {
            sys::process::kill_everything_else();
        }
        let mut cpu_time = ended.cpu_time;
        // A process whose parent dies becomes our child before that parent can be reaped, and all of
        // them are dying: once we have no child, the namespace is empty.
        while let Some(reaped) = sys::process::reap_next()? {
            cpu_time += reaped.cpu_time;
        }
        let event = InitEvent::Ended {
            status: ended.status,
            cpu_micros: u64::try_from(cpu_time.as_micros()).unwrap_or(0),
        };
        wire::send(&self.control, &event, &[])
    }
}

fn failure(step: &str, error: &io::Error) -> StepFailure {
    StepFailure {
        step: step.to_owned(),
        errno: error.raw_os_error().unwrap_or(0),
    }
}
