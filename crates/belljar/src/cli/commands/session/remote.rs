//! A session of a service.

use axum::http::Method;
use belljar::{Cell, EntryKind, Execution, FileEntry, GuestPath, Logs, Request, SessionSink, Work};
use belljar_server::client::{Client, ClientError};
use belljar_server::wire::{self, CellRequest, CommandWish, Session, SessionFile, SessionRequest};
use serde::Deserialize;
use std::path::Path;
use std::time::Duration;

use super::live::Trouble;
use crate::cli::ask::{escaped, with_query};
use crate::cli::commands::remote::{Told, hear, read};
use crate::cli::problem::Problem;

/// How long a service may take to end a session before nobody waits for it.
const CLOSING: Duration = Duration::from_secs(5);

/// A session of a service.
#[derive(Debug)]
pub(super) struct Remote {
    client: Client,
    /// Where everything about it is found.
    path: String,
}

impl From<ClientError> for Trouble {
    fn from(error: ClientError) -> Self {
        let problem = match error {
            ClientError::Problem(problem) => *problem,
            error => return Self::Other(error.into()),
        };
        match problem.refusal() {
            Some((denial, record)) => Self::Denied {
                denial: Box::new(denial),
                record: Box::new(record),
            },
            _ if problem.kind == belljar::ErrorKind::NotFound.word() => {
                Self::Over(ClientError::Problem(Box::new(problem)).into())
            }
            _ => Self::Other(ClientError::Problem(Box::new(problem)).into()),
        }
    }
}

#[derive(Deserialize)]
struct Files {
    files: Vec<SessionFile>,
}

impl Remote {
    pub(super) async fn open(
        client: Client,
        policy_id: Option<String>,
        request: &Request,
    ) -> Result<Self, Trouble> {
        let mut wish = SessionRequest::of(request).map_err(|error| {
            let problem = Problem::usage(format!("cannot read what is to be sent: {error}"));
            Trouble::Other(problem.hint("check that it is there"))
        })?;
        wish.policy_id = policy_id;
        let made: Session = client.call(Method::POST, "/v1/sessions", Some(&wish)).await?;
        Ok(Self {
            client,
            path: format!("/v1/sessions/{}", escaped(&made.session_id)),
        })
    }

    pub(super) async fn execute(
        &self,
        cell: Cell,
        sink: &mut (dyn SessionSink + Send),
    ) -> Result<Execution, Trouble> {
        let mut wish = CellRequest {
            stdin: cell.stdin,
            ..CellRequest::default()
        };
        match cell.work {
            Work::Code(code) => wish.code = Some(code),
            Work::Command(argv) => wish.command = Some(CommandWish::Words(argv)),
        }
        let path = format!("{}/execute?mode=stream", self.path);
        let told = hear(&self.client, &path, &wish, &mut |event| sink.event(event)).await;
        match told? {
            Told::Ran(execution) => Ok(read(&execution)?),
            Told::Refused(problem) => Err(ClientError::Problem(problem).into()),
        }
    }

    pub(super) async fn interrupt(&self) -> bool {
        // Where nothing runs, the answer is a problem.
        self.post("interrupt").await.is_ok()
    }

    /// The same, and nobody waits for it.
    pub(super) fn interrupt_soon(&self) {
        let (client, path) = (self.client.clone(), format!("{}/interrupt", self.path));
        tokio::spawn(async move { client.call::<()>(Method::POST, &path, None::<&()>).await });
    }

    pub(super) async fn reset(&self) -> Result<(), Trouble> {
        self.post("reset").await
    }

    async fn post(&self, what: &str) -> Result<(), Trouble> {
        let path = format!("{}/{what}", self.path);
        Ok(self.client.call(Method::POST, &path, None::<&()>).await?)
    }

    pub(super) async fn list(&self) -> Result<Vec<FileEntry>, Trouble> {
        let path = format!("{}/files", self.path);
        let found: Files = self.client.call(Method::GET, &path, None::<&()>).await?;
        let listed = found.files.into_iter().map(|file| FileEntry {
            kind: match file.kind.as_str() {
                "file" => EntryKind::File,
                "directory" => EntryKind::Directory,
                _ => EntryKind::Other,
            },
            path: file.path,
            size: file.size,
            executable: file.executable,
        });
        Ok(listed.collect())
    }

    pub(super) async fn put(&self, host: &Path, guest: &GuestPath) -> Result<(), Trouble> {
        let bytes = tokio::fs::read(host).await.map_err(|error| {
            let problem = Problem::usage(format!("cannot read {}: {error}", host.display()));
            Trouble::Other(problem.hint("name a file of this machine"))
        })?;
        Ok(self.client.put(&self.file(guest), bytes).await?)
    }

    pub(super) async fn get(&self, guest: &GuestPath) -> Result<Vec<u8>, Trouble> {
        let path = self.file(guest);
        Ok(self.client.bytes(Method::GET, &path, None::<&()>).await?)
    }

    fn file(&self, guest: &GuestPath) -> String {
        let path = format!("{}/file", self.path);
        with_query(&path, &[("path", Some(guest.as_str().to_owned()))])
    }

    pub(super) async fn logs(&self) -> Result<Logs, Trouble> {
        let path = format!("{}/logs", self.path);
        let logs: wire::Logs = self.client.call(Method::GET, &path, None::<&()>).await?;
        Ok(Logs {
            stdout: logs.stdout,
            stderr: logs.stderr,
            dropped: logs.dropped,
        })
    }

    pub(super) async fn close(self) -> Result<(), Problem> {
        let closing = self.client.call::<()>(Method::DELETE, &self.path, None::<&()>);
        match tokio::time::timeout(CLOSING, closing).await {
            // It had ended by itself.
            Ok(Err(ClientError::Problem(problem))) if problem.status == 404 => Ok(()),
            Ok(done) => Ok(done?),
            Err(_) => Err(Problem::new(
                belljar::ErrorKind::Unavailable,
                "the service does not answer; it ends the session when it has been idle for long enough",
            )),
        }
    }
}
