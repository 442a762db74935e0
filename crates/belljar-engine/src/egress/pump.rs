//! Bytes between a guest and the one it may reach, counted and bounded.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

/// As much as is read at once. A connection has two of these while bytes go to and fro, and nothing else of them is kept.
const PIECE: usize = 64 << 10;

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
        let taken = self
            .left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                left.checked_sub(bytes)
            });
        taken.is_ok()
    }
}

/// How a direction ended.
#[derive(Debug)]
pub(super) enum Ended {
    /// All that there was has been passed on.
    Done,
    /// No more may go that way.
    Exhausted(Way),
    /// Whoever looked at it said no.
    Refused(String),
    Failed(io::Error),
}

/// Passes everything from one to the other until it ends, then tells the other that it has.
pub(super) async fn pass(
    from: &mut OwnedReadHalf,
    to: &mut OwnedWriteHalf,
    allowance: &Allowance,
    count: &AtomicU64,
) -> Ended {
    let mut piece = Vec::new();
    loop {
        // Nothing is kept for a connection on which nothing happens.
        if let Err(error) = from.readable().await {
            return Ended::Failed(error);
        }
        if piece.is_empty() {
            piece = vec![0; PIECE];
        }
        match from.try_read(&mut piece) {
            Ok(0) => {
                let _ = to.shutdown().await;
                return Ended::Done;
            }
            Ok(size) => {
                if !allowance.take(size as u64) {
                    return Ended::Exhausted(allowance.way);
                }
                if let Err(error) = to.write_all(&piece[..size]).await {
                    return Ended::Failed(error);
                }
                count.fetch_add(size as u64, Ordering::Relaxed);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => piece = Vec::new(),
            Err(error) => return Ended::Failed(error),
        }
    }
}

/// Reads some more of what a guest sends.
pub(super) async fn read_some(from: &mut OwnedReadHalf, into: &mut Vec<u8>) -> io::Result<usize> {
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
