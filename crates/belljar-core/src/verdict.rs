//! Judging a program by what it printed: one program, many inputs, a verdict for each.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::outcome::{Captured, Failure, FailureKind};
use crate::plan::StageKind;
use crate::status::words;

words! {
    /// What came of one case.
    Verdict {
        /// It ended well and printed what was expected.
        Accepted = "accepted",
        /// It ended well and printed something else.
        WrongOutput = "wrong_output",
        /// It crashed, returned something else than 0, or could not be started.
        RuntimeError = "runtime_error",
        /// A wall-clock or CPU time limit ended it.
        Timeout = "timeout",
        /// It needed more memory than its limit.
        Memory = "memory",
        /// It printed more than is kept, so there is nothing whole to compare.
        OutputLimit = "output_limit",
        /// There was nothing to run: the compiler did not end well.
        CompileError = "compile_error",
        /// The policy does not allow the case's own arguments.
        Denied = "denied",
        /// It was ended from outside: by the caller, or with its sandbox.
        Lost = "lost",
    }
}

words! {
    /// How output is held against what is expected.
    Comparison {
        /// As judges do: white space at the end of a line and of the text does not count.
        Trimmed = "trimmed",
        /// Byte by byte.
        Exact = "exact",
    }
}

impl Verdict {
    /// The verdict on a program that ended with `error` and printed `stdout`. `None` where it ended
    /// well and nothing was expected of it.
    pub fn of(
        error: Option<&Failure>,
        stdout: &Captured,
        expected: Option<&[u8]>,
        comparison: Comparison,
    ) -> Option<Self> {
        match (error, expected) {
            (Some(failure), _) => Some(Self::of_failure(failure)),
            (None, None) => None,
            (None, Some(_)) if stdout.truncated() => Some(Self::OutputLimit),
            (None, Some(expected)) if comparison.holds(expected, stdout.bytes()) => Some(Self::Accepted),
            (None, Some(_)) => Some(Self::WrongOutput),
        }
    }

    fn of_failure(failure: &Failure) -> Self {
        match (failure.stage, failure.kind) {
            (_, FailureKind::Cancelled | FailureKind::Interrupted | FailureKind::EngineLost) => Self::Lost,
            (_, FailureKind::PolicyViolation | FailureKind::Refused) => Self::Denied,
            (StageKind::Compile, _) | (_, FailureKind::CompileFailed) => Self::CompileError,
            (_, FailureKind::Timeout | FailureKind::CpuTime) => Self::Timeout,
            (_, FailureKind::OutOfMemory) => Self::Memory,
            (
                _,
                FailureKind::ExitCode
                | FailureKind::Signal
                | FailureKind::FileSize
                | FailureKind::Exception
                | FailureKind::Protocol
                | FailureKind::CannotStart,
            ) => Self::RuntimeError,
        }
    }
}

impl Comparison {
    /// Whether `found` is what was `expected`.
    pub fn holds(self, expected: &[u8], found: &[u8]) -> bool {
        match self {
            Self::Exact => expected == found,
            Self::Trimmed => trimmed_lines(expected).eq(trimmed_lines(found)),
        }
    }
}

fn trimmed_lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.trim_ascii_end()
        .split(|byte| *byte == b'\n')
        .map(<[u8]>::trim_ascii_end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn white_space_at_the_end_does_not_count_unless_asked() {
        for (expected, found, trimmed, exact) in [
            ("1\n", "1\n", true, true),
            ("1", "1\n", true, false),
            ("1\n2\n", "1  \r\n2\t\n\n\n", true, false),
            ("", "\n \n", true, false),
            ("1\n\n2", "1\n2", false, false),
            (" 1", "1", false, false),
            ("1 2", "1  2", false, false),
            ("1", "2", false, false),
            ("1", "", false, false),
            ("é", "e", false, false),
        ] {
            let holds = |comparison: Comparison| comparison.holds(expected.as_bytes(), found.as_bytes());
            assert_eq!(holds(Comparison::Trimmed), trimmed, "{expected:?} {found:?}");
            assert_eq!(holds(Comparison::Exact), exact, "{expected:?} {found:?}");
        }
    }

    #[test]
    fn how_it_ended_comes_before_what_it_printed() {
        let verdict = |kind: Option<FailureKind>, stage, stdout: Captured, expected: Option<&str>| {
            let failure = kind.map(|kind| Failure {
                kind,
                stage,
                message: String::new(),
            });
            Verdict::of(
                failure.as_ref(),
                &stdout,
                expected.map(str::as_bytes),
                Comparison::Trimmed,
            )
        };
        use StageKind::{Compile, Run};
        let one = || Captured::new(b"1\n".to_vec(), 0);
        let cut = || Captured::new(b"1\n".to_vec(), 5);
        assert_eq!(verdict(None, Run, one(), None), None);
        assert_eq!(verdict(None, Run, cut(), None), None);
        assert_eq!(verdict(None, Run, one(), Some("1")), Some(Verdict::Accepted));
        assert_eq!(verdict(None, Run, one(), Some("2")), Some(Verdict::WrongOutput));
        assert_eq!(verdict(None, Run, cut(), Some("1")), Some(Verdict::OutputLimit));
        for (kind, stage, expected) in [
            (FailureKind::ExitCode, Run, Verdict::RuntimeError),
            (FailureKind::Signal, Run, Verdict::RuntimeError),
            (FailureKind::Timeout, Run, Verdict::Timeout),
            (FailureKind::CpuTime, Run, Verdict::Timeout),
            (FailureKind::OutOfMemory, Run, Verdict::Memory),
            (FailureKind::CompileFailed, Compile, Verdict::CompileError),
            (FailureKind::Timeout, Compile, Verdict::CompileError),
            (FailureKind::Cancelled, Compile, Verdict::Lost),
        ] {
            assert_eq!(
                verdict(Some(kind), stage, one(), Some("1")),
                Some(expected),
                "{kind}"
            );
            assert_eq!(verdict(Some(kind), stage, one(), None), Some(expected), "{kind}");
        }
    }
}
