//! One execution, from the key to the durable record.

use std::sync::Arc;
use std::time::Duration;

use belljar_core::outcome::FileState;
use belljar_core::provider::Stream;
use belljar_core::record::code_hash;
use belljar_core::{Denial, DenialCode, Outcome, Policy, Record, Request, SandboxStatus};
use belljar_engine::{EngineError, ExecuteIo, Execution, Planned, fresh_id};
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::Service;
use super::approvals::Question;
use super::error::ServiceError;
use super::gate::Ticket;
use super::identity::Identity;
use crate::store::{Begin, Begun, Exceeded, Finish, Kept, Repeat, Role};
use crate::wire::{self, ExecutionRequest, WireError};

/// How long a result waits for its record to be durable before its caller is told that it is not.
const RECORDING: Duration = Duration::from_secs(15);
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

/// A piece of output as it comes.
pub type Output = (Stream, Vec<u8>);

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

/// What came of asking.
#[derive(Debug)]
pub enum Answer {
    Started(Box<Started>),
    /// It was asked for before and is over.
    Repeated(Box<wire::Execution>),
}

/// An execution on its way through the engine.
struct Job {
    record: Record,
    approval_id: Option<String>,
    policy: Arc<Policy>,
    request: Request,
    keep: bool,
    cancel: CancellationToken,
    output: Option<mpsc::UnboundedSender<Output>>,
}

impl Service {
    /// Has it run, if it may. Everything that can be said at once is said at once; the rest comes with
    /// [`Started::done`], and whatever becomes of the caller, it ends on record.
    pub async fn execute(
        self: &Arc<Self>,
        asked: Asked,
        output: Option<mpsc::UnboundedSender<Output>>,
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
        let tenant = self.tenant_of(&who, &wish).await?;
        request.caller.tenant_id = Some(tenant.clone());
        let policy = self.policy_for(wish.policy_id.as_deref()).await?;
        // The guard asks for approval last, so what is planned as approved only lacks that.
        let needs_approval = policy.require_approval || wish.is_escalated()?;
        request.approved = needs_approval;
        let planned = self.plan(&who, &policy, &request).await?;
        let ticket = match needs_approval {
            true => None,
            false => Some(self.gate.enter(&tenant)?),
        };
        let status = match needs_approval {
            true => SandboxStatus::Pending,
            false => SandboxStatus::Running,
        };
        let record = Record::of_request(fresh_id("exe"), &policy, &request, status, self.now());
        let mut job = Job {
            record,
            approval_id: None,
            keep: keep || repeat.is_some(),
            policy,
            request,
            cancel: CancellationToken::new(),
            output,
        };
        let begun = match ticket {
            None => match self.ask(&wish, &job.policy, &job.record, repeat).await? {
                Ok(question) => {
                    job.approval_id = Some(question.approval_id.clone());
                    Ok(Admission::Question(question))
                }
                Err(begun) => Err(begun),
            },
            Some(ticket) => {
                let begin = Begin {
                    record: job.record.clone(),
                    server_id: self.server_id.clone(),
                    quotas: job.policy.quotas,
                    repeat,
                    now: job.record.created_at,
                };
                match self.store.begin(begin).await? {
                    Begun::Reserved => Ok(Admission::Ticket(ticket)),
                    begun => Err(begun),
                }
            }
        };
        let admission = match begun {
            Ok(admission) => admission,
            Err(Begun::Exceeded(exceeded)) => return Err(over_quota(&job.policy, job.record, &exceeded)),
            Err(Begun::Repeated { execution_id }) => return self.repeated(&who, &execution_id).await,
            Err(Begun::Mistaken | Begun::Reserved) => {
                let message = "this Idempotency-Key was used for another request";
                return Err(ServiceError::Conflict(message.to_owned()));
            }
        };
        Ok(Answer::Started(Box::new(self.start(job, planned, admission))))
    }

    fn start(self: &Arc<Self>, job: Job, planned: Planned, admission: Admission) -> Started {
        let (tell, done) = oneshot::channel();
        let started = Started {
            execution_id: job.record.record_id.clone(),
            approval_id: job.approval_id.clone(),
            record: job.record.clone(),
            cancel: job.cancel.clone(),
            done,
        };
        let service = Arc::clone(self);
        let listed = self.running.list(&started.execution_id, job.cancel.clone());
        self.running.tasks.spawn(async move {
            // A task of its own, so that even a panic ends on record.
            let way = Way {
                record: job.record.clone(),
                policy: Arc::clone(&job.policy),
                cancel: job.cancel.clone(),
                output: job.output.clone(),
            };
            let ran = tokio::spawn(run(Arc::clone(&service), admission, planned, way));
            let ran = ran.await.unwrap_or_else(|_| {
                Err(ServiceError::Engine(
                    "the engine failed in an unexpected way".to_owned(),
                ))
            });
            let told = service.record(job, ran).await;
            drop(listed);
            // Nobody need wait any more.
            let _ = tell.send(told);
        });
        started
    }

    /// Makes what happened durable, and only then gives it away.
    async fn record(
        &self,
        job: Job,
        ran: Result<Execution, ServiceError>,
    ) -> Result<wire::Execution, ServiceError> {
        let now = self.now();
        let mut more = json!({ "metadata": job.request.caller.metadata });
        if let Some(approval_id) = &job.approval_id {
            more["approval_id"] = Value::from(approval_id.clone());
        }
        if job.policy.keep_code {
            more["code"] = Value::from(String::from_utf8_lossy(&job.request.code_bytes()).into_owned());
        }
        let (record, outcome, bytes_out) = match &ran {
            Ok(Execution { outcome, record }) => {
                more["receipt"] = json!(outcome.receipt);
                let record = Record {
                    record_id: job.record.record_id.clone(),
                    created_at: job.record.created_at,
                    completed_at: Some(now),
                    ..record.clone()
                };
                (record, Some(wire::Outcome::from(outcome)), bytes_out(outcome))
            }
            Err(error) => {
                if let ServiceError::Denied { denial, .. } = error {
                    more["denial"] = json!(denial);
                }
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
        let execution = wire::Execution {
            execution_id: record.record_id.clone(),
            status: record.status.word().to_owned(),
            approval_id: job.approval_id.clone(),
            success: Some(ran.as_ref().is_ok_and(|execution| execution.outcome.success())),
            outcome,
            record: json!(record),
        };
        let result = match job.keep {
            true => Some(Kept {
                body: json!(execution).to_string(),
                expires_at: now + self.settings.keep_results.as_secs_f64(),
            }),
            false => None,
        };
        self.metrics.ended(&record);
        let finishing = self.store.finish(Finish {
            record,
            more,
            bytes_out,
            result,
            now,
        });
        match tokio::time::timeout(RECORDING, finishing).await {
            Ok(Ok(())) => ran.map(|_| execution),
            Ok(Err(error)) => Err(ServiceError::Unrecorded(error)),
            // It is still being tried.
            Err(_) => Err(ServiceError::Unrecorded(crate::store::StoreError::Late)),
        }
    }

    /// The guard's plan, or a refusal that is on record.
    async fn plan(
        &self,
        who: &Identity,
        policy: &Policy,
        request: &Request,
    ) -> Result<Planned, ServiceError> {
        let denied = if who.may_use(&policy.policy_id) {
            match self.engine.plan_run(policy, request) {
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
        let more = json!({ "denial": denial, "metadata": request.caller.metadata });
        self.store.refuse((*record).clone(), more).await?;
        Err(ServiceError::Denied {
            denial,
            record,
            retry_after: None,
        })
    }

    async fn tenant_of(&self, who: &Identity, wish: &ExecutionRequest) -> Result<String, ServiceError> {
        let tenant = who.tenant_for(wish.tenant_id.as_deref())?;
        // A key's own tenant was there when it was made, and the default one always is.
        if who.tenant().is_none()
            && tenant != super::DEFAULT_TENANT
            && self.store.tenant(&tenant).await?.is_none()
        {
            return Err(ServiceError::NotFound {
                what: "tenant",
                name: tenant,
            });
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

/// How an execution comes to its turn.
enum Admission {
    Ticket(Ticket),
    /// Somebody has to approve it first.
    Question(Question),
}

/// What an execution has with it on its way.
struct Way {
    record: Record,
    policy: Arc<Policy>,
    cancel: CancellationToken,
    output: Option<mpsc::UnboundedSender<Output>>,
}

/// Waits for approval and for the turn, and runs it.
async fn run(
    service: Arc<Service>,
    admission: Admission,
    planned: Planned,
    way: Way,
) -> Result<Execution, ServiceError> {
    let Way {
        record,
        policy,
        cancel,
        output,
    } = way;
    let ticket = match admission {
        Admission::Ticket(ticket) => ticket,
        Admission::Question(question) => {
            service.answered(&question, &record, &policy, &cancel).await?;
            let tenant = record.tenant_id.as_deref().unwrap_or_default();
            let ticket = service.gate.enter(tenant)?;
            match service
                .store
                .proceed(&record, policy.quotas, service.now())
                .await?
            {
                Begun::Exceeded(exceeded) => return Err(over_quota(&policy, record, &exceeded)),
                _ => ticket,
            }
        }
    };
    let turn = tokio::select! {
        turn = ticket.turn() => turn?,
        () = cancel.cancelled() => return Err(ServiceError::Cancelled),
    };
    let mut sink = |stream: Stream, bytes: &[u8]| {
        if let Some(output) = &output {
            // Nobody need listen any more.
            let _ = output.send((stream, bytes.to_vec()));
        }
    };
    let io = ExecuteIo {
        sink: Some(&mut sink),
        stdin: None,
        stop: Some(Box::pin(cancel.cancelled())),
    };
    let ran = service.engine.execute_planned(planned, io).await;
    drop(turn);
    ran.map_err(ServiceError::of_engine)
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

fn not_for_key(policy: &Policy) -> Denial {
    Denial::new(
        DenialCode::PolicyNotAllowed,
        "key.policies",
        policy.policy_id.clone(),
        format!("this key is not for policy `{}`", policy.policy_id),
        "use a key that is, or name one of its policies",
    )
}

fn over_quota(policy: &Policy, mut record: Record, exceeded: &Exceeded) -> ServiceError {
    let field = exceeded.kind.field();
    let denial = Denial::new(
        DenialCode::QuotaExceeded,
        field,
        exceeded.permitted.clone(),
        format!("policy `{}`: {exceeded}", policy.policy_id),
        format!(
            "try again in {} s, or raise {field} in the policy",
            exceeded.retry_after
        ),
    );
    record.status = SandboxStatus::Failed;
    record.completed_at = Some(record.created_at);
    record.error_message = Some(format!("QuotaExceeded: {exceeded}"));
    ServiceError::Denied {
        denial: Box::new(denial),
        record: Box::new(record),
        retry_after: Some(exceeded.retry_after),
    }
}
