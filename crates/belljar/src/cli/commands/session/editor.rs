//! Lines that a person types: an editor on a thread of its own, so that the session can start, end
//! and be told to end meanwhile.

mod history;
mod indent;

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};
use rustyline::error::ReadlineError;
use rustyline::history::FileHistory;
use rustyline::{Config, Editor as LineEditor};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::cli::problem::Problem;
use history::History;
use indent::Indent;

/// What a person did.
#[derive(Debug)]
pub(super) enum Typed {
    /// One line, or several that were pasted.
    Text(String),
    /// Ctrl-C.
    Interrupted,
    /// Ctrl-D on an empty line, or the terminal is gone.
    End,
}

enum Ask {
    Line(&'static str),
    Remember(String),
}

/// A handle of the thread.
pub(super) struct Editor {
    asks: Sender<Ask>,
    typed: UnboundedReceiver<Typed>,
    /// How the terminal was before.
    mode: Option<Termios>,
}

impl Editor {
    pub(super) fn start(history: Option<PathBuf>) -> Result<Self, Problem> {
        let mode = tcgetattr(rustix::stdio::stdin()).ok();
        let (asks, queue) = channel();
        let (answers, typed) = unbounded_channel();
        thread::Builder::new()
            .name("editor".to_owned())
            .spawn(move || edit(&queue, &answers, history))
            .map_err(|error| Problem::engine(format!("cannot start a thread for the prompt: {error}")))?;
        Ok(Self { asks, typed, mode })
    }

    /// Shows a prompt; what is typed is told by [`Editor::next`].
    pub(super) fn ask(&self, prompt: &'static str) {
        // The thread ends only when it has said that there is no more.
        let _ = self.asks.send(Ask::Line(prompt));
    }

    /// Waits for what is typed. Cancel-safe.
    pub(super) async fn next(&mut self) -> Result<Typed, Problem> {
        let typed = self.typed.recv().await;
        typed.ok_or_else(|| Problem::engine("the prompt failed and cannot read any further"))
    }

    /// Keeps a cell for later.
    pub(super) fn remember(&self, cell: &str) {
        let _ = self.asks.send(Ask::Remember(cell.to_owned()));
    }

    /// Gives the terminal back while the thread still waits for a line.
    pub(super) fn leave(&self) {
        if let Some(mode) = &self.mode {
            let _ = tcsetattr(rustix::stdio::stdin(), OptionalActions::Now, mode);
        }
        // No longer a place for pasted text, and a new line.
        let _ = io::stdout().write_all(b"\x1b[?2004l\n");
        let _ = io::stdout().flush();
    }
}

fn edit(asks: &Receiver<Ask>, typed: &UnboundedSender<Typed>, history: Option<PathBuf>) {
    let config = Config::builder()
        .auto_add_history(false)
        .bracketed_paste(true)
        .max_history_size(history::MOST_ENTRIES)
        .and_then(|builder| builder.history_ignore_dups(true));
    let Ok(config) = config.map(rustyline::config::Builder::build) else {
        return;
    };
    let Ok(mut editor) = LineEditor::<Indent, FileHistory>::with_config(config) else {
        return;
    };
    editor.set_helper(Some(Indent));
    let mut history = History::load(&mut editor, history);
    for ask in asks {
        let prompt = match ask {
            Ask::Line(prompt) => prompt,
            Ask::Remember(cell) => {
                history.add(&mut editor, &cell);
                continue;
            }
        };
        let answer = match editor.readline(prompt) {
            Ok(text) => Typed::Text(text),
            Err(ReadlineError::Interrupted) => Typed::Interrupted,
            // What cannot be read as text is cleared, like a line that somebody gave up.
            Err(ReadlineError::Io(error)) if error.kind() == io::ErrorKind::InvalidData => Typed::Interrupted,
            Err(_) => Typed::End,
        };
        let over = matches!(answer, Typed::End);
        if typed.send(answer).is_err() || over {
            return;
        }
    }
}
