//! Waiting for a descriptor within the async runtime.

use std::io;
use std::os::fd::OwnedFd;

use tokio::io::unix::AsyncFd;

/// Registers a descriptor with the runtime of the moment.
pub(crate) fn watch(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an OwnedFd always names the same descriptor and keeps it open until it is dropped,
    // which AsyncFd does only after it has taken it out of the runtime again.
    unsafe { AsyncFd::register(fd) }.map_err(io::Error::from)
}
