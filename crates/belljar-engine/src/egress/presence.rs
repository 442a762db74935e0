//! Whether the other end of a connection is still there.
//!
//! A guest that has said everything may be listening still, or be gone: what comes from it looks the same. So the kernel asks its
//! own end of it now and then. That is answered for as long as somebody has the connection, and for a minute after. Without it a
//! connection to a host that keeps silent would be held for as long as the sandbox stands.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::net::sockopt::{set_socket_keepalive, set_tcp_keepcnt, set_tcp_keepidle, set_tcp_keepintvl};
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::sync::Notify;

use super::pump::Stopped;

/// After how long without a word the other end is asked, how often then, and how many times without an answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asking {
    idle: Duration,
    every: Duration,
    times: u32,
}

impl Asking {
    /// A guest: the kernel that answers for it is this machine's.
    pub(super) const NEAR: Self = Self {
        idle: Duration::from_secs(10),
        every: Duration::from_secs(2),
        times: 3,
    };
    /// A host of the world, which may be out of reach for a while.
    pub(super) const FAR: Self = Self {
        idle: Duration::from_secs(60),
        every: Duration::from_secs(15),
        times: 8,
    };

    /// Has the kernel ask. Where nobody answers, the connection ends in an error.
    pub(super) fn begin(self, socket: impl AsFd) -> io::Result<()> {
        set_tcp_keepidle(&socket, self.idle)?;
        set_tcp_keepintvl(&socket, self.every)?;
        set_tcp_keepcnt(&socket, self.times)?;
        Ok(set_socket_keepalive(&socket, true)?)
    }
}

/// Waits until a guest is gone that says no more.
pub(super) async fn gone(guest: &TcpStream) -> Stopped {
    let _ = guest.ready(Interest::ERROR).await;
    Stopped::Left
}

/// The same, or until there is nothing more for it to listen to.
pub(super) async fn listen(guest: &TcpStream, over: &Notify) -> Result<(), Stopped> {
    tokio::select! {
        left = gone(guest) => Err(left),
        () = over.notified() => Ok(()),
    }
}
