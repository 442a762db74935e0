//! All of standard input as one cell: for pipelines.

use std::io;

use belljar::{Error, Outcome};
use belljar_core::error::exit_code;
use belljar_engine::session::Session;

use super::pictures::Pictures;
use super::screen::Screen;
use super::signals::{Heard, Signals, told_to_end};
use super::{close, open, show};
use crate::cli::problem::Problem;
use crate::cli::settings::SessionSettings;
use crate::cli::stdout;

pub(super) async fn one(settings: &SessionSettings, code: String) -> Result<u8, Problem> {
    let mut signals = Signals::listen()?;
    let session = tokio::select! {
        session = open(settings) => session?,
        _ = signals.next() => return Err(told_to_end()),
    };
    let done = execute(settings, &session, code, &mut signals).await;
    close(session).await?;
    let (outcome, broken) = done?;
    show::ending(&outcome);
    match broken {
        Some(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(stdout::unwritable(&error)),
        _ => Ok(exit_code(&outcome)),
    }
}

async fn execute(
    settings: &SessionSettings,
    session: &Session,
    code: String,
    signals: &mut Signals,
) -> Result<(Outcome, Option<io::Error>), Problem> {
    let mut screen = Screen::for_pipe(Pictures::new(&settings.pictures, 1))?;
    let interrupter = session.interrupter();
    let broken = screen.broken();
    let mut interrupted = false;
    let execution = {
        let mut work = std::pin::pin!(session.execute(code, &mut screen));
        loop {
            tokio::select! {
                done = &mut work => break done.map_err(Error::from)?,
                heard = signals.next() => {
                    // Whoever asks twice does not want to wait.
                    if interrupted || heard == Heard::Terminate {
                        return Err(told_to_end());
                    }
                    interrupted = true;
                    interrupter.interrupt();
                }
                // Nobody reads what it prints, so there is nothing to run for.
                () = broken.wait() => {
                    interrupter.interrupt();
                }
            }
        }
    };
    show::result(&execution.outcome, settings.language, &mut screen);
    Ok((execution.outcome, screen.finish().await))
}
