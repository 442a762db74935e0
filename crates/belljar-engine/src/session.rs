//! A session: a sandbox that keeps its interpreter and its files between executions.
//!
//! A task of its own, the keeper, owns the sandbox. It runs executions one after the other, ends the
//! session when it is idle for too long or too old, and ends with the [`Session`]. Everything that comes
//! out of the sandbox is the guest's word; limits, kills and out-of-memory come from the provider.

pub(crate) mod builder;
mod calls;
mod cell;
mod error;
mod event;
mod files;
mod interpreter;
mod keeper;
mod log;
mod message;
mod program;
mod shared;
#[cfg(test)]
mod tests;
mod verdict;

use std::collections::BTreeMap;
use std::sync::Arc;

use belljar_core::provider::WorkFiles;
use belljar_core::request::FileIn;
use belljar_core::session::is_identifier;
use belljar_core::{Bytes, GuestPath, LimitOverrides, Policy, Request, Value, Weight};
use tokio::sync::{mpsc, oneshot};

pub use error::{Expiry, SessionError};
pub use event::{Event, SessionSink};
pub use files::{EntryKind, FileEntry, FileError, FileReader};
pub use log::Logs;

use crate::execute::{Engine, Execution, Planned};
use crate::tools::{Approver, Tools};
use keeper::{Command, Keeper};
use shared::Shared;

/// The most code that one execution takes.
pub const LONGEST_CODE: Bytes = Bytes::from_mib(8);
/// How many executions may wait for their turn before callers wait to be let into the queue.
const QUEUE: usize = 64;

/// What a session has besides its sandbox.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    /// Functions of the host that its code may call.
    pub tools: Tools,
    /// Data that its code finds under these names.
    pub globals: BTreeMap<String, Value>,
    /// Who is asked about tools that the policy wants approved.
    pub approver: Option<Approver>,
}

/// What one execution is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    /// Code, for the interpreter or as a program of its own.
    Code(String),
    /// A program and its arguments. Beside an interpreter, it is the interpreter that starts it and says how it ended.
    Command(Vec<String>),
}

impl Default for Work {
    fn default() -> Self {
        Self::Code(String::new())
    }
}

impl Work {
    /// The bytes whose hash stands in the record.
    pub fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Code(code) => code.clone().into_bytes(),
            Self::Command(argv) => argv.join("\0").into_bytes(),
        }
    }
}

/// One execution in a session.
#[derive(Clone, Debug, Default)]
pub struct Cell {
    pub work: Work,
    /// What it finds on its standard input.
    pub stdin: Option<String>,
    /// Data that the code finds under these names from now on, until a reset.
    pub globals: BTreeMap<String, Value>,
    /// Functions of the host that the code may call from now on, until a reset.
    pub tools: Tools,
    /// Files wanted back afterwards.
    pub outputs: Vec<GuestPath>,
    /// Tighter limits for this one.
    pub limits: LimitOverrides,
    /// What the session weighs beside other sandboxes while it executes this.
    pub weight: Weight,
}

impl<T: Into<String>> From<T> for Cell {
    fn from(code: T) -> Self {
        Self {
            work: Work::Code(code.into()),
            ..Self::default()
        }
    }
}

/// A live session. Executions asked for at the same time are queued. Dropping it ends everything in it.
#[derive(Debug)]
pub struct Session {
    commands: mpsc::Sender<Command>,
    shared: Arc<Shared>,
}

/// Interrupts what a session executes, from any thread or task.
#[derive(Clone, Debug)]
pub struct Interrupter {
    shared: Arc<Shared>,
}

impl Interrupter {
    /// Interrupts the execution of the moment as Ctrl-C would: the state is kept. False if nothing
    /// is being executed.
    pub fn interrupt(&self) -> bool {
        self.shared.interrupt()
    }
}

impl Session {
    /// Makes a sandbox for `request` and keeps it. If it asks for an interpreter, that is started and takes the code
    /// of every execution; else each execution is a program of its own in the same place, and what `request` would run
    /// only says what must be there for them.
    pub async fn open(
        engine: &Engine,
        policy: &Policy,
        request: &Request,
        surroundings: Surroundings,
    ) -> Result<Self, SessionError> {
        let planned = engine.plan_aside(policy, request).await?;
        Self::open_planned(engine, planned, surroundings).await
    }

    /// The same for what was planned already.
    pub async fn open_planned(
        engine: &Engine,
        planned: Planned,
        surroundings: Surroundings,
    ) -> Result<Self, SessionError> {
        let (mut keeper, shared) = Self::keeper(engine, planned, surroundings)?;
        let (commands, receiver) = mpsc::channel(QUEUE);
        keeper.prepare().await?;
        tokio::spawn(keeper.keep(receiver));
        Ok(Self { commands, shared })
    }

    fn keeper(
        engine: &Engine,
        planned: Planned,
        surroundings: Surroundings,
    ) -> Result<(Keeper, Arc<Shared>), SessionError> {
        let Planned {
            policy,
            request,
            plan,
            lease,
            ..
        } = planned;
        check_names(&surroundings.globals, &surroundings.tools)?;
        let shared = Arc::new(Shared::new(plan.limits().output()));
        let keeper = Keeper::new(
            engine.clone(),
            policy,
            request,
            (Arc::new(plan), lease),
            surroundings,
            Arc::clone(&shared),
        )?;
        Ok((keeper, shared))
    }

    /// Makes a sandbox for what was planned, executes one cell in it, and destroys it. Dropping the future ends everything.
    /// When `stop` resolves, the code is interrupted.
    pub async fn evaluate_planned(
        engine: &Engine,
        planned: Planned,
        surroundings: Surroundings,
        cell: Cell,
        sink: &mut (dyn SessionSink + Send),
        stop: impl Future<Output = ()> + Send,
    ) -> Result<Execution, SessionError> {
        let (mut keeper, shared) = Self::keeper(engine, planned, surroundings)?;
        shared.begin();
        let (events, mut heard) = mpsc::unbounded_channel();
        // Held for as long as somebody waits.
        let (mut answer, _waiting) = oneshot::channel();
        let ran = {
            let mut executing = std::pin::pin!(keeper.execute_only(cell, events, &mut answer));
            let mut stop = std::pin::pin!(stop);
            let mut stopped = false;
            loop {
                tokio::select! {
                    biased;
                    () = &mut stop, if !stopped => {
                        stopped = true;
                        shared.interrupt();
                    }
                    Some(event) = heard.recv() => sink.event(event),
                    ran = &mut executing => break ran,
                }
            }
        };
        while let Ok(event) = heard.try_recv() {
            sink.event(event);
        }
        keeper.end(keeper::Ending::Discard).await?;
        ran
    }

    /// Executes code, or waits for its turn to do so. `sink` sees what happens as it happens.
    ///
    /// Whatever the code does is an outcome. When the future is dropped, the code is interrupted, and
    /// ended if it does not mind that.
    pub async fn execute(
        &self,
        cell: impl Into<Cell>,
        sink: &mut (dyn SessionSink + Send),
    ) -> Result<Execution, SessionError> {
        let cell = Box::new(cell.into());
        let length = cell.work.bytes().len() + cell.stdin.as_ref().map_or(0, String::len);
        let size = Bytes::new(length as u64);
        if size > LONGEST_CODE {
            return Err(SessionError::CodeTooLarge {
                size,
                limit: LONGEST_CODE,
            });
        }
        let (events, mut heard) = mpsc::unbounded_channel();
        let (answer, done) = oneshot::channel();
        self.tell(Command::Execute { cell, events, answer }).await?;
        while let Some(event) = heard.recv().await {
            sink.event(event);
        }
        done.await.map_err(|_| self.shared.why_over())?
    }

    /// A handle with which others can interrupt executions.
    pub fn interrupter(&self) -> Interrupter {
        Interrupter {
            shared: Arc::clone(&self.shared),
        }
    }

    /// A new interpreter in the same sandbox: variables are gone, files stay, globals and tools are
    /// there again. Waits for executions before it.
    pub async fn reset(&self) -> Result<(), SessionError> {
        let (answer, done) = oneshot::channel();
        self.tell(Command::Reset { answer }).await?;
        done.await.map_err(|_| self.shared.why_over())?
    }

    /// What was printed so far, the latest of it, up to the policy's output limit.
    pub fn logs(&self) -> Logs {
        self.shared.log().read()
    }

    /// Puts files into the work directory, over what is there. Waits for executions before it.
    pub async fn put(&self, files: BTreeMap<GuestPath, FileIn>) -> Result<(), SessionError> {
        let (answer, done) = oneshot::channel();
        self.tell(Command::Put { files, answer }).await?;
        done.await.map_err(|_| self.shared.why_over())?
    }

    /// Opens a regular file of the work directory for reading, in pieces of any size.
    pub fn get(&self, path: &GuestPath) -> Result<FileReader, SessionError> {
        Ok(files::open(&self.work_files()?, path)?)
    }

    /// Everything in the work directory, or below `path`, at most 10,000 entries.
    pub fn list(&self, path: Option<&GuestPath>) -> Result<Vec<FileEntry>, SessionError> {
        Ok(files::list(&self.work_files()?, path)?)
    }

    /// Removes a file, or a directory with everything in it.
    pub fn delete(&self, path: &GuestPath) -> Result<(), SessionError> {
        Ok(files::delete(&self.work_files()?, path)?)
    }

    /// Whether it has ended, by whatever.
    pub fn is_over(&self) -> bool {
        self.commands.is_closed()
    }

    /// Ends everything and waits until nothing is left.
    pub async fn close(self) -> Result<(), SessionError> {
        self.end().await
    }

    /// [`Session::close`] for one of several owners: whatever the others ask for then fails.
    pub async fn end(&self) -> Result<(), SessionError> {
        let (answer, done) = oneshot::channel();
        if self.commands.send(Command::End { answer }).await.is_err() {
            // It is over already, and whoever ended it waited for that.
            return Ok(());
        }
        done.await.unwrap_or(Ok(()))
    }

    fn work_files(&self) -> Result<WorkFiles, SessionError> {
        self.shared.touch();
        self.shared.files().ok_or_else(|| self.shared.why_over())
    }

    async fn tell(&self, command: Command) -> Result<(), SessionError> {
        self.commands
            .send(command)
            .await
            .map_err(|_| self.shared.why_over())
    }
}

/// Whether code could use all these names.
fn check_names(globals: &BTreeMap<String, Value>, tools: &Tools) -> Result<(), SessionError> {
    let mut names = globals.keys().map(String::as_str);
    let bad = names.find(|name| !is_identifier(name)).or(tools.bad_name());
    match bad {
        None => Ok(()),
        Some(name) => Err(SessionError::BadName {
            name: name
                .chars()
                .take(80)
                .collect::<String>()
                .escape_debug()
                .to_string(),
        }),
    }
}
