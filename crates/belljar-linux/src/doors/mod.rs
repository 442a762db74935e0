//! Where the network of a sandbox ends that may reach somebody.
//!
//! Every address leads to that network itself, and sockets in it take what comes. They are the engine's; no guest has them.

mod enter;
mod netfilter;
mod open;

use std::io;
use std::os::fd::OwnedFd;

use belljar_core::egress::Ports;
use belljar_core::provider::Doors;

use crate::sys;

pub use enter::open_in;
pub(crate) use enter::{DOORS_NAME, main};

/// Has everything in the network that this process is in lead to doors, and opens them.
pub(crate) fn make(ports: &Ports) -> io::Result<Vec<OwnedFd>> {
    sys::net::loopback_up()?;
    sys::net::everything_is_local()?;
    open::open(ports)
}

/// Doors in the order in which they were opened.
pub(crate) fn sort(fds: Vec<OwnedFd>, ports: &Ports) -> Doors {
    let mut fds = fds.into_iter();
    let resolver_datagrams = fds.next().map(Into::into).into_iter().collect();
    let resolver_streams = fds.next().map(Into::into).into_iter().collect();
    let rest = fds.map(Into::into).collect();
    let (listeners, redirected) = match ports {
        Ports::These(_) => (rest, Vec::new()),
        Ports::All => (Vec::new(), rest),
    };
    Doors {
        resolver_datagrams,
        resolver_streams,
        listeners,
        redirected,
    }
}
