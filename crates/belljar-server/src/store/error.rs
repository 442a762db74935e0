//! What can go wrong with the store. Whatever it is, nothing is acknowledged.

use std::sync::Arc;

/// Why something could not be read or written.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    #[error("the store cannot be reached: {0}")]
    Unreachable(Arc<sqlx::Error>),
    #[error("the store's disk is full")]
    Full,
    #[error("the store is held by another process: {0}")]
    Held(String),
    #[error("the store has form {found}, and this belljar knows forms up to {known}")]
    Newer { found: i64, known: i64 },
    #[error("`{0}` is no place for a store")]
    BadPlace(String),
    #[error("cannot {operation} {object}: {source}")]
    File {
        operation: &'static str,
        object: String,
        source: Arc<std::io::Error>,
    },
    #[error("something in the store cannot be read: {0}")]
    Unreadable(String),
    #[error("this execution's record was closed by another server")]
    Closed,
    #[error("it is still being written, and that takes too long")]
    Late,
    #[error("the store is shutting down")]
    ShuttingDown,
    #[error("cannot {operation}: {source}")]
    Sql {
        operation: &'static str,
        source: Arc<sqlx::Error>,
    },
}

impl StoreError {
    pub(crate) fn of(operation: &'static str, error: sqlx::Error) -> Self {
        use sqlx::Error::{Io, PoolClosed, PoolTimedOut, Protocol, Tls, WorkerCrashed};
        if let Some(database) = error.as_database_error() {
            // SQLITE_FULL, and PostgreSQL's disk_full.
            let is_full = database
                .code()
                .is_some_and(|code| matches!(&*code, "13" | "53100"));
            if is_full || database.message().contains("database or disk is full") {
                return Self::Full;
            }
            // PostgreSQL that is starting, stopping or gone (class 57P), or has no connection left (53300).
            let is_away = database
                .code()
                .is_some_and(|code| code.starts_with("57P") || &*code == "53300");
            if is_away {
                return Self::Unreachable(Arc::new(error));
            }
        }
        match error {
            Io(_) | Tls(_) | Protocol(_) | PoolTimedOut | PoolClosed | WorkerCrashed => {
                Self::Unreachable(Arc::new(error))
            }
            error => Self::Sql {
                operation,
                source: Arc::new(error),
            },
        }
    }

    /// What to do about it.
    pub fn hint(&self) -> Option<&'static str> {
        Some(match self {
            Self::Unreachable(_) => {
                "see whether the database runs and its URL is right; nothing runs until it answers"
            }
            Self::Full => "make room on the disk of the data directory; nothing runs until there is some",
            Self::Held(_) => "end the other server, or give this one a data directory of its own",
            Self::Newer { .. } => "use the belljar that made it, or a newer one",
            Self::BadPlace(_) => "name a file, such as /var/lib/belljar/belljar.db, or a postgres:// URL",
            _ => return None,
        })
    }

    /// Whether it is the store that fails, and not what was to be written.
    pub(crate) const fn is_lost(&self) -> bool {
        matches!(self, Self::Unreachable(_) | Self::Full | Self::Held(_))
    }
}

/// Names the operation that an error of the database belongs to.
pub(crate) trait During<T> {
    fn during(self, operation: &'static str) -> Result<T, StoreError>;
}

impl<T> During<T> for Result<T, sqlx::Error> {
    fn during(self, operation: &'static str) -> Result<T, StoreError> {
        self.map_err(|error| StoreError::of(operation, error))
    }
}
