//! One stable kind for everything that can go wrong, and one table of what each face makes of it.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::outcome::{FailureKind, Outcome};
use crate::status::{SandboxStatus, words};

words! {
    /// What went wrong, as every face tells it.
    ErrorKind {
        /// The input could not be understood.
        Usage = "usage",
        /// A policy refused it.
        Denied = "denied",
        /// A time limit ended it.
        Timeout = "timeout",
        OutOfMemory = "out_of_memory",
        Killed = "killed",
        /// belljar itself could not do its work.
        Engine = "engine",
    }
}

impl ErrorKind {
    /// The exit code of the command line.
    pub const fn exit_code(self) -> u8 {
        match self {
            Self::Usage => 2,
            Self::Timeout => 124,
            Self::Engine => 125,
            Self::Denied => 126,
            Self::Killed | Self::OutOfMemory => 137,
        }
    }

    /// One line for the table of exit codes.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Usage => "the command line, a policy file or an input could not be understood; nothing ran",
            Self::Denied => "the policy or this machine does not allow it; nothing ran",
            Self::Timeout => "a wall-clock or CPU time limit ended the program",
            Self::OutOfMemory => "the program needed more memory than its limit",
            Self::Killed => "the program was killed",
            Self::Engine => "belljar itself failed",
        }
    }
}

/// The exit code that the command line passes on for an outcome: the guest's own where it has one.
pub fn exit_code(outcome: &Outcome) -> u8 {
    match (outcome.status, outcome.error.as_ref().map(|failure| failure.kind)) {
        (_, Some(FailureKind::OutOfMemory)) => ErrorKind::OutOfMemory.exit_code(),
        (_, Some(FailureKind::CannotStart | FailureKind::EngineLost)) => ErrorKind::Engine.exit_code(),
        (SandboxStatus::Timeout, _) => ErrorKind::Timeout.exit_code(),
        (SandboxStatus::Killed, _) => ErrorKind::Killed.exit_code(),
        _ => match (outcome.exit_code, outcome.signal) {
            (Some(code), _) => u8::try_from(code & 0xff).unwrap_or(1),
            // As a shell shows it: a program that a signal ended has no code of its own.
            (None, Some(signal)) => u8::try_from(128 + (signal & 0x7f)).unwrap_or(255),
            (None, None) => 1,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_are_the_documented_ones() {
        let table: Vec<_> = ErrorKind::ALL
            .iter()
            .map(|kind| (kind.word(), kind.exit_code()))
            .collect();
        assert_eq!(
            table,
            [
                ("usage", 2),
                ("denied", 126),
                ("timeout", 124),
                ("out_of_memory", 137),
                ("killed", 137),
                ("engine", 125)
            ]
        );
    }
}
