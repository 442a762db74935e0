//! Why a caller has no answer.

use std::error::Error;

use belljar_core::ErrorKind;

use crate::wire::Problem;

/// Why there is no answer to use.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("`{url}` is no address of a service: {why}")]
    BadUrl { url: String, why: String },
    #[error("the key holds something that no key has")]
    BadKey,
    #[error("cannot reach {url}: {why}")]
    Unreachable { url: String, why: String },
    #[error("the answer broke off: {0}")]
    Broken(String),
    #[error("the answer cannot be understood: {0}")]
    Answer(String),
    /// The service said why not.
    #[error("{}", .0.detail)]
    Problem(Box<Problem>),
}

impl ClientError {
    pub(super) fn unreachable(url: &str, error: &dyn Error) -> Self {
        // The innermost reason is the one that says something.
        let mut innermost = error;
        while let Some(source) = innermost.source() {
            innermost = source;
        }
        Self::Unreachable {
            url: url.to_owned(),
            why: innermost.to_string(),
        }
    }

    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::BadUrl { .. } | Self::BadKey => ErrorKind::Usage,
            Self::Unreachable { .. } | Self::Broken(_) | Self::Answer(_) => ErrorKind::Unavailable,
            Self::Problem(problem) => problem.kind.parse().unwrap_or(ErrorKind::Engine),
        }
    }

    pub fn hint(&self) -> Option<&str> {
        match self {
            Self::BadUrl { .. } => Some("for example --url http://127.0.0.1:8377"),
            Self::BadKey => Some("a key is bj_, an id and a secret, as `belljar keys create` shows it"),
            Self::Unreachable { .. } => {
                Some("see whether `belljar serve` runs there, and whether the URL is right")
            }
            Self::Broken(_) | Self::Answer(_) => None,
            Self::Problem(problem) => problem.hint.as_deref(),
        }
    }
}
