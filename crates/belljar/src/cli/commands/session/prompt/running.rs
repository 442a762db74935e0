//! One cell at the prompt, with Ctrl-C in all its forms.

use std::time::Duration;

use belljar::Execution;
use tokio::time::Instant;

use super::super::live::{Live, Trouble};
use super::super::pictures::Pictures;
use super::super::screen::Screen;
use super::super::show;
use super::super::signals::{Heard, Signals, told_to_end};
use super::{Opening, Prompt};
use crate::cli::messages;
use crate::cli::problem::Problem;

/// A second Ctrl-C within this time is for the interpreter; code that does not react for so long is told of.
const PATIENCE: Duration = Duration::from_secs(2);

/// How a cell came to its end.
enum End {
    Done(Box<Result<Execution, Trouble>>),
    /// It did not react, and somebody asked twice.
    Restart,
}

impl Prompt<'_> {
    /// Executes a cell and shows what it came to.
    pub(super) async fn cell(&mut self, code: String) -> Result<(), Problem> {
        if !self.ready().await? {
            return Ok(());
        }
        let Opening::Done(session) = &self.session else {
            return Ok(());
        };
        self.cells += 1;
        let mut screen = Screen::for_prompt(Pictures::new(&self.settings.pictures, self.cells))?;
        let end = watch(session, code, &mut screen, &mut self.signals).await;
        let execution = match end? {
            End::Done(execution) => *execution,
            End::Restart => {
                screen.finish().await;
                return restart(session, &mut self.signals).await;
            }
        };
        if let Ok(Execution { outcome, .. }) = &execution {
            show::result(outcome, self.settings.language, &mut screen);
        }
        screen.finish().await;
        match execution {
            Ok(Execution { outcome, .. }) => {
                show::ending(&outcome);
                self.receipt = Some(outcome.receipt);
                Ok(())
            }
            // The session itself is over.
            Err(Trouble::Over(problem)) => Err(problem),
            Err(trouble) => {
                Problem::from(trouble).report(false);
                Ok(())
            }
        }
    }
}

/// Executes `code`. Ctrl-C interrupts it; twice gives it up.
async fn watch(
    session: &Live,
    code: String,
    screen: &mut Screen<'_>,
    signals: &mut Signals,
) -> Result<End, Problem> {
    let mut work = std::pin::pin!(session.execute(code, screen));
    let mut asked: Option<Instant> = None;
    let mut told = false;
    loop {
        let unheard = async {
            match asked.filter(|_| !told) {
                Some(at) => tokio::time::sleep_until(at + PATIENCE).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            done = &mut work => return Ok(End::Done(Box::new(done))),
            () = unheard => {
                told = true;
                messages::tell("the cell does not react to Ctrl-C");
                messages::hint("press it twice within two seconds for a new interpreter; files are kept");
            }
            heard = signals.next() => match heard {
                Heard::Terminate => return Err(told_to_end()),
                Heard::Interrupt if asked.is_some_and(|at| at.elapsed() < PATIENCE) => {
                    return Ok(End::Restart);
                }
                Heard::Interrupt => {
                    asked = Some(Instant::now());
                    session.interrupt_soon();
                }
            },
        }
    }
}

/// A new interpreter after a cell that nobody waits for any more.
async fn restart(session: &Live, signals: &mut Signals) -> Result<(), Problem> {
    messages::tell("the cell was given up; starting a new interpreter: variables are lost, files are kept");
    tokio::select! {
        done = session.reset() => match done {
            Ok(()) => {
                messages::tell("a new interpreter is ready");
                Ok(())
            }
            Err(trouble) => Err(trouble.into()),
        },
        _ = signals.next() => Err(told_to_end()),
    }
}
