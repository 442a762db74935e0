//! Another protocol on a connection that began with HTTP: nothing is said in it before the other side has agreed.

use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::io::{AsyncRead, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::Notify;

use super::http;
use super::pump::{Allowance, Stopped, pass, read_some, send};

/// Whether another protocol is asked for, and what the answer was.
#[derive(Debug, Default)]
pub(super) struct Upgrade {
    expected: AtomicBool,
    answer: OnceLock<bool>,
    known: Notify,
}

impl Upgrade {
    /// The next thing that comes back is the answer.
    pub(super) fn expect(&self) {
        self.expected.store(true, Ordering::Release);
    }

    /// Waits for it.
    pub(super) async fn agreed(&self) -> bool {
        loop {
            let heard = self.known.notified();
            if let Some(answer) = self.answer.get() {
                return *answer;
            }
            heard.await;
        }
    }

    fn hear(&self, answer: bool) {
        let _ = self.answer.set(answer);
        self.known.notify_waiters();
    }

    /// Reads the beginning of what comes back, up to whether it is that answer. Whether more may come.
    pub(super) async fn first<R: AsyncRead + Unpin>(
        &self,
        from: &mut R,
        first: &mut Vec<u8>,
    ) -> io::Result<bool> {
        loop {
            if read_some(from, first).await? == 0 {
                self.hear(false);
                return Ok(false);
            }
            // What comes before anything was asked for is no answer; it is not held back either.
            let answer = if self.expected.load(Ordering::Acquire) {
                http::agreed(first)
            } else {
                Some(false)
            };
            if let Some(answer) = answer {
                self.hear(answer);
                return Ok(true);
            }
        }
    }

    /// Passes on what comes back.
    pub(super) async fn down(
        &self,
        from: &mut OwnedReadHalf,
        to: &mut OwnedWriteHalf,
        allowance: &Allowance,
        count: &AtomicU64,
    ) -> Result<(), Stopped> {
        let mut first = Vec::new();
        let more = self.first(from, &mut first).await?;
        send(to, &first, allowance, count).await?;
        drop(first);
        if more {
            return pass(from, to, allowance, count).await;
        }
        let _ = to.shutdown().await;
        Ok(())
    }
}
