//! One shell as the engine holds it: init's pidfd, the socket to it, and the work directory.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use serde::Serialize;
use tokio::io::unix::AsyncFd;
use tokio::sync::oneshot;

use super::kernel_state::KILL_TIMEOUT;
use super::leash::Leash;
use super::nursery::Nursery;
use super::raise::RaisedShell;
use crate::sys;
use crate::wire::{Frame, Incoming, InitEvent, InitRequest, Note, StepFailure};

/// A raised shell.
#[derive(Debug)]
pub(crate) struct Shell {
    leash: Leash,
    control: AsyncFd<OwnedFd>,
    incoming: Incoming,
    /// What init said together with something else.
    heard: VecDeque<InitEvent>,
    /// What it said while something else was waited for.
    early: VecDeque<InitEvent>,
    pub work_dir: OwnedFd,
    /// Sockets in its network, until somebody takes them.
    pub doors: Vec<OwnedFd>,
    pub notes: Vec<Note>,
    ended: Option<oneshot::Receiver<()>>,
    /// Keeps the nursery alive as long as a shell of it is.
    nursery: Arc<Nursery>,
}

impl Shell {
    /// Takes over a shell that stands, for the runtime of the moment.
    pub(crate) fn take(raised: RaisedShell) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&raised.control, true)?;
        Ok(Self {
            leash: raised.leash,
            control: sys::events::watch(raised.control)?,
            incoming: Incoming::default(),
            heard: VecDeque::new(),
            early: VecDeque::new(),
            work_dir: raised.work_dir,
            doors: raised.doors,
            notes: raised.notes,
            ended: Some(raised.ended),
            nursery: raised.nursery,
        })
    }

    pub(crate) async fn send(&self, request: &InitRequest, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        send_frame(&self.control, request, fds).await
    }

    /// Says something short without waiting. It is lost only where init is.
    pub(crate) fn tell(&self, request: &InitRequest) {
        if let Ok(frame) = Frame::new(request, 0) {
            let _ = frame.send_some(self.control.get_ref().as_fd(), &[], 0);
        }
    }

    /// The next thing init says. Cancel-safe: a half-received message is kept.
    pub(crate) async fn event(&mut self) -> io::Result<InitEvent> {
        match self.early.pop_front() {
            Some(event) => Ok(event),
            None => self.hear().await,
        }
    }

    /// Init's answer about a file. A guest that ends meanwhile is heard of later.
    pub(crate) async fn answer(&mut self) -> io::Result<InitEvent> {
        loop {
            match self.hear().await? {
                event @ InitEvent::Ended { .. } => self.early.push_back(event),
                event => return Ok(event),
            }
        }
    }

    async fn hear(&mut self) -> io::Result<InitEvent> {
        loop {
            if let Some(event) = self.heard.pop_front() {
                return Ok(event);
            }
            let (events, _) = next_events(&self.control, &mut self.incoming).await?;
            self.heard.extend(events);
        }
    }

    /// Who hears when nothing of it is left; asked once.
    pub(crate) fn ended(&mut self) -> Option<oneshot::Receiver<()>> {
        self.ended.take()
    }

    /// Whether nobody has ended it yet.
    pub(crate) fn is_alive(&self) -> bool {
        self.ended.is_some()
    }

    /// The processes, as the host numbers them, whose descendants make up the sandbox: init, and the
    /// guest where that is another's child.
    pub(crate) fn roots(&self, guest: Option<&OwnedFd>) -> Vec<i32> {
        [Some(self.leash.pidfd()), guest]
            .into_iter()
            .flatten()
            .filter_map(host_pid)
            .collect()
    }

    pub(crate) const fn nursery(&self) -> &Arc<Nursery> {
        &self.nursery
    }

    /// Kills init, and with it every process of the sandbox.
    pub(crate) fn kill(&self) {
        self.leash.kill();
    }

    /// Waits until the kernel has cleared everything away. A process that is gone leaves no other
    /// of its pid namespace behind. False where a process does not die: one that hangs in the kernel cannot be killed.
    pub(crate) async fn gone(&mut self) -> bool {
        match self.ended.take() {
            Some(ended) => tokio::time::timeout(KILL_TIMEOUT, ended).await.is_ok(),
            None => true,
        }
    }

    /// Init, as the host numbers it.
    pub(crate) fn init_pid(&self) -> Option<i32> {
        host_pid(self.leash.pidfd())
    }
}

pub(super) fn host_pid(process: &OwnedFd) -> Option<i32> {
    let about = format!("/proc/self/fdinfo/{}", process.as_raw_fd());
    sys::process::pid_in_fdinfo(&std::fs::read_to_string(about).ok()?)
}

async fn send_frame<T: Serialize>(
    socket: &AsyncFd<OwnedFd>,
    message: &T,
    fds: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let frame = Frame::new(message, fds.len())?;
    let mut done = 0;
    while done < frame.len() {
        match frame.send_some(socket.get_ref().as_fd(), fds, done) {
            Ok(sent) => done = sent,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                drop(sys::events::watch_room(socket)?.writable().await?);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// What an init says next. Cancel-safe.
pub(super) async fn next_events(
    socket: &AsyncFd<OwnedFd>,
    incoming: &mut Incoming,
) -> io::Result<(Vec<InitEvent>, Vec<OwnedFd>)> {
    loop {
        let mut ready = socket.readable().await?;
        match ready.try_io(|socket| incoming.receive_some::<Vec<InitEvent>>(socket.get_ref().as_fd())) {
            Ok(Ok(Some(message))) => return Ok(message),
            Ok(Ok(None)) | Err(_) => {}
            Ok(Err(error)) => return Err(error),
        }
    }
}

/// The text of a failed step.
pub(crate) fn step_text(failure: &StepFailure) -> String {
    format!(
        "{} ({})",
        failure.step,
        io::Error::from_raw_os_error(failure.errno)
    )
}
