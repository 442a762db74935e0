//! Sessions without async. A thread of its own looks after each, so that it also ends in time while
//! nobody calls.

use std::path::Path;

use belljar_core::{Seconds, Value};
use belljar_engine::session::{Cell, FileEntry, FileReader, Interrupter, Logs, SessionSink};
use belljar_engine::tools::{AsyncFunction, Function};
use belljar_engine::{Arguments, Execution, ToolError};
use tokio::runtime::Runtime;

use crate::builder::Builder;
use crate::error::Error;
use crate::session;

/// A builder of a session.
pub type SessionBuilder = Builder<Converse>;

/// The purpose of a builder that makes a session.
#[derive(Debug)]
pub struct Converse(session::Converse);

impl Builder<Converse> {
    /// Data that the code finds under this name. It is copied in.
    pub fn global(self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.within(|builder| builder.global(name, value))
    }

    /// A function that the code may call by this name.
    pub fn tool<M: 'static>(self, name: impl Into<String>, function: impl Function<M>) -> Self {
        self.within(|builder| builder.tool(name, function))
    }

    /// The same for a function that gives a future.
    pub fn async_tool<M: 'static>(self, name: impl Into<String>, function: impl AsyncFunction<M>) -> Self {
        self.within(|builder| builder.async_tool(name, function))
    }

    /// A function that takes arguments of any number and kind, keyword arguments among them.
    pub fn raw_tool<F>(
        self,
        name: impl Into<String>,
        function: impl Fn(Arguments) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<Value, ToolError>> + Send + 'static,
    {
        self.within(|builder| builder.raw_tool(name, function))
    }

    /// How often one execution may call tools: 100 times unless said.
    pub fn max_tool_calls(self, calls: u32) -> Self {
        self.within(|builder| builder.max_tool_calls(calls))
    }

    /// How many tools may run at the same time: 5 unless said.
    pub fn max_concurrent_tools(self, tools: u32) -> Self {
        self.within(|builder| builder.max_concurrent_tools(tools))
    }

    /// The only modules that code may import. For honest code: the walls do not depend on it.
    pub fn allow_imports<S: Into<String>>(self, modules: impl IntoIterator<Item = S>) -> Self {
        self.within(|builder| builder.allow_imports(modules))
    }

    /// Names that code may not call. For honest code as well.
    pub fn forbid_calls<S: Into<String>>(self, calls: impl IntoIterator<Item = S>) -> Self {
        self.within(|builder| builder.forbid_calls(calls))
    }

    /// How long the session may do nothing before it ends: 30 minutes unless said.
    pub fn idle_timeout(self, idle: impl Into<Seconds>) -> Self {
        self.within(|builder| builder.idle_timeout(idle))
    }

    /// How long the session may live: a day unless said.
    pub fn max_age(self, age: impl Into<Seconds>) -> Self {
        self.within(|builder| builder.max_age(age))
    }

    /// Makes the session.
    pub fn build(self) -> Result<Session, Error> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("belljar-session")
            .enable_all()
            .build()
            .map_err(Error::Runtime)?;
        let session = runtime.block_on(self.with_purpose(|converse| converse.0).build())?;
        Ok(Session {
            session: Some(session),
            runtime: Some(runtime),
        })
    }

    fn within(self, change: impl FnOnce(session::SessionBuilder) -> session::SessionBuilder) -> Self {
        change(self.with_purpose(|converse| converse.0)).with_purpose(Converse)
    }
}

/// [`crate::Session`], waiting. It can be used from several threads; executions are queued.
#[derive(Debug)]
pub struct Session {
    /// Both are there until it is closed or dropped.
    session: Option<crate::Session>,
    runtime: Option<Runtime>,
}

impl Session {
    /// Starts with nothing said: Python, the numbers of the `standard` policy, no network, no host files.
    pub fn builder() -> SessionBuilder {
        Builder::new(Converse(session::Converse::default()))
    }

    /// Executes code; what its last expression gives is the outcome's value.
    pub fn execute(&self, code: impl Into<Cell>) -> Result<Execution, Error> {
        self.execute_with(code, &mut ())
    }

    /// Executes code, and tells `sink` what happens as it happens.
    pub fn execute_with(
        &self,
        code: impl Into<Cell>,
        sink: &mut (dyn SessionSink + Send),
    ) -> Result<Execution, Error> {
        self.wait(async |session| session.execute_with(code, sink).await)
    }

    /// A handle with which other threads can interrupt an execution. Its state is kept.
    pub fn interrupter(&self) -> Option<Interrupter> {
        self.session.as_ref().map(crate::Session::interrupter)
    }

    /// A new interpreter among the same files; globals and tools are there again.
    pub fn reset(&self) -> Result<(), Error> {
        self.wait(async |session| session.reset().await)
    }

    /// What was printed so far, the latest of it.
    pub fn logs(&self) -> Logs {
        self.session
            .as_ref()
            .map(crate::Session::logs)
            .unwrap_or_default()
    }

    /// Puts a file with this content into the work directory.
    pub fn put(&self, path: &str, content: impl AsRef<[u8]>) -> Result<(), Error> {
        self.wait(async |session| session.put(path, content).await)
    }

    /// Copies a file of the host into the work directory, however large.
    pub fn put_host_file(&self, path: &str, host: impl AsRef<Path>) -> Result<(), Error> {
        self.wait(async |session| session.put_host_file(path, host).await)
    }

    /// Opens a file of the work directory to be read in pieces, however large.
    pub fn get(&self, path: &str) -> Result<FileReader, Error> {
        self.wait(async |session| session.get(path))
    }

    /// Everything in the work directory, at most 10,000 entries.
    pub fn list(&self) -> Result<Vec<FileEntry>, Error> {
        self.wait(async |session| session.list())
    }

    /// Everything below a directory of the work directory.
    pub fn list_below(&self, path: &str) -> Result<Vec<FileEntry>, Error> {
        self.wait(async |session| session.list_below(path))
    }

    /// Removes a file, or a directory with everything in it.
    pub fn delete(&self, path: &str) -> Result<(), Error> {
        self.wait(async |session| session.delete(path))
    }

    /// Ends everything and waits until nothing is left.
    pub fn close(mut self) -> Result<(), Error> {
        match (self.session.take(), &self.runtime) {
            (Some(session), Some(runtime)) => runtime.block_on(session.close()),
            _ => Ok(()),
        }
    }

    fn wait<T>(&self, work: impl AsyncFnOnce(&crate::Session) -> Result<T, Error>) -> Result<T, Error> {
        match (&self.session, &self.runtime) {
            (Some(session), Some(runtime)) => runtime.block_on(work(session)),
            _ => Err(Error::Session(belljar_engine::SessionError::Closed)),
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // The sandbox belongs to a task of the runtime and goes with it. A tool that hangs on a
            // thread of its own is not waited for.
            self.session.take();
            runtime.shutdown_timeout(std::time::Duration::from_secs(1));
        }
    }
}
