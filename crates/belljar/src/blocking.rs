//! The same without async: each call waits for its end.
//!
//! Every sandbox and one-shot run here has a small runtime of its own on the calling thread. Like
//! everything that blocks, it must not be called from within an asynchronous task.
//!
//! ```
//! # fn main() -> Result<(), belljar::Error> {
//! use belljar::blocking;
//!
//! let run = blocking::execute_code("print(6 * 7)").run()?;
//! assert_eq!(run.outcome.stdout.text(), "42\n");
//!
//! let mut sandbox = blocking::Sandbox::builder().build()?;
//! sandbox.exec(["touch", "here"])?;
//! assert_eq!(sandbox.exec_line("ls here")?.outcome.stdout.text(), "here\n");
//! sandbox.close()?;
//!
//! let session = blocking::Session::builder().build()?;
//! session.execute("x = 6 * 7")?;
//! assert_eq!(session.execute("x")?.outcome.value, Some(42.into()));
//! session.close()?;
//! # Ok(())
//! # }
//! ```

mod session;

use std::path::Path;

use belljar_core::provider::Stream;
use belljar_core::{Lifecycle, Request, Source};
use belljar_engine::{ExecuteIo, Execution};
use tokio::runtime::Runtime;

use crate::builder::Builder;
use crate::error::Error;
use crate::{run, sandbox};

pub use session::{Converse, Session, SessionBuilder};

/// A builder of a sandbox to keep.
pub type SandboxBuilder = Builder<Keep>;
/// One execution, to be started with [`run`](Builder::run).
pub type Run = Builder<Once>;

/// [`crate::execute_code`], waiting.
pub fn execute_code(code: impl AsRef<[u8]>) -> Run {
    Builder::new(Once(run::Once::code(code.as_ref())))
}

/// [`crate::execute_file`], waiting.
pub fn execute_file(path: impl AsRef<Path>) -> Run {
    Builder::new(Once(run::Once::file(path.as_ref())))
}

/// The purpose of a builder that runs one program and is done.
#[derive(Debug)]
pub struct Once(run::Once);

/// The purpose of a builder that makes a sandbox and keeps it.
#[derive(Debug)]
pub struct Keep(sandbox::Keep);

impl Run {
    /// Sees output as it comes.
    pub fn on_output(mut self, sink: impl FnMut(Stream, &[u8]) + Send + 'static) -> Self {
        self.purpose_mut().0.set_sink(sink);
        self
    }

    /// Runs it to its end.
    pub fn run(self) -> Result<Execution, Error> {
        let run = self.with_purpose(|once| once.0);
        runtime()?.block_on(run.into_future())
    }
}

impl SandboxBuilder {
    /// A sandbox that needs no interpreter and runs commands only.
    pub fn commands_only(self) -> Self {
        self.with_purpose(|keep| keep.0)
            .commands_only()
            .with_purpose(Keep)
    }

    /// Makes the sandbox.
    pub fn build(self) -> Result<Sandbox, Error> {
        let runtime = runtime()?;
        let sandbox = runtime.block_on(self.with_purpose(|keep| keep.0).build())?;
        Ok(Sandbox {
            sandbox: Some(sandbox),
            runtime,
        })
    }
}

/// [`crate::Sandbox`], waiting.
#[derive(Debug)]
pub struct Sandbox {
    /// There until it is closed or dropped.
    sandbox: Option<crate::Sandbox>,
    runtime: Runtime,
}

impl Sandbox {
    /// Starts with nothing said: Python, the numbers of the `standard` policy, no network, no host files.
    pub fn builder() -> SandboxBuilder {
        Builder::new(Keep(sandbox::Keep::default()))
    }

    /// The name that stands in records.
    pub fn id(&self) -> &str {
        self.sandbox.as_ref().map_or("", crate::Sandbox::id)
    }

    /// Where it is in its life.
    pub fn state(&self) -> Lifecycle {
        self.sandbox
            .as_ref()
            .map_or(Lifecycle::Teardown, crate::Sandbox::state)
    }

    /// Runs code in the sandbox's language.
    pub fn execute_code(&mut self, code: impl AsRef<[u8]>) -> Result<Execution, Error> {
        self.wait(async |sandbox| sandbox.execute_code(code).await)
    }

    /// Runs the program in a file of the host, in the sandbox's language.
    pub fn execute_file(&mut self, path: impl AsRef<Path>) -> Result<Execution, Error> {
        self.wait(async |sandbox| sandbox.execute_file(path).await)
    }

    /// Runs a command: a program and its arguments, without a shell between.
    pub fn exec<S: Into<String>>(&mut self, argv: impl IntoIterator<Item = S>) -> Result<Execution, Error> {
        self.wait(async |sandbox| sandbox.exec(argv).await)
    }

    /// Runs a command written as one line, split as a shell would split it.
    pub fn exec_line(&mut self, line: &str) -> Result<Execution, Error> {
        self.wait(async |sandbox| sandbox.exec_line(line).await)
    }

    /// Runs any request here, with streams of one's own.
    pub fn execute(&mut self, request: &Request, io: ExecuteIo<'_>) -> Result<Execution, Error> {
        self.wait(async |sandbox| sandbox.execute(request, io).await)
    }

    /// A request with all that the builder said, for [`Sandbox::execute`].
    pub fn request(&self, source: Source) -> Option<Request> {
        self.sandbox.as_ref().map(|sandbox| sandbox.request(source))
    }

    /// Ends everything in it and waits until nothing is left.
    pub fn close(mut self) -> Result<(), Error> {
        match self.sandbox.take() {
            Some(sandbox) => self.runtime.block_on(sandbox.close()),
            None => Ok(()),
        }
    }

    fn wait(
        &mut self,
        work: impl AsyncFnOnce(&mut crate::Sandbox) -> Result<Execution, Error>,
    ) -> Result<Execution, Error> {
        let sandbox = self
            .sandbox
            .as_mut()
            .ok_or(Error::NotReady(Lifecycle::Teardown))?;
        self.runtime.block_on(work(sandbox))
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        // What the sandbox holds belongs to the runtime and may need it to be let go.
        let _inside = self.runtime.enter();
        self.sandbox.take();
    }
}

fn runtime() -> Result<Runtime, Error> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Error::Runtime)
}
