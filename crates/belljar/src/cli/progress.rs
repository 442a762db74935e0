//! A build on standard error: a line that moves on a terminal, plain lines elsewhere.

use std::io::{IsTerminal, Write};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use belljar::environment::Progress;

use super::messages::visible;

/// The columns that are drawn on; more would wrap, and a wrapped line cannot be drawn anew.
const COLUMNS: usize = 78;
/// How often the line is drawn anew.
const EVERY: Duration = Duration::from_millis(100);
const FRAMES: [&str; 10] = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"];

/// Shows a build go on.
#[derive(Debug)]
pub(crate) enum Shown {
    Nothing,
    /// A line for each step, and with `lines` also for each that a tool prints.
    Plain {
        lines: bool,
    },
    /// One line, drawn by a thread of its own: a step that prints nothing moves as well.
    Moving(Moving),
}

#[derive(Debug)]
pub(crate) struct Moving {
    events: Sender<Event>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
enum Event {
    Step(String),
    Line(String),
    /// It ended, well or not.
    End(bool),
}

impl Shown {
    pub(crate) fn new(verbose: bool, json: bool) -> Self {
        let dumb = std::env::var_os("TERM").is_some_and(|value| value == "dumb");
        match (verbose, json) {
            (true, _) => Self::Plain { lines: true },
            (false, true) => Self::Nothing,
            (false, false) if std::io::stderr().is_terminal() && !dumb => Self::moving(),
            (false, false) => Self::Plain { lines: false },
        }
    }

    fn moving() -> Self {
        let (events, queue) = channel();
        let draw = move || {
            let mut line = Line::default();
            loop {
                match queue.recv_timeout(EVERY) {
                    Ok(Event::Step(text)) => line.step(text),
                    Ok(Event::Line(text)) => line.detail(text),
                    Ok(Event::End(well)) => return line.end(well),
                    Err(RecvTimeoutError::Timeout) => line.draw(),
                    Err(RecvTimeoutError::Disconnected) => return,
                }
            }
        };
        match thread::Builder::new().name("progress".to_owned()).spawn(draw) {
            Ok(thread) => Self::Moving(Moving {
                events,
                thread: Some(thread),
            }),
            Err(_) => Self::Plain { lines: false },
        }
    }

    /// Ends the line of the last step, and waits until that is drawn.
    pub(crate) fn finish(&mut self, well: bool) {
        if let Self::Moving(moving) = self {
            let _ = moving.events.send(Event::End(well));
            if let Some(thread) = moving.thread.take() {
                drop(thread.join());
            }
        }
    }
}

impl Progress for Shown {
    fn step(&mut self, text: &str) {
        match self {
            Self::Nothing => {}
            Self::Plain { .. } => write(&format!("{}\n", visible(text))),
            // The thread reads until it ends.
            Self::Moving(moving) => drop(moving.events.send(Event::Step(text.to_owned()))),
        }
    }

    fn line(&mut self, text: &str) {
        match self {
            Self::Nothing | Self::Plain { lines: false } => {}
            Self::Plain { lines: true } => write(&format!("  {}\n", visible(text))),
            Self::Moving(moving) => drop(moving.events.send(Event::Line(text.to_owned()))),
        }
    }
}

/// The line that moves.
#[derive(Debug, Default)]
struct Line {
    step: Option<(String, Instant)>,
    detail: String,
    frame: usize,
    drawn: Option<Instant>,
}

impl Line {
    fn step(&mut self, text: String) {
        self.end(true);
        self.step = Some((text, Instant::now()));
        self.detail.clear();
        self.draw();
    }

    fn detail(&mut self, text: String) {
        self.detail = text;
        if self.drawn.is_none_or(|drawn| drawn.elapsed() >= EVERY) {
            self.draw();
        }
    }

    fn draw(&mut self) {
        self.drawn = Some(Instant::now());
        self.frame = (self.frame + 1) % FRAMES.len();
        if let Some((step, _)) = &self.step {
            write(&drawn(FRAMES[self.frame], step, &self.detail));
        }
    }

    fn end(&mut self, well: bool) {
        if let Some((step, begun)) = self.step.take() {
            let mark = if well { "✓" } else { "✗" };
            let took = begun.elapsed().as_secs_f64();
            write(&format!("\r\x1b[K{mark} {} ({took:.1} s)\n", visible(&step)));
        }
    }
}

/// One drawing: it fits on a line, and nothing in it but our own escapes acts on the terminal.
fn drawn(frame: &str, step: &str, detail: &str) -> String {
    let step: String = visible(step).chars().take(COLUMNS - 4).collect();
    let room = COLUMNS.saturating_sub(step.chars().count() + 4);
    let detail: String = visible(detail.trim()).chars().take(room).collect();
    format!("\r\x1b[K{frame} {step}  \x1b[2m{detail}\x1b[0m")
}

fn write(text: &str) {
    // A closed standard error leaves nobody to show it to.
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drawing_fits_and_holds_no_escapes_of_a_package() {
        let text = drawn("*", "Installing", &format!("\x1b[2J{}", "x".repeat(500)));
        let plain = text
            .replace("\r\x1b[K", "")
            .replace("\x1b[2m", "")
            .replace("\x1b[0m", "");
        assert!(plain.chars().count() <= COLUMNS, "{plain}");
        assert!(!plain.contains('\x1b') && plain.contains("\\u{1b}[2J"), "{plain}");
        assert!(drawn("*", &"y".repeat(500), "z").chars().count() < COLUMNS + 20);
    }
}
