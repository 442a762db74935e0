//! What one cell prints and shows, on our own streams, as it comes.

use std::io::{self, IsTerminal};
use std::sync::Arc;

use belljar::{Event, OutputSink, SessionSink, Stream};

use super::harmless::{Harmless, harmless};
use super::pictures::{Pictures, Shown};
use crate::cli::live_output::{Broken, LiveOutput};
use crate::cli::problem::Problem;

/// One of our streams.
#[derive(Debug, Default)]
struct Side {
    /// Set where it is a terminal.
    filter: Option<Harmless>,
    unfinished: bool,
}

/// A sink for the events of one cell.
#[derive(Debug)]
pub(super) struct Screen<'a> {
    live: LiveOutput,
    pictures: Pictures<'a>,
    stdout: Side,
    stderr: Side,
    /// Whether both streams lead to one terminal, where a line of one ends a line of the other.
    shared: bool,
    color: bool,
}

impl<'a> Screen<'a> {
    /// For a person at a terminal: whatever a stream leads to, it is made harmless.
    pub(super) fn for_prompt(pictures: Pictures<'a>) -> Result<Self, Problem> {
        Self::start(pictures, true, true)
    }

    /// For a pipeline: what does not lead to a terminal is passed on as it is.
    pub(super) fn for_pipe(pictures: Pictures<'a>) -> Result<Self, Problem> {
        let (stdout, stderr) = (io::stdout().is_terminal(), io::stderr().is_terminal());
        Self::start(pictures, stdout, stderr)
    }

    fn start(pictures: Pictures<'a>, stdout: bool, stderr: bool) -> Result<Self, Problem> {
        let side = |filtered: bool| Side {
            filter: filtered.then(Harmless::default),
            unfinished: false,
        };
        Ok(Self {
            live: LiveOutput::start()?,
            pictures,
            stdout: side(stdout),
            stderr: side(stderr),
            shared: stdout && stderr,
            color: wants_color(),
        })
    }

    /// To be told when standard output takes nothing more.
    pub(super) fn broken(&self) -> Arc<Broken> {
        self.live.broken()
    }

    /// Writes lines of data that are made of a guest's text.
    pub(super) fn print(&mut self, text: &str) {
        self.lines(Stream::Stdout, text, "", "");
    }

    /// Writes lines about what went wrong, which are a guest's text as well.
    pub(super) fn print_error(&mut self, text: &str) {
        let (start, end) = if self.color {
            ("\x1b[31m", "\x1b[0m")
        } else {
            ("", "")
        };
        self.lines(Stream::Stderr, text, start, end);
    }

    fn lines(&mut self, stream: Stream, text: &str, before: &str, after: &str) {
        self.start_line(stream);
        let text = text.strip_suffix('\n').unwrap_or(text);
        let text = match self.side(stream).filter {
            Some(_) => harmless(text),
            None => text.to_owned(),
        };
        self.send(stream, &format!("{before}{text}{after}\n"));
    }

    /// Nothing that a guest wrote may stand before other lines.
    fn start_line(&mut self, stream: Stream) {
        for side in [Stream::Stdout, Stream::Stderr] {
            if side == stream || self.shared {
                let left = self
                    .side(side)
                    .filter
                    .as_mut()
                    .map(Harmless::end)
                    .unwrap_or_default();
                self.send(side, &left);
                if self.side(side).unfinished {
                    self.send(side, "\n");
                }
            }
        }
    }

    fn side(&mut self, stream: Stream) -> &mut Side {
        match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        }
    }

    fn send(&mut self, stream: Stream, text: &str) {
        self.send_bytes(stream, text.as_bytes());
    }

    fn send_bytes(&mut self, stream: Stream, bytes: &[u8]) {
        let Some(last) = bytes.last() else { return };
        self.side(stream).unfinished = *last != b'\n';
        self.live.write(stream, bytes);
    }

    /// Ends the last line where it is a person's, and waits until everything is written; the error
    /// that stopped it.
    pub(super) async fn finish(mut self) -> Option<io::Error> {
        if self.shared {
            self.start_line(Stream::Stdout);
        }
        self.live.finish().await
    }
}

impl SessionSink for Screen<'_> {
    fn event(&mut self, event: Event) {
        match event {
            Event::Output(stream, bytes) => match &mut self.side(stream).filter {
                Some(filter) => {
                    let text = filter.pass(&bytes);
                    self.send(stream, &text);
                }
                None => self.send_bytes(stream, &bytes),
            },
            Event::Display(display) => match self.pictures.show(&display) {
                Shown::Text(text) => self.print(&text),
                Shown::Saved(place) => self.lines(Stream::Stderr, &format!("belljar: saved {place}"), "", ""),
                Shown::Failed(why) => self.lines(Stream::Stderr, &format!("belljar: {why}"), "", ""),
            },
            _ => {}
        }
    }
}

/// Errors are red on a terminal that has colours, unless somebody does not want them.
fn wants_color() -> bool {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    io::stderr().is_terminal() && set("NO_COLOR").is_none() && set("TERM").is_some_and(|kind| kind != "dumb")
}
