//! `/v1/executions`.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use utoipa::{IntoParams, ToSchema};

use super::Shared;
use super::answer::Failed;
use super::caller::Caller;
use super::read::{Body, Id, Params};
use super::stream;
use crate::service::{Answer, Asked, ServiceError};
use crate::wire::{Execution, ExecutionRequest, Problem, StreamEvent, WireError};

/// How the result is to come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Mode {
    /// In the answer; hanging up ends the execution.
    #[default]
    Wait,
    /// As server-sent events: `started` or `pending`, `output`, and `result` or `problem`; hanging up ends the execution.
    Stream,
    /// Later: the answer is its id.
    Background,
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(super) struct CreateParams {
    #[param(inline)]
    mode: Mode,
}

/// Runs code or a command in a fresh sandbox.
#[utoipa::path(
    post, path = "/v1/executions", tag = "executions", params(
        CreateParams,
        ("Idempotency-Key" = Option<String>, Header, description = "Asked twice with the same key, it runs once, and the \
            second answer is the first one's. Kept for a day."),
    ),
    request_body = ExecutionRequest,
    responses(
        (status = 200, description = "It ran; whatever became of the program is in the outcome", content(
            (Execution = "application/json"), (StreamEvent = "text/event-stream"))),
        (status = 202, description = "It runs in the background", body = Execution),
        (status = "default", description = "It did not run", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn create(
    State(shared): State<Shared>,
    Caller(who): Caller,
    Params(params): Params<CreateParams>,
    headers: HeaderMap,
    Body(request): Body<ExecutionRequest>,
) -> Result<Response, Failed> {
    let repeat_key = match headers.get("idempotency-key") {
        None => None,
        Some(key) => {
            let text = key
                .to_str()
                .map_err(|_| WireError::new("Idempotency-Key", "is not plain text"))?;
            Some(text.to_owned())
        }
    };
    let asked = Asked {
        who,
        request,
        repeat_key,
        keep: params.mode == Mode::Background,
    };
    let (sender, output) = mpsc::unbounded_channel();
    let sender = (params.mode == Mode::Stream).then_some(sender);
    let started = match shared.service.execute(asked, sender).await {
        Ok(Answer::Repeated(execution)) => return Ok(Json(execution).into_response()),
        Ok(Answer::Awaited(awaited)) => return Ok(Json(awaited.await?).into_response()),
        Ok(Answer::Started(started)) => *started,
        Err(error) => {
            shared.service.metrics().refused(error.kind());
            return Err(error.into());
        }
    };
    match params.mode {
        Mode::Stream => Ok(stream::tell(started, output)),
        Mode::Background => {
            let execution = Execution {
                execution_id: started.execution_id,
                status: started.record.status.word().to_owned(),
                approval_id: started.approval_id,
                success: None,
                outcome: None,
                record: serde_json::to_value(&started.record).unwrap_or_default(),
            };
            Ok((StatusCode::ACCEPTED, Json(execution)).into_response())
        }
        Mode::Wait => {
            let _guard = started.cancel.drop_guard();
            let execution = started.done.await.unwrap_or(Err(ServiceError::ShuttingDown))?;
            Ok(Json(execution).into_response())
        }
    }
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(super) struct ListParams {
    /// Of this tenant alone.
    tenant_id: Option<String>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ExecutionList {
    executions: Vec<Execution>,
}

/// What is under way, the oldest first. What is over is among the records.
#[utoipa::path(
    get, path = "/v1/executions", tag = "executions", params(ListParams),
    responses(
        (status = 200, body = ExecutionList),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn list(
    State(shared): State<Shared>,
    Caller(who): Caller,
    Params(params): Params<ListParams>,
) -> Result<Json<ExecutionList>, Failed> {
    let executions = shared
        .service
        .list_executions(&who, params.tenant_id.as_deref())
        .await?;
    Ok(Json(ExecutionList { executions }))
}

/// One execution, with its outcome where that is kept: of those in the background and those with an Idempotency-Key.
#[utoipa::path(
    get, path = "/v1/executions/{id}", tag = "executions", params(("id" = String, Path)),
    responses(
        (status = 200, body = Execution),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn get(
    State(shared): State<Shared>,
    Caller(who): Caller,
    Id(id): Id,
) -> Result<Json<Execution>, Failed> {
    Ok(Json(shared.service.get_execution(&who, &id).await?))
}

/// Ends an execution. It stays on record, as `killed`.
#[utoipa::path(
    post, path = "/v1/executions/{id}/cancel", tag = "executions", params(("id" = String, Path)),
    responses(
        (status = 202, description = "It is being ended"),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn cancel(
    State(shared): State<Shared>,
    Caller(who): Caller,
    Id(id): Id,
) -> Result<StatusCode, Failed> {
    shared.service.cancel_execution(&who, &id).await?;
    Ok(StatusCode::ACCEPTED)
}
