//! `/v1/batches`: many executions with one request, answered in their order.

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::Body as AnyBody;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use belljar_core::ErrorKind;
use futures_util::{StreamExt, stream};
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::IntoParams;

use super::Shared;
use super::answer::Failed;
use super::caller::Caller;
use super::read::{Params, Raw};
use crate::service::{Answer, Asked, Identity, Service, ServiceError};
use crate::wire::{Execution, ExecutionRequest, Problem, WireError};

/// The most that run at once of one batch.
const MOST_JOBS: usize = 64;

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(super) struct BatchParams {
    /// How many run at the same time.
    #[param(minimum = 1, maximum = 64)]
    jobs: usize,
}

impl Default for BatchParams {
    fn default() -> Self {
        Self { jobs: 4 }
    }
}

/// Runs one request on each line, an object as for an execution with an `id` of the caller's own, and answers each with a
/// line, in their order: its number, its `id`, and an `execution` or a `problem`. A line that cannot be understood stops
/// no other; hanging up ends what runs.
#[utoipa::path(
    post, path = "/v1/batches", tag = "executions", params(BatchParams),
    request_body(content = String, content_type = "application/x-ndjson"),
    responses(
        (status = 200, body = String, content_type = "application/x-ndjson"),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn create(
    State(shared): State<Shared>,
    Caller(who): Caller,
    Params(params): Params<BatchParams>,
    Raw(body): Raw,
) -> Result<Response, Failed> {
    if !(1..=MOST_JOBS).contains(&params.jobs) {
        let message = format!("must be from 1 to {MOST_JOBS}");
        return Err(WireError::new("jobs", message).into());
    }
    let text = String::from_utf8(body)
        .map_err(|_| Failed::new(ErrorKind::Usage, "the body is not text in UTF-8"))?;
    let lines: Vec<(usize, String)> = (1..)
        .zip(text.lines())
        .filter(|(_, line)| !line.trim().is_empty())
        .map(|(number, line)| (number, line.to_owned()))
        .collect();
    let service = Arc::clone(&shared.service);
    let answers = stream::iter(lines)
        .map(move |(number, line)| answer(Arc::clone(&service), who.clone(), number, line))
        .buffered(params.jobs)
        .map(|answer| Ok::<_, Infallible>(format!("{answer}\n")));
    Ok((
        [(CONTENT_TYPE, "application/x-ndjson")],
        AnyBody::from_stream(answers),
    )
        .into_response())
}

async fn answer(service: Arc<Service>, who: Identity, number: usize, line: String) -> Value {
    let (id, ran) = match read(&line) {
        Ok((id, request)) => (id, run(&service, who, request).await),
        Err(error) => (Value::Null, Err(error)),
    };
    match ran {
        Ok(execution) => json!({ "line": number, "id": id, "execution": execution }),
        Err(error) => json!({ "line": number, "id": id, "problem": error.problem() }),
    }
}

fn read(line: &str) -> Result<(Value, ExecutionRequest), ServiceError> {
    let wrong = |error: serde_json::Error| WireError::new("line", error.to_string());
    let mut value: Value = serde_json::from_str(line).map_err(wrong)?;
    let id = value
        .as_object_mut()
        .and_then(|map| map.remove("id"))
        .unwrap_or_default();
    let request = serde_json::from_value(value).map_err(wrong)?;
    Ok((id, request))
}

async fn run(
    service: &Arc<Service>,
    who: Identity,
    request: ExecutionRequest,
) -> Result<Execution, ServiceError> {
    let asked = Asked {
        who,
        request,
        repeat_key: None,
        keep: false,
    };
    match service.execute(asked, None).await? {
        Answer::Awaited(awaited) => awaited.await,
        Answer::Repeated(execution) => Ok(*execution),
        Answer::Started(started) => {
            // Whoever hangs up ends it.
            let _guard = started.cancel.drop_guard();
            started.done.await.unwrap_or(Err(ServiceError::ShuttingDown))
        }
    }
}
