//! `belljar run` and `belljar exec` by a service: the same flags, the same output, the same exit codes.

use std::io::Read;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use belljar::{ErrorKind, Event, Execution, OutputSink, Stream};
use belljar_server::client::{Client, ClientError, Events};
use belljar_server::wire::{self, ExecutionRequest};
use serde::Serialize;
use serde_json::Value;

use super::super::interrupts::Interrupts;
use super::super::live_output::LiveOutput;
use super::super::messages;
use super::super::problem::Problem;
use super::super::settings::Settings;
use super::super::stdout;
use super::execute::{nobody_reads, present};

/// The most that is sent as standard input.
const LARGEST_INPUT: u64 = 16 << 20;

pub(super) async fn perform(
    mut settings: Settings,
    client: &Client,
    policy_id: Option<String>,
) -> Result<u8, Problem> {
    let mut interrupts = Interrupts::listen()?;
    let input = match settings.input.take() {
        None => None,
        Some(input) => {
            let reading = tokio::task::spawn_blocking(move || read_all(input));
            tokio::select! {
                read = reading => Some(read.unwrap_or_else(|_| Err(Problem::engine("standard input broke off")))?),
                () = interrupts.next() => return Err(Problem::new(ErrorKind::Killed, "interrupted before it was sent")),
            }
        }
    };
    let unreadable = |error: std::io::Error| {
        Problem::usage(format!("cannot read what is to be sent: {error}"))
            .hint("check that it is there, and that code is text")
    };
    let mut request = ExecutionRequest::of(&settings.request, input).map_err(unreadable)?;
    request.policy_id = policy_id;
    let mut live = match settings.json {
        true => None,
        false => Some(LiveOutput::start()?),
    };
    let broken = live.as_ref().map(LiveOutput::broken);
    let mut take = |event: Event| {
        if let (Some(live), Event::Output(stream, bytes)) = (&mut live, event) {
            live.write(stream, &bytes);
        }
    };
    let told = tokio::select! {
        told = hear(client, "/v1/executions?mode=stream", &request, &mut take) => told.map_err(Problem::from),
        // Dropping the answer hangs up, which ends it there.
        () = interrupts.next() => Err(Problem::new(ErrorKind::Killed, "interrupted: the service ends it")),
        () = nobody_reads(broken) => Err(Problem::new(ErrorKind::Killed, "nobody reads its output: the service ends it")),
    };
    let broken = match live {
        Some(live) => live.finish().await,
        None => None,
    };
    let execution = match told {
        Ok(Told::Ran(execution)) => *execution,
        Ok(Told::Refused(problem)) if settings.json && problem.denial.is_some() => {
            stdout::json(&serde_json::json!({ "denial": problem.denial, "record": problem.record }))?;
            return Ok(ErrorKind::Denied.exit_code());
        }
        Ok(Told::Refused(problem)) => return Err(ClientError::Problem(problem).into()),
        Err(problem) => return Err(problem),
    };
    present(&settings, &read(&execution)?, broken)
}

/// What the service told at the end.
pub(super) enum Told {
    Ran(Box<wire::Execution>),
    Refused(Box<wire::Problem>),
}

/// Has it run, and passes on what happens as it comes.
pub(super) async fn hear(
    client: &Client,
    path: &str,
    request: &impl Serialize,
    take: &mut (dyn FnMut(Event) + Send),
) -> Result<Told, ClientError> {
    let mut events: Events = match client.events(path, request).await {
        Ok(events) => events,
        Err(ClientError::Problem(problem)) => return Ok(Told::Refused(problem)),
        Err(error) => return Err(error),
    };
    while let Some(event) = events.next().await? {
        let data: Value = serde_json::from_str(&event.data).map_err(misread)?;
        match event.name.as_str() {
            "pending" => {
                let approval = data["approval_id"].as_str().unwrap_or_default();
                messages::tell(&format!("it waits until somebody approves {approval}"));
            }
            "output" => {
                let (stream, bytes) = piece(&data)?;
                take(Event::Output(stream, bytes));
            }
            "display" => {
                let display: wire::Display = serde_json::from_value(data).map_err(misread)?;
                take(Event::Display(display.to_core().map_err(misread)?));
            }
            "result" => {
                let execution = serde_json::from_value(data).map_err(misread)?;
                return Ok(Told::Ran(Box::new(execution)));
            }
            "problem" => {
                let problem: wire::Problem = serde_json::from_value(data).map_err(misread)?;
                return Ok(Told::Refused(Box::new(problem)));
            }
            // What a newer service may tell.
            _ => {}
        }
    }
    Err(ClientError::Broken(
        "the service hung up before the result".to_owned(),
    ))
}

fn piece(data: &Value) -> Result<(Stream, Vec<u8>), ClientError> {
    let stream = match data["stream"].as_str() {
        Some("stderr") => Stream::Stderr,
        _ => Stream::Stdout,
    };
    let bytes = match (data["text"].as_str(), data["base64"].as_str()) {
        (Some(text), _) => text.as_bytes().to_vec(),
        (None, Some(base64)) => STANDARD
            .decode(base64)
            .map_err(|error| ClientError::Answer(error.to_string()))?,
        (None, None) => Vec::new(),
    };
    Ok((stream, bytes))
}

/// The result as if it had happened here.
pub(super) fn read(execution: &wire::Execution) -> Result<Execution, ClientError> {
    let outcome = execution
        .outcome
        .as_ref()
        .ok_or_else(|| ClientError::Answer("there is no outcome in it".to_owned()))?;
    Ok(Execution {
        outcome: outcome.to_core().map_err(misread)?,
        record: serde_json::from_value(execution.record.clone()).map_err(misread)?,
    })
}

fn misread(error: serde_json::Error) -> ClientError {
    ClientError::Answer(error.to_string())
}

/// All of the standard input: a service takes it with the request.
fn read_all(input: std::fs::File) -> Result<Vec<u8>, Problem> {
    let mut bytes = Vec::new();
    let read = input.take(LARGEST_INPUT + 1).read_to_end(&mut bytes);
    read.map_err(|error| Problem::engine(format!("cannot read standard input: {error}")))?;
    if bytes.len() as u64 > LARGEST_INPUT {
        let message = format!(
            "standard input has more than {} bytes, the most that is sent",
            LARGEST_INPUT
        );
        return Err(
            Problem::usage(message).hint("put it into a file of a session, or run it on this machine")
        );
    }
    Ok(bytes)
}
