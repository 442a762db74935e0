//! What happened. A guest that fails is an outcome, never an error of belljar.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::egress::Log;
use crate::plan::StageKind;
use crate::receipt::Receipt;
use crate::status::{SandboxStatus, words};
use crate::units::{Bytes, Seconds};
use crate::value::Value;

/// What happened to one execution (R4).
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    pub sandbox_id: String,
    pub status: SandboxStatus,
    /// The program's own exit code, where it came to one.
    pub exit_code: Option<i32>,
    /// The signal that ended it, where one did.
    pub signal: Option<i32>,
    pub stdout: Captured,
    pub stderr: Captured,
    /// What the compiler said, where there was one.
    pub compile: Option<CompileOutput>,
    /// Why it did not complete.
    pub error: Option<Failure>,
    /// What the code's last expression gave, in a session.
    pub value: Option<Value>,
    /// What it showed, in a session.
    pub displays: Vec<Display>,
    /// The host tools it called, in a session.
    pub tool_calls: Vec<ToolCall>,
    /// Whom it asked for and connected to, where it may reach anybody.
    #[serde(default, skip_serializing_if = "Log::is_empty")]
    pub network: Log,
    /// What it raised, in a session.
    pub exception: Option<Exception>,
    /// What of the session's state is gone, since the outcome before this one.
    pub state_lost: Option<StateLost>,
    /// What the guest sent against the rules; it harmed nobody.
    pub flags: Vec<String>,
    pub files: Vec<CollectedFile>,
    pub usage: Usage,
    pub receipt: Receipt,
    /// Seconds since the epoch.
    pub started_at: f64,
    pub completed_at: f64,
    /// From the first stage's start to the last one's end.
    pub duration: Seconds,
}

impl Outcome {
    /// R5: completed, and with exit code 0.
    pub fn success(&self) -> bool {
        self.status == SandboxStatus::Completed && self.exit_code == Some(0)
    }
}

/// Bytes of a stream, up to its cap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Captured {
    bytes: Vec<u8>,
    dropped: u64,
}

impl Captured {
    pub const fn new(bytes: Vec<u8>, dropped: u64) -> Self {
        Self { bytes, dropped }
    }

    /// What was kept.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// How many bytes past the cap were read and thrown away.
    pub const fn dropped(&self) -> u64 {
        self.dropped
    }

    pub const fn truncated(&self) -> bool {
        self.dropped > 0
    }

    /// The text, with invalid UTF-8 replaced and a marker where something was cut (R31).
    pub fn text(&self) -> String {
        let mut text = String::from_utf8_lossy(&self.bytes).into_owned();
        if let Some(marker) = self.marker() {
            text.push_str(&marker);
        }
        text
    }

    /// What stands at the end of a stream that was cut.
    pub fn marker(&self) -> Option<String> {
        self.truncated().then(|| {
            format!(
                "\n[belljar: cut after {}, {} more dropped]\n",
                Bytes::new(self.bytes.len() as u64),
                Bytes::new(self.dropped)
            )
        })
    }
}

/// Collects a stream up to its cap.
#[derive(Clone, Debug)]
pub struct Capture {
    kept: Captured,
    cap: usize,
}

impl Capture {
    pub fn new(cap: u64) -> Self {
        Self {
            kept: Captured::default(),
            cap: usize::try_from(cap).unwrap_or(usize::MAX),
        }
    }

    /// Keeps what there is room for and returns that part.
    pub fn keep<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let (keep, rest) = bytes.split_at(bytes.len().min(self.cap - self.kept.bytes.len()));
        self.kept.bytes.extend_from_slice(keep);
        self.kept.dropped += rest.len() as u64;
        keep
    }

    pub fn into_captured(self) -> Captured {
        self.kept
    }
}

impl Serialize for Captured {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text())
    }
}

/// What a compiler said.
#[derive(Clone, Debug, Serialize)]
pub struct CompileOutput {
    pub exit_code: Option<i32>,
    pub stdout: Captured,
    pub stderr: Captured,
    pub usage: Usage,
}

words! {
    /// Why an execution did not complete: stable names.
    FailureKind {
        ExitCode = "exit_code",
        Signal = "signal",
        Timeout = "timeout",
        CpuTime = "cpu_time",
        OutOfMemory = "out_of_memory",
        FileSize = "file_size",
        CompileFailed = "compile_failed",
        /// The code raised an exception.
        Exception = "exception",
        /// The caller interrupted it.
        Interrupted = "interrupted",
        /// A check of the source refused it before anything ran.
        Refused = "refused",
        /// The guest broke the protocol of its control channel.
        Protocol = "protocol",
        CannotStart = "cannot_start",
        Cancelled = "cancelled",
        PolicyViolation = "policy_violation",
        EngineLost = "engine_lost",
    }
}

/// Why an execution did not complete.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    #[serde(rename = "type")]
    pub kind: FailureKind,
    pub stage: StageKind,
    pub message: String,
}

words! {
    /// What a session no longer has.
    StateLost {
        Variables = "variables",
        VariablesAndFiles = "variables and files",
    }
}

/// An exception that the guest's code raised, as its runner tells it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exception {
    #[serde(rename = "type")]
    pub kind: String,
    pub message: String,
    pub traceback: String,
    /// In the cell's own code, counted from 1.
    pub line: Option<u32>,
    pub column: Option<u32>,
}

/// Something to show: the same thing in one or more forms.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Display {
    /// By media type; `image/*` is base64, all else text.
    pub data: BTreeMap<String, String>,
    /// The data of a table.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<Value>,
}

/// One call of a host tool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolCall {
    /// The guest's number of the call.
    pub call: u64,
    pub name: String,
    /// From when the guest asked to when the answer was ready.
    pub duration: Seconds,
    /// Bytes of the arguments and of the result, as they crossed.
    pub argument_bytes: u64,
    pub result_bytes: u64,
    /// The type of the error that it gave instead of a result.
    pub error: Option<String>,
}

/// A file that was wanted back.
#[derive(Clone, Debug, Serialize)]
pub struct CollectedFile {
    /// Where it was, relative to the work directory; bytes that are not plain text are escaped
    /// as `\xNN`, a backslash as `\\`.
    pub path: String,
    #[serde(flatten)]
    pub state: FileState,
}

/// Whether a wanted file came back.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "state", rename_all = "lowercase")]
pub enum FileState {
    Collected {
        size: u64,
        executable: bool,
        #[serde(skip)]
        bytes: Vec<u8>,
    },
    /// Not taken, and why.
    Refused { reason: String },
}

/// What was used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    pub wall_seconds: f64,
    pub cpu_seconds: f64,
    /// The most memory the sandbox held at once; `None` where nothing measured it.
    pub memory_peak: Option<u64>,
}

impl Usage {
    /// Both together: times add up, the peak is the larger one.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            wall_seconds: self.wall_seconds + other.wall_seconds,
            cpu_seconds: self.cpu_seconds + other.cpu_seconds,
            memory_peak: self.memory_peak.max(other.memory_peak),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_stream_says_so() {
        let whole = Captured::new(b"abc".to_vec(), 0);
        assert_eq!(whole.text(), "abc");
        let cut = Captured::new(b"ab\xff".to_vec(), 2048);
        assert_eq!(
            cut.text(),
            "ab\u{fffd}\n[belljar: cut after 3 B, 2 KiB more dropped]\n"
        );
    }
}
