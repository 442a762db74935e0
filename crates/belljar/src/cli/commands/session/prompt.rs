//! The prompt: reads cells, executes them, shows what they came to.

mod commands;
mod running;

use std::io::Write;
use std::path::PathBuf;
use std::pin::Pin;
use std::time::Duration;

use belljar::{Language, Receipt};

use super::colon::Colon;
use super::complete::is_complete;
use super::editor::{Editor, Typed};
use super::live::{Live, Trouble};
use super::signals::{Heard, Signals, told_to_end};
use crate::cli::messages;
use crate::cli::problem::Problem;
use crate::cli::settings::SessionSettings;

const FIRST: &str = ">>> ";
const MORE: &str = "... ";
/// How long a session that nobody wants any more may take to open.
const OPENING: Duration = Duration::from_secs(10);

pub(super) async fn converse(settings: &SessionSettings, history: Option<PathBuf>) -> Result<u8, Problem> {
    let signals = Signals::listen()?;
    greet(settings.language);
    let mut prompt = Prompt {
        settings,
        signals,
        editor: Editor::start(history)?,
        session: Opening::Under(Box::pin(Live::open(settings))),
        cells: 0,
        receipt: None,
    };
    let end = prompt.read_cells().await;
    let Prompt { session, .. } = prompt;
    match session {
        Opening::Done(session) => {
            let closed = session.close().await;
            if end.is_ok() {
                closed?;
            }
        }
        // Nobody has used it; but what is half made is better finished and closed than dropped.
        Opening::Under(opening) => {
            if let Ok(Ok(session)) = tokio::time::timeout(OPENING, opening).await {
                session.close().await?;
            }
        }
        Opening::Failed => {}
    }
    end.map(|()| 0)
}

fn greet(language: Language) {
    let greeting = format!("belljar: a {language} session in a sandbox; :help tells more, Ctrl-D leaves\n");
    // A closed standard error leaves nobody to greet.
    let _ = std::io::stderr().lock().write_all(greeting.as_bytes());
}

/// The session starts while the first line is typed.
enum Opening<'a> {
    Under(Pin<Box<dyn Future<Output = Result<Live, Trouble>> + 'a>>),
    Done(Live),
    Failed,
}

impl Opening<'_> {
    /// Waits until it is open; never, if it is already. Cancel-safe.
    async fn finish(&mut self) -> Result<(), Problem> {
        let Self::Under(opening) = self else {
            return std::future::pending().await;
        };
        match opening.await {
            Ok(session) => {
                *self = Self::Done(session);
                Ok(())
            }
            Err(error) => {
                *self = Self::Failed;
                Err(error.into())
            }
        }
    }
}

struct Prompt<'a> {
    settings: &'a SessionSettings,
    signals: Signals,
    editor: Editor,
    session: Opening<'a>,
    cells: u64,
    /// Of the last cell.
    receipt: Option<Receipt>,
}

impl Prompt<'_> {
    async fn read_cells(&mut self) -> Result<(), Problem> {
        let mut begun: Option<String> = None;
        loop {
            let text = match self.line(begun.is_some()).await? {
                Typed::End => return Ok(()),
                Typed::Interrupted => {
                    begun = None;
                    continue;
                }
                Typed::Text(text) => text,
            };
            let fresh = begun.is_none();
            let cell = match begun.take() {
                None => text,
                Some(before) => before + "\n" + &text,
            };
            if fresh && cell.trim().is_empty() {
                continue;
            }
            if fresh && cell.trim_start().starts_with(':') {
                self.editor.remember(&cell);
                match Colon::read(cell.trim()) {
                    Ok(Colon::Quit) => return Ok(()),
                    Ok(command) => self.command(command).await?,
                    Err(problem) => {
                        problem.report(false);
                    }
                }
                continue;
            }
            if fresh && leaves(&cell) {
                return Ok(());
            }
            if !is_complete(self.settings.language, &cell) {
                begun = Some(cell);
                continue;
            }
            self.editor.remember(&cell);
            self.cell(cell).await?;
        }
    }

    /// The next line; the session goes on to start meanwhile.
    async fn line(&mut self, more: bool) -> Result<Typed, Problem> {
        self.editor.ask(if more { MORE } else { FIRST });
        loop {
            tokio::select! {
                typed = self.editor.next() => return typed,
                opened = self.session.finish() => {
                    if let Err(problem) = opened {
                        self.editor.leave();
                        return Err(problem);
                    }
                }
                heard = self.signals.next() => {
                    if heard == Heard::Terminate {
                        self.editor.leave();
                        return Err(told_to_end());
                    }
                }
            }
        }
    }

    /// Waits for the session; false if somebody would rather not.
    async fn ready(&mut self) -> Result<bool, Problem> {
        if matches!(self.session, Opening::Done(_)) {
            return Ok(true);
        }
        tokio::select! {
            opened = self.session.finish() => opened.map(|()| true),
            heard = self.signals.next() => match heard {
                Heard::Interrupt => {
                    messages::tell("not executed: the session is still starting");
                    Ok(false)
                }
                Heard::Terminate => Err(told_to_end()),
            },
        }
    }
}

/// What people type to leave any prompt.
fn leaves(cell: &str) -> bool {
    matches!(
        cell.trim().trim_end_matches(';'),
        "exit" | "quit" | "exit()" | "quit()" | ".exit" | "process.exit()"
    )
}
