//! A sandbox that is kept for several executions, with its lifecycle (R50).

use std::path::Path;
use std::sync::Arc;

use belljar_core::{Language, Lifecycle, Policy, Request, Source, command};
use belljar_engine::{ExecuteIo, Execution, LiveSandbox};

use crate::builder::{Builder, Wishes};
use crate::error::Error;
use crate::load;

/// A builder of a sandbox to keep.
pub type SandboxBuilder = Builder<Keep>;

/// A live sandbox. Files in its work directory stay from one execution to the next; processes do
/// not. Dropping it ends everything in it, [`Sandbox::close`] also waits for that.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), belljar::Error> {
/// use belljar::{Lifecycle, Sandbox};
///
/// let mut sandbox = Sandbox::builder().file("name.txt", "world").build().await?;
/// assert_eq!(sandbox.state(), Lifecycle::Ready);
///
/// let run = sandbox.execute_code("open('greeting', 'w').write('Hello, ' + open('name.txt').read())").await?;
/// assert!(run.outcome.success());
/// let run = sandbox.exec(["cat", "greeting"]).await?;
/// assert_eq!(run.outcome.stdout.text(), "Hello, world");
///
/// sandbox.close().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Sandbox {
    live: LiveSandbox,
    /// What every execution has in common.
    request: Request,
    language: Option<Language>,
}

/// The purpose of a builder that makes a sandbox and keeps it.
#[derive(Debug, Default)]
pub struct Keep {
    commands_only: bool,
}

impl Builder<Keep> {
    /// A sandbox that needs no interpreter and runs commands only.
    pub fn commands_only(mut self) -> Self {
        self.purpose_mut().commands_only = true;
        self
    }

    /// Makes the sandbox: its walls stand and its files are in when this returns.
    pub async fn build(self) -> Result<Sandbox, Error> {
        let mut wishes = self.wishes()?;
        let policy = wishes.settle()?;
        let language = (!wishes.purpose.commands_only).then(|| wishes.language.unwrap_or(Language::Python));
        let Wishes {
            engine, mut request, ..
        } = wishes;
        request.source = opening(language, &policy);
        let live = engine.open(&policy, &request).await?;
        // They are in now; bringing them again would undo what the guest made of them.
        request.files.clear();
        Ok(Sandbox {
            live,
            request,
            language,
        })
    }
}

impl Sandbox {
    /// Starts with nothing said: Python, the numbers of the `standard` policy, no network, no host files.
    pub fn builder() -> SandboxBuilder {
        Builder::new(Keep::default())
    }

    /// The name that stands in records.
    pub fn id(&self) -> &str {
        self.live.id()
    }

    /// Where it is in its life.
    pub const fn state(&self) -> Lifecycle {
        self.live.state()
    }

    /// Runs code in the sandbox's language.
    pub async fn execute_code(&mut self, code: impl AsRef<[u8]>) -> Result<Execution, Error> {
        let language = self.language.ok_or(Error::CommandsOnly)?;
        self.run(Source::Code {
            language,
            code: code.as_ref().into(),
        })
        .await
    }

    /// Runs the program in a file of the host, in the sandbox's language.
    pub async fn execute_file(&mut self, path: impl AsRef<Path>) -> Result<Execution, Error> {
        let code = load::code_file(path.as_ref())?;
        self.execute_code(code).await
    }

    /// Runs a command: a program and its arguments, without a shell between.
    pub async fn exec<S: Into<String>>(
        &mut self,
        argv: impl IntoIterator<Item = S>,
    ) -> Result<Execution, Error> {
        let argv = argv.into_iter().map(Into::into).collect();
        self.run(Source::Command { argv }).await
    }

    /// Runs a command written as one line, split as a shell would split it (R56). What a shell
    /// would act on is refused.
    pub async fn exec_line(&mut self, line: &str) -> Result<Execution, Error> {
        self.exec(command::split(line)?).await
    }

    /// Runs any request here, with streams of one's own.
    pub async fn execute(&mut self, request: &Request, io: ExecuteIo<'_>) -> Result<Execution, Error> {
        Ok(self.live.execute(request, io).await?)
    }

    /// A request with all that the builder said, for [`Sandbox::execute`]. The builder's arguments
    /// are for code; a command has its own.
    pub fn request(&self, source: Source) -> Request {
        let mut request = Request {
            source,
            ..self.request.clone()
        };
        if request.language().is_none() {
            request.args.clear();
        }
        request
    }

    /// Ends everything in it and waits until nothing is left.
    pub async fn close(self) -> Result<(), Error> {
        Ok(self.live.close().await?)
    }

    async fn run(&mut self, source: Source) -> Result<Execution, Error> {
        let request = self.request(source);
        self.execute(&request, ExecuteIo::default()).await
    }
}

/// What the guard is shown when the sandbox is made: it decides which toolchain will be visible
/// and how large the sandbox must be. It never runs.
fn opening(language: Option<Language>, policy: &Policy) -> Source {
    match language {
        Some(language) => Source::Code {
            language,
            code: Arc::new(*b"\n"),
        },
        None => Source::Command {
            argv: vec![
                policy
                    .allowed_commands
                    .first()
                    .map_or("true", String::as_str)
                    .to_owned(),
            ],
        },
    }
}
