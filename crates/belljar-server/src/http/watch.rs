//! Around every request: an id in the answer and in the log, and figures.

use std::time::Instant;

use axum::Json;
use axum::extract::{MatchedPath, Request, State};
use axum::http::HeaderValue;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use belljar_engine::fresh_id;
use tracing::Instrument;
use tracing::field::Empty;

use super::Shared;
use super::answer::Told;
use crate::traces;
use crate::wire::Problem;

/// The header with the request's id, both ways.
const REQUEST_ID: &str = "x-request-id";
/// The longest id that is taken over.
const LONGEST: usize = 128;

pub(super) async fn watch(State(shared): State<Shared>, request: Request, next: Next) -> Response {
    let started = Instant::now();
    let id = brought(&request).unwrap_or_else(|| fresh_id("req"));
    let method = request.method().clone();
    // The route and not the address: ids and queries are nobody's business in a log.
    let route = request
        .extensions()
        .get::<MatchedPath>()
        .map_or("", MatchedPath::as_str)
        .to_owned();
    let trace = tracing::debug_span!(
        "http", otel.name = %format_args!("{method} {route}"), otel.kind = "server", request.id = %id,
        http.request.method = %method, http.route = %route, http.response.status_code = Empty,
        otel.status_code = Empty,
    );
    traces::join(&trace, request.headers());
    let span = tracing::info_span!("request", id = %id, %method, route = %route);
    let answering = next.run(request).instrument(span.clone());
    let mut response = answering.instrument(trace.clone()).await;
    if let Some(Told(problem)) = response.extensions_mut().remove::<Told>() {
        response = written(response, &problem, &id);
    }
    if let Ok(value) = HeaderValue::from_str(&id) {
        response.headers_mut().insert(REQUEST_ID, value);
    }
    let (status, elapsed) = (response.status().as_u16(), started.elapsed());
    trace.record("http.response.status_code", status);
    if status >= 500 {
        trace.record("otel.status_code", "ERROR");
    }
    shared.service.metrics().answered(status, elapsed.as_secs_f64());
    span.in_scope(|| tracing::info!(status, ms = elapsed.as_secs_f64() * 1e3, "answered"));
    response
}

/// The caller's own id, if it can stand in a log.
fn brought(request: &Request) -> Option<String> {
    let id = request.headers().get(REQUEST_ID)?.to_str().ok()?;
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.:".contains(c);
    (!id.is_empty() && id.len() <= LONGEST && id.chars().all(plain)).then(|| id.to_owned())
}

/// The problem, with the request's id in it.
fn written(response: Response, problem: &Problem, id: &str) -> Response {
    let mut problem = problem.clone();
    problem.request_id = Some(id.to_owned());
    let (parts, _) = response.into_parts();
    Response::from_parts(parts, Json(problem).into_response().into_body())
}
