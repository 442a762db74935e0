//! One shell as the engine holds it: init's pidfd, the socket to it, and the work directory.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::process::{Signal, pidfd_send_signal};
use serde::Serialize;
use tokio::io::unix::AsyncFd;
use tokio::sync::oneshot;

use super::nursery::Nursery;
use super::raise::RaisedShell;
use crate::sys;
use crate::wire::{Frame, Incoming, InitEvent, InitRequest, Note, StepFailure};

/// A raised shell. Dropping it kills everything inside.
#[derive(Debug)]
pub(crate) struct Shell {
    pub pidfd: OwnedFd,
    control: AsyncFd<OwnedFd>,
    incoming: Incoming,
    /// What init said while something else was waited for.
    early: VecDeque<InitEvent>,
    pub work_dir: OwnedFd,
    pub notes: Vec<Note>,
    ended: Option<oneshot::Receiver<()>>,
    /// Keeps the nursery alive as long as a shell of it is.
    nursery: Arc<Nursery>,
}

impl Shell {
    /// Takes over a shell that stands, for the runtime of the moment.
    pub(crate) fn take(mut raised: RaisedShell) -> io::Result<Self> {
        // The new owner kills it from here on.
        let again = |fd: &OwnedFd| fd.try_clone();
        let (pidfd, control, work_dir) = (
            again(&raised.pidfd)?,
            again(&raised.control)?,
            again(&raised.work_dir)?,
        );
        rustix::io::ioctl_fionbio(&control, true)?;
        let shell = Self {
            pidfd,
            control: sys::events::watch(control)?,
            incoming: Incoming::default(),
            early: VecDeque::new(),
            work_dir,
            notes: std::mem::take(&mut raised.notes),
            ended: raised.ended.take(),
            nursery: Arc::clone(&raised.nursery),
        };
        raised.keep();
        Ok(shell)
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
            None => Ok(next_event(&self.control, &mut self.incoming).await?.0),
        }
    }

    /// Init's answer about a file. A guest that ends meanwhile is heard of later.
    pub(crate) async fn answer(&mut self) -> io::Result<InitEvent> {
        loop {
            match next_event(&self.control, &mut self.incoming).await?.0 {
                event @ InitEvent::Ended { .. } => self.early.push_back(event),
                event => return Ok(event),
            }
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
        [Some(&self.pidfd), guest]
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
        let _ = pidfd_send_signal(&self.pidfd, Signal::KILL);
    }

    /// Waits until the kernel has cleared everything away. A process that is gone leaves no other
    /// of its pid namespace behind.
    pub(crate) async fn gone(&mut self) {
        if let Some(ended) = self.ended.take() {
            let _ = ended.await;
        }
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        self.kill();
    }
}

fn host_pid(process: &OwnedFd) -> Option<i32> {
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
        let mut ready = socket.writable().await?;
        match ready.try_io(|socket| frame.send_some(socket.get_ref().as_fd(), fds, done)) {
            Ok(result) => done = result?,
            Err(_) => continue,
        }
    }
    Ok(())
}

async fn next_event(
    socket: &AsyncFd<OwnedFd>,
    incoming: &mut Incoming,
) -> io::Result<(InitEvent, Vec<OwnedFd>)> {
    loop {
        let mut ready = socket.readable().await?;
        match ready.try_io(|socket| incoming.receive_some::<InitEvent>(socket.get_ref().as_fd())) {
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
