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
        /// A service does not know who is asking.
        Unauthorized = "unauthorized",
        /// A service knows who is asking, and they may not.
        Forbidden = "forbidden",
        NotFound = "not_found",
        /// It was decided, used or made already.
        Conflict = "conflict",
        /// It is more than is read.
        TooLarge = "too_large",
        /// A quota of the tenant is used up.
        QuotaExceeded = "quota_exceeded",
        /// Too much is waiting already.
        Busy = "busy",
        /// The service cannot work at the moment, or is about to end.
        Unavailable = "unavailable",
    }
}

impl ErrorKind {
    /// The exit code of the command line.
    pub const fn exit_code(self) -> u8 {
        match self {
            Self::Usage | Self::NotFound | Self::Conflict | Self::TooLarge => 2,
            Self::Timeout => 124,
            Self::Engine | Self::Busy | Self::Unavailable => 125,
            Self::Denied | Self::Unauthorized | Self::Forbidden | Self::QuotaExceeded => 126,
            Self::Killed | Self::OutOfMemory => 137,
        }
    }

    /// The status of an HTTP answer that is a problem of this kind.
    pub const fn http_status(self) -> u16 {
        match self {
            Self::Usage => 400,
            Self::Unauthorized => 401,
            Self::Denied | Self::Forbidden => 403,
            Self::NotFound => 404,
            // Somebody ended it before it had begun.
            Self::Conflict | Self::Killed => 409,
            Self::TooLarge => 413,
            Self::QuotaExceeded | Self::Busy => 429,
            // What became of a program is an outcome, never a problem.
            Self::Timeout | Self::OutOfMemory | Self::Engine => 500,
            Self::Unavailable => 503,
        }
    }

    /// A few words that name the kind to people.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Usage => "The request could not be understood",
            Self::Denied => "The policy or the machine does not allow it",
            Self::Timeout => "A time limit ended it",
            Self::OutOfMemory => "It needed more memory than its limit",
            Self::Killed => "It was killed",
            Self::Engine => "belljar itself failed",
            Self::Unauthorized => "A valid key is needed",
            Self::Forbidden => "This caller may not do that",
            Self::NotFound => "There is no such thing",
            Self::Conflict => "It was decided, used or made already",
            Self::TooLarge => "It is more than is read",
            Self::QuotaExceeded => "A quota is used up",
            Self::Busy => "Too much is waiting already",
            Self::Unavailable => "The service cannot work at the moment",
        }
    }

    /// Kinds that the command line meets without a service.
    pub const LOCAL: [Self; 6] = [
        Self::Usage,
        Self::Denied,
        Self::Timeout,
        Self::OutOfMemory,
        Self::Killed,
        Self::Engine,
    ];

    /// One line for the table of exit codes.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Usage => "the command line, a policy file or an input could not be understood; nothing ran",
            Self::Denied => "the policy or this machine does not allow it; nothing ran",
            Self::Timeout => "a wall-clock or CPU time limit ended the program",
            Self::OutOfMemory => "the program needed more memory than its limit",
            Self::Killed => "the program was killed",
            Self::Engine => "belljar itself failed",
            Self::Unauthorized | Self::Forbidden => "the service does not take the key for that",
            Self::NotFound => "the service has no such thing",
            Self::Conflict => "it was decided, used or made already",
            Self::TooLarge => "it is more than the service reads",
            Self::QuotaExceeded => "a quota of the tenant is used up",
            Self::Busy => "the service is busy",
            Self::Unavailable => "the service cannot be reached, or cannot work",
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
                ("engine", 125),
                ("unauthorized", 126),
                ("forbidden", 126),
                ("not_found", 2),
                ("conflict", 2),
                ("too_large", 2),
                ("quota_exceeded", 126),
                ("busy", 125),
                ("unavailable", 125),
            ]
        );
    }
}
