//! Why a session could not do what was asked. Code that fails is an outcome, never one of these.

use belljar_core::provider::ProviderError;
use belljar_core::{Bytes, Seconds};

use super::files::FileError;
use crate::execute::EngineError;

/// Why a session could not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// Its wall has no interpreters that stay.
    #[error("the {provider} provider has no sessions")]
    NoSessions { provider: &'static str },
    /// It has programs alone, or commands alone.
    #[error(
        "this session has no interpreter; make one with a language that has sessions (python, javascript)"
    )]
    NoInterpreter,
    #[error("the interpreter did not start: {why}")]
    CannotStart { why: String },
    /// It lived too long or did nothing for too long.
    #[error("the session is over: {0}")]
    Expired(Expiry),
    #[error("the session is closed")]
    Closed,
    #[error("{size} of code are more than the {limit} that one execution takes")]
    CodeTooLarge { size: Bytes, limit: Bytes },
    #[error("`{name}` cannot be the name of a global or a tool; use letters, digits and `_`")]
    BadName { name: String },
    #[error("the global `{name}` cannot be sent: {why}")]
    BadGlobal { name: String, why: String },
    #[error(transparent)]
    File(#[from] FileError),
}

impl From<ProviderError> for SessionError {
    fn from(error: ProviderError) -> Self {
        Self::Engine(error.into())
    }
}

/// Why a session ended by itself.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum Expiry {
    #[error("it did nothing for {0}")]
    Idle(Seconds),
    #[error("it reached its greatest age, {0}")]
    Age(Seconds),
}
