//! The one error of the library: a stable kind, a sentence, and often a hint.

use std::path::PathBuf;

use belljar_core::command::CommandError;
use belljar_core::limits::LimitError;
use belljar_core::mount::MountError;
use belljar_core::path::PathError;
use belljar_core::policy::PolicyFileError;
use belljar_core::{Bytes, Denial, ErrorKind, Lifecycle, Policy, ProviderError, Record};
use belljar_engine::environment::EnvironmentError;
use belljar_engine::workspace::WorkspaceError;
use belljar_engine::{EngineError, SessionError};

use crate::batch::LineError;

/// Why nothing ran, or why belljar could not finish. A program that fails is never an error: it is
/// an [`Outcome`](crate::Outcome).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The policy or the machine does not allow it.
    #[error("{denial}")]
    Denied {
        denial: Box<Denial>,
        record: Box<Record>,
    },
    #[error(transparent)]
    Limit(#[from] LimitError),
    #[error(transparent)]
    Path(#[from] PathError),
    #[error(transparent)]
    Mount(#[from] MountError),
    #[error(transparent)]
    Command(#[from] CommandError),
    #[error("there is no policy `{name}`; the built-in ones are {}", Policy::BUILTIN.join(", "))]
    UnknownPolicy { name: String },
    #[error(transparent)]
    PolicyFile(#[from] PolicyFileError),
    #[error("policy `{policy}` does not allow the command `{command}`")]
    CommandBeyondPolicy { policy: String, command: String },
    #[error("cannot tell which language {what} is written in")]
    UnknownLanguage { what: String },
    #[error("this sandbox was made for commands only and runs no code")]
    CommandsOnly,
    #[error("cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{} is not text in UTF-8", path.display())]
    NotText { path: PathBuf },
    #[error("{} is larger than {limit}, the most that is read of such a file", path.display())]
    TooLarge { path: PathBuf, limit: Bytes },
    #[error("this sandbox was made without the {what} that the request asks for")]
    MadeWithout { what: &'static str },
    #[error("a sandbox in state {0} cannot run anything")]
    NotReady(Lifecycle),
    /// A workspace's directory could not be made, used or removed.
    #[error(transparent)]
    Workspace(WorkspaceError),
    /// An environment could not be made, found, used or removed.
    #[error(transparent)]
    Environment(Box<EnvironmentError>),
    /// A session could not do what was asked, or is over.
    #[error(transparent)]
    Session(SessionError),
    #[error(transparent)]
    Provider(#[from] ProviderError),
    /// A line of a batch could not be understood.
    #[error(transparent)]
    Line(#[from] LineError),
    /// Whoever was to run a line of a batch did not.
    #[error("{message}")]
    Elsewhere {
        kind: ErrorKind,
        message: String,
        hint: Option<String>,
    },
    #[error("cannot start an asynchronous runtime: {0}")]
    Runtime(std::io::Error),
}

impl Error {
    /// What sort of error it is; stable, and the same word on every face of belljar.
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::Denied { .. } => ErrorKind::Denied,
            Self::Elsewhere { kind, .. } => *kind,
            Self::Environment(error) if error.is_usage() => ErrorKind::Usage,
            Self::Session(
                SessionError::BadName { .. }
                | SessionError::BadGlobal { .. }
                | SessionError::CodeTooLarge { .. }
                | SessionError::Expired(_)
                | SessionError::Closed
                | SessionError::File(_),
            ) => ErrorKind::Usage,
            Self::Environment(_)
            | Self::Workspace(_)
            | Self::Session(_)
            | Self::Provider(_)
            | Self::Runtime(_) => ErrorKind::Engine,
            Self::Limit(_)
            | Self::Path(_)
            | Self::Mount(_)
            | Self::Command(_)
            | Self::UnknownPolicy { .. }
            | Self::PolicyFile(_)
            | Self::CommandBeyondPolicy { .. }
            | Self::UnknownLanguage { .. }
            | Self::CommandsOnly
            | Self::Read { .. }
            | Self::NotText { .. }
            | Self::TooLarge { .. }
            | Self::MadeWithout { .. }
            | Self::Line(_)
            | Self::NotReady(_) => ErrorKind::Usage,
        }
    }

    /// What to do about it, where there is something to do.
    pub fn hint(&self) -> Option<&str> {
        match self {
            Self::Denied { denial, .. } => Some(&denial.fix),
            Self::Elsewhere { hint, .. } => hint.as_deref(),
            Self::Environment(error) => Some(error.hint()),
            Self::Provider(ProviderError::ControlMissing { fix, .. } | ProviderError::Kernel { fix, .. }) => {
                Some(fix)
            }
            Self::Provider(ProviderError::Io { source, .. } | ProviderError::Setup { source, .. })
                if source.raw_os_error() == Some(rustix::io::Errno::MFILE.raw_os_error()) =>
            {
                Some("raise the limit of open files (ulimit -n), or run less at once")
            }
            Self::Provider(_) => {
                Some("`belljar doctor` shows what this machine gives and how to get the rest")
            }
            Self::Path(_) => Some("name files relative to the work directory, such as data/input.csv"),
            Self::Mount(_) => Some("for example /srv/data:/workspace/data, which is read-only, or with :rw"),
            Self::Command(_) => {
                Some("give a program and its arguments; for a pipeline or a script, run bash code")
            }
            Self::UnknownPolicy { .. } => Some("name a built-in policy, or the path of a TOML file"),
            Self::PolicyFile(_) => {
                Some("`belljar policy show standard` prints a complete policy to start from")
            }
            Self::CommandBeyondPolicy { .. } => Some("add it to allowed_commands in the policy"),
            Self::UnknownLanguage { .. } => {
                Some("name the language, or give the file an ending such as .py or a #! line")
            }
            Self::CommandsOnly => Some("build the sandbox with a language"),
            Self::TooLarge { .. } => Some("put data into files of the sandbox or mount it"),
            Self::NotReady(_) | Self::MadeWithout { .. } => Some("build another sandbox"),
            Self::Read { .. } => Some("check that the path is right and may be read"),
            Self::NotText { .. } => Some("save it as UTF-8"),
            Self::Line(error) => Some(&error.hint),
            Self::Session(SessionError::Expired(_) | SessionError::Closed) => Some("open another session"),
            Self::Session(SessionError::CodeTooLarge { .. } | SessionError::BadGlobal { .. }) => {
                Some("put large data into files of the session")
            }
            Self::Session(SessionError::CannotStart { .. }) => {
                Some("see whether its limits leave an interpreter room to start")
            }
            Self::Session(_) | Self::Limit(_) | Self::Workspace(_) | Self::Runtime(_) => None,
        }
    }
}

impl From<EngineError> for Error {
    fn from(error: EngineError) -> Self {
        match error {
            EngineError::Denied { denial, record } => Self::Denied { denial, record },
            EngineError::Provider(error) => Self::Provider(error),
            EngineError::Environment(error) => Self::Environment(error),
            EngineError::MadeWithout { what } => Self::MadeWithout { what },
            EngineError::NotReady(state) => Self::NotReady(state),
        }
    }
}

impl From<SessionError> for Error {
    fn from(error: SessionError) -> Self {
        match error {
            SessionError::Engine(error) => error.into(),
            error => Self::Session(error),
        }
    }
}

impl From<EnvironmentError> for Error {
    fn from(error: EnvironmentError) -> Self {
        match error {
            EnvironmentError::Engine(error) => (*error).into(),
            error => Self::Environment(Box::new(error)),
        }
    }
}

impl From<WorkspaceError> for Error {
    fn from(error: WorkspaceError) -> Self {
        match error {
            WorkspaceError::Command(error) => error.into(),
            WorkspaceError::State(error) => Self::NotReady(error.from),
            error => Self::Workspace(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_can_go_anywhere() {
        const fn anywhere<T: Send + Sync + 'static>() {}
        anywhere::<Error>();
    }

    #[test]
    fn a_usage_error_says_what_to_do() {
        for error in [
            Error::from(PathError::Empty),
            Error::from(MountError::Form(String::new())),
            Error::from(CommandError::Empty),
            Error::UnknownPolicy { name: String::new() },
            Error::UnknownLanguage { what: String::new() },
            Error::CommandsOnly,
            Error::NotReady(Lifecycle::Error),
        ] {
            assert_eq!(error.kind(), ErrorKind::Usage);
            assert!(error.hint().is_some(), "{error}");
        }
    }
}
