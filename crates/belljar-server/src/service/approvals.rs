//! Asking somebody who may (R12), and waiting for their word.

use std::sync::Arc;
use std::time::Duration;

use belljar_core::{Denial, DenialCode, Policy, Record};
use belljar_engine::{ToolError, fresh_id};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::Service;
use super::approver_view::asks;
use super::error::ServiceError;
use super::identity::Identity;
use crate::store::{Approval, ApprovalKind, ApprovalState, Ask, Begun, Decision, Repeat, Role};
use crate::wire::{self, ExecutionRequest, WireError};

/// How often a question is looked at, in case it was answered at another server.
const LOOKING: Duration = Duration::from_millis(500);
/// The longest reason.
const LONGEST_REASON: usize = 2_000;
/// How many of a tenant's may wait for approval.
const MOST_PENDING: i64 = 200;

/// A question that waits for its answer.
#[derive(Clone, Debug)]
pub(super) struct Question {
    pub(super) approval_id: String,
    expires_at: f64,
}

impl Service {
    /// Puts the question whether something may run.
    pub(super) async fn ask(
        self: &Arc<Self>,
        wish: &ExecutionRequest,
        policy: &Policy,
        record: &Record,
        repeat: Option<Repeat>,
    ) -> Result<Result<Question, Begun>, ServiceError> {
        let question = self.question();
        let summary = json!({
            "user_id": record.user_id, "run_id": record.run_id, "policy_id": record.policy_id,
            "policy_hash": record.policy_hash, "code_hash": record.code_hash, "asks": asks(wish, policy),
        });
        let ask = Ask {
            approval_id: question.approval_id.clone(),
            kind: ApprovalKind::Execution,
            record: record.clone(),
            server_id: Some(self.server_id.clone()),
            summary,
            held: json!(wish),
            repeat,
            most: MOST_PENDING,
            expires_at: question.expires_at,
            now: self.now(),
        };
        match self.store.ask(ask).await? {
            Begun::Reserved => {}
            other => return Ok(Err(other)),
        }
        self.tell_webhook(&question.approval_id).await;
        Ok(Ok(question))
    }

    /// Asks whether a session may call a tool, and waits for the answer. Whoever does not wait any more withdraws it.
    pub(super) async fn approve_tool(
        self: &Arc<Self>,
        policy: &Policy,
        record: &Record,
        call: Value,
    ) -> Result<(), ToolError> {
        let refused = |error: ServiceError| ToolError::new("PermissionError", error.to_string());
        let question = self.question();
        let tool = call["tool"].as_str().unwrap_or_default();
        let summary = json!({
            "user_id": record.user_id, "run_id": record.run_id, "policy_id": record.policy_id,
            "policy_hash": record.policy_hash, "code_hash": record.code_hash, "asks": [format!("to call the tool {tool}")],
        });
        let ask = Ask {
            approval_id: question.approval_id.clone(),
            kind: ApprovalKind::Tool,
            record: record.clone(),
            server_id: None,
            summary,
            held: call,
            repeat: None,
            most: MOST_PENDING,
            expires_at: question.expires_at,
            now: self.now(),
        };
        let asked = self.store.ask(ask).await;
        if let Begun::Full { waiting } = asked.map_err(|error| refused(error.into()))? {
            return Err(refused(ServiceError::Busy { waiting }));
        }
        let withdrawn = Withdrawn {
            service: Arc::clone(self),
            approval_id: Some(question.approval_id.clone()),
        };
        self.tell_webhook(&question.approval_id).await;
        let answered = self
            .answered(&question, record, policy, &CancellationToken::new())
            .await;
        withdrawn.forget();
        answered.map_err(refused)
    }

    fn question(&self) -> Question {
        Question {
            approval_id: fresh_id("apr"),
            expires_at: self.now() + self.settings.approval_time.as_secs_f64(),
        }
    }

    /// Waits until it is answered. Anything but a yes is an error.
    pub(super) async fn answered(
        &self,
        question: &Question,
        record: &Record,
        policy: &Policy,
        cancel: &CancellationToken,
    ) -> Result<(), ServiceError> {
        loop {
            let decided = self.decided.notified();
            let found = self.store.approval(&question.approval_id).await?;
            let (code, message) = match found {
                Some(approval) if approval.state == ApprovalState::Granted => return Ok(()),
                Some(approval) if approval.state == ApprovalState::Pending => {
                    let now = self.now();
                    if now >= question.expires_at {
                        self.decide_as(&question.approval_id, ApprovalState::Expired, "the service", None)
                            .await?;
                        continue;
                    }
                    let left = Duration::from_secs_f64(question.expires_at - now);
                    tokio::select! {
                        () = decided => {}
                        () = tokio::time::sleep(LOOKING.min(left)) => {}
                        () = cancel.cancelled() => {
                            self.decide_as(&question.approval_id, ApprovalState::Withdrawn, "the caller", None).await?;
                            return Err(ServiceError::Cancelled);
                        }
                    }
                    continue;
                }
                Some(approval) if approval.state == ApprovalState::Denied => {
                    let reason = approval
                        .reason
                        .unwrap_or_else(|| "no reason was given".to_owned());
                    (
                        DenialCode::ApprovalDenied,
                        format!("it was not approved: {reason}"),
                    )
                }
                Some(approval) if approval.state == ApprovalState::Expired => (
                    DenialCode::ApprovalExpired,
                    "nobody approved it in time".to_owned(),
                ),
                _ => return Err(ServiceError::Cancelled),
            };
            let denial = Denial::new(
                code,
                "require_approval",
                question.approval_id.clone(),
                format!("policy `{}`: {message}", policy.policy_id),
                "ask again, or have somebody look at it",
            );
            return Err(ServiceError::Denied {
                denial: Box::new(denial),
                record: Box::new(record.clone()),
                retry_after: None,
            });
        }
    }

    /// Says yes or no, once.
    pub async fn decide(
        &self,
        who: &Identity,
        approval_id: &str,
        grant: bool,
        reason: Option<String>,
    ) -> Result<wire::Approval, ServiceError> {
        who.may(Role::Approve)?;
        let approval = self.visible_approval(who, approval_id).await?;
        self.decide_with(&approval, grant, who.label(), reason).await
    }

    pub(super) async fn decide_with(
        &self,
        approval: &Approval,
        grant: bool,
        by: &str,
        reason: Option<String>,
    ) -> Result<wire::Approval, ServiceError> {
        if let Some(reason) = &reason
            && (reason.len() > LONGEST_REASON || reason.contains('\0'))
        {
            let message = format!("must be text of at most {LONGEST_REASON} bytes");
            return Err(WireError::new("reason", message).into());
        }
        if !grant && reason.as_ref().is_none_or(|reason| reason.trim().is_empty()) {
            return Err(WireError::new("reason", "is missing: say why not").into());
        }
        let state = match grant {
            true => ApprovalState::Granted,
            false => ApprovalState::Denied,
        };
        let late = approval.state == ApprovalState::Pending && self.now() >= approval.expires_at;
        if late || !self.decide_as(&approval.approval_id, state, by, reason).await? {
            let found = self.store.approval(&approval.approval_id).await?;
            let state = match (late, found) {
                (true, _) => ApprovalState::Expired,
                (false, found) => found.map_or(ApprovalState::Withdrawn, |found| found.state),
            };
            let message = format!("approval {} is {state} already", approval.approval_id);
            return Err(ServiceError::Conflict(message));
        }
        let found = self.store.approval(&approval.approval_id).await?;
        let found = found.ok_or_else(|| not_found(&approval.approval_id))?;
        self.shown(found, false).await
    }

    async fn decide_as(
        &self,
        approval_id: &str,
        state: ApprovalState,
        by: &str,
        reason: Option<String>,
    ) -> Result<bool, ServiceError> {
        let decision = Decision {
            approval_id: approval_id.to_owned(),
            state,
            by: by.to_owned(),
            reason,
            now: self.now(),
        };
        let decided = self.store.decide(decision).await?;
        self.decided.notify_waiters();
        Ok(decided)
    }

    /// Approvals that may be seen, the newest first.
    pub async fn list_approvals(
        &self,
        who: &Identity,
        state: Option<ApprovalState>,
    ) -> Result<Vec<wire::Approval>, ServiceError> {
        self.may_see_approvals(who)?;
        let mut shown = Vec::new();
        for approval in self.store.approvals(who.tenant(), state).await? {
            shown.push(self.shown(approval, false).await?);
        }
        Ok(shown)
    }

    pub async fn get_approval(
        &self,
        who: &Identity,
        approval_id: &str,
    ) -> Result<wire::Approval, ServiceError> {
        self.may_see_approvals(who)?;
        let approval = self.visible_approval(who, approval_id).await?;
        self.shown(approval, true).await
    }

    fn may_see_approvals(&self, who: &Identity) -> Result<(), ServiceError> {
        who.may(Role::Approve).or_else(|_| who.may(Role::Read))
    }

    async fn visible_approval(&self, who: &Identity, approval_id: &str) -> Result<Approval, ServiceError> {
        let found = self.store.approval(approval_id).await?;
        found
            .filter(|approval| who.sees(Some(&approval.tenant_id)))
            .ok_or_else(|| not_found(approval_id))
    }
}

/// Withdraws a question that nobody waits for any more.
struct Withdrawn {
    service: Arc<Service>,
    approval_id: Option<String>,
}

impl Withdrawn {
    /// It was answered.
    fn forget(mut self) {
        self.approval_id = None;
    }
}

impl Drop for Withdrawn {
    fn drop(&mut self) {
        let Some(approval_id) = self.approval_id.take() else {
            return;
        };
        let service = Arc::clone(&self.service);
        tokio::spawn(async move {
            let by = "the session";
            let _ = service
                .decide_as(&approval_id, ApprovalState::Withdrawn, by, None)
                .await;
        });
    }
}

fn not_found(approval_id: &str) -> ServiceError {
    ServiceError::not_found("approval", approval_id)
}
