//! What every execution goes through before it runs: a question where somebody has to approve it, a place in its
//! quota, its turn at the gate.

use std::sync::Arc;

use belljar_core::{Denial, DenialCode, Policy, Record, SandboxStatus};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, debug_span};

use super::Service;
use super::approvals::Question;
use super::error::ServiceError;
use super::gate::{Ticket, Turn};
use crate::store::{Begin, Begun, Exceeded, Repeat};
use crate::wire::ExecutionRequest;

/// How an execution comes to its turn.
#[derive(Debug)]
pub(super) enum Admission {
    Ticket(Ticket),
    /// It waits elsewhere before it comes to the gate.
    Later,
    /// Somebody has to approve it first.
    Question(Question),
}

/// Where an execution waits first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Queue {
    /// At the gate.
    Gate,
    /// In its session, which does one thing at a time: who waits there has no place that others could use.
    Session,
}

/// What came of asking to be let in.
#[derive(Debug)]
pub(super) enum Admitted {
    Yes(Admission),
    /// It was asked for before, as this execution.
    Repeated(String),
}

impl Admission {
    pub(super) fn approval_id(&self) -> Option<String> {
        match self {
            Self::Ticket(_) | Self::Later => None,
            Self::Question(question) => Some(question.approval_id.clone()),
        }
    }
}

impl Service {
    /// Lets an execution in, on record: its quota is reserved, or somebody was asked.
    pub(super) async fn admit(
        self: &Arc<Self>,
        wish: &ExecutionRequest,
        policy: &Policy,
        record: &Record,
        repeat: Option<Repeat>,
        queue: Queue,
        is_kept: bool,
    ) -> Result<Admitted, ServiceError> {
        let enter = || self.gate.enter(record.tenant_id.as_deref().unwrap_or_default());
        let begun = if record.status == SandboxStatus::Pending {
            match self.ask(wish, policy, record, repeat).await? {
                Ok(question) => return Ok(Admitted::Yes(Admission::Question(question))),
                Err(begun) => begun,
            }
        } else {
            // A place in the queue first: that is refused at once, and then costs no quota.
            let admission = match queue {
                Queue::Gate => Admission::Ticket(enter()?),
                Queue::Session => Admission::Later,
            };
            if !is_kept {
                return Ok(Admitted::Yes(admission));
            }
            let begin = Begin {
                record: record.clone(),
                server_id: self.server_id.clone(),
                quotas: policy.quotas,
                repeat,
                now: record.created_at,
            };
            match self.store.begin(begin).instrument(debug_span!("admit")).await? {
                Begun::Reserved => return Ok(Admitted::Yes(admission)),
                begun => begun,
            }
        };
        match begun {
            Begun::Exceeded(exceeded) => Err(over_quota(policy, record, &exceeded)),
            Begun::Repeated { execution_id } => Ok(Admitted::Repeated(execution_id)),
            Begun::Full { waiting } => Err(ServiceError::Busy { waiting }),
            Begun::Mistaken | Begun::Reserved => {
                let message = "this Idempotency-Key was used for another request";
                Err(ServiceError::Conflict(message.to_owned()))
            }
        }
    }

    /// Waits for approval, where it is needed, and for the turn.
    pub(super) async fn turn(
        &self,
        admission: Admission,
        record: &Record,
        policy: &Policy,
        cancel: &CancellationToken,
    ) -> Result<Turn, ServiceError> {
        let enter = || self.gate.enter(record.tenant_id.as_deref().unwrap_or_default());
        let ticket = match admission {
            Admission::Ticket(ticket) => ticket,
            Admission::Later => enter()?,
            Admission::Question(question) => {
                self.answered(&question, record, policy, cancel).await?;
                let ticket = enter()?;
                match self.store.proceed(record, policy.quotas, self.now()).await? {
                    Begun::Exceeded(exceeded) => return Err(over_quota(policy, record, &exceeded)),
                    _ => ticket,
                }
            }
        };
        tokio::select! {
            turn = ticket.turn() => turn,
            () = cancel.cancelled() => Err(ServiceError::Cancelled),
        }
    }
}

fn over_quota(policy: &Policy, record: &Record, exceeded: &Exceeded) -> ServiceError {
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
    let record = Record {
        status: SandboxStatus::Failed,
        completed_at: Some(record.created_at),
        error_message: Some(format!("QuotaExceeded: {exceeded}")),
        ..record.clone()
    };
    ServiceError::Denied {
        denial: Box::new(denial),
        record: Box::new(record),
        retry_after: Some(exceeded.retry_after),
    }
}
