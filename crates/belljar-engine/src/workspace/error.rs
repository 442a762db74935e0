//! What can go wrong with a workspace, told apart by what was being done (R53).

use std::io;

use belljar_core::lifecycle::IllegalTransition;

use crate::execute::EngineError;

/// Why a workspace could not be used.
#[derive(Debug, thiserror::Error)]
pub enum WorkspaceError {
    /// The base directory cannot be made or must not be used.
    #[error("cannot {operation} the base directory {object}: {source}")]
    Base {
        operation: &'static str,
        object: String,
        source: io::Error,
    },
    #[error("cannot set up a sandbox: cannot {operation} {object}: {source}")]
    Setup {
        operation: &'static str,
        object: String,
        source: io::Error,
    },
    #[error("cannot tear down: cannot {operation} {object}: {source}")]
    Teardown {
        operation: &'static str,
        object: String,
        source: io::Error,
    },
    /// The script could not be run. One that ran and failed is an outcome, not an error.
    #[error("cannot run the script: {0}")]
    Command(#[from] EngineError),
    #[error(transparent)]
    State(#[from] IllegalTransition),
    /// The work failed, and so did cleaning up after it.
    #[error("{error}; and then: {teardown}")]
    Both {
        #[source]
        error: Box<Self>,
        teardown: Box<Self>,
    },
}
