//! Sessions: an interpreter that stays, with its variables and files, and tools of the host.

use std::collections::BTreeMap;
use std::path::Path;

use belljar_core::request::FileIn;
use belljar_core::{GuestPath, Language, Request, Seconds, Value};
use belljar_engine::session::{
    self as engine, Cell, FileEntry, FileReader, Interrupter, Logs, SessionSink, Surroundings,
};
use belljar_engine::tools::{Arguments, AsyncFunction, Function};
use belljar_engine::{Execution, ToolError};

use crate::builder::{Builder, Wishes};
use crate::error::Error;

/// A builder of a session.
pub type SessionBuilder = Builder<Converse>;

/// The purpose of a builder that makes a session.
#[derive(Debug, Default)]
pub struct Converse(Surroundings);

/// A live session: variables and files stay from one execution to the next.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), belljar::Error> {
/// use belljar::{Session, ToolError, Value};
///
/// let session = Session::builder()
///     .global("rows", Value::from(vec![1, 2, 3]))
///     .tool("price", |name: String| match name.as_str() {
///         "tea" => Ok(3.5),
///         _ => Err(ToolError::new("KeyError", "no such thing")),
///     })
///     .build()
///     .await?;
///
/// session.execute("total = sum(rows) * price('tea')").await?;
/// let run = session.execute("total").await?;
/// assert_eq!(run.outcome.value, Some(Value::Float(21.0)));
///
/// // Code that fails is an outcome; the session goes on.
/// let run = session.execute("price('gold')").await?;
/// assert_eq!(run.outcome.exception.unwrap().kind, "KeyError");
///
/// session.close().await?;
/// # Ok(())
/// # }
/// ```
///
/// Executions that are asked for at the same time are queued. One that runs into a time or memory limit
/// takes the interpreter with it: the outcome says so in `state_lost`, and the next execution finds
/// a new one. Dropping a session ends everything in it, [`Session::close`] also waits for that.
#[derive(Debug)]
pub struct Session {
    session: engine::Session,
}

impl Builder<Converse> {
    /// Data that the code finds under this name. It is copied in.
    pub fn global(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.purpose_mut().0.globals.insert(name.into(), value.into());
        self
    }

    /// A function that the code may call by this name. It runs on a thread of its own, so it may block.
    pub fn tool<M: 'static>(mut self, name: impl Into<String>, function: impl Function<M>) -> Self {
        self.purpose_mut().0.tools.add(name, function);
        self
    }

    /// The same for a function that gives a future.
    pub fn async_tool<M: 'static>(
        mut self,
        name: impl Into<String>,
        function: impl AsyncFunction<M>,
    ) -> Self {
        self.purpose_mut().0.tools.add_async(name, function);
        self
    }

    /// A function that takes arguments of any number and kind, keyword arguments among them.
    pub fn raw_tool<F>(
        mut self,
        name: impl Into<String>,
        function: impl Fn(Arguments) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<Value, ToolError>> + Send + 'static,
    {
        self.purpose_mut().0.tools.add_raw(name, function);
        self
    }

    /// How often one execution may call tools: 100 times unless said.
    pub fn max_tool_calls(mut self, calls: u32) -> Self {
        self.request_mut().session.tool_calls = Some(calls);
        self
    }

    /// How many tools may run at the same time: 5 unless said.
    pub fn max_concurrent_tools(mut self, tools: u32) -> Self {
        self.request_mut().session.concurrent_tools = Some(tools);
        self
    }

    /// The only modules that code may import. For honest code: the walls do not depend on it.
    pub fn allow_imports<S: Into<String>>(mut self, modules: impl IntoIterator<Item = S>) -> Self {
        let imports = self.request_mut().session.imports.get_or_insert_default();
        imports.extend(modules.into_iter().map(Into::into));
        self
    }

    /// Names that code may not call. For honest code as well.
    pub fn forbid_calls<S: Into<String>>(mut self, calls: impl IntoIterator<Item = S>) -> Self {
        let forbidden = &mut self.request_mut().session.forbidden_calls;
        forbidden.extend(calls.into_iter().map(Into::into));
        self
    }

    /// How long the session may do nothing before it ends: 30 minutes unless said.
    pub fn idle_timeout(mut self, idle: impl Into<Seconds>) -> Self {
        self.request_mut().session.idle = Some(idle.into());
        self
    }

    /// How long the session may live: a day unless said.
    pub fn max_age(mut self, age: impl Into<Seconds>) -> Self {
        self.request_mut().session.age = Some(age.into());
        self
    }

    /// Makes the session: its interpreter waits when this returns.
    pub async fn build(self) -> Result<Session, Error> {
        let mut wishes = self.wishes()?;
        let language = wishes.language.unwrap_or(Language::Python);
        wishes.request.source = Request::interpreter(language).source;
        let policy = wishes.settle()?;
        let Wishes {
            engine,
            request,
            purpose,
            ..
        } = wishes;
        let session = engine::Session::open(&engine, &policy, &request, purpose.0).await?;
        Ok(Session { session })
    }
}

impl Session {
    /// Starts with nothing said: Python, the numbers of the `standard` policy, no network, no host files.
    pub fn builder() -> SessionBuilder {
        Builder::new(Converse::default())
    }

    /// Executes code; what its last expression gives is the outcome's value.
    pub async fn execute(&self, code: impl Into<Cell>) -> Result<Execution, Error> {
        self.execute_with(code, &mut ()).await
    }

    /// Executes code, and tells `sink` what happens as it happens.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), belljar::Error> {
    /// use belljar::{Cell, Event, Session, Work};
    ///
    /// let session = Session::builder().build().await?;
    /// let mut seen = Vec::new();
    /// let cell = Cell {
    ///     work: Work::Code("print(input().upper())".to_owned()),
    ///     stdin: Some("typed".to_owned()),
    ///     ..Cell::default()
    /// };
    /// session
    ///     .execute_with(cell, &mut |event| {
    ///         if let Event::Output(_, bytes) = event {
    ///             seen.extend(bytes);
    ///         }
    ///     })
    ///     .await?;
    /// assert_eq!(seen, b"TYPED\n");
    /// # session.close().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn execute_with(
        &self,
        code: impl Into<Cell>,
        sink: &mut (dyn SessionSink + Send),
    ) -> Result<Execution, Error> {
        Ok(self.session.execute(code, sink).await?)
    }

    /// A handle with which other tasks and threads can interrupt an execution. Its state is kept.
    pub fn interrupter(&self) -> Interrupter {
        self.session.interrupter()
    }

    /// A new interpreter among the same files; globals and tools are there again.
    pub async fn reset(&self) -> Result<(), Error> {
        Ok(self.session.reset().await?)
    }

    /// What was printed so far, the latest of it.
    pub fn logs(&self) -> Logs {
        self.session.logs()
    }

    /// Puts a file with this content into the work directory.
    pub async fn put(&self, path: &str, content: impl AsRef<[u8]>) -> Result<(), Error> {
        self.put_file(path, FileIn::inline(content.as_ref())).await
    }

    /// Copies a file of the host into the work directory, however large.
    pub async fn put_host_file(&self, path: &str, host: impl AsRef<Path>) -> Result<(), Error> {
        self.put_file(path, FileIn::host(host.as_ref())).await
    }

    async fn put_file(&self, path: &str, file: FileIn) -> Result<(), Error> {
        let files = BTreeMap::from([(GuestPath::new(path)?, file)]);
        Ok(self.session.put(files).await?)
    }

    /// Opens a file of the work directory to be read in pieces, however large; also while code runs.
    pub fn get(&self, path: &str) -> Result<FileReader, Error> {
        Ok(self.session.get(&GuestPath::new(path)?)?)
    }

    /// Everything in the work directory, at most 10,000 entries; also while code runs.
    pub fn list(&self) -> Result<Vec<FileEntry>, Error> {
        Ok(self.session.list(None)?)
    }

    /// Everything below a directory of the work directory.
    pub fn list_below(&self, path: &str) -> Result<Vec<FileEntry>, Error> {
        Ok(self.session.list(Some(&GuestPath::new(path)?))?)
    }

    /// Removes a file, or a directory with everything in it.
    pub fn delete(&self, path: &str) -> Result<(), Error> {
        Ok(self.session.delete(&GuestPath::new(path)?)?)
    }

    /// Ends everything and waits until nothing is left.
    pub async fn close(self) -> Result<(), Error> {
        Ok(self.session.close().await?)
    }
}
