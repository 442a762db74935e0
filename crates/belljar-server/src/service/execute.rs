//! One execution in a sandbox of its own, from the key to the durable record.

use std::sync::Arc;

use belljar_core::provider::{BoxFuture, Stream};
use belljar_core::record::code_hash;
use belljar_core::{Denial, DenialCode, Policy, Record, Request, SandboxStatus};
use belljar_engine::session::{Cell, Event, Surroundings, Work};
use belljar_engine::{EngineError, ExecuteIo, Execution, Planned, Session, fresh_id};
use serde_json::json;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, debug_span};

use super::Service;
use super::admission::{Admission, Admitted, Queue};
use super::cells::PATIENCE;
use super::conclude::{Job, Started};
use super::error::ServiceError;
use super::identity::Identity;
use super::sessions::of_session;
use crate::store::{Repeat, Role};
use crate::wire::{self, ExecutionRequest, WireError};

/// How long a request is known by the name that its caller gave it.
const REPEATABLE: f64 = 86_400.0;
/// The longest such name.
const LONGEST_REPEAT_KEY: usize = 256;

/// What somebody asks for.
#[derive(Clone, Debug)]
pub struct Asked {
    pub who: Identity,
    pub request: ExecutionRequest,
    /// The caller's own name for it: asked twice, it runs once.
    pub repeat_key: Option<String>,
    /// Whether the result is kept for whoever comes for it later.
    pub keep: bool,
}

/// What came of asking.
pub enum Answer {
    Started(Box<Started>),
    /// It is done while this is awaited, and ends with whoever awaits it: nothing of it is kept.
    Awaited(BoxFuture<'static, Result<wire::Execution, ServiceError>>),
    /// It was asked for before and is over.
    Repeated(Box<wire::Execution>),
}

impl std::fmt::Debug for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Started(started) => f.debug_tuple("Started").field(started).finish(),
            Self::Awaited(_) => f.write_str("Awaited"),
            Self::Repeated(execution) => f.debug_tuple("Repeated").field(execution).finish(),
        }
    }
}

impl Service {
    /// Has it run, if it may. Everything that can be said at once is said at once; the rest comes with
    /// [`Started::done`].
    pub async fn execute(
        self: &Arc<Self>,
        asked: Asked,
        events: Option<mpsc::UnboundedSender<Event>>,
    ) -> Result<Answer, ServiceError> {
        let Asked {
            who,
            request: wish,
            repeat_key,
            keep,
        } = asked;
        who.may(Role::Run)?;
        let repeat = repeat_key.map(|key| self.repeat(key, &wish)).transpose()?;
        let mut request = wish.to_request()?;
        if wish.workspace.is_some() && !self.is_owned() {
            return Err(WireError::new(
                "workspace",
                "is for an engine of one's own; use `files`, or a session",
            )
            .into());
        }
        self.check_approved(wish.approved)?;
        request.caller.tenant_id = Some(self.tenant_of(&who, wish.tenant_id.as_deref()).await?);
        let policy = self.policy_for(wish.policy_id.as_deref(), &request).await?;
        // The guard asks for approval last, so what is planned as approved only lacks that.
        let needs_approval =
            self.asks_approver(&policy, wish.approved, wish.policy_id.as_deref()) || wish.is_escalated()?;
        request.approved = wish.approved || needs_approval;
        let keep = keep || repeat.is_some();
        let is_kept = keep || needs_approval || self.keeps_record(wish.policy_id.as_deref());
        let cell = wish.evaluate.then(|| cell(&wish)).transpose()?;
        let planned = self.plan(&who, &policy, &request, is_kept).await?;
        let status = match needs_approval {
            true => SandboxStatus::Pending,
            false => SandboxStatus::Running,
        };
        let mut record = Record::of_plan(fresh_id("exe"), planned.plan(), status, self.now());
        if let Some(cell) = &cell {
            record.code_hash = code_hash(&cell.work.bytes());
        }
        let admission = match self
            .admit(&wish, &policy, &record, repeat, Queue::Gate, is_kept)
            .await?
        {
            Admitted::Yes(admission) => admission,
            Admitted::Repeated(execution_id) => return self.repeated(&who, &execution_id).await,
        };
        let job = Job {
            record: record.clone(),
            approval_id: admission.approval_id(),
            code: policy.keep_code.then(|| match &cell {
                Some(cell) => cell.work.bytes(),
                None => request.code_bytes(),
            }),
            metadata: request.caller.metadata,
            session_id: None,
            keep,
            is_kept,
            cancel: CancellationToken::new(),
        };
        let is_awaited = !is_kept && events.is_none();
        let way = Way {
            record,
            policy,
            cancel: job.cancel.clone(),
            events,
        };
        let run = run(Arc::clone(self), admission, planned, cell, way);
        if is_awaited {
            let service = Arc::clone(self);
            let awaited = async move {
                let ran = run.await;
                service.conclude(job, ran).await
            };
            return Ok(Answer::Awaited(Box::pin(awaited)));
        }
        Ok(Answer::Started(Box::new(self.start(job, run))))
    }

    /// Whoever asks cannot say yes for others; an owner is alone.
    pub(super) fn check_approved(&self, approved: bool) -> Result<(), ServiceError> {
        if approved && !self.is_owned() {
            let message = "is for an engine of one's own; here those who may approve are asked";
            return Err(WireError::new("approved", message).into());
        }
        Ok(())
    }

    /// Whether somebody has to be asked first: the policy wants that, and nobody has said yes. An owner who names no policy has
    /// nobody to ask, so the guard refuses what it has not said yes to.
    pub(super) fn asks_approver(&self, policy: &Policy, approved: bool, policy_id: Option<&str>) -> bool {
        policy.needs_approval() && !approved && self.keeps_record(policy_id)
    }

    /// The guard's plan, or a refusal that is on record.
    pub(super) async fn plan(
        &self,
        who: &Identity,
        policy: &Policy,
        request: &Request,
        is_kept: bool,
    ) -> Result<Planned, ServiceError> {
        let denied = if who.may_use(&policy.policy_id) {
            match self.engine.plan_aside(policy, request).await {
                Ok(planned) => return Ok(planned),
                Err(EngineError::Denied { denial, record }) => (denial, record),
                Err(error) => return Err(ServiceError::of_engine(error)),
            }
        } else {
            let denial = Box::new(not_for_key(policy));
            let record = Record::of_denial(fresh_id("rec"), policy, request, &denial, self.now());
            (denial, Box::new(record))
        };
        let (denial, mut record) = denied;
        record.created_at = self.now();
        record.completed_at = Some(record.created_at);
        if is_kept {
            let more = json!({ "denial": denial, "metadata": request.caller.metadata });
            self.store.refuse((*record).clone(), more).await?;
        }
        Err(ServiceError::Denied {
            denial,
            record,
            retry_after: None,
        })
    }

    /// Whether there is a record in the store of what runs under that policy.
    pub(super) fn keeps_record(&self, policy_id: Option<&str>) -> bool {
        policy_id.is_some() || !self.is_owned()
    }

    /// The tenant that a request is for, which is there.
    pub(super) async fn tenant_of(
        &self,
        who: &Identity,
        named: Option<&str>,
    ) -> Result<String, ServiceError> {
        let tenant = who.tenant_for(named)?;
        // A key's own tenant was there when it was made, and the default one always is.
        if who.tenant().is_none() && tenant != super::DEFAULT_TENANT && !self.has_tenant(&tenant).await? {
            return Err(ServiceError::not_found("tenant", &tenant));
        }
        Ok(tenant)
    }

    fn repeat(&self, key: String, wish: &ExecutionRequest) -> Result<Repeat, ServiceError> {
        if key.is_empty() || key.len() > LONGEST_REPEAT_KEY {
            let message = format!("must have 1 to {LONGEST_REPEAT_KEY} bytes");
            return Err(WireError::new("Idempotency-Key", message).into());
        }
        Ok(Repeat {
            key,
            request_hash: code_hash(json!(wish).to_string().as_bytes()),
            expires_at: self.now() + REPEATABLE,
        })
    }

    async fn repeated(&self, who: &Identity, execution_id: &str) -> Result<Answer, ServiceError> {
        let found = self.get_execution(who, execution_id).await?;
        match found.success {
            Some(_) => Ok(Answer::Repeated(Box::new(found))),
            None => Err(ServiceError::Conflict(format!(
                "the same request is under way as execution {execution_id}"
            ))),
        }
    }
}

/// What an execution has with it on its way.
struct Way {
    record: Record,
    policy: Arc<Policy>,
    cancel: CancellationToken,
    events: Option<mpsc::UnboundedSender<Event>>,
}

/// Waits for its turn and runs it.
async fn run(
    service: Arc<Service>,
    admission: Admission,
    planned: Planned,
    cell: Option<Cell>,
    way: Way,
) -> Result<Execution, ServiceError> {
    let Way {
        record,
        policy,
        cancel,
        events,
    } = way;
    let waiting = service.turn(admission, &record, &policy, &cancel);
    let turn = waiting.instrument(debug_span!("wait")).await?;
    let tell = |event: Event| {
        if let Some(events) = &events {
            // Nobody need listen any more.
            let _ = events.send(event);
        }
    };
    if let Some(cell) = cell {
        let cell = Cell {
            weight: turn.weight(),
            ..cell
        };
        let evaluating = evaluate(&service, planned, cell, tell, &cancel);
        return evaluating.instrument(debug_span!("run")).await;
    }
    let mut sink = |stream: Stream, bytes: &[u8]| tell(Event::Output(stream, bytes.to_vec()));
    let io = ExecuteIo {
        sink: match &events {
            Some(_) => Some(&mut sink),
            None => None,
        },
        stdin: None,
        stop: Some(Box::pin(cancel.cancelled())),
    };
    let running = service
        .engine
        .execute_planned(planned.weighing(turn.weight()), io);
    let ran = running.instrument(debug_span!("run")).await;
    drop(turn);
    ran.map_err(ServiceError::of_engine)
}

/// Executes a cell in a sandbox of its own.
async fn evaluate(
    service: &Service,
    planned: Planned,
    cell: Cell,
    mut tell: impl FnMut(Event) + Send,
    cancel: &CancellationToken,
) -> Result<Execution, ServiceError> {
    let surroundings = Surroundings {
        globals: cell.globals.clone(),
        ..Surroundings::default()
    };
    let cell = Cell {
        globals: std::collections::BTreeMap::new(),
        ..cell
    };
    let (engine, stop) = (&service.engine, cancel.cancelled());
    let evaluating = Session::evaluate_planned(engine, planned, surroundings, cell, &mut tell, stop);
    let mut evaluating = std::pin::pin!(evaluating);
    let given_up = async {
        cancel.cancelled().await;
        tokio::time::sleep(PATIENCE).await;
    };
    tokio::select! {
        ran = &mut evaluating => ran.map_err(of_session),
        // Dropping it ends it.
        () = given_up => Err(ServiceError::Cancelled),
    }
}

/// What is to be executed where the code is evaluated.
fn cell(wish: &ExecutionRequest) -> Result<Cell, ServiceError> {
    if wish.stdin_base64.is_some() {
        let text_alone = "is for programs; code that is evaluated reads text";
        return Err(WireError::new("stdin_base64", text_alone).into());
    }
    Ok(Cell {
        work: Work::Code(wish.code.clone().unwrap_or_default()),
        stdin: wish.stdin.clone(),
        globals: wire::globals(&wish.globals)?,
        outputs: wire::paths("outputs", &wish.outputs)?,
        ..Cell::default()
    })
}

fn not_for_key(policy: &Policy) -> Denial {
    Denial::new(
        DenialCode::PolicyNotAllowed,
        "key.policies",
        policy.policy_id.clone(),
        format!("this key is not for policy `{}`", policy.policy_id),
        "use a key that is, or name one of its policies",
    )
}
