//! Waiting for a descriptor within the async runtime.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Has the runtime of the moment tell when there is something to read. It does not tell of room to write: on a socket
/// that comes with everything that the other side takes.
pub(crate) fn watch(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    watch_for(fd, Interest::READABLE)
}

/// Has it tell when there is room to write again.
pub(crate) fn watch_room(fd: impl AsFd) -> io::Result<AsyncFd<OwnedFd>> {
    watch_for(fd.as_fd().try_clone_to_owned()?, Interest::WRITABLE)
}

fn watch_for(fd: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an OwnedFd always names the same descriptor and keeps it open until it is dropped,
    // which AsyncFd does only after it has taken it out of the runtime again.
    unsafe { AsyncFd::register_with_interest(fd, interest) }.map_err(io::Error::from)
}
