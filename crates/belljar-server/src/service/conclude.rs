//! The end of every execution: what happened is made durable, and only then told.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use belljar_core::outcome::FileState;
use belljar_core::{Outcome, Record, SandboxStatus};
use belljar_engine::Execution;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tracing::field::Empty;
use tracing::{Instrument, Span, debug_span};

use super::Service;
use super::error::ServiceError;
use crate::store::{Finish, Kept, StoreError};
use crate::wire;

/// How long a result waits for its record to be durable before its caller is told that it is not.
const RECORDING: Duration = Duration::from_secs(15);

/// An execution that was let in and must end on record.
#[derive(Debug)]
pub(super) struct Job {
    /// As it stands among those that are under way.
    pub(super) record: Record,
    pub(super) approval_id: Option<String>,
    pub(super) metadata: BTreeMap<String, String>,
    /// What runs, where the policy keeps it.
    pub(super) code: Option<Vec<u8>>,
    /// The session that it runs in.
    pub(super) session_id: Option<String>,
    /// Whether somebody comes for the result later.
    pub(super) keep: bool,
    /// Whether its record is.
    pub(super) is_kept: bool,
    pub(super) cancel: CancellationToken,
}

/// An execution that is under way.
#[derive(Debug)]
pub struct Started {
    pub execution_id: String,
    /// What it waits for before it runs.
    pub approval_id: Option<String>,
    pub record: Record,
    /// Ends it, if it has not ended.
    pub cancel: CancellationToken,
    /// What came of it, once that is durable.
    pub done: oneshot::Receiver<Result<wire::Execution, ServiceError>>,
}

impl Service {
    /// Has `run` done in tasks of their own: whatever becomes of the caller, or of `run`, it ends on record.
    pub(super) fn start(
        self: &Arc<Self>,
        job: Job,
        run: impl Future<Output = Result<Execution, ServiceError>> + Send + 'static,
    ) -> Started {
        let (tell, done) = oneshot::channel();
        let started = Started {
            execution_id: job.record.record_id.clone(),
            approval_id: job.approval_id.clone(),
            record: job.record.clone(),
            cancel: job.cancel.clone(),
            done,
        };
        let service = Arc::clone(self);
        let trace = debug_span!(
            "execution",
            execution.id = job.record.record_id,
            execution.status = Empty,
            tenant.id = job.record.tenant_id,
            policy.id = job.record.policy_id,
        );
        let listed = self.running.list(&started.execution_id, job.cancel.clone());
        let work = async move {
            // A task of its own, so that even a panic ends on record.
            let ran = tokio::spawn(run.in_current_span()).await;
            let ran = ran.unwrap_or_else(|_| {
                let message = "the engine failed in an unexpected way";
                Err(ServiceError::Engine(message.to_owned()))
            });
            let told = service.conclude(job, ran).await;
            drop(listed);
            if let Ok(execution) = &told {
                Span::current().record("execution.status", &execution.status);
            }
            // Nobody need wait any more.
            let _ = tell.send(told);
        };
        self.running.tasks.spawn(work.instrument(trace));
        started
    }

    pub(super) async fn conclude(
        &self,
        job: Job,
        ran: Result<Execution, ServiceError>,
    ) -> Result<wire::Execution, ServiceError> {
        let now = self.now();
        let (record, outcome, bytes_out) = match &ran {
            Ok(Execution { outcome, record }) => {
                let record = Record {
                    record_id: job.record.record_id.clone(),
                    created_at: job.record.created_at,
                    completed_at: Some(now),
                    ..record.clone()
                };
                (record, Some(wire::Outcome::from(outcome)), bytes_out(outcome))
            }
            Err(error) => {
                let status = match error {
                    ServiceError::ShuttingDown | ServiceError::Cancelled => SandboxStatus::Killed,
                    _ => SandboxStatus::Failed,
                };
                let record = Record {
                    status,
                    completed_at: Some(now),
                    error_message: Some(error.to_string()),
                    ..job.record.clone()
                };
                (record, None, 0)
            }
        };
        self.metrics.ended(&record);
        let execution = wire::Execution {
            execution_id: record.record_id.clone(),
            status: record.status.word().to_owned(),
            approval_id: job.approval_id.clone(),
            success: Some(ran.as_ref().is_ok_and(|execution| execution.outcome.success())),
            outcome,
            record: json!(record),
        };
        if !job.is_kept {
            return ran.map(|_| execution);
        }
        let result = match job.keep {
            true => Some(Kept {
                body: json!(execution).to_string(),
                expires_at: now + self.settings.keep_results.as_secs_f64(),
            }),
            false => None,
        };
        let finish = Finish {
            record,
            more: more(job, &ran),
            bytes_out,
            result,
            now,
        };
        let finishing = self.store.finish(finish).instrument(debug_span!("record"));
        match tokio::time::timeout(RECORDING, finishing).await {
            Ok(Ok(())) => ran.map(|_| execution),
            Ok(Err(error)) => Err(ServiceError::Unrecorded(error)),
            // It is still being tried.
            Err(_) => Err(ServiceError::Unrecorded(StoreError::Late)),
        }
    }
}

/// What stands in the chain beside the record.
fn more(job: Job, ran: &Result<Execution, ServiceError>) -> Value {
    let mut more = json!({ "metadata": job.metadata });
    let code = job.code.map(|code| String::from_utf8_lossy(&code).into_owned());
    let texts = [
        ("approval_id", job.approval_id),
        ("session_id", job.session_id),
        ("code", code),
    ];
    for (name, text) in texts {
        if let Some(text) = text {
            more[name] = Value::from(text);
        }
    }
    match ran {
        Ok(execution) => more["receipt"] = json!(execution.outcome.receipt),
        Err(ServiceError::Denied { denial, .. }) => more["denial"] = json!(denial),
        Err(_) => {}
    }
    more
}

/// What left the sandbox.
fn bytes_out(outcome: &Outcome) -> u64 {
    let streams = outcome.stdout.bytes().len() + outcome.stderr.bytes().len();
    let compile = outcome.compile.as_ref().map_or(0, |compile| {
        compile.stdout.bytes().len() + compile.stderr.bytes().len()
    });
    let displays: usize = outcome
        .displays
        .iter()
        .flat_map(|display| display.data.values())
        .map(String::len)
        .sum();
    let value = outcome
        .value
        .as_ref()
        .and_then(|value| value.to_json().ok())
        .map_or(0, |json| json.len());
    let files: u64 = outcome
        .files
        .iter()
        .map(|file| match &file.state {
            FileState::Collected { size, .. } => *size,
            FileState::Refused { .. } => 0,
        })
        .sum();
    files + (streams + compile + displays + value) as u64
}
