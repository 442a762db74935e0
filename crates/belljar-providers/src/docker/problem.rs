//! What an engine said was wrong, as something that says what to do.

use belljar_core::ProviderError;
use bollard::errors::Error;

/// An engine could not do what it was asked for.
pub(super) fn engine(doing: &'static str, error: &Error) -> ProviderError {
    ProviderError::Engine {
        engine: "docker".to_owned(),
        why: format!("cannot {doing}: {}", text(error)),
        fix: "see the engine's own log; `belljar providers` shows whether it answers".to_owned(),
    }
}

/// What it said, on one line.
pub(super) fn text(error: &Error) -> String {
    let said = match error {
        Error::DockerResponseServerError { message, .. } => message.clone(),
        Error::DockerStreamError { error } => error.clone(),
        Error::RequestTimeoutError => "it did not answer in time".to_owned(),
        other => other.to_string(),
    };
    said.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Whether it answered in words of its own: Podman has states that Docker has not.
pub(super) const fn is_foreign(error: &Error) -> bool {
    matches!(error, Error::JsonDataError { .. })
}

/// Whether what was asked about is not there.
pub(super) const fn is_not_found(error: &Error) -> bool {
    matches!(error, Error::DockerResponseServerError { status_code: 404, .. })
}
