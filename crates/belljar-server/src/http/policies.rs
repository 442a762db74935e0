//! `/v1/policies`.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::Shared;
use super::answer::Failed;
use super::caller::Caller;
use super::read::{Body, Id};
use crate::service::PolicyFound;
use crate::wire::Problem;

/// A policy, with where it is from.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct PolicyAnswer {
    /// The fields of a policy file.
    #[schema(value_type = Object)]
    policy: Value,
    /// The SHA-256 that records name.
    hash: String,
    /// `built-in`, `file` or `defined`.
    origin: &'static str,
    /// Of one that was defined.
    version: Option<i64>,
}

impl From<PolicyFound> for PolicyAnswer {
    fn from(found: PolicyFound) -> Self {
        Self {
            policy: serde_json::to_value(&*found.policy).unwrap_or_default(),
            hash: found.hash,
            origin: found.origin,
            version: found.version,
        }
    }
}

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct PolicyList {
    policies: Vec<PolicyAnswer>,
}

/// Every policy as it is now.
#[utoipa::path(
    get, path = "/v1/policies", tag = "policies",
    responses(
        (status = 200, body = PolicyList),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn list(
    State(shared): State<Shared>,
    Caller(who): Caller,
) -> Result<Json<PolicyList>, Failed> {
    let found = shared.service.list_policies(&who).await?;
    let policies = found.into_iter().map(PolicyAnswer::from).collect();
    Ok(Json(PolicyList { policies }))
}

/// Defines a policy, or a new version of it: an object with the fields of a policy file.
#[utoipa::path(
    post, path = "/v1/policies", tag = "policies", request_body = Object,
    responses(
        (status = 200, body = PolicyAnswer),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn define(
    State(shared): State<Shared>,
    Caller(who): Caller,
    Body(fields): Body<Value>,
) -> Result<Json<PolicyAnswer>, Failed> {
    Ok(Json(
        shared.service.define_policy(&who, None, fields).await?.into(),
    ))
}

/// One policy, by its id or by the hash that a record names.
#[utoipa::path(
    get, path = "/v1/policies/{id}", tag = "policies", params(("id" = String, Path)),
    responses(
        (status = 200, body = PolicyAnswer),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn get(
    State(shared): State<Shared>,
    Caller(who): Caller,
    Id(id): Id,
) -> Result<Json<PolicyAnswer>, Failed> {
    Ok(Json(shared.service.get_policy(&who, &id).await?.into()))
}

/// Defines the policy of that id, or a new version of it.
#[utoipa::path(
    put, path = "/v1/policies/{id}", tag = "policies", params(("id" = String, Path)), request_body = Object,
    responses(
        (status = 200, body = PolicyAnswer),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn put(
    State(shared): State<Shared>,
    Caller(who): Caller,
    Id(id): Id,
    Body(fields): Body<Value>,
) -> Result<Json<PolicyAnswer>, Failed> {
    Ok(Json(
        shared
            .service
            .define_policy(&who, Some(&id), fields)
            .await?
            .into(),
    ))
}

/// Deletes a policy. Its versions can still be found by their hashes.
#[utoipa::path(
    delete, path = "/v1/policies/{id}", tag = "policies", params(("id" = String, Path)),
    responses(
        (status = 204, description = "It is deleted"),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn delete(
    State(shared): State<Shared>,
    Caller(who): Caller,
    Id(id): Id,
) -> Result<StatusCode, Failed> {
    shared.service.delete_policy(&who, &id).await?;
    Ok(StatusCode::NO_CONTENT)
}
