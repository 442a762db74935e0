//! Why the service did not do what was asked.

use belljar_core::policy::PolicyFileError;
use belljar_core::{Denial, ErrorKind, Record};
use belljar_engine::EngineError;

use crate::store::StoreError;
use crate::wire::{Problem, WireError};

/// Why there is no result. A program that fails is a result.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    #[error("a key is needed, and there is none that is valid")]
    Unauthorized,
    #[error("{0}")]
    Forbidden(String),
    /// The guard, the machine, the key or a quota refused it; that is on record.
    #[error("{denial}")]
    Denied {
        denial: Box<Denial>,
        record: Box<Record>,
        retry_after: Option<u64>,
    },
    #[error(transparent)]
    Wire(#[from] WireError),
    #[error(transparent)]
    Policy(#[from] PolicyFileError),
    #[error("there is no {what} `{name}`")]
    NotFound { what: &'static str, name: String },
    #[error("{0}")]
    Conflict(String),
    /// A session that is over.
    #[error("{0}")]
    Gone(String),
    #[error("this tenant has its {most} sessions already")]
    TooManySessions { most: usize },
    #[error("{waiting} requests of this tenant are waiting already")]
    Busy { waiting: usize },
    /// Before it began.
    #[error("it was cancelled before it had its turn")]
    Cancelled,
    #[error("the service is about to end")]
    ShuttingDown,
    #[error(transparent)]
    Store(#[from] StoreError),
    /// It ran, and that could not be written down: it counts as not having run.
    #[error("it ran, but its record could not be made durable: {0}")]
    Unrecorded(StoreError),
    #[error("{0}")]
    Engine(String),
}

impl ServiceError {
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::Unauthorized => ErrorKind::Unauthorized,
            Self::Forbidden(_) => ErrorKind::Forbidden,
            Self::Denied {
                retry_after: Some(_), ..
            } => ErrorKind::QuotaExceeded,
            Self::Denied { .. } => ErrorKind::Denied,
            Self::Wire(_) | Self::Policy(_) => ErrorKind::Usage,
            Self::NotFound { .. } | Self::Gone(_) => ErrorKind::NotFound,
            Self::Conflict(_) => ErrorKind::Conflict,
            Self::Cancelled => ErrorKind::Killed,
            Self::Busy { .. } | Self::TooManySessions { .. } => ErrorKind::Busy,
            Self::ShuttingDown | Self::Store(_) | Self::Unrecorded(_) => ErrorKind::Unavailable,
            Self::Engine(_) => ErrorKind::Engine,
        }
    }

    /// There is nothing of that name, which is the caller's word.
    pub(crate) fn not_found(what: &'static str, name: &str) -> Self {
        Self::NotFound {
            what,
            name: name.chars().take(100).flat_map(char::escape_debug).collect(),
        }
    }

    /// What became of a request that the engine did not run.
    pub(super) fn of_engine(error: EngineError) -> Self {
        match error {
            EngineError::Denied { denial, record } => Self::Denied {
                denial,
                record,
                retry_after: None,
            },
            EngineError::Environment(error) if error.is_usage() => {
                Self::Wire(WireError::new("environment", error.to_string()))
            }
            error => Self::Engine(error.to_string()),
        }
    }

    pub fn problem(&self) -> Problem {
        let mut problem = Problem::new(self.kind(), self.to_string());
        match self {
            Self::Unauthorized => problem = problem.hint("send `Authorization: Bearer bj_…`"),
            Self::Denied {
                denial,
                record,
                retry_after,
            } => {
                problem.hint = Some(denial.fix.clone());
                problem.denial = Some((**denial).clone());
                problem.record = serde_json::to_value(record).ok();
                problem.retry_after = *retry_after;
            }
            Self::Wire(error) => problem.field = Some(error.field.clone()),
            Self::Policy(error) => problem.field = error.field.clone(),
            Self::Busy { .. } => {
                problem = problem.hint("try again in a moment, or send less at once");
                problem.retry_after = Some(1);
            }
            Self::TooManySessions { .. } => {
                problem = problem.hint("end one that is not needed any more");
            }
            Self::Gone(_) => problem = problem.hint("open another session"),
            Self::ShuttingDown => problem.retry_after = Some(5),
            Self::Store(error) | Self::Unrecorded(error) => {
                problem.hint = error.hint().map(str::to_owned);
                problem.retry_after = Some(5);
            }
            Self::Engine(_) => problem = problem.hint("`belljar doctor` shows what the machine gives"),
            Self::Forbidden(_) | Self::NotFound { .. } | Self::Conflict(_) | Self::Cancelled => {}
        }
        problem
    }
}
