//! A session that a program drives: a JSON object on each line in, and a JSON object on each line out.
//!
//! Cells are executed in their order. Lines are read while one runs, so that an interrupt is heard;
//! what waits is bounded.

mod request;

use std::collections::VecDeque;
use std::fs::File;
use std::sync::Arc;
use std::{io, thread};

use belljar::batch::{Line, Lines};
use belljar::{Cell, Denial, ErrorKind, Event, Outcome, OutputSink, Record, SessionSink, Stream};
use serde::Serialize;
use serde_json::Value as Json;
use tokio::sync::mpsc::{Receiver, channel};

use super::live::{Live, Trouble};
use super::signals::{Signals, told_to_end};
use crate::cli::live_output::{Broken, LiveOutput};
use crate::cli::problem::Problem;
use crate::cli::settings::SessionSettings;
use crate::cli::stdout;
use request::{Request, Wish};

/// How many cells may wait behind the one that runs before no further lines are read.
const MOST_WAITING: usize = 16;
/// Every line has an answer, but not every one was understood and executed.
const SOME_FAILED: u8 = 1;

/// One answer.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Answer<'a> {
    Output {
        stream: &'static str,
        text: String,
    },
    Display {
        data: &'a std::collections::BTreeMap<String, String>,
    },
    Done {
        success: bool,
        outcome: &'a Outcome,
        record: &'a Record,
    },
    Reset,
    Interrupt {
        /// Whether there was anything to interrupt.
        interrupted: bool,
    },
    Denied {
        denial: &'a Denial,
        record: &'a Record,
    },
    Error {
        error: &'a Problem,
        #[serde(skip_serializing_if = "Option::is_none")]
        line: Option<u64>,
    },
}

#[derive(Serialize)]
struct Wire<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a Json>,
    #[serde(flatten)]
    answer: Answer<'a>,
}

/// An error as a line.
pub(super) fn error(problem: &Problem) -> Vec<u8> {
    line(
        None,
        Answer::Error {
            error: problem,
            line: None,
        },
    )
}

fn line(id: Option<&Json>, answer: Answer<'_>) -> Vec<u8> {
    // Texts, numbers and maps with text keys cannot fail to be written.
    let mut line = serde_json::to_vec(&Wire { id, answer }).unwrap_or_default();
    line.push(b'\n');
    line
}

pub(super) async fn answer(settings: &SessionSettings, lines: Lines<File>) -> Result<u8, Problem> {
    let mut signals = Signals::listen()?;
    let session = tokio::select! {
        session = Live::open(settings) => session,
        _ = signals.next() => return Err(told_to_end()),
    };
    let session = match session {
        Ok(session) => session,
        Err(Trouble::Denied { denial, record }) => {
            let denied = Answer::Denied {
                denial: &denial,
                record: &record,
            };
            stdout::write_with(|out| out.write_all(&line(None, denied)))?;
            return Ok(ErrorKind::Denied.exit_code());
        }
        Err(error) => return Err(error.into()),
    };
    let live = LiveOutput::start()?;
    let broken = live.broken();
    let mut driver = Driver {
        session: &session,
        live,
        lines: read(lines)?,
        waiting: VecDeque::new(),
        at_end: false,
        failed: false,
    };
    let end = tokio::select! {
        end = driver.drive() => end,
        _ = signals.next() => Err(told_to_end()),
        () = gone(broken) => Ok(()),
    };
    let Driver { live, failed, .. } = driver;
    let unwritten = match &end {
        Ok(()) => live.finish().await,
        Err(_) => None,
    };
    let closed = session.close().await;
    end?;
    closed?;
    match unwritten {
        // Whoever read our answers has seen enough.
        Some(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(ErrorKind::Killed.exit_code()),
        Some(error) => Err(stdout::unwritable(&error)),
        None if failed => Ok(SOME_FAILED),
        None => Ok(0),
    }
}

async fn gone(broken: Arc<Broken>) {
    broken.wait().await;
}

/// Reads lines on a thread of its own.
fn read(lines: Lines<File>) -> Result<Receiver<io::Result<Line>>, Problem> {
    let (sender, receiver) = channel(1);
    thread::Builder::new()
        .name("input".to_owned())
        .spawn(move || {
            for line in lines {
                let over = line.is_err();
                if sender.blocking_send(line).is_err() || over {
                    return;
                }
            }
        })
        .map_err(|error| Problem::engine(format!("cannot start a thread for input: {error}")))?;
    Ok(receiver)
}

/// A line that makes no sense, answered in its turn as well.
type Misunderstood = (Option<Json>, u64, Problem);

struct Driver<'a> {
    session: &'a Live,
    live: LiveOutput,
    lines: Receiver<io::Result<Line>>,
    waiting: VecDeque<Result<Request, Misunderstood>>,
    at_end: bool,
    failed: bool,
}

impl Driver<'_> {
    async fn drive(&mut self) -> Result<(), Problem> {
        loop {
            match self.waiting.pop_front() {
                Some(Ok(Request { id, wish })) => self.fulfil(id, wish).await?,
                Some(Err((id, line, problem))) => self.fail(id.as_ref(), Some(line), &problem),
                None if self.at_end => return Ok(()),
                None => {
                    let line = self.lines.recv().await;
                    self.take(line).await?;
                }
            }
        }
    }

    async fn fulfil(&mut self, id: Option<Json>, wish: Wish) -> Result<(), Problem> {
        match wish {
            Wish::Execute(cell) => self.execute(id, *cell).await?,
            Wish::Reset => match self.session.reset().await {
                Ok(()) => self.say(id.as_ref(), Answer::Reset),
                Err(trouble) => self.fail(id.as_ref(), None, &trouble.into()),
            },
            Wish::Interrupt => self.interrupt(id.as_ref()).await,
        }
        Ok(())
    }

    /// Executes one cell, and reads on meanwhile.
    async fn execute(&mut self, id: Option<Json>, cell: Cell) -> Result<(), Problem> {
        let (events, mut heard) = tokio::sync::mpsc::unbounded_channel();
        let mut sink = move |event: Event| drop(events.send(event));
        let session = self.session;
        let mut work = std::pin::pin!(session.execute(cell, &mut sink as &mut (dyn SessionSink + Send)));
        let done = loop {
            let may_read = !self.at_end && self.waiting.len() < MOST_WAITING;
            tokio::select! {
                biased;
                Some(event) = heard.recv() => self.event(id.as_ref(), event),
                done = &mut work => break done,
                line = self.lines.recv(), if may_read => self.take(line).await?,
            }
        };
        while let Ok(event) = heard.try_recv() {
            self.event(id.as_ref(), event);
        }
        match done {
            Ok(execution) => {
                let (outcome, record) = (&execution.outcome, &execution.record);
                let success = outcome.success();
                self.say(
                    id.as_ref(),
                    Answer::Done {
                        success,
                        outcome,
                        record,
                    },
                );
            }
            Err(trouble) => self.fail(id.as_ref(), None, &trouble.into()),
        }
        Ok(())
    }

    fn event(&mut self, id: Option<&Json>, event: Event) {
        match event {
            Event::Output(stream, bytes) => {
                let name = match stream {
                    Stream::Stdout => "stdout",
                    Stream::Stderr => "stderr",
                };
                let text = String::from_utf8_lossy(&bytes).into_owned();
                self.say(id, Answer::Output { stream: name, text });
            }
            Event::Display(display) => self.say(id, Answer::Display { data: &display.data }),
            _ => {}
        }
    }

    /// Takes the next line: an interrupt acts at once, everything else waits for its turn.
    async fn take(&mut self, line: Option<io::Result<Line>>) -> Result<(), Problem> {
        match line {
            None => self.at_end = true,
            Some(Err(error)) => {
                return Err(Problem::engine(format!(
                    "cannot read on in standard input: {error}"
                )));
            }
            Some(Ok(line)) => match Request::read(&line) {
                Ok(Request {
                    id,
                    wish: Wish::Interrupt,
                }) => self.interrupt(id.as_ref()).await,
                Ok(request) => self.waiting.push_back(Ok(request)),
                Err((id, problem)) => self.waiting.push_back(Err((id, line.number, problem))),
            },
        }
        Ok(())
    }

    async fn interrupt(&mut self, id: Option<&Json>) {
        let interrupted = self.session.interrupt().await;
        self.say(id, Answer::Interrupt { interrupted });
    }

    fn fail(&mut self, id: Option<&Json>, line: Option<u64>, problem: &Problem) {
        self.failed = true;
        self.say(id, Answer::Error { error: problem, line });
    }

    fn say(&mut self, id: Option<&Json>, answer: Answer<'_>) {
        self.live.write(Stream::Stdout, &line(id, answer));
    }
}
