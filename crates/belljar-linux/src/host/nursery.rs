//! A nursery's client: asks it for shells, hears when they are made and when they end.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::sync::oneshot;

use super::launcher::{self, Launcher};
use super::listener::Listener;
use crate::wire::{self, Note, NurseryEvent, NurseryRequest, RootSpec, ShellSpec, StepFailure, ZygoteSpec};

/// A running nursery. It ends when the last handle is dropped.
#[derive(Debug)]
pub(crate) struct Nursery {
    listener: Listener,
    /// Held while sending: frames of two callers must not mix.
    sending: Mutex<()>,
    pending: Arc<Mutex<Pending>>,
    ended: Mutex<Option<oneshot::Receiver<()>>>,
    /// Keeps the launcher alive as long as a nursery of it is.
    _launcher: Arc<Launcher>,
}

/// Who waits for what, and what is known of the nursery itself.
#[derive(Debug, Default)]
struct Pending {
    next: u64,
    made: HashMap<u64, oneshot::Sender<MadeResult>>,
    ended: HashMap<u64, oneshot::Sender<()>>,
    notes: Vec<Note>,
    failure: Option<StepFailure>,
    lost: bool,
}

type MadeResult = Result<MadeShell, StepFailure>;

/// What the nursery hands over with a shell.
#[derive(Debug)]
pub(crate) struct MadeShell {
    pub pidfd: OwnedFd,
    pub control: OwnedFd,
    /// Handles of its namespaces, where they were asked for.
    pub namespaces: Vec<OwnedFd>,
    /// Sockets in its network.
    pub doors: Vec<OwnedFd>,
    /// What was observed of the root.
    pub notes: Vec<Note>,
}

/// A shell that was asked for. Both ends report `RecvError` when the nursery is lost.
#[derive(Debug)]
pub(crate) struct Asked {
    pub made: oneshot::Receiver<MadeResult>,
    pub ended: oneshot::Receiver<()>,
}

impl Nursery {
    /// Asks for a nursery. Shells can be asked for at once; they come when it is up.
    pub(crate) fn start(launcher: Arc<Launcher>, spec: RootSpec) -> io::Result<Arc<Self>> {
        let launcher::Asked { socket, ended } = launcher.ask(spec)?;
        let pending = Arc::new(Mutex::new(Pending::default()));
        let shared = Arc::clone(&pending);
        let listener = Listener::start("belljar-nursery", socket, move |socket| listen(socket, &shared))?;
        Ok(Arc::new(Self {
            listener,
            sending: Mutex::new(()),
            pending,
            ended: Mutex::new(Some(ended)),
            _launcher: launcher,
        }))
    }

    /// Whether it is gone.
    pub(crate) fn is_lost(&self) -> bool {
        lock(&self.pending).lost
    }

    /// Whether it takes a request at once.
    pub(crate) fn is_at_leisure(&self) -> bool {
        let mut writable = [PollFd::from_borrowed_fd(
            self.listener.socket().as_fd(),
            PollFlags::OUT,
        )];
        self.sending.try_lock().is_ok() && matches!(poll(&mut writable, Some(&Timespec::default())), Ok(1))
    }

    /// Asks for a shell. The descriptors of `fds` go along.
    pub(crate) fn ask(&self, spec: ShellSpec, fds: &[OwnedFd]) -> io::Result<Asked> {
        let (made_sender, made) = oneshot::channel();
        let (ended_sender, ended) = oneshot::channel();
        let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
        let shell = {
            let mut pending = lock(&self.pending);
            let shell = pending.next;
            pending.next += 1;
            if let Some(failure) = &pending.failure {
                let _ = made_sender.send(Err(failure.clone()));
                return Ok(Asked { made, ended });
            }
            if pending.lost {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            pending.made.insert(shell, made_sender);
            pending.ended.insert(shell, ended_sender);
            shell
        };
        // The nursery reads without pause, so this does not wait for long.
        let sent = {
            let _sending = self.sending.lock().unwrap_or_else(PoisonError::into_inner);
            wire::send(
                self.listener.socket(),
                &NurseryRequest::MakeShell { shell, spec },
                &fds,
            )
        };
        // One that could not be raised says why before it hangs up, so the listener may know more.
        if let Err(error) = sent
            && error.kind() != io::ErrorKind::BrokenPipe
        {
            let mut pending = lock(&self.pending);
            pending.made.remove(&shell);
            pending.ended.remove(&shell);
            return Err(error);
        }
        Ok(Asked { made, ended })
    }

    /// Has a zygote started whose end of its channel is `channel`.
    pub(crate) fn start_zygote(&self, spec: ZygoteSpec, channel: OwnedFd) -> io::Result<()> {
        let _sending = self.sending.lock().unwrap_or_else(PoisonError::into_inner);
        let request = NurseryRequest::StartZygote(spec);
        wire::send(self.listener.socket(), &request, &[channel.as_fd()])
    }

    /// Ends it and everything in it, and waits until nothing is left.
    pub(crate) async fn close(&self) {
        if let Some(ended) = self.hang_up() {
            let _ = ended.await;
        }
    }

    /// The same, for a thread that may wait.
    pub(crate) fn close_blocking(&self) {
        let _ = self.hang_up().map(oneshot::Receiver::blocking_recv);
    }

    fn hang_up(&self) -> Option<oneshot::Receiver<()>> {
        self.listener.hang_up();
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        ended.take()
    }
}

fn lock(pending: &Mutex<Pending>) -> MutexGuard<'_, Pending> {
    pending.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The shell that was made. Where there is no room for its descriptors it has lost its end of the socket, and ends.
fn made(fds: Option<Vec<OwnedFd>>, doors: u8, notes: Vec<Note>) -> MadeResult {
    let mut fds = fds.unwrap_or_default();
    let doors = fds.split_off(fds.len().saturating_sub(usize::from(doors)));
    let mut fds = fds.into_iter();
    match (fds.next(), fds.next()) {
        (Some(pidfd), Some(control)) => Ok(MadeShell {
            pidfd,
            control,
            namespaces: fds.collect(),
            doors,
            notes,
        }),
        _ => Err(StepFailure {
            step: "Receive".to_owned(),
            errno: libc::EMFILE,
        }),
    }
}

fn listen(socket: &OwnedFd, pending: &Mutex<Pending>) {
    while let Ok((event, fds)) = wire::receive_attached::<NurseryEvent>(socket) {
        let mut pending = lock(pending);
        match event {
            NurseryEvent::Ready { notes } => pending.notes = notes,
            NurseryEvent::SetupFailed(failure) => {
                for (_, sender) in pending.made.drain() {
                    let _ = sender.send(Err(failure.clone()));
                }
                pending.failure = Some(failure);
            }
            NurseryEvent::Made { shell, doors } => {
                let notes = pending.notes.clone();
                if let Some(sender) = pending.made.remove(&shell) {
                    let _ = sender.send(made(fds, doors, notes));
                }
            }
            NurseryEvent::Failed { shell, failure } => {
                pending.ended.remove(&shell);
                if let Some(sender) = pending.made.remove(&shell) {
                    let _ = sender.send(Err(failure));
                }
            }
            NurseryEvent::Ended { shell } => {
                if let Some(sender) = pending.ended.remove(&shell) {
                    let _ = sender.send(());
                }
            }
        }
    }
    let mut pending = lock(pending);
    pending.lost = true;
    // Dropping the senders tells everyone who waits.
    pending.made.clear();
    pending.ended.clear();
}
