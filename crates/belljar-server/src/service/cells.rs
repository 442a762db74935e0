//! One execution in a session: the same quotas, turns, approvals and records as for one in a sandbox of its own.

use std::sync::Arc;
use std::time::Duration;

use belljar_core::record::code_hash;
use belljar_core::{Record, SandboxStatus, Weight};
use belljar_engine::session::{Cell, Event, Work};
use belljar_engine::{Execution, Session, fresh_id};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, debug_span};

use super::Service;
use super::admission::{Admission, Admitted, Queue};
use super::conclude::{Job, Started};
use super::error::ServiceError;
use super::sessions::{LiveSession, MOST_WAITING, of_session};
use crate::wire::{self, CellRequest, CommandWish, ExecutionRequest};

/// How long code that was interrupted for its caller may take to end before it is ended.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

impl Service {
    /// Has a session execute something, if it may. `events` hears what happens.
    pub async fn execute_cell(
        self: &Arc<Self>,
        live: Arc<LiveSession>,
        wish: CellRequest,
        events: Option<mpsc::UnboundedSender<Event>>,
    ) -> Result<Started, ServiceError> {
        if self.gate.is_closed() {
            return Err(ServiceError::ShuttingDown);
        }
        let waiting = live.queue.clone().try_acquire_owned();
        let place = waiting.map_err(|_| ServiceError::Busy {
            waiting: MOST_WAITING,
        })?;
        let cell = Cell {
            work: wish.work()?,
            limits: wish.limits.overrides()?,
            globals: wire::globals(&wish.globals)?,
            tools: live.bridge.tools(&wish.tools),
            outputs: wire::paths("outputs", &wish.outputs)?,
            stdin: wish.stdin,
            weight: Weight::FULL,
        };
        let (code, command) = match &cell.work {
            Work::Code(code) => (Some(code.clone()), None),
            Work::Command(argv) => (None, Some(CommandWish::Words(argv.clone()))),
        };
        let status = match live.asks_approver {
            true => SandboxStatus::Pending,
            false => SandboxStatus::Running,
        };
        let record = Record {
            record_id: fresh_id("exe"),
            status,
            created_at: self.now(),
            code_hash: code_hash(&cell.work.bytes()),
            ..live.record.clone()
        };
        // What an approver is shown.
        let shown = ExecutionRequest {
            policy_id: Some(live.policy.policy_id.clone()),
            language: live.request.language().map(|language| language.word().to_owned()),
            code,
            command,
            env: live.request.env.clone(),
            mounts: live.request.mounts.iter().map(ToString::to_string).collect(),
            environment: live.request.environment.as_ref().map(ToString::to_string),
            provider: live.request.provider.map(|provider| provider.word().to_owned()),
            image: live.request.image.clone(),
            network: live.request.network.map(|network| network.word().to_owned()),
            stdin: cell.stdin.clone(),
            limits: wish.limits,
            ..ExecutionRequest::default()
        };
        let admission = match self
            .admit(&shown, &live.policy, &record, None, Queue::Session, live.is_kept)
            .await?
        {
            Admitted::Yes(admission) => admission,
            Admitted::Repeated(id) => {
                return Err(ServiceError::Conflict(format!(
                    "it is under way as execution {id}"
                )));
            }
        };
        let job = Job {
            record: record.clone(),
            approval_id: admission.approval_id(),
            code: live.policy.keep_code.then(|| cell.work.bytes()),
            metadata: live.request.caller.metadata.clone(),
            session_id: Some(live.session_id.clone()),
            keep: false,
            is_kept: live.is_kept,
            cancel: CancellationToken::new(),
        };
        let cancel = job.cancel.clone();
        let run = run(Arc::clone(self), admission, record, live, cell, events, cancel);
        let run = async move {
            let _place = place;
            run.await
        };
        Ok(self.start(job, run))
    }
}

async fn run(
    service: Arc<Service>,
    admission: Admission,
    record: Record,
    live: Arc<LiveSession>,
    cell: Cell,
    events: Option<mpsc::UnboundedSender<Event>>,
    cancel: CancellationToken,
) -> Result<Execution, ServiceError> {
    // Those before it first: a place at the gate is for what runs.
    let _session = tokio::select! {
        session = live.turn.lock() => session,
        () = cancel.cancelled() => return Err(ServiceError::Cancelled),
    };
    let waiting = service.turn(admission, &record, &live.policy, &cancel);
    let turn = waiting.instrument(debug_span!("wait")).await?;
    live.current.set(Some(record));
    let mut sink = |event: Event| {
        if let Some(events) = &events {
            // Nobody need listen any more.
            let _ = events.send(event);
        }
    };
    let cell = Cell {
        weight: turn.weight(),
        ..cell
    };
    let executing = live
        .session
        .execute(cell, &mut sink)
        .instrument(debug_span!("run"));
    match until_cancelled(executing, &live.session, &cancel).await {
        Some(ended) => ended.map_err(of_session),
        // Dropping it ends it, which nobody waits for.
        None => Err(ServiceError::Cancelled),
    }
}

/// Waits for an execution; where it is cancelled, it is interrupted, and given up if it does not mind that.
async fn until_cancelled<T>(
    executing: impl Future<Output = T>,
    session: &Session,
    cancel: &CancellationToken,
) -> Option<T> {
    let mut executing = std::pin::pin!(executing);
    tokio::select! {
        ended = &mut executing => Some(ended),
        () = cancel.cancelled() => {
            session.interrupter().interrupt();
            tokio::time::timeout(PATIENCE, executing).await.ok()
        }
    }
}
