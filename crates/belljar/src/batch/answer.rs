//! What came of one line, and its form as JSON.

use belljar_core::{Captured, Denial, ErrorKind, FailureKind, Outcome, Record, SandboxStatus};
use belljar_engine::{CaseEnd, CasesExecution, Execution};
use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::error::Error;

/// The answer to one line. As JSON it is what `belljar run --json` prints, with the line it belongs
/// to, and with its cases where it has some.
#[derive(Debug)]
pub struct Answer {
    /// The number of the line, counted from 1.
    pub line: u64,
    /// What the line gave as its id.
    pub id: Option<Value>,
    /// The SHA-256 of the line.
    pub input_hash: String,
    /// [`Batch::options_hash`](crate::batch::Batch::options_hash).
    pub options_hash: String,
    /// How many bytes of the input there are up to the line's end.
    pub end: u64,
    pub answered: Answered,
}

/// What became of a line.
#[derive(Debug)]
pub enum Answered {
    /// It ran, whatever became of the program.
    Ran(Box<Execution>),
    /// It ran with its cases.
    Cases(Box<CasesExecution>),
    /// Nothing ran, or belljar could not do its work.
    Failed(Error),
}

impl Answer {
    /// What happened, where something ran.
    pub fn outcome(&self) -> Option<&Outcome> {
        match &self.answered {
            Answered::Ran(execution) => Some(&execution.outcome),
            Answered::Cases(execution) => Some(&execution.outcome),
            Answered::Failed(_) => None,
        }
    }

    pub fn cases(&self) -> &[CaseEnd] {
        match &self.answered {
            Answered::Cases(execution) => &execution.cases,
            Answered::Ran(_) | Answered::Failed(_) => &[],
        }
    }

    /// One word for counting: the status, or `denied` or `error`.
    pub fn word(&self) -> &'static str {
        match &self.answered {
            Answered::Failed(Error::Denied { .. }) => ErrorKind::Denied.word(),
            Answered::Failed(_) => "error",
            Answered::Ran(_) | Answered::Cases(_) => self
                .outcome()
                .map_or(SandboxStatus::Failed, |outcome| outcome.status)
                .word(),
        }
    }

    /// Whether the caller stopped it, so that it is no answer to keep.
    pub fn cancelled(&self) -> bool {
        if let Answered::Failed(error) = &self.answered {
            return error.kind() == ErrorKind::Killed;
        }
        let failure = self.outcome().and_then(|outcome| outcome.error.as_ref());
        failure.is_some_and(|failure| failure.kind == FailureKind::Cancelled)
    }

    /// Why nobody could be asked: then it is no answer to keep, and there is no use in asking on.
    pub fn unasked(&self) -> Option<&Error> {
        match &self.answered {
            Answered::Failed(error) if error.kind() == ErrorKind::Unavailable => Some(error),
            _ => None,
        }
    }

    /// About how many bytes it holds.
    pub(super) fn size(&self) -> u64 {
        const REST: u64 = 4 << 10;
        let streams =
            |stdout: &Captured, stderr: &Captured| (stdout.bytes().len() + stderr.bytes().len()) as u64;
        let outcome = self.outcome().map_or(0, |outcome| {
            let compile = outcome.compile.as_ref();
            streams(&outcome.stdout, &outcome.stderr)
                + compile.map_or(0, |compile| streams(&compile.stdout, &compile.stderr))
        });
        let cases: u64 = self
            .cases()
            .iter()
            .map(|case| 256 + streams(&case.stdout, &case.stderr))
            .sum();
        REST + outcome + cases
    }
}

impl Serialize for Answer {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut wire = Wire {
            line: self.line,
            id: self.id.as_ref(),
            input_hash: &self.input_hash,
            options_hash: &self.options_hash,
            success: None,
            outcome: self.outcome(),
            cases: None,
            denial: None,
            error: None,
            record: None,
        };
        match &self.answered {
            Answered::Ran(execution) => {
                wire.success = Some(execution.outcome.success());
                wire.record = Some(&execution.record);
            }
            Answered::Cases(execution) => {
                wire.success = Some(execution.success());
                wire.cases = Some(&execution.cases);
                wire.record = Some(&execution.record);
            }
            Answered::Failed(Error::Denied { denial, record }) => {
                wire.denial = Some(denial);
                wire.record = Some(record);
            }
            Answered::Failed(error) => {
                wire.error = Some(ErrorWire {
                    kind: error.kind(),
                    message: error.to_string(),
                    hint: error.hint(),
                });
            }
        }
        wire.serialize(serializer)
    }
}

#[derive(Serialize)]
struct Wire<'a> {
    line: u64,
    id: Option<&'a Value>,
    input_hash: &'a str,
    options_hash: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    success: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<&'a Outcome>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cases: Option<&'a [CaseEnd]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    denial: Option<&'a Denial>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<ErrorWire<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    record: Option<&'a Record>,
}

#[derive(Serialize)]
struct ErrorWire<'a> {
    kind: ErrorKind,
    message: String,
    hint: Option<&'a str>,
}
