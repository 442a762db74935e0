//! A thread that reads what another process says, so that any number of runtimes can share it.

use std::io;
use std::os::fd::OwnedFd;
use std::thread::JoinHandle;

use rustix::net::{Shutdown, shutdown};

/// Our end of a socket, and who listens to it. Dropping it hangs up, which the other process takes for its end, and
/// waits until nobody listens any more.
#[derive(Debug)]
pub(crate) struct Listener {
    socket: OwnedFd,
    thread: Option<JoinHandle<()>>,
}

impl Listener {
    /// Has `listen` read from the socket until that is at its end. It must not own what owns this.
    pub(crate) fn start(
        name: &str,
        socket: OwnedFd,
        listen: impl FnOnce(&OwnedFd) + Send + 'static,
    ) -> io::Result<Self> {
        let heard = socket.try_clone()?;
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || listen(&heard))?;
        Ok(Self {
            socket,
            thread: Some(thread),
        })
    }

    pub(crate) const fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    /// What it says from now on is not heard any more, and it is told nothing.
    pub(crate) fn hang_up(&self) {
        let _ = shutdown(&self.socket, Shutdown::Both);
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.hang_up();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
