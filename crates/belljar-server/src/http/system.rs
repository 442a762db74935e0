//! How the service itself is: `/healthz`, `/readyz`, `/metrics`, `/v1/capabilities`.

use axum::Json;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use belljar_core::{Language, Provider};
use serde_json::{Value, json};

use super::Shared;
use super::answer::Failed;
use super::caller::Caller;
use crate::service::ServiceError;
use crate::wire::Problem;

/// Whether the process is there.
#[utoipa::path(get, path = "/healthz", tag = "system", security(()), responses((status = 200, body = String)))]
pub(super) async fn health() -> &'static str {
    "ok\n"
}

/// Whether it can work: the store takes writes, and nobody has told it to end.
#[utoipa::path(
    get, path = "/readyz", tag = "system", security(()),
    responses(
        (status = 200, body = String),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn ready(State(shared): State<Shared>) -> Result<&'static str, Failed> {
    if shared.service.gate().is_closed() {
        return Err(ServiceError::ShuttingDown.into());
    }
    shared.service.store().check().await?;
    Ok("ready\n")
}

/// Figures for Prometheus.
#[utoipa::path(
    get, path = "/metrics", tag = "system",
    responses(
        (status = 200, body = String, content_type = "application/openmetrics-text"),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn metrics(State(shared): State<Shared>, Caller(who): Caller) -> Result<Response, Failed> {
    let text = shared.service.figures(&who)?;
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Ok(([(CONTENT_TYPE, kind)], text).into_response())
}

/// What this machine gives: the provider that serves whoever asks for none, its controls, its languages; and under `providers` all
/// of them, with whether they are there, their version, isolation and controls.
#[utoipa::path(
    get, path = "/v1/capabilities", tag = "system",
    responses(
        (status = 200, body = Object),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn capabilities(
    State(shared): State<Shared>,
    Caller(_): Caller,
) -> Result<Json<Value>, Failed> {
    let engine = shared.service.engine().clone();
    // Looking for languages starts their programs.
    let looking = tokio::task::spawn_blocking(move || {
        let usual = engine.usual_provider();
        let mut found = json!(usual.map(|provider| provider.capabilities(Language::ALL)));
        if let Some(fields) = found.as_object_mut() {
            let all: Vec<_> = engine.providers().map(of_provider).collect();
            fields.insert("providers".to_owned(), all.into());
        }
        found
    });
    let found = looking
        .await
        .map_err(|_| ServiceError::Engine("the machine could not be looked at".to_owned()))?;
    Ok(Json(found))
}

/// One of the walls. What is not there says why, and has no controls.
fn of_provider(provider: &dyn Provider) -> Value {
    let name = provider.name();
    match provider.presence() {
        Ok(version) => {
            let found = provider.capabilities(&[]);
            json!({
                "provider": name, "isolation": name.isolation(), "state": "present", "version": version,
                "controls": found.controls, "essential": found.essential, "networks": found.networks,
            })
        }
        Err(missing) => json!({
            "provider": name, "isolation": name.isolation(), "state": "absent",
            "why": missing.why, "fix": missing.fix,
        }),
    }
}
