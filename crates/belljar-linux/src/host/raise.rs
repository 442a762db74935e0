//! Raising a sandbox: its group, its shell, and a guest that waits in it.
//!
//! All of it blocks, so that the pool's own thread and a runtime's blocking threads can share it.
//! Nothing here belongs to a runtime yet.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use belljar_core::{Plan, ProviderError};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Signal, pidfd_send_signal};
use tokio::sync::oneshot::{self, error::TryRecvError};

use super::cgroup::{GroupLimits, Hierarchy, group_name};
use super::group::SandboxGroup;
use super::nursery::{Asked, Nursery};
use super::output;
use super::probe;
use super::put::{self, Put};
use super::sandbox::failed;
use super::shared::Shared;
use super::zygote::{self, Errand, Zygote};
use crate::wire::{self, CgroupJoin, GuestSpec, InitEvent, InitRequest, Note, ShellSpec};

/// How long any one step may take, on a machine that is very busy.
const RAISING: Duration = Duration::from_secs(20);

/// What is to be raised.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub nursery: Arc<Nursery>,
    pub shell: ShellSpec,
    pub limits: GroupLimits,
    /// Whether its share of the processors may be changed later.
    pub shares: bool,
    pub guest: Option<WantedGuest>,
    /// Whose files are put there meanwhile.
    pub files: Option<Arc<Plan>>,
}

/// A guest to wait in the shell.
#[derive(Clone, Debug)]
pub(crate) struct WantedGuest {
    pub spec: GuestSpec,
    /// Who forks it, and for what; without one it is started by init.
    pub zygote: Option<(Arc<Zygote>, Errand)>,
}

/// A sandbox that stands and that nobody has moved into.
#[derive(Debug)]
pub(crate) struct Raised {
    /// Before the group: dropping goes in this order, and a group must be empty to be removed.
    pub shell: RaisedShell,
    pub group: Option<SandboxGroup>,
    pub guest: Option<Waiting>,
}

impl Raised {
    /// Whether everything that it came with is still there, as far as has been heard.
    pub(crate) fn is_whole(&mut self) -> bool {
        let waits = |ended: &mut oneshot::Receiver<()>| ended.try_recv() == Err(TryRecvError::Empty);
        let zygote = self.guest.as_mut().and_then(|guest| guest.ended.as_mut());
        // Init has nothing to say while its guest waits: it would speak of an end, or be gone itself.
        let mut control = [PollFd::from_borrowed_fd(
            self.shell.control.as_fd(),
            PollFlags::IN,
        )];
        let at_once = Timespec::default();
        self.shell.ended.as_mut().is_some_and(waits)
            && zygote.is_none_or(|ended| matches!(ended.try_recv(), Err(TryRecvError::Empty)))
            && matches!(poll(&mut control, Some(&at_once)), Ok(0))
    }
}

/// A shell that stands. Dropping it kills everything inside.
#[derive(Debug)]
pub(crate) struct RaisedShell {
    pub pidfd: OwnedFd,
    pub control: OwnedFd,
    pub work_dir: OwnedFd,
    pub notes: Vec<Note>,
    pub ended: Option<oneshot::Receiver<()>>,
    pub nursery: Arc<Nursery>,
    kept: bool,
}

impl RaisedShell {
    /// Somebody else looks after it from now on.
    pub(crate) fn keep(mut self) {
        self.kept = true;
    }
}

impl Drop for RaisedShell {
    fn drop(&mut self) {
        if !self.kept {
            let _ = pidfd_send_signal(&self.pidfd, Signal::KILL);
        }
    }
}

/// A guest that waits for something to do: our ends of its streams.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub stdin: OwnedFd,
    pub stdout: OwnedFd,
    pub stderr: OwnedFd,
    pub channel: OwnedFd,
    /// Of a fork of a zygote: how it ends. Init knows that of its own.
    pub ended: Option<zygote::Ended>,
    /// Of such a fork: it is no descendant of init.
    pub pidfd: Option<OwnedFd>,
}

/// A sandbox that is to be made, for whose shell somebody else may ask.
#[derive(Debug)]
pub(crate) struct Beginning {
    wanted: Wanted,
    asked: Option<oneshot::Receiver<Result<Asked, ProviderError>>>,
}

/// A shell that is yet to be asked for.
#[derive(Debug)]
#[must_use = "a sandbox waits for its shell"]
pub(crate) struct Asking {
    nursery: Arc<Nursery>,
    shell: ShellSpec,
    asked: oneshot::Sender<Result<Asked, ProviderError>>,
}

/// A sandbox on its way up. Many can be at once.
#[derive(Debug)]
pub(crate) struct Rising {
    asked: Asked,
    nursery: Arc<Nursery>,
    group: Option<SandboxGroup>,
    /// Where init and a fork write to get into the group, and whether init does.
    entries: Vec<OwnedFd>,
    joins: bool,
    guest: Option<(WantedGuest, Streams)>,
    files: Vec<Put>,
}

/// A sandbox that stands, with files and a guest on their way in.
#[derive(Debug)]
pub(crate) struct Filling {
    raised: Raised,
    files: Vec<Put>,
    guest: Option<Waiting>,
}

/// Two things that can go on at the same time: making what the shell will need, and asking for it. The second is nobody's business
/// where the shell is born into its group.
pub(crate) fn prepare(shared: &Shared, mut wanted: Wanted) -> (Beginning, Option<Asking>) {
    let guest = wanted.guest.as_ref();
    wanted.shell.namespaces = guest.is_some_and(|guest| guest.zygote.is_some());
    wanted.shell.cgroup = shared.hierarchy().map_or(CgroupJoin::None, Hierarchy::join);
    if wanted.shell.cgroup == CgroupJoin::Born {
        return (Beginning { wanted, asked: None }, None);
    }
    let (sender, receiver) = oneshot::channel();
    let asking = Asking {
        nursery: Arc::clone(&wanted.nursery),
        shell: wanted.shell.clone(),
        asked: sender,
    };
    let asked = Some(receiver);
    (Beginning { wanted, asked }, Some(asking))
}

/// The same, one after the other.
pub(crate) fn begin(shared: &Shared, wanted: Wanted, name: &str) -> Result<Rising, ProviderError> {
    let (beginning, asking) = prepare(shared, wanted);
    if let Some(asking) = asking {
        asking.ask();
    }
    beginning.begin(shared, name)
}

fn ask(nursery: &Nursery, shell: ShellSpec, birthplace: &[OwnedFd]) -> Result<Asked, ProviderError> {
    nursery
        .ask(shell, birthplace)
        .map_err(|error| failed("ask", "the nursery", error))
}

impl Asking {
    /// Whether asking takes no time.
    pub(crate) fn is_quick(&self) -> bool {
        self.nursery.is_at_leisure()
    }

    /// Asks for it. It is being made while whoever asks goes on.
    pub(crate) fn ask(self) {
        // Nobody wants it any more where this does not arrive.
        let _ = self.asked.send(ask(&self.nursery, self.shell, &[]));
    }
}

impl Beginning {
    /// Makes what the shell will need.
    pub(crate) fn begin(self, shared: &Shared, name: &str) -> Result<Rising, ProviderError> {
        let Self { wanted, asked } = self;
        let group = shared
            .hierarchy()
            .ok()
            .map(|hierarchy| {
                let name = group_name(shared.tag(), name);
                SandboxGroup::make(hierarchy, &name, wanted.limits, wanted.shares)
            })
            .transpose()?;
        let joins = wanted.shell.cgroup == CgroupJoin::Later;
        let entries = match &group {
            Some(group) if joins || wanted.shell.namespaces => group.entries()?,
            _ => Vec::new(),
        };
        let files = match &wanted.files {
            Some(plan) => plan.files().iter().map(Put::new).collect::<Result<_, _>>()?,
            None => Vec::new(),
        };
        let guest = match wanted.guest {
            Some(guest) => {
                let streams = Streams::new().map_err(|error| failed("make", "a pipe", error))?;
                Some((guest, streams))
            }
            None => None,
        };
        let asked = match asked {
            Some(asked) => asked
                .blocking_recv()
                .unwrap_or_else(|_| Err(ProviderError::Protocol("nobody asked for a sandbox".to_owned())))?,
            None => {
                let birthplace = group
                    .as_ref()
                    .map(SandboxGroup::birthplace)
                    .transpose()?
                    .flatten();
                ask(&wanted.nursery, wanted.shell, birthplace.as_slice())?
            }
        };
        Ok(Rising {
            asked,
            nursery: wanted.nursery,
            group,
            entries,
            joins,
            guest,
            files,
        })
    }
}

impl Rising {
    /// Waits until the shell is made, has its guest started, and waits until the shell stands: a fork of a zygote needs
    /// no more of a shell than its namespaces to be on its way.
    pub(crate) fn stand(self) -> Result<Filling, ProviderError> {
        let lost = |_| ProviderError::LauncherLost("it ended while a sandbox was being made".to_owned());
        let made = self.asked.made.blocking_recv().map_err(lost)?;
        let made = made.map_err(|failure| probe::explain(&failure))?;
        let killed_unless_kept = KillOnDrop(&made.pidfd);
        if self.joins {
            let fds: Vec<_> = self.entries.iter().map(AsFd::as_fd).collect();
            let _ = wire::send(&made.control, &InitRequest::Join, &fds);
        }
        // An init that has given up says why, which is more than that it does not listen.
        let sent = self.files.iter().try_for_each(|file| {
            let (request, content) = file.request();
            wire::send(&made.control, &request, &[content])
        });
        let guest = self
            .guest
            .map(|(guest, streams)| streams.start(&made.control, &made.namespaces, guest, &self.entries));
        let mut notes = made.notes;
        let work_dir = match wire::receive_within(&made.control, RAISING) {
            Ok((InitEvent::Ready { notes: seen }, mut fds)) if fds.len() == 1 => {
                notes.extend(seen);
                fds.remove(0)
            }
            Ok((InitEvent::SetupFailed(failure), _)) => return Err(probe::explain(&failure)),
            Ok(_) => return Err(out_of_turn()),
            Err(error) => return Err(failed("raise", "a sandbox", error)),
        };
        sent.map_err(|error| failed(put::OPERATION, "a file", error))?;
        let guest = guest.transpose()?;
        std::mem::forget(killed_unless_kept);
        let raised = Raised {
            shell: RaisedShell {
                pidfd: made.pidfd,
                control: made.control,
                work_dir,
                notes,
                ended: Some(self.asked.ended),
                nursery: self.nursery,
                kept: false,
            },
            group: self.group,
            guest: None,
        };
        Ok(Filling {
            raised,
            files: self.files,
            guest,
        })
    }
}

impl Filling {
    /// Waits until the files are there, and the guest is in.
    pub(crate) fn fill(mut self) -> Result<Raised, ProviderError> {
        let control = &self.raised.shell.control;
        for file in &self.files {
            file.check(wire::receive_within(control, RAISING).map(|(event, _)| event))?;
        }
        if let Some(mut guest) = self.guest {
            match wire::receive_within(&self.raised.shell.control, RAISING) {
                Ok((InitEvent::Started { notes }, fds)) => {
                    self.raised.shell.notes.extend(notes);
                    guest.pidfd = fds.into_iter().next();
                }
                Ok((InitEvent::NotStarted(failure), _)) => return Err(probe::explain(&failure)),
                Ok(_) => return Err(out_of_turn()),
                Err(error) => return Err(failed("start", "an interpreter", error)),
            }
            self.raised.guest = Some(guest);
        }
        Ok(self.raised)
    }
}

/// The streams of a guest: its ends, and ours.
#[derive(Debug)]
struct Streams {
    guest: [OwnedFd; 4],
    stdin: OwnedFd,
    stdout: OwnedFd,
    stderr: OwnedFd,
    channel: OwnedFd,
}

impl Streams {
    fn new() -> io::Result<Self> {
        let (stdin_guest, stdin) = output::pipe()?;
        let (stdout, stdout_guest) = output::pipe()?;
        let (stderr, stderr_guest) = output::pipe()?;
        let (channel, channel_guest) = wire::pair()?;
        Ok(Self {
            guest: [stdin_guest, stdout_guest, stderr_guest, channel_guest],
            stdin,
            stdout,
            stderr,
            channel,
        })
    }

    /// Starts a guest in the shell of an init; whether it gets there is heard from that.
    fn start(
        self,
        init: &OwnedFd,
        namespaces: &[OwnedFd],
        guest: WantedGuest,
        groups: &[OwnedFd],
    ) -> Result<Waiting, ProviderError> {
        let streams = self.guest.each_ref().map(AsFd::as_fd);
        let spec = Box::new(guest.spec);
        let tell = |request: &InitRequest, fds: &[BorrowedFd<'_>]| {
            wire::send(init, request, fds).map_err(|error| failed("start", "an interpreter", error))
        };
        let ended = match guest.zygote {
            None => {
                tell(&InitRequest::Exec(spec), &streams)?;
                None
            }
            Some((zygote, errand)) => {
                let (to_fork, to_init) = wire::pair().map_err(|error| failed("make", "a pipe", error))?;
                let fds: Vec<_> = [to_fork.as_fd()].into_iter().chain(streams).collect();
                let held = errand.hold;
                tell(&InitRequest::Adopt { spec, held }, &fds)?;
                let ended = zygote.fork(namespaces, to_init.as_fd(), groups, errand);
                Some(ended.map_err(|error| failed("fork", "an interpreter", error))?)
            }
        };
        Ok(Waiting {
            stdin: self.stdin,
            stdout: self.stdout,
            stderr: self.stderr,
            channel: self.channel,
            ended,
            pidfd: None,
        })
    }
}

struct KillOnDrop<'a>(&'a OwnedFd);

impl Drop for KillOnDrop<'_> {
    fn drop(&mut self) {
        let _ = pidfd_send_signal(self.0, Signal::KILL);
    }
}

fn out_of_turn() -> ProviderError {
    ProviderError::Protocol("init said something out of turn".to_owned())
}
