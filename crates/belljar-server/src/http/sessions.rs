//! `/v1/sessions`.

use std::io::Read;

use axum::Json;
use axum::body::Body as AnyBody;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use belljar_core::ErrorKind;
use belljar_engine::session::EntryKind;
use futures_util::stream as futures;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use utoipa::{IntoParams, ToSchema};

use super::Shared;
use super::answer::Failed;
use super::caller::Caller;
use super::read::{Body, Id, Params, Raw};
use super::stream;
use crate::service::ServiceError;
use crate::wire::{CellRequest, Execution, Logs, Problem, Session, SessionFile, SessionRequest, StreamEvent};

/// How much of a file is read at a time.
const PIECE: usize = 256 << 10;

/// Makes a session: an interpreter that keeps its variables and files.
#[utoipa::path(
    post, path = "/v1/sessions", tag = "sessions", request_body = SessionRequest,
    responses(
        (status = 201, body = Session),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn create(
    State(shared): State<Shared>,
    Caller(who): Caller,
    Body(request): Body<SessionRequest>,
) -> Result<(StatusCode, Json<Session>), Failed> {
    let live = shared.service.open_session(&who, &request).await?;
    Ok((StatusCode::CREATED, Json(live.shown())))
}

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct SessionList {
    sessions: Vec<Session>,
}

/// The sessions of this server, the oldest first.
#[utoipa::path(
    get, path = "/v1/sessions", tag = "sessions",
    responses(
        (status = 200, body = SessionList),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn list(
    State(shared): State<Shared>,
    Caller(who): Caller,
) -> Result<Json<SessionList>, Failed> {
    let sessions = shared.service.list_sessions(&who)?;
    Ok(Json(SessionList { sessions }))
}

/// One session.
#[utoipa::path(
    get, path = "/v1/sessions/{id}", tag = "sessions", params(("id" = String, Path)),
    responses(
        (status = 200, body = Session),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn get(
    State(shared): State<Shared>,
    Caller(who): Caller,
    Id(id): Id,
) -> Result<Json<Session>, Failed> {
    Ok(Json(shared.service.session(&who, &id)?.shown()))
}

/// Ends a session and everything in it.
#[utoipa::path(
    delete, path = "/v1/sessions/{id}", tag = "sessions", params(("id" = String, Path)),
    responses(
        (status = 204, description = "Nothing of it is left"),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn delete(
    State(shared): State<Shared>,
    Caller(who): Caller,
    Id(id): Id,
) -> Result<StatusCode, Failed> {
    shared.service.close_session(&who, &id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// How the result is to come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum CellMode {
    /// In the answer; hanging up interrupts.
    #[default]
    Wait,
    /// As server-sent events: `started` or `pending`, `output`, `display`, `tool_started`, `tool_ended`, and `result` or
    /// `problem`; hanging up interrupts.
    Stream,
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(super) struct ExecuteParams {
    #[param(inline)]
    mode: CellMode,
}

/// Executes code in a session, or waits for its turn to do so.
#[utoipa::path(
    post, path = "/v1/sessions/{id}/execute", tag = "sessions", params(("id" = String, Path), ExecuteParams),
    request_body = CellRequest,
    responses(
        (status = 200, description = "It was executed; whatever came of it is in the outcome", content(
            (Execution = "application/json"), (StreamEvent = "text/event-stream"))),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn execute(
    State(shared): State<Shared>,
    Caller(who): Caller,
    Id(id): Id,
    Params(params): Params<ExecuteParams>,
    Body(cell): Body<CellRequest>,
) -> Result<Response, Failed> {
    let live = shared.service.session(&who, &id)?;
    let (sender, events) = mpsc::unbounded_channel();
    let sender = (params.mode == CellMode::Stream).then_some(sender);
    let started = shared.service.execute_cell(live, cell, sender).await?;
    match params.mode {
        CellMode::Stream => Ok(stream::tell(started, events)),
        CellMode::Wait => {
            let _guard = started.cancel.drop_guard();
            let execution = started.done.await.unwrap_or(Err(ServiceError::ShuttingDown))?;
            Ok(Json(execution).into_response())
        }
    }
}

/// Interrupts what a session executes, as Ctrl-C would. Its state is kept.
#[utoipa::path(
    post, path = "/v1/sessions/{id}/interrupt", tag = "sessions", params(("id" = String, Path)),
    responses(
        (status = 204, description = "It was told"),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn interrupt(
    State(shared): State<Shared>,
    Caller(who): Caller,
    Id(id): Id,
) -> Result<StatusCode, Failed> {
    match shared.service.session(&who, &id)?.interrupt() {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(Failed::new(ErrorKind::Conflict, "nothing is being executed")),
    }
}

/// A new interpreter among the same files.
#[utoipa::path(
    post, path = "/v1/sessions/{id}/reset", tag = "sessions", params(("id" = String, Path)),
    responses(
        (status = 204, description = "Its variables are gone"),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn reset(
    State(shared): State<Shared>,
    Caller(who): Caller,
    Id(id): Id,
) -> Result<StatusCode, Failed> {
    shared.service.session(&who, &id)?.reset().await?;
    Ok(StatusCode::NO_CONTENT)
}

/// What a session printed so far, the latest of it.
#[utoipa::path(
    get, path = "/v1/sessions/{id}/logs", tag = "sessions", params(("id" = String, Path)),
    responses(
        (status = 200, body = Logs),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn logs(
    State(shared): State<Shared>,
    Caller(who): Caller,
    Id(id): Id,
) -> Result<Json<Logs>, Failed> {
    let logs = shared.service.session(&who, &id)?.logs();
    Ok(Json(Logs {
        stdout: logs.stdout,
        stderr: logs.stderr,
        dropped: logs.dropped,
    }))
}

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct FileList {
    files: Vec<SessionFile>,
}

/// Everything in a session's work directory.
#[utoipa::path(
    get, path = "/v1/sessions/{id}/files", tag = "sessions", params(("id" = String, Path)),
    responses(
        (status = 200, body = FileList),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn files(
    State(shared): State<Shared>,
    Caller(who): Caller,
    Id(id): Id,
) -> Result<Json<FileList>, Failed> {
    let live = shared.service.session(&who, &id)?;
    // A guest can make it many and deep.
    let listing = tokio::task::spawn_blocking(move || live.list_files()).await;
    let entries = listing.map_err(|_| ServiceError::Engine("the files could not be listed".to_owned()))??;
    let file = |entry: belljar_engine::session::FileEntry| SessionFile {
        path: entry.path,
        kind: match entry.kind {
            EntryKind::File => "file",
            EntryKind::Directory => "directory",
            EntryKind::Other => "other",
        }
        .to_owned(),
        size: entry.size,
        executable: entry.executable,
    };
    Ok(Json(FileList {
        files: entries.into_iter().map(file).collect(),
    }))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct FileParams {
    /// From the work directory, such as `data/in.csv`.
    path: String,
}

/// A file of a session, as it is.
#[utoipa::path(
    get, path = "/v1/sessions/{id}/file", tag = "sessions", params(("id" = String, Path), FileParams),
    responses(
        (status = 200, body = Vec<u8>, content_type = "application/octet-stream"),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn get_file(
    State(shared): State<Shared>,
    Caller(who): Caller,
    Id(id): Id,
    Params(FileParams { path }): Params<FileParams>,
) -> Result<Response, Failed> {
    let live = shared.service.session(&who, &id)?;
    let opening = tokio::task::spawn_blocking(move || live.get_file(&path)).await;
    let reader = opening.map_err(|_| ServiceError::Engine("the file could not be read".to_owned()))??;
    let size = reader.size();
    let pieces = futures::unfold(Some(reader), async |reader| {
        let mut reader = reader?;
        let reading = tokio::task::spawn_blocking(move || {
            let mut piece = vec![0; PIECE];
            let read = reader.read(&mut piece)?;
            piece.truncate(read);
            Ok::<_, std::io::Error>((piece, reader))
        });
        match reading.await {
            Ok(Ok((piece, _))) if piece.is_empty() => None,
            Ok(Ok((piece, reader))) => Some((Ok(piece), Some(reader))),
            Ok(Err(error)) => Some((Err(error), None)),
            Err(error) => Some((Err(std::io::Error::other(error)), None)),
        }
    });
    let headers = [
        (CONTENT_TYPE, "application/octet-stream".to_owned()),
        (CONTENT_LENGTH, size.to_string()),
    ];
    Ok((headers, AnyBody::from_stream(pieces)).into_response())
}

/// Puts a file into a session's work directory.
#[utoipa::path(
    put, path = "/v1/sessions/{id}/file", tag = "sessions", params(("id" = String, Path), FileParams),
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    responses(
        (status = 204, description = "It is there"),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn put_file(
    State(shared): State<Shared>,
    Caller(who): Caller,
    Id(id): Id,
    Params(FileParams { path }): Params<FileParams>,
    Raw(bytes): Raw,
) -> Result<StatusCode, Failed> {
    shared.service.session(&who, &id)?.put_file(&path, bytes).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Removes a file, or a directory with everything in it.
#[utoipa::path(
    delete, path = "/v1/sessions/{id}/file", tag = "sessions", params(("id" = String, Path), FileParams),
    responses(
        (status = 204, description = "It is gone"),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn delete_file(
    State(shared): State<Shared>,
    Caller(who): Caller,
    Id(id): Id,
    Params(FileParams { path }): Params<FileParams>,
) -> Result<StatusCode, Failed> {
    let live = shared.service.session(&who, &id)?;
    let deleting = tokio::task::spawn_blocking(move || live.delete_file(&path)).await;
    deleting.map_err(|_| ServiceError::Engine("the file could not be deleted".to_owned()))??;
    Ok(StatusCode::NO_CONTENT)
}
