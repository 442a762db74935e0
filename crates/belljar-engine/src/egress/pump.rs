//! Bytes between a guest and the one it may reach, counted and bounded.

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_send_buffer_size};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

use super::pipe::Pipe;
use crate::weaken;

/// As much as is read at once. A connection has two of these while bytes go to and fro, and nothing else of them is kept.
const PIECE: usize = 64 << 10;

/// How much the kernel holds for one end of a connection. It is nobody's of whom there is a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    /// What the kernel finds right.
    Plenty,
    /// As little as will do: there are many already.
    Little,
}

/// So much where there is little room; the kernel takes it twice.
const LITTLE: usize = 64 << 10;
impl Room {
    /// Bounds what a socket holds.
    pub(super) fn bound(self, socket: impl AsFd) -> io::Result<()> {
        if self == Self::Plenty {
            return Ok(());
        }
        set_socket_send_buffer_size(&socket, LITTLE)?;
        Ok(set_socket_recv_buffer_size(&socket, LITTLE)?)
    }
}

/// How many bytes may still go one way, for all connections of a sandbox together.
#[derive(Debug)]
pub(super) struct Allowance {
    left: AtomicU64,
    way: Way,
}

/// Where bytes go, as the guest sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    In,
    Out,
}

impl Allowance {
    pub(super) const fn new(way: Way, bytes: u64) -> Self {
        Self {
            left: AtomicU64::new(bytes),
            way,
        }
    }

    /// Takes so many; false where there are not that many left.
    pub(super) fn take(&self, bytes: u64) -> bool {
        if weaken::is_off("allowance") {
            return true;
        }
        let taken = self
            .left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                left.checked_sub(bytes)
            });
        taken.is_ok()
    }
}

/// Why nothing more is passed on, although there is more.
#[derive(Debug)]
pub(super) enum Stopped {
    /// No more may go that way.
    Exhausted(Way),
    /// Whoever looked at it said no.
    Refused(String),
    /// The guest is gone.
    Left,
    Failed(io::Error),
}

impl From<io::Error> for Stopped {
    fn from(error: io::Error) -> Self {
        Self::Failed(error)
    }
}

/// Passes these on, as far as that may be.
pub(super) async fn send<W: AsyncWrite + Unpin>(
    to: &mut W,
    bytes: &[u8],
    allowance: &Allowance,
    count: &AtomicU64,
) -> Result<(), Stopped> {
    take(allowance, bytes.len(), count)?;
    Ok(to.write_all(bytes).await?)
}

/// Counts these, as far as there may be so many.
pub(super) fn take(allowance: &Allowance, bytes: usize, count: &AtomicU64) -> Result<(), Stopped> {
    if !allowance.take(bytes as u64) {
        return Err(Stopped::Exhausted(allowance.way));
    }
    count.fetch_add(bytes as u64, Ordering::Relaxed);
    Ok(())
}

/// Passes everything from one to the other until it ends, then tells the other that it has.
pub(super) async fn pass(
    from: &mut OwnedReadHalf,
    to: &mut OwnedWriteHalf,
    allowance: &Allowance,
    count: &AtomicU64,
) -> Result<(), Stopped> {
    let mut piece = Vec::new();
    let mut pipe: Option<Pipe> = None;
    loop {
        // Nothing is kept for a connection on which nothing happens.
        from.readable().await?;
        if let Some(pipe) = &pipe {
            match pipe.fill(from.as_ref()) {
                Ok(0) => {
                    let _ = to.shutdown().await;
                    return Ok(());
                }
                Ok(size) => {
                    take(allowance, size, count)?;
                    pipe.empty(to.as_ref(), size).await?;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.into()),
            }
            continue;
        }
        if piece.is_empty() {
            piece = vec![0; PIECE];
        }
        match from.try_read(&mut piece) {
            Ok(0) => {
                let _ = to.shutdown().await;
                return Ok(());
            }
            Ok(size) => {
                send(to, &piece[..size], allowance, count).await?;
                // Where there is much, more is to come.
                if size == piece.len() {
                    pipe = Pipe::new();
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => piece = Vec::new(),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Reads some more of what somebody sends.
pub(super) async fn read_some<R: AsyncRead + Unpin>(from: &mut R, into: &mut Vec<u8>) -> io::Result<usize> {
    into.reserve(4096);
    from.read_buf(into).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_allowance_is_never_overdrawn() {
        let allowance = Allowance::new(Way::In, 10);
        assert!(allowance.take(4) && allowance.take(6) && !allowance.take(1) && allowance.take(0));
    }
}
