//! All of standard input as one cell: for pipelines.

use std::io;

use belljar::Outcome;
use belljar_core::error::exit_code;

use super::live::Live;
use super::pictures::Pictures;
use super::screen::Screen;
use super::show;
use super::signals::{Heard, Signals, told_to_end};
use crate::cli::problem::Problem;
use crate::cli::settings::SessionSettings;
use crate::cli::stdout;

pub(super) async fn one(settings: &SessionSettings, code: String) -> Result<u8, Problem> {
    let mut signals = Signals::listen()?;
    let session = tokio::select! {
        session = Live::open(settings) => session?,
        _ = signals.next() => return Err(told_to_end()),
    };
    let done = execute(settings, &session, code, &mut signals).await;
    let closed = session.close().await;
    let (outcome, broken) = done?;
    show::ending(&outcome);
    if let Err(problem) = closed {
        problem.report(false);
    }
    match broken {
        Some(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(stdout::unwritable(&error)),
        _ => Ok(exit_code(&outcome)),
    }
}

async fn execute(
    settings: &SessionSettings,
    session: &Live,
    code: String,
    signals: &mut Signals,
) -> Result<(Outcome, Option<io::Error>), Problem> {
    let mut screen = Screen::for_pipe(Pictures::new(&settings.pictures, 1))?;
    let broken = screen.broken();
    let mut interrupted = false;
    let execution = {
        let mut work = std::pin::pin!(session.execute(code, &mut screen));
        loop {
            tokio::select! {
                done = &mut work => break done?,
                heard = signals.next() => {
                    // Whoever asks twice does not want to wait.
                    if interrupted || heard == Heard::Terminate {
                        return Err(told_to_end());
                    }
                    interrupted = true;
                    session.interrupt_soon();
                }
                // Nobody reads what it prints, so there is nothing to run for.
                () = broken.wait() => {
                    session.interrupt_soon();
                }
            }
        }
    };
    show::result(&execution.outcome, settings.language, &mut screen);
    Ok((execution.outcome, screen.finish().await))
}
