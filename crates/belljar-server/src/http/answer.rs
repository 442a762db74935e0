//! What goes out: JSON, or a problem document.

use std::sync::Arc;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use belljar_core::ErrorKind;

use crate::service::ServiceError;
use crate::store::StoreError;
use crate::wire::{Problem, WireError};

/// A problem on its way out.
#[derive(Debug)]
pub(super) struct Failed(pub(super) Box<Problem>);

impl Failed {
    pub(super) fn new(kind: ErrorKind, detail: impl Into<String>) -> Self {
        Self(Box::new(Problem::new(kind, detail)))
    }

    #[must_use]
    pub(super) fn hint(mut self, hint: &str) -> Self {
        self.0.hint = Some(hint.to_owned());
        self
    }

    /// The same with another status of the same class.
    #[must_use]
    pub(super) fn status(mut self, status: StatusCode) -> Self {
        self.0.status = status.as_u16();
        self
    }
}

impl From<ServiceError> for Failed {
    fn from(error: ServiceError) -> Self {
        if matches!(
            error,
            ServiceError::Store(_) | ServiceError::Unrecorded(_) | ServiceError::Engine(_)
        ) {
            tracing::error!(%error, "a request failed");
        }
        Self(Box::new(error.problem()))
    }
}

impl From<StoreError> for Failed {
    fn from(error: StoreError) -> Self {
        ServiceError::from(error).into()
    }
}

impl From<WireError> for Failed {
    fn from(error: WireError) -> Self {
        ServiceError::from(error).into()
    }
}

impl IntoResponse for Failed {
    fn into_response(self) -> Response {
        let problem = *self.0;
        let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let retry_after = problem.retry_after;
        let mut response = status.into_response();
        let headers = response.headers_mut();
        headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/problem+json"),
        );
        if let Some(seconds) = retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        // Whoever watches puts the request's id into it, and writes it.
        response.extensions_mut().insert(Told(Arc::new(problem)));
        response
    }
}

/// The problem that a response is, until it is written.
#[derive(Clone, Debug)]
pub(super) struct Told(pub(super) Arc<Problem>);

pub(super) async fn not_found() -> Failed {
    Failed::new(ErrorKind::NotFound, "there is nothing at this address").hint("/docs lists what there is")
}

pub(super) async fn wrong_method() -> Failed {
    Failed::new(ErrorKind::Usage, "this address does not take that method")
        .status(StatusCode::METHOD_NOT_ALLOWED)
        .hint("/docs lists what there is")
}
