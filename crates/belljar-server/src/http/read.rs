//! What comes in: ids in the address, queries, bodies. Whatever is wrong with them is a problem document.

use std::time::Duration;

use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::StatusCode;
use axum::http::request::Parts;
use belljar_core::{ErrorKind, check_identifier};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::de::DeserializeOwned;

use super::Shared;
use super::answer::Failed;

/// The longest id.
const LONGEST_ID: usize = 256;

/// The one id in the address.
#[derive(Debug)]
pub(super) struct Id(pub(super) String);

impl<S: Send + Sync> FromRequestParts<S> for Id {
    type Rejection = Failed;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failed> {
        let Path(id): Path<String> = Path::from_request_parts(parts, state)
            .await
            .map_err(|error| Failed::new(ErrorKind::Usage, error.body_text()))?;
        // Nothing has an id that cannot be one, so it is not looked up.
        if check_identifier(&id, LONGEST_ID).is_err() {
            return Err(Failed::new(ErrorKind::NotFound, "there is nothing of that name"));
        }
        Ok(Self(id))
    }
}

/// What stands after the `?`.
#[derive(Debug)]
pub(super) struct Params<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Params<T> {
    type Rejection = Failed;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failed> {
        let Query(params) = Query::from_request_parts(parts, state)
            .await
            .map_err(|error| Failed::new(ErrorKind::Usage, error.body_text()))?;
        Ok(Self(params))
    }
}

/// A body of JSON.
#[derive(Debug)]
pub(super) struct Body<T>(pub(super) T);

impl<T: DeserializeOwned> FromRequest<Shared> for Body<T> {
    type Rejection = Failed;

    async fn from_request(request: Request, shared: &Shared) -> Result<Self, Failed> {
        let bytes = bytes(request, shared.largest_body, shared.body_timeout).await?;
        Ok(Self(read(&bytes)?))
    }
}

/// A body as it came.
#[derive(Debug)]
pub(super) struct Raw(pub(super) Vec<u8>);

impl FromRequest<Shared> for Raw {
    type Rejection = Failed;

    async fn from_request(request: Request, shared: &Shared) -> Result<Self, Failed> {
        Ok(Self(
            bytes(request, shared.largest_body, shared.body_timeout).await?,
        ))
    }
}

/// All of a body, if it is not too large and does not take too long.
pub(super) async fn bytes(request: Request, largest: usize, timeout: Duration) -> Result<Vec<u8>, Failed> {
    let collecting = Limited::new(request.into_body(), largest).collect();
    let Ok(collected) = tokio::time::timeout(timeout, collecting).await else {
        let late = Failed::new(ErrorKind::Usage, "the body did not arrive in time");
        return Err(late.status(StatusCode::REQUEST_TIMEOUT));
    };
    match collected {
        Ok(body) => Ok(body.to_bytes().into()),
        Err(error) if error.downcast_ref::<LengthLimitError>().is_some() => {
            let detail = format!("the body has more than {largest} bytes");
            Err(Failed::new(ErrorKind::TooLarge, detail)
                .hint("put large data into files of a session, or mount it"))
        }
        Err(_) => Err(Failed::new(ErrorKind::Usage, "the body broke off")),
    }
}

/// Reads JSON strictly; what is wrong is said with its place.
fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Failed> {
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let wrong = |field: Option<String>, detail: String| {
        let mut failed = Failed::new(ErrorKind::Usage, detail);
        failed.0.field = field;
        failed
    };
    let value = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let path = error.path().to_string();
        let named = (path != ".").then(|| path.clone());
        let detail = match &named {
            Some(path) => format!("`{path}`: {}", error.inner()),
            None => format!("the body: {}", error.inner()),
        };
        wrong(named, detail)
    })?;
    reader
        .end()
        .map_err(|error| wrong(None, format!("the body: {error}")))?;
    Ok(value)
}
