//! `/v1/keys` and `/v1/tenants`.

use std::collections::BTreeSet;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Shared;
use super::answer::Failed;
use super::caller::Caller;
use super::read::{Body, Id};
use crate::service::KeyWish;
use crate::store::{KeyRow, Role};
use crate::wire::{Problem, WireError};

/// A key's rights.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct KeyAnswer {
    key_id: String,
    name: String,
    /// None: all tenants.
    tenant_id: Option<String>,
    /// Of `run`, `read`, `approve` and `admin`.
    roles: Vec<String>,
    /// None: any.
    policies: Option<BTreeSet<String>>,
    created_at: f64,
    expires_at: Option<f64>,
    revoked_at: Option<f64>,
}

impl From<KeyRow> for KeyAnswer {
    fn from(row: KeyRow) -> Self {
        let words = |role: &Role| serde_json::to_value(role).ok()?.as_str().map(str::to_owned);
        Self {
            key_id: row.key_id,
            name: row.name,
            tenant_id: row.tenant_id,
            roles: row.roles.iter().filter_map(words).collect(),
            policies: row.policies,
            created_at: row.created_at,
            expires_at: row.expires_at,
            revoked_at: row.revoked_at,
        }
    }
}

/// A key that was made.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct NewKey {
    /// The key itself. It is told here and never again.
    key: String,
    #[serde(flatten)]
    rights: KeyAnswer,
}

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct KeyList {
    keys: Vec<KeyAnswer>,
}

/// What a key is to be for.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct KeyRequest {
    #[serde(default)]
    name: String,
    /// None: all tenants, or the tenant of the key that asks.
    #[serde(default)]
    tenant_id: Option<String>,
    /// Of `run`, `read`, `approve` and `admin`.
    #[schema(min_items = 1)]
    roles: Vec<String>,
    /// The only policies it may name; none: any.
    #[serde(default)]
    policies: Option<BTreeSet<String>>,
    /// Seconds since the epoch.
    #[serde(default)]
    expires_at: Option<f64>,
}

/// Every key that the caller may see, without their secrets.
#[utoipa::path(
    get, path = "/v1/keys", tag = "keys",
    responses(
        (status = 200, body = KeyList),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn list(State(shared): State<Shared>, Caller(who): Caller) -> Result<Json<KeyList>, Failed> {
    let rows = shared.service.list_keys(&who).await?;
    let keys = rows.into_iter().map(KeyAnswer::from).collect();
    Ok(Json(KeyList { keys }))
}

/// Makes a key.
#[utoipa::path(
    post, path = "/v1/keys", tag = "keys", request_body = KeyRequest,
    responses(
        (status = 201, body = NewKey),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn create(
    State(shared): State<Shared>,
    Caller(who): Caller,
    Body(request): Body<KeyRequest>,
) -> Result<(StatusCode, Json<NewKey>), Failed> {
    let roles = request
        .roles
        .iter()
        .map(|word| role(word))
        .collect::<Result<_, _>>()?;
    let wish = KeyWish {
        name: request.name,
        tenant_id: request.tenant_id,
        roles,
        policies: request.policies,
        expires_at: request.expires_at,
    };
    let (key, row) = shared.service.add_key(&who, wish).await?;
    let answer = NewKey {
        key: key.reveal(),
        rights: row.into(),
    };
    Ok((StatusCode::CREATED, Json(answer)))
}

fn role(word: &str) -> Result<Role, WireError> {
    serde_json::from_value(word.into())
        .map_err(|_| WireError::new("roles", "has something else than run, read, approve and admin"))
}

/// Revokes a key: from now on it opens nothing.
#[utoipa::path(
    delete, path = "/v1/keys/{id}", tag = "keys", params(("id" = String, Path)),
    responses(
        (status = 204, description = "It opens nothing any more"),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn revoke(
    State(shared): State<Shared>,
    Caller(who): Caller,
    Id(id): Id,
) -> Result<StatusCode, Failed> {
    shared.service.revoke_key(&who, &id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// One who shares the service with others.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct TenantAnswer {
    tenant_id: String,
    name: String,
    created_at: f64,
}

impl From<crate::store::Tenant> for TenantAnswer {
    fn from(tenant: crate::store::Tenant) -> Self {
        Self {
            tenant_id: tenant.tenant_id,
            name: tenant.name,
            created_at: tenant.created_at,
        }
    }
}

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct TenantList {
    tenants: Vec<TenantAnswer>,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct TenantRequest {
    /// Letters, digits, `-`, `_` and `.`, and neither `.` nor `-` first.
    tenant_id: String,
    #[serde(default)]
    name: String,
}

/// Every tenant.
#[utoipa::path(
    get, path = "/v1/tenants", tag = "keys",
    responses(
        (status = 200, body = TenantList),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn tenants(
    State(shared): State<Shared>,
    Caller(who): Caller,
) -> Result<Json<TenantList>, Failed> {
    let tenants = shared.service.list_tenants(&who).await?;
    let tenants = tenants.into_iter().map(TenantAnswer::from).collect();
    Ok(Json(TenantList { tenants }))
}

/// Adds a tenant.
#[utoipa::path(
    post, path = "/v1/tenants", tag = "keys", request_body = TenantRequest,
    responses(
        (status = 201, body = TenantAnswer),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn create_tenant(
    State(shared): State<Shared>,
    Caller(who): Caller,
    Body(request): Body<TenantRequest>,
) -> Result<(StatusCode, Json<TenantAnswer>), Failed> {
    let tenant = shared
        .service
        .add_tenant(&who, &request.tenant_id, &request.name)
        .await?;
    Ok((StatusCode::CREATED, Json(tenant.into())))
}
