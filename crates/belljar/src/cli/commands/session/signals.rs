//! Ctrl-C, which is for the code, and a request to end, which is for us.

use belljar::ErrorKind;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::cli::problem::Problem;

/// Hears SIGINT and SIGTERM from the moment it is made.
#[derive(Debug)]
pub(super) struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

/// Which one came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    Interrupt,
    Terminate,
}

impl Signals {
    pub(super) fn listen() -> Result<Self, Problem> {
        let hear = |kind| {
            signal(kind).map_err(|error| Problem::engine(format!("cannot listen for signals: {error}")))
        };
        Ok(Self {
            interrupt: hear(SignalKind::interrupt())?,
            terminate: hear(SignalKind::terminate())?,
        })
    }

    /// Waits for one. Cancel-safe.
    pub(super) async fn next(&mut self) -> Heard {
        tokio::select! {
            _ = self.interrupt.recv() => Heard::Interrupt,
            _ = self.terminate.recv() => Heard::Terminate,
        }
    }
}

/// What to say to whoever told us to end.
pub(super) fn told_to_end() -> Problem {
    Problem::new(ErrorKind::Killed, "the session was told to end")
}
