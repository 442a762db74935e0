//! `belljar batch`: many requests, their answers in order, to go on with after an interruption.

mod kept;
mod output;
mod progress;
mod service;
mod tally;

use std::io;
use std::sync::Arc;

use belljar::ErrorKind;
use belljar::batch::{Answer, Answers};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::super::interrupts::Interrupts;
use super::super::messages;
use super::super::problem::Problem;
use super::super::settings::BatchSettings;
use output::{Output, Writer};
use progress::Progress;
use service::ByService;
use tally::Tally;

/// Every line has an answer, but not every one ran.
const SOME_FAILED: u8 = 1;

pub(crate) fn batch(mut settings: BatchSettings) -> Result<u8, Problem> {
    allow_descriptors(settings.descriptors);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Problem::from(belljar::Error::Runtime(error)))?;
    let is_here = settings.service.is_none();
    if let Some((client, policy_id)) = settings.service.take() {
        let name = format!("{} {}", client.base(), policy_id.as_deref().unwrap_or_default());
        let by = ByService { client, policy_id };
        runtime.block_on(by.greet())?;
        settings.batch = settings.batch.elsewhere(Arc::new(by), name);
    }
    let mut output = Output::open(&settings.output, settings.restart)?;
    let mut tally = Tally::default();
    let options_hash = settings.batch.options_hash();
    output.keep(&mut settings.lines, &options_hash, &mut tally)?;
    let done = runtime.block_on(perform(settings, is_here, output, tally));
    // A thread that still waits for input may not hold up the end.
    runtime.shutdown_background();
    done
}

/// Lets this process, and the launcher after it, have so many files open; the settings have made sure
/// that it may. Guests have a limit of their own.
fn allow_descriptors(needed: u64) {
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < needed) {
        let raised = Rlimit {
            current: Some(needed.min(limit.maximum.unwrap_or(needed))),
            ..limit
        };
        // Where it is refused, the line that finds none left says so.
        let _ = setrlimit(Resource::Nofile, raised);
    }
}

async fn perform(
    settings: BatchSettings,
    is_here: bool,
    output: Output,
    mut tally: Tally,
) -> Result<u8, Problem> {
    let mut impatience = Interrupts::listen()?;
    let interrupts = Interrupts::listen()?;
    let mut progress = Progress::start(settings.quiet, output.is_terminal(), settings.size, &tally);
    let place = output.shown().to_owned();
    let resumable = output.is_resumable();
    let writer = output.into_writer()?;
    let batch = match is_here {
        true => {
            let engine = messages::telling_engine();
            engine.warm_up();
            settings.batch.engine(&engine)
        }
        false => settings.batch,
    };
    let answers = batch.run(settings.lines)?;
    let work = answer_all(answers, writer, interrupts, &mut tally, &mut progress);
    let end = tokio::select! {
        end = work => end?,
        () = impatience.second() => {
            return Err(Problem::new(ErrorKind::Killed, "interrupted twice, so it was not ended cleanly"));
        }
    };
    progress.finish();
    if !settings.quiet {
        messages::tell(&tally.summary(&place));
    }
    let again = "run the same command again: it goes on after the last finished line";
    match end {
        End::All if tally.not_run() == 0 => Ok(0),
        End::All => Ok(SOME_FAILED),
        End::Stopped => {
            let problem = Problem::new(ErrorKind::Killed, format!("stopped after {}", tally.lines_text()));
            Err(if resumable { problem.hint(again) } else { problem })
        }
        End::Unreadable(error) => {
            Err(Problem::engine(format!("cannot read on in the input: {error}")).hint(again))
        }
        End::Gone(why) => {
            let problem = Problem::new(
                ErrorKind::Unavailable,
                format!("stopped after {}: {why}", tally.lines_text()),
            );
            Err(if resumable { problem.hint(again) } else { problem })
        }
        // Whoever read our output has seen enough, as with `| head`.
        End::Unwritable(error) if error.kind() == io::ErrorKind::BrokenPipe => {
            Ok(ErrorKind::Killed.exit_code())
        }
        End::Unwritable(error) => {
            let problem = Problem::engine(format!("cannot write {place}: {error}"));
            Err(if resumable { problem.hint(again) } else { problem })
        }
    }
}

/// Why there are no more answers.
enum End {
    All,
    Stopped,
    Unreadable(io::Error),
    /// The service is not there any more.
    Gone(String),
    Unwritable(io::Error),
}

async fn answer_all(
    mut answers: Answers,
    mut writer: Writer,
    mut interrupts: Interrupts,
    tally: &mut Tally,
    progress: &mut Progress,
) -> Result<End, Problem> {
    let mut end = End::All;
    loop {
        let next = tokio::select! {
            next = answers.next() => next,
            () = progress.due() => {
                progress.show(tally);
                continue;
            }
            () = interrupts.next() => {
                end = End::Stopped;
                answers.stop();
                continue;
            }
        };
        let answer = match next {
            None => break,
            Some(Err(error)) => {
                end = End::Unreadable(error);
                continue;
            }
            Some(Ok(answer)) => answer,
        };
        if let Some(error) = answer.unasked() {
            end = End::Gone(error.to_string());
            answers.stop();
            while answers.next().await.is_some() {}
            break;
        }
        let line = json_line(&answer)?;
        if !writer.write(line).await {
            // Why, the writer says when it is closed.
            answers.stop();
            while answers.next().await.is_some() {}
            break;
        }
        tally.count(&answer);
        progress.show(tally);
    }
    match writer.close().await {
        Ok(()) => Ok(end),
        Err(error) => Ok(End::Unwritable(error)),
    }
}

fn json_line(answer: &Answer) -> Result<Vec<u8>, Problem> {
    let mut line = serde_json::to_vec(answer)
        .map_err(|error| Problem::engine(format!("cannot write an answer as JSON: {error}")))?;
    line.push(b'\n');
    Ok(line)
}
