//! The lines of a batch, run by a service.

use std::time::Duration;

use axum::http::Method;
use belljar::batch::Elsewhere;
use belljar::{Error, ErrorKind, Execution, Request};
use belljar_core::provider::BoxFuture;
use belljar_core::request::Stdin;
use belljar_server::client::{Client, ClientError};
use belljar_server::wire::{self, ExecutionRequest, Problem};

use super::super::remote::read;

/// The longest that a line waits for a service that is full, or for its quota of a minute.
const PATIENCE: u64 = 120;

/// A service that runs lines.
#[derive(Debug)]
pub(super) struct ByService {
    pub(super) client: Client,
    pub(super) policy_id: Option<String>,
}

impl Elsewhere for ByService {
    fn execute(&self, request: Request) -> BoxFuture<'_, Result<Execution, Error>> {
        Box::pin(async move {
            let stdin = match &request.stdin {
                Stdin::Bytes(bytes) => Some(bytes.to_vec()),
                _ => None,
            };
            let mut wish = ExecutionRequest::of(&request, stdin).map_err(|error| Error::Elsewhere {
                kind: ErrorKind::Usage,
                message: format!("cannot read what is to be sent: {error}"),
                hint: Some("check that it is there, and that code is text".to_owned()),
            })?;
            wish.policy_id.clone_from(&self.policy_id);
            loop {
                let asked = self
                    .client
                    .call::<wire::Execution>(Method::POST, "/v1/executions", Some(&wish));
                let error = match asked.await.and_then(|execution| read(&execution)) {
                    Ok(execution) => return Ok(execution),
                    Err(error) => error,
                };
                match later(&error) {
                    Some(wait) => tokio::time::sleep(wait).await,
                    None => return Err(failed(error)),
                }
            }
        })
    }
}

/// When to come again, where the service says that it is worth it.
fn later(error: &ClientError) -> Option<Duration> {
    match error {
        ClientError::Problem(problem) if problem.status == 429 => problem
            .retry_after
            .filter(|seconds| *seconds <= PATIENCE)
            .map(Duration::from_secs),
        _ => None,
    }
}

fn failed(error: ClientError) -> Error {
    if let ClientError::Problem(problem) = &error
        && let Problem {
            denial: Some(denial),
            record: Some(record),
            ..
        } = &**problem
        && let Ok(record) = serde_json::from_value(record.clone())
    {
        return Error::Denied {
            denial: Box::new(denial.clone()),
            record: Box::new(record),
        };
    }
    Error::Elsewhere {
        kind: error.kind(),
        message: error.to_string(),
        hint: error.hint().map(str::to_owned),
    }
}
