//! `/v1/environments`: what code can run in. They are made on the machine itself, by `belljar env create`.

use axum::Json;
use axum::extract::State;
use belljar_core::EnvironmentName;
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::Shared;
use super::answer::Failed;
use super::caller::Caller;
use super::read::Id;
use crate::service::ServiceError;
use crate::wire::Problem;

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct EnvironmentList {
    /// By name. `host`, what the machine itself has, is always there.
    environments: Vec<String>,
}

/// The environments that a request may name, where its policy allows it.
#[utoipa::path(
    get, path = "/v1/environments", tag = "system",
    responses(
        (status = 200, body = EnvironmentList),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn list(
    State(shared): State<Shared>,
    Caller(_): Caller,
) -> Result<Json<EnvironmentList>, Failed> {
    let engine = shared.service.engine().clone();
    let names = blocking(move || engine.environments().and_then(|store| store.names())).await?;
    let mut environments = vec!["host".to_owned()];
    environments.extend(names.iter().map(ToString::to_string));
    Ok(Json(EnvironmentList { environments }))
}

/// What is in an environment.
#[utoipa::path(
    get, path = "/v1/environments/{id}", tag = "system", params(("id" = String, Path)),
    responses(
        (status = 200, body = Object),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn get(
    State(shared): State<Shared>,
    Caller(_): Caller,
    Id(id): Id,
) -> Result<Json<Value>, Failed> {
    let not_found = || ServiceError::not_found("environment", &id);
    let name = EnvironmentName::new(&id).map_err(|_| not_found())?;
    let engine = shared.service.engine().clone();
    let described = blocking(move || {
        let store = engine.environments()?;
        match store.names()?.contains(&name) {
            true => store.describe(&name).map(|found| Some(json!(found))),
            false => Ok(None),
        }
    });
    Ok(Json(described.await?.ok_or_else(not_found)?))
}

/// Looking at environments reads files.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, belljar_engine::environment::EnvironmentError> + Send + 'static,
) -> Result<T, ServiceError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|_| ServiceError::Engine("the environments could not be read".to_owned()))?
        .map_err(|error| ServiceError::Engine(error.to_string()))
}
