//! Hearing from an init how it gets on: its shell stands, files are there, a guest is in.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use belljar_core::ProviderError;
use tokio::sync::oneshot;

use super::group::SandboxGroup;
use super::kernel_state::{self, START_TIMEOUT};
use super::leash::Leash;
use super::nursery::Nursery;
use super::probe;
use super::put::Put;
use super::raise::{Raised, RaisedShell, Waiting};
use super::sandbox::failed;
use super::shell;
use crate::sys;
use crate::wire::{self, Incoming, InitEvent, Note};

/// A sandbox whose init knows all that it has to do.
#[derive(Debug)]
pub(crate) struct Filling {
    /// Before the group: dropping goes in this order, and a group must be empty to be removed.
    pub leash: Leash,
    pub control: OwnedFd,
    pub notes: Vec<Note>,
    /// Sockets in its network.
    pub doors: Vec<OwnedFd>,
    pub ended: oneshot::Receiver<()>,
    pub nursery: Arc<Nursery>,
    pub group: Option<SandboxGroup>,
    /// There once the shell stands.
    pub work_dir: Option<OwnedFd>,
    /// Those that are yet to be put.
    pub files: std::vec::IntoIter<Put>,
    /// Who is on its way in, or why nobody is.
    pub guest: Result<Option<Waiting>, ProviderError>,
    pub is_in: bool,
}

impl Filling {
    /// Waits until everything is in its place.
    pub(crate) fn wait(mut self) -> Result<Raised, ProviderError> {
        loop {
            let (events, fds) =
                wire::receive_within(&self.control, START_TIMEOUT).map_err(|error| self.unheard(error))?;
            if self.hear(events, fds)? {
                return self.raised();
            }
        }
    }

    /// The same in an async runtime.
    pub(crate) async fn filled(self) -> Result<Raised, ProviderError> {
        let mut aside = Aside(Some(self));
        let filling = aside.0.as_mut().ok_or_else(out_of_turn)?;
        let control = filling.control.try_clone().and_then(|control| {
            rustix::io::ioctl_fionbio(&control, true)?;
            sys::events::watch(control)
        });
        let control = control.map_err(unheard)?;
        let mut incoming = Incoming::default();
        loop {
            let next = shell::next_events(&control, &mut incoming);
            let heard = tokio::time::timeout(START_TIMEOUT, next).await;
            let (events, fds) = heard
                .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
                .map_err(|error| filling.unheard(error))?;
            if filling.hear(events, fds)? {
                break;
            }
        }
        aside.0.take().ok_or_else(out_of_turn)?.raised()
    }

    /// Takes what init says; true once there is nothing more to wait for.
    fn hear(&mut self, events: Vec<InitEvent>, fds: Vec<OwnedFd>) -> Result<bool, ProviderError> {
        let mut fds = fds.into_iter();
        for event in events {
            self.hear_one(event, &mut fds)?;
        }
        let is_in = match &self.guest {
            Ok(guest) => self.is_in || guest.is_none(),
            // Nobody was sent in, so nothing more will be heard.
            Err(_) if self.work_dir.is_some() => return self.why_nobody_comes().map(|()| false),
            Err(_) => false,
        };
        Ok(self.work_dir.is_some() && self.files.as_slice().is_empty() && is_in)
    }

    /// The error where nothing is heard of init.
    fn unheard(&self, error: io::Error) -> ProviderError {
        if matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock) {
            return kernel_state::hung(shell::host_pid(self.leash.pidfd()), "start", START_TIMEOUT);
        }
        unheard(error)
    }

    /// What kept a guest from being asked for, if something did.
    fn why_nobody_comes(&mut self) -> Result<(), ProviderError> {
        std::mem::replace(&mut self.guest, Ok(None)).map(drop)
    }

    fn hear_one(
        &mut self,
        event: InitEvent,
        fds: &mut impl Iterator<Item = OwnedFd>,
    ) -> Result<(), ProviderError> {
        match event {
            InitEvent::SetupFailed(failure) => Err(probe::explain(&failure)),
            InitEvent::NotStarted(failure) => {
                // What kept it from being asked for says more.
                self.why_nobody_comes()?;
                Err(probe::explain(&failure))
            }
            InitEvent::Ready { notes } if self.work_dir.is_none() => {
                self.notes.extend(notes);
                self.work_dir = Some(fds.next().ok_or_else(out_of_turn)?);
                Ok(())
            }
            event @ (InitEvent::FilePut | InitEvent::FileFailed(_)) if self.work_dir.is_some() => {
                self.files.next().ok_or_else(out_of_turn)?.check(Ok(event))
            }
            InitEvent::Started { notes } if self.work_dir.is_some() && !self.is_in => {
                let Ok(Some(guest)) = &mut self.guest else {
                    self.why_nobody_comes()?;
                    return Err(out_of_turn());
                };
                self.notes.extend(notes);
                guest.pidfd = fds.next();
                self.is_in = true;
                Ok(())
            }
            _ => Err(out_of_turn()),
        }
    }

    fn raised(self) -> Result<Raised, ProviderError> {
        Ok(Raised {
            shell: RaisedShell {
                leash: self.leash,
                control: self.control,
                work_dir: self.work_dir.ok_or_else(out_of_turn)?,
                doors: self.doors,
                notes: self.notes,
                ended: self.ended,
                nursery: self.nursery,
            },
            group: self.group,
            guest: self.guest?,
        })
    }
}

/// A sandbox that nobody waits for any more is taken down elsewhere: its group can be removed only once everything in it is dead.
struct Aside(Option<Filling>);

impl Drop for Aside {
    fn drop(&mut self) {
        if let (Some(filling), Ok(runtime)) = (self.0.take(), tokio::runtime::Handle::try_current()) {
            runtime.spawn_blocking(move || drop(filling));
        }
    }
}

fn unheard(error: io::Error) -> ProviderError {
    failed("raise", "a sandbox", error)
}

fn out_of_turn() -> ProviderError {
    ProviderError::Protocol("init said something out of turn".to_owned())
}
