//! Raising a sandbox: its group, its shell, and a guest that waits in it.
//!
//! All of it blocks, so that the pool's own thread and a runtime's blocking threads can share it.
//! Nothing here belongs to a runtime yet.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use belljar_core::{Plan, ProviderError};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::sync::oneshot::{self, error::TryRecvError};

use super::cgroup::{GroupLimits, Hierarchy, group_name};
use super::fill::Filling;
use super::group::SandboxGroup;
use super::leash::Leash;
use super::nursery::{Asked, Nursery};
use super::probe;
use super::put::{self, Put};
use super::sandbox::failed;
use super::shared::Shared;
use super::streams::Streams;
use super::zygote::{self, Errand, Zygote};
use crate::wire::{self, CgroupJoin, GuestSpec, InitRequest, Note, ShellSpec};

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
        waits(&mut self.shell.ended)
            && zygote.is_none_or(|ended| matches!(ended.try_recv(), Err(TryRecvError::Empty)))
            && matches!(poll(&mut control, Some(&at_once)), Ok(0))
    }
}

/// A shell that stands.
#[derive(Debug)]
pub(crate) struct RaisedShell {
    pub leash: Leash,
    pub control: OwnedFd,
    pub work_dir: OwnedFd,
    /// Sockets in its network.
    pub doors: Vec<OwnedFd>,
    pub notes: Vec<Note>,
    pub ended: oneshot::Receiver<()>,
    pub nursery: Arc<Nursery>,
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
    /// Waits until there is an init, and tells it all that it has to do: a fork of a zygote needs no more of a shell than its
    /// namespaces to be on its way.
    pub(crate) fn tell(self) -> Result<Filling, ProviderError> {
        let lost = |_| ProviderError::LauncherLost("it ended while a sandbox was being made".to_owned());
        let made = self.asked.made.blocking_recv().map_err(lost)?;
        let made = made.map_err(|failure| probe::explain(&failure))?;
        let leash = Leash::new(made.pidfd);
        if self.joins {
            let fds: Vec<_> = self.entries.iter().map(AsFd::as_fd).collect();
            let _ = wire::send(&made.control, &InitRequest::Join, &fds);
        }
        // An init that has given up says why, which is more than that it does not listen.
        let sent = self.files.iter().try_for_each(|file| {
            let (request, content) = file.request();
            wire::send(&made.control, &request, &[content])
        });
        let sent = sent.map_err(|error| failed(put::OPERATION, "a file", error));
        let guest = self
            .guest
            .map(|(guest, streams)| streams.start(&made.control, &made.namespaces, guest, &self.entries))
            .transpose();
        Ok(Filling {
            leash,
            control: made.control,
            notes: made.notes,
            doors: made.doors,
            ended: self.asked.ended,
            nursery: self.nursery,
            group: self.group,
            work_dir: None,
            files: self.files.into_iter(),
            guest: sent.and(guest),
            is_in: false,
        })
    }
}
