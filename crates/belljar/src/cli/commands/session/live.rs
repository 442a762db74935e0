//! A session that is alive: in a sandbox of this machine, or of a service.

use std::collections::BTreeMap;
use std::io::{Cursor, Read};
use std::path::Path;

use belljar::{
    Cell, Denial, Error, Execution, FileEntry, FileIn, GuestPath, Logs, Record, SessionError, SessionSink,
};
use belljar_engine::session::{Session, Surroundings};

use super::super::super::messages;
use super::remote::Remote;
use crate::cli::problem::Problem;
use crate::cli::settings::{By, SessionSettings};

/// A session that is alive.
#[derive(Debug)]
pub(super) enum Live {
    Here(Session),
    There(Box<Remote>),
}

/// Why something was not done.
#[derive(Debug)]
pub(super) enum Trouble {
    /// The policy or the machine does not allow it.
    Denied {
        denial: Box<Denial>,
        record: Box<Record>,
    },
    /// The session itself is over.
    Over(Problem),
    Other(Problem),
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        match error {
            Error::Denied { denial, record } => Self::Denied { denial, record },
            Error::Session(SessionError::Expired(_) | SessionError::Closed) => Self::Over(error.into()),
            error => Self::Other(error.into()),
        }
    }
}

impl From<Trouble> for Problem {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Denied { denial, record } => Error::Denied { denial, record }.into(),
            Trouble::Over(problem) | Trouble::Other(problem) => problem,
        }
    }
}

impl Live {
    pub(super) async fn open(settings: &SessionSettings) -> Result<Self, Trouble> {
        match &settings.by {
            By::Us(policy) => {
                let engine = messages::telling_engine();
                engine.warm_up();
                let opening = Session::open(&engine, policy, &settings.request, Surroundings::default());
                Ok(Self::Here(opening.await.map_err(Error::from)?))
            }
            By::Service { client, policy_id } => {
                let remote = Remote::open((**client).clone(), policy_id.clone(), &settings.request).await?;
                Ok(Self::There(Box::new(remote)))
            }
        }
    }

    pub(super) async fn execute(
        &self,
        cell: impl Into<Cell>,
        sink: &mut (dyn SessionSink + Send),
    ) -> Result<Execution, Trouble> {
        match self {
            Self::Here(session) => Ok(session.execute(cell, sink).await.map_err(Error::from)?),
            Self::There(remote) => remote.execute(cell.into(), sink).await,
        }
    }

    /// Interrupts what it executes, and says whether there was anything to interrupt.
    pub(super) async fn interrupt(&self) -> bool {
        match self {
            Self::Here(session) => session.interrupter().interrupt(),
            Self::There(remote) => remote.interrupt().await,
        }
    }

    /// The same, and nobody waits for it.
    pub(super) fn interrupt_soon(&self) {
        match self {
            Self::Here(session) => drop(session.interrupter().interrupt()),
            Self::There(remote) => remote.interrupt_soon(),
        }
    }

    pub(super) async fn reset(&self) -> Result<(), Trouble> {
        match self {
            Self::Here(session) => Ok(session.reset().await.map_err(Error::from)?),
            Self::There(remote) => remote.reset().await,
        }
    }

    pub(super) async fn list(&self) -> Result<Vec<FileEntry>, Trouble> {
        match self {
            Self::Here(session) => Ok(session.list(None).map_err(Error::from)?),
            Self::There(remote) => remote.list().await,
        }
    }

    /// Puts a file of the host into the work directory.
    pub(super) async fn put(&self, host: &Path, guest: GuestPath) -> Result<(), Trouble> {
        match self {
            Self::Here(session) => {
                let files = BTreeMap::from([(guest, FileIn::host(host))]);
                Ok(session.put(files).await.map_err(Error::from)?)
            }
            Self::There(remote) => remote.put(host, &guest).await,
        }
    }

    /// What is in a file of the work directory.
    pub(super) async fn get(&self, guest: &GuestPath) -> Result<Box<dyn Read>, Trouble> {
        match self {
            Self::Here(session) => Ok(Box::new(session.get(guest).map_err(Error::from)?)),
            Self::There(remote) => Ok(Box::new(Cursor::new(remote.get(guest).await?))),
        }
    }

    pub(super) async fn logs(&self) -> Result<Logs, Trouble> {
        match self {
            Self::Here(session) => Ok(session.logs()),
            Self::There(remote) => remote.logs().await,
        }
    }

    /// Ends it and waits until nothing is left.
    pub(super) async fn close(self) -> Result<(), Problem> {
        match self {
            Self::Here(session) => session.close().await.map_err(|error| Error::from(error).into()),
            Self::There(remote) => remote.close().await,
        }
    }
}
