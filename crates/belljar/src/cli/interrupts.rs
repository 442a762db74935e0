//! Ctrl-C and a polite request to end.

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::problem::Problem;

/// Hears SIGINT and SIGTERM from the moment it is made.
#[derive(Debug)]
pub(crate) struct Interrupts {
    interrupt: Signal,
    terminate: Signal,
}

impl Interrupts {
    pub(crate) fn listen() -> Result<Self, Problem> {
        let hear = |kind| {
            signal(kind).map_err(|error| Problem::engine(format!("cannot listen for signals: {error}")))
        };
        Ok(Self {
            interrupt: hear(SignalKind::interrupt())?,
            terminate: hear(SignalKind::terminate())?,
        })
    }

    /// Waits for one.
    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }

    /// Waits for a second one: whoever asks twice does not want to wait for a clean end.
    pub(crate) async fn second(&mut self) {
        self.next().await;
        self.next().await;
    }
}
