//! The lines of a batch, run by a service.

use std::time::{Duration, Instant};

use axum::http::Method;
use belljar::batch::Elsewhere;
use belljar::{Error, ErrorKind, Execution, Request};
use belljar_core::provider::BoxFuture;
use belljar_core::request::Stdin;
use belljar_server::client::{Client, ClientError};
use belljar_server::wire::ExecutionRequest;

use super::super::remote::{Told, hear, read};

/// The longest that a line is asked for again: a quota of a minute has room by then.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long a service that cannot be reached is waited for, and how long between two tries.
const GONE: Duration = Duration::from_secs(15);
const BETWEEN: Duration = Duration::from_secs(1);

/// A service that runs lines.
#[derive(Debug)]
pub(super) struct ByService {
    pub(super) client: Client,
    pub(super) policy_id: Option<String>,
}

impl ByService {
    /// Asks something small first: who cannot be reached, or does not take the key, is better told of once.
    pub(super) async fn greet(&self) -> Result<(), ClientError> {
        let path = "/v1/capabilities";
        self.client.bytes(Method::GET, path, None::<&()>).await.map(drop)
    }
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
            let began = Instant::now();
            loop {
                // As a stream, so that whatever stands in between sees that there is somebody.
                let asked = hear(&self.client, "/v1/executions?mode=stream", &wish, &mut |_| {}).await;
                let error = match asked {
                    Ok(Told::Ran(execution)) => match read(&execution) {
                        Ok(execution) => return Ok(execution),
                        Err(error) => error,
                    },
                    Ok(Told::Refused(problem)) => ClientError::Problem(problem),
                    Err(error) => error,
                };
                match later(&error) {
                    Some((wait, most)) if began.elapsed() + wait < most => tokio::time::sleep(wait).await,
                    _ => return Err(failed(error)),
                }
            }
        })
    }
}

/// When to come again and for how long at most, where that may be worth it: the service is full, ends, or cannot be
/// reached at the moment. What it ran for a connection that broke off it has ended.
fn later(error: &ClientError) -> Option<(Duration, Duration)> {
    match error {
        ClientError::Problem(problem) if matches!(problem.status, 429 | 503) => {
            let wait = Duration::from_secs(problem.retry_after.unwrap_or(1).max(1));
            Some((wait, PATIENCE))
        }
        ClientError::Unreachable { .. } | ClientError::Broken(_) => Some((BETWEEN, GONE)),
        _ => None,
    }
}

fn failed(error: ClientError) -> Error {
    if let ClientError::Problem(problem) = &error
        && let Some((denial, record)) = problem.refusal()
    {
        return Error::Denied {
            denial: Box::new(denial),
            record: Box::new(record),
        };
    }
    Error::Elsewhere {
        kind: error.kind(),
        message: error.to_string(),
        hint: error.hint().map(str::to_owned),
    }
}
