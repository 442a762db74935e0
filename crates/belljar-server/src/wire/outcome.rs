//! What came of an execution, as `belljar run --json` prints it, with what JSON text cannot hold as base64 beside it.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use belljar_core::outcome::FileState;
use belljar_core::{self as core, Captured};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// One execution and its record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Execution {
    pub execution_id: String,
    /// `pending`, `running`, `completed`, `failed`, `timeout` or `killed`.
    pub status: String,
    /// What it waits for, or waited for, before it ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval_id: Option<String>,
    /// Completed, and with exit code 0; null until it is over.
    pub success: Option<bool>,
    /// What happened; null until it is over, and where it is no longer kept.
    pub outcome: Option<Outcome>,
    /// Its row in the audit.
    #[schema(value_type = Object)]
    pub record: Value,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Outcome {
    pub sandbox_id: String,
    pub status: String,
    pub exit_code: Option<i32>,
    pub signal: Option<i32>,
    /// As text; what is not UTF-8 is replaced, and a marker stands where something was cut.
    pub stdout: String,
    pub stderr: String,
    /// The bytes as they were, where they are not UTF-8 or something was cut.
    pub stdout_base64: Option<String>,
    pub stderr_base64: Option<String>,
    /// How many bytes past the limit were dropped.
    pub stdout_dropped: u64,
    pub stderr_dropped: u64,
    pub compile: Option<CompileOutput>,
    pub error: Option<Failure>,
    /// What the code's last expression gave, in a session.
    #[schema(value_type = Option<Object>)]
    pub value: Option<Value>,
    pub displays: Vec<Display>,
    pub tool_calls: Vec<ToolCall>,
    /// Whom it asked for and connected to, where it may reach anybody.
    #[serde(default, skip_serializing_if = "core::egress::Log::is_empty")]
    #[schema(value_type = Object)]
    pub network: core::egress::Log,
    /// What it raised, in a session.
    #[schema(value_type = Option<Object>)]
    pub exception: Option<core::Exception>,
    /// What of a session's state is gone.
    pub state_lost: Option<String>,
    pub flags: Vec<String>,
    pub files: Vec<FileOut>,
    pub usage: Usage,
    #[schema(value_type = Receipt)]
    pub receipt: core::Receipt,
    /// Seconds since the epoch.
    pub started_at: f64,
    pub completed_at: f64,
    /// Seconds.
    pub duration: f64,
}

/// What a compiler said.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct CompileOutput {
    pub exit_code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
    pub usage: Usage,
}

/// Why it did not complete.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Failure {
    #[serde(rename = "type")]
    pub kind: String,
    /// `compile`, `run` or `interpreter`.
    pub stage: String,
    pub message: String,
}

/// Something to show, by media type.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Display {
    /// `image/*` is base64, all else text.
    pub data: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub value: Option<Value>,
}

/// One call of a host tool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ToolCall {
    pub call: u64,
    pub name: String,
    pub duration: f64,
    pub argument_bytes: u64,
    pub result_bytes: u64,
    pub error: Option<String>,
}

/// A file that was wanted back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FileOut {
    pub path: String,
    /// `collected` or `refused`.
    pub state: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub executable: Option<bool>,
    /// The content, where it was collected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base64: Option<String>,
    /// Why it was not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// What was used.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Usage {
    pub wall_seconds: f64,
    pub cpu_seconds: f64,
    /// Bytes; null where nothing measured it.
    pub memory_peak: Option<u64>,
}

/// The controls that really held: how [`core::Receipt`] is written, for the description of the API.
#[derive(Debug, Serialize, ToSchema)]
pub struct Receipt {
    pub provider: String,
    pub isolation: String,
    pub policy_id: String,
    pub policy_hash: String,
    #[schema(value_type = Option<Object>)]
    pub environment: Option<Value>,
    #[schema(value_type = Object)]
    pub controls: Value,
    pub network: String,
    #[schema(value_type = Object)]
    pub limits: Value,
    pub shown: Vec<String>,
    pub origin: String,
}

/// One event of a stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StreamEvent {
    /// `started`, `pending`, `output`, `display`, `tool_started`, `tool_ended`, `result` or `problem`.
    pub event: String,
    /// JSON: of `result` an Execution, of `problem` a Problem.
    pub data: String,
}

/// Which of the two streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Stream {
    Stdout,
    Stderr,
}

impl From<&core::Outcome> for Outcome {
    fn from(outcome: &core::Outcome) -> Self {
        Self {
            sandbox_id: outcome.sandbox_id.clone(),
            status: outcome.status.word().to_owned(),
            exit_code: outcome.exit_code,
            signal: outcome.signal,
            stdout: outcome.stdout.text(),
            stderr: outcome.stderr.text(),
            stdout_base64: unless_text(&outcome.stdout),
            stderr_base64: unless_text(&outcome.stderr),
            stdout_dropped: outcome.stdout.dropped(),
            stderr_dropped: outcome.stderr.dropped(),
            compile: outcome.compile.as_ref().map(|compile| CompileOutput {
                exit_code: compile.exit_code,
                stdout: compile.stdout.text(),
                stderr: compile.stderr.text(),
                usage: compile.usage.into(),
            }),
            error: outcome.error.as_ref().map(|failure| Failure {
                kind: failure.kind.word().to_owned(),
                stage: word(&failure.stage),
                message: failure.message.clone(),
            }),
            value: outcome.value.as_ref().map(json),
            displays: outcome
                .displays
                .iter()
                .map(|display| Display {
                    data: display.data.clone(),
                    value: display.value.as_ref().map(json),
                })
                .collect(),
            tool_calls: outcome.tool_calls.iter().map(ToolCall::from).collect(),
            network: outcome.network.clone(),
            exception: outcome.exception.clone(),
            state_lost: outcome.state_lost.map(|lost| lost.word().to_owned()),
            flags: outcome.flags.clone(),
            files: outcome.files.iter().map(FileOut::from).collect(),
            usage: outcome.usage.into(),
            receipt: outcome.receipt.clone(),
            started_at: outcome.started_at,
            completed_at: outcome.completed_at,
            duration: outcome.duration.get(),
        }
    }
}

impl From<core::Usage> for Usage {
    fn from(usage: core::Usage) -> Self {
        let core::Usage {
            wall_seconds,
            cpu_seconds,
            memory_peak,
        } = usage;
        Self {
            wall_seconds,
            cpu_seconds,
            memory_peak,
        }
    }
}

impl From<&core::ToolCall> for ToolCall {
    fn from(call: &core::ToolCall) -> Self {
        Self {
            call: call.call,
            name: call.name.clone(),
            duration: call.duration.get(),
            argument_bytes: call.argument_bytes,
            result_bytes: call.result_bytes,
            error: call.error.clone(),
        }
    }
}

impl From<&core::outcome::CollectedFile> for FileOut {
    fn from(file: &core::outcome::CollectedFile) -> Self {
        let (path, none) = (file.path.clone(), None);
        match &file.state {
            FileState::Collected {
                size,
                executable,
                bytes,
            } => Self {
                path,
                state: "collected".to_owned(),
                size: Some(*size),
                executable: Some(*executable),
                base64: Some(STANDARD.encode(bytes)),
                reason: none,
            },
            FileState::Refused { reason } => Self {
                path,
                state: "refused".to_owned(),
                size: None,
                executable: None,
                base64: none,
                reason: Some(reason.clone()),
            },
        }
    }
}

impl Display {
    /// The same, as if it had happened here.
    pub fn to_core(&self) -> Result<core::Display, serde_json::Error> {
        Ok(core::Display {
            data: self.data.clone(),
            value: self.value.clone().map(serde_json::from_value).transpose()?,
        })
    }
}

impl Outcome {
    /// The outcome in the engine's own words, for those who show it as if it had happened here.
    pub fn to_core(&self) -> Result<core::Outcome, serde_json::Error> {
        let captured = |text: &str, base64: Option<&String>, dropped: u64| {
            let bytes = base64.and_then(|base64| STANDARD.decode(base64).ok());
            Captured::new(bytes.unwrap_or_else(|| text.as_bytes().to_vec()), dropped)
        };
        let value = |value: &Option<Value>| -> Result<Option<core::Value>, serde_json::Error> {
            value.clone().map(serde_json::from_value).transpose()
        };
        let mut displays = Vec::new();
        for display in &self.displays {
            displays.push(display.to_core()?);
        }
        Ok(core::Outcome {
            sandbox_id: self.sandbox_id.clone(),
            status: from_word(&self.status)?,
            exit_code: self.exit_code,
            signal: self.signal,
            stdout: captured(&self.stdout, self.stdout_base64.as_ref(), self.stdout_dropped),
            stderr: captured(&self.stderr, self.stderr_base64.as_ref(), self.stderr_dropped),
            compile: self.compile.as_ref().map(|compile| core::outcome::CompileOutput {
                exit_code: compile.exit_code,
                stdout: captured(&compile.stdout, None, 0),
                stderr: captured(&compile.stderr, None, 0),
                usage: compile.usage.into(),
            }),
            error: self
                .error
                .as_ref()
                .map(|failure| serde_json::from_value(json(failure)))
                .transpose()?,
            value: value(&self.value)?,
            displays,
            tool_calls: serde_json::from_value(json(&self.tool_calls))?,
            network: self.network.clone(),
            exception: self.exception.clone(),
            state_lost: self.state_lost.as_deref().map(from_word).transpose()?,
            flags: self.flags.clone(),
            files: self.files.iter().map(FileOut::to_core).collect(),
            usage: self.usage.into(),
            receipt: self.receipt.clone(),
            started_at: self.started_at,
            completed_at: self.completed_at,
            duration: core::Seconds::new(self.duration).unwrap_or(core::Seconds::ZERO),
        })
    }
}

impl FileOut {
    fn to_core(&self) -> core::outcome::CollectedFile {
        let bytes = self
            .base64
            .as_ref()
            .and_then(|base64| STANDARD.decode(base64).ok());
        let state = match bytes {
            Some(bytes) => FileState::Collected {
                size: bytes.len() as u64,
                executable: self.executable.unwrap_or_default(),
                bytes,
            },
            None => FileState::Refused {
                reason: self
                    .reason
                    .clone()
                    .unwrap_or_else(|| "it did not arrive".to_owned()),
            },
        };
        core::outcome::CollectedFile {
            path: self.path.clone(),
            state,
        }
    }
}

impl From<Usage> for core::Usage {
    fn from(usage: Usage) -> Self {
        Self {
            wall_seconds: usage.wall_seconds,
            cpu_seconds: usage.cpu_seconds,
            memory_peak: usage.memory_peak,
        }
    }
}

fn from_word<T: serde::de::DeserializeOwned>(word: &str) -> Result<T, serde_json::Error> {
    serde_json::from_value(Value::from(word))
}

/// The bytes, where the text is not the same: it is no UTF-8, or has a marker at its end.
fn unless_text(captured: &Captured) -> Option<String> {
    let bytes = captured.bytes();
    let is_same = !captured.truncated() && std::str::from_utf8(bytes).is_ok();
    (!is_same).then(|| STANDARD.encode(bytes))
}

fn json(value: &impl Serialize) -> Value {
    serde_json::to_value(value).unwrap_or(Value::Null)
}

fn word(value: &impl Serialize) -> String {
    json(value).as_str().unwrap_or_default().to_owned()
}
