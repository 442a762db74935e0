//! Who is asking, for handlers.

use axum::extract::FromRequestParts;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;

use super::Shared;
use super::answer::Failed;
use crate::service::{Identity, ServiceError};

/// Somebody with a good key.
#[derive(Debug)]
pub(super) struct Caller(pub(super) Identity);

impl FromRequestParts<Shared> for Caller {
    type Rejection = Failed;

    async fn from_request_parts(parts: &mut Parts, shared: &Shared) -> Result<Self, Failed> {
        let header = match parts.headers.get(AUTHORIZATION) {
            None => None,
            // What is not even text is no key.
            Some(value) => Some(value.to_str().map_err(|_| ServiceError::Unauthorized)?),
        };
        Ok(Self(shared.service.identify(header).await?))
    }
}
