//! `belljar run` and `belljar exec`: one execution, shown as it happens.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use belljar::{Error, ErrorKind, ExecuteIo, Execution, FailureKind, Outcome, OutputSink, Policy, Record};
use belljar_core::error::exit_code;
use serde::Serialize;

use super::super::deliver::{Delivery, deliver};
use super::super::interrupts::Interrupts;
use super::super::live_output::{Broken, LiveOutput};
use super::super::messages;
use super::super::problem::Problem;
use super::super::settings::{By, Settings};
use super::super::stdout;
use super::{receipt, remote};

pub(crate) fn execute(settings: Settings) -> Result<u8, Problem> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Problem::from(Error::Runtime(error)))?;
    let code = runtime.block_on(async {
        match &settings.by {
            By::Us(policy) => {
                let policy = policy.clone();
                perform(settings, &policy).await
            }
            By::Service { client, policy_id } => {
                let (client, policy_id) = (client.clone(), policy_id.clone());
                remote::perform(settings, &client, policy_id).await
            }
        }
    });
    // Nothing that still waits for our standard input may hold up the end.
    runtime.shutdown_background();
    code
}

async fn perform(mut settings: Settings, policy: &Policy) -> Result<u8, Problem> {
    let mut interrupts = Interrupts::listen()?;
    let mut impatience = Interrupts::listen()?;
    let mut live = if settings.json {
        None
    } else {
        Some(LiveOutput::start()?)
    };
    let broken = live.as_ref().map(LiveOutput::broken);
    let engine = messages::telling_engine();
    engine.warm_up();
    // An image may have to be fetched first.
    let planned = tokio::select! {
        planned = engine.plan_aside(policy, &settings.request) => planned,
        () = interrupts.next() => {
            return Err(Problem::new(ErrorKind::Killed, "interrupted before anything ran"));
        }
    };
    let stop = async move {
        tokio::select! {
            () = interrupts.next() => {}
            () = nobody_reads(broken) => {}
        }
    };
    let stdin = settings.input.take().map(OwnedFd::from);
    let work = async {
        let result = match planned {
            Ok(planned) => {
                let io = ExecuteIo {
                    sink: live.as_mut().map(|live| live as &mut (dyn OutputSink + Send)),
                    stdin,
                    stop: Some(Box::pin(stop)),
                };
                engine.execute_planned(planned, io).await
            }
            Err(error) => Err(error),
        };
        let broken = match live {
            Some(live) => live.finish().await,
            None => None,
        };
        (result, broken)
    };
    let (result, broken) = tokio::select! {
        done = work => done,
        () = impatience.second() => {
            return Err(Problem::new(ErrorKind::Killed, "interrupted twice, so it was not ended cleanly"));
        }
    };
    match result.map_err(Error::from) {
        Ok(execution) => present(&settings, &execution, broken),
        Err(Error::Denied { denial, record }) if settings.json => {
            stdout::json(&DeniedWire {
                denial: &denial,
                record: &record,
            })?;
            Ok(ErrorKind::Denied.exit_code())
        }
        Err(error) => Err(error.into()),
    }
}

/// Waits until nobody reads what the guest prints: then there is nothing to run for.
pub(super) async fn nobody_reads(broken: Option<Arc<Broken>>) {
    match broken {
        Some(broken) => broken.wait().await,
        None => std::future::pending().await,
    }
}

/// What a program reads with `--json`.
#[derive(Serialize)]
struct ExecutionWire<'a> {
    success: bool,
    outcome: &'a Outcome,
    record: &'a Record,
}

#[derive(Serialize)]
struct DeniedWire<'a> {
    denial: &'a belljar::Denial,
    record: &'a Record,
}

pub(super) fn present(
    settings: &Settings,
    execution: &Execution,
    broken: Option<io::Error>,
) -> Result<u8, Problem> {
    let outcome = &execution.outcome;
    let Delivery { missing, failed } = deliver(&settings.outputs, &outcome.files);
    if settings.json {
        stdout::json(&ExecutionWire {
            success: outcome.success(),
            outcome,
            record: &execution.record,
        })?;
    } else if !reader_left(outcome, broken.as_ref()) {
        messages::tell_outcome(outcome);
    }
    if settings.receipt {
        receipt::show(&outcome.receipt);
    }
    for sentence in &missing {
        messages::tell(sentence);
    }
    for problem in &failed {
        messages::tell(&problem.message);
    }
    match broken {
        Some(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(stdout::unwritable(&error)),
        _ => Ok(final_code(exit_code(outcome), &missing, &failed)),
    }
}

/// The program's own code, unless it is 0 and something that was asked for is not there.
fn final_code(code: u8, missing: &[String], failed: &[Problem]) -> u8 {
    match (code, failed.first()) {
        (0, Some(problem)) => problem.kind.exit_code(),
        (0, None) if !missing.is_empty() => 1,
        _ => code,
    }
}

/// Whether it was only stopped because whoever read its output had seen enough, as with `| head`.
fn reader_left(outcome: &Outcome, broken: Option<&io::Error>) -> bool {
    let stopped = outcome
        .error
        .as_ref()
        .is_some_and(|failure| failure.kind == FailureKind::Cancelled);
    stopped && broken.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_output_spoils_only_a_success() {
        let missing = ["`x` was not taken".to_owned()];
        let failed = [Problem::engine("cannot write")];
        assert_eq!(final_code(0, &[], &[]), 0);
        assert_eq!(final_code(3, &missing, &failed), 3);
        assert_eq!(final_code(0, &missing, &[]), 1);
        assert_eq!(final_code(0, &missing, &failed), 125);
    }
}
