//! Lines that somebody else runs, such as a service.

use std::fmt::Debug;

use belljar_core::provider::BoxFuture;
use belljar_core::{Captured, ErrorKind, FailureKind, Request, StageKind, Usage, Verdict};
use belljar_engine::{CaseEnd, CasesExecution, Execution};

use super::answer::Answered;
use super::request::Wish;
use crate::error::Error;

/// Somebody who runs requests and holds them against policies of their own.
pub trait Elsewhere: Debug + Send + Sync {
    /// Runs a request. Dropping the future ends it.
    fn execute(&self, request: Request) -> BoxFuture<'_, Result<Execution, Error>>;
}

pub(super) async fn perform(
    by: &dyn Elsewhere,
    wish: Wish,
    stop: BoxFuture<'_, ()>,
) -> Result<Answered, Error> {
    let work = async {
        match wish.cases.is_empty() {
            true => Ok(Answered::Ran(Box::new(by.execute(wish.request).await?))),
            false => Ok(Answered::Cases(Box::new(cases(by, wish).await?))),
        }
    };
    tokio::select! {
        done = work => done,
        () = stop => Err(Error::Elsewhere {
            kind: ErrorKind::Killed,
            message: "stopped by the caller".to_owned(),
            hint: None,
        }),
    }
}

/// Each case is an execution of its own there. What compiles is compiled for each.
async fn cases(by: &dyn Elsewhere, wish: Wish) -> Result<CasesExecution, Error> {
    let mut ends: Vec<CaseEnd> = Vec::with_capacity(wish.cases.len());
    let mut whole: Option<Execution> = None;
    let mut usage = Usage::default();
    let mut denied = None;
    for case in &wish.cases {
        let execution = match by.execute(case.request(&wish.request)).await {
            Ok(execution) => execution,
            Err(Error::Denied { denial, record }) => {
                ends.push(CaseEnd {
                    denial: Some(denial.clone()),
                    ..CaseEnd::without_run(Verdict::Denied)
                });
                denied.get_or_insert(Error::Denied { denial, record });
                continue;
            }
            Err(error) => return Err(error),
        };
        let outcome = &execution.outcome;
        usage = usage.and(outcome.usage);
        let failure = outcome.error.as_ref();
        let is_built = failure.is_none_or(|failure| failure.stage != StageKind::Compile);
        let is_cancelled = failure.is_some_and(|failure| failure.kind == FailureKind::Cancelled);
        if is_built {
            ends.push(CaseEnd {
                verdict: Verdict::of(
                    failure,
                    &outcome.stdout,
                    case.expected_stdout.as_deref(),
                    wish.comparison,
                ),
                status: Some(outcome.status),
                exit_code: outcome.exit_code,
                signal: outcome.signal,
                stdout: outcome.stdout.clone(),
                stderr: outcome.stderr.clone(),
                error: outcome.error.clone(),
                denial: None,
                usage: outcome.usage,
            });
        } else {
            // It would not be built for the others either.
            let verdict = match is_cancelled {
                true => Verdict::Lost,
                false => Verdict::CompileError,
            };
            ends.resize(wish.cases.len(), CaseEnd::without_run(verdict));
        }
        if is_cancelled {
            ends.resize(wish.cases.len(), CaseEnd::without_run(Verdict::Lost));
        }
        // The first that did not end well says most about the whole.
        if is_cancelled || whole.as_ref().is_none_or(|whole| whole.outcome.success()) {
            whole = Some(execution);
        }
        if !is_built || is_cancelled {
            break;
        }
    }
    match (whole, denied) {
        (Some(Execution { mut outcome, record }), _) => {
            // What cases printed is with them.
            outcome.stdout = Captured::default();
            outcome.stderr = Captured::default();
            outcome.usage = usage;
            Ok(CasesExecution {
                outcome,
                cases: ends,
                record,
            })
        }
        (None, Some(denied)) => Err(denied),
        (None, None) => Err(Error::Elsewhere {
            kind: ErrorKind::Usage,
            message: "there is no case".to_owned(),
            hint: None,
        }),
    }
}
