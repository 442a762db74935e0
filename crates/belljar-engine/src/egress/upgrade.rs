//! What comes back on a connection that began with HTTP: whether another protocol was agreed on, before which nothing is said in it,
//! and the word to go on that the engine itself gives.

use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
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
    go_on: Notify,
}

/// What a guest waits for that expects to be told whether to send what its request brings.
const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

impl Upgrade {
    /// The next thing that comes back is the answer.
    pub(super) fn expect(&self) {
        self.expected.store(true, Ordering::Release);
    }

    /// Asks the guest for the body of its first request (`100 Continue`), unless the server has answered already.
    pub(super) fn go_on(&self) {
        self.go_on.notify_one();
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
    pub(super) async fn first<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
        &self,
        from: &mut R,
        to: &mut W,
        first: &mut Vec<u8>,
    ) -> io::Result<bool> {
        loop {
            let count = tokio::select! {
                biased;
                count = read_some(from, first) => count?,
                () = self.go_on.notified(), if first.is_empty() => {
                    to.write_all(CONTINUE).await?;
                    to.flush().await?;
                    continue;
                }
            };
            if count == 0 {
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
        let more = self.first(from, to, &mut first).await?;
        send(to, &first, allowance, count).await?;
        drop(first);
        if more {
            return pass(from, to, allowance, count).await;
        }
        let _ = to.shutdown().await;
        Ok(())
    }
}
