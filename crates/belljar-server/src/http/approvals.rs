//! `/v1/approvals`.

use axum::Json;
use axum::extract::{Request, State};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::Shared;
use super::answer::Failed;
use super::caller::Caller;
use super::read::{self, Body, Id, Params};
use crate::service::ServiceError;
use crate::store::ApprovalState;
use crate::wire::{Approval, Problem, WireError, Word};

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(super) struct ListParams {
    /// `pending`, `granted`, `denied`, `expired` or `withdrawn`; any unless said.
    state: Option<String>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ApprovalList {
    approvals: Vec<Approval>,
}

/// What waits for somebody's word, and what was decided, the newest first.
#[utoipa::path(
    get, path = "/v1/approvals", tag = "approvals", params(ListParams),
    responses(
        (status = 200, body = ApprovalList),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn list(
    State(shared): State<Shared>,
    Caller(who): Caller,
    Params(params): Params<ListParams>,
) -> Result<Json<ApprovalList>, Failed> {
    let state = match &params.state {
        None => None,
        Some(word) => Some(
            word.parse::<ApprovalState>()
                .map_err(|message| WireError::new("state", message))?,
        ),
    };
    let approvals = shared.service.list_approvals(&who, state).await?;
    Ok(Json(ApprovalList { approvals }))
}

/// One of them, with the code until it is decided.
#[utoipa::path(
    get, path = "/v1/approvals/{id}", tag = "approvals", params(("id" = String, Path)),
    responses(
        (status = 200, body = Approval),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn get(
    State(shared): State<Shared>,
    Caller(who): Caller,
    Id(id): Id,
) -> Result<Json<Approval>, Failed> {
    Ok(Json(shared.service.get_approval(&who, &id).await?))
}

/// Says yes. What waits goes on.
#[utoipa::path(
    post, path = "/v1/approvals/{id}/grant", tag = "approvals", params(("id" = String, Path)), request_body = Word,
    responses(
        (status = 200, body = Approval),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn grant(
    State(shared): State<Shared>,
    Caller(who): Caller,
    Id(id): Id,
    Body(word): Body<Word>,
) -> Result<Json<Approval>, Failed> {
    Ok(Json(shared.service.decide(&who, &id, true, word.reason).await?))
}

/// Says no, and why. What waits is refused.
#[utoipa::path(
    post, path = "/v1/approvals/{id}/deny", tag = "approvals", params(("id" = String, Path)), request_body = Word,
    responses(
        (status = 200, body = Approval),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn deny(
    State(shared): State<Shared>,
    Caller(who): Caller,
    Id(id): Id,
    Body(word): Body<Word>,
) -> Result<Json<Approval>, Failed> {
    Ok(Json(shared.service.decide(&who, &id, false, word.reason).await?))
}

/// The longest word of a webhook.
const LONGEST_WORD: usize = 64 << 10;

/// A program's own yes or no.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct WebhookWord {
    /// `grant` or `deny`.
    decision: String,
    /// Needed with `deny`.
    reason: Option<String>,
}

/// The word of the webhook, signed with the secret that both sides know, in place of a key.
#[utoipa::path(
    post, path = "/v1/approvals/{id}/webhook", tag = "approvals", security(()), params(
        ("id" = String, Path),
        ("Belljar-Signature" = String, Header, description = "`t=SECONDS,v1=HEX`: an HMAC-SHA256 over SECONDS, a full \
            stop, the approval's id, a newline and the body"),
    ),
    request_body = WebhookWord,
    responses(
        (status = 200, body = Approval),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn webhook(
    State(shared): State<Shared>,
    Id(id): Id,
    request: Request,
) -> Result<Json<Approval>, Failed> {
    let signature = request.headers().get(crate::service::SIGNATURE).cloned();
    let signature = signature.as_ref().and_then(|value| value.to_str().ok());
    // Nobody has shown a key: what cannot be a signed word is not even read.
    if signature.is_none() || !shared.service.has_webhook() {
        return Err(ServiceError::Unauthorized.into());
    }
    let body = read::bytes(request, LONGEST_WORD, shared.body_timeout).await?;
    Ok(Json(shared.service.webhook_decides(&id, signature, &body).await?))
}
