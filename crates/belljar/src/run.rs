//! One-shot runs: a sandbox is made, the code runs, nothing is left.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use belljar_core::provider::{BoxFuture, OutputSink, Stream};
use belljar_core::{Language, Request, Source};
use belljar_engine::{ExecuteIo, Execution};

use crate::builder::{Builder, Wishes};
use crate::error::Error;
use crate::load;

/// One execution, to be awaited.
pub type Run = Builder<Once>;

/// Runs `code` in a sandbox of its own; in Python unless [`language`](Builder::language) says otherwise.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), belljar::Error> {
/// let run = belljar::execute_code("print(sum(range(100)))").await?;
/// assert!(run.outcome.success());
/// assert_eq!(run.outcome.stdout.text(), "4950\n");
/// # Ok(())
/// # }
/// ```
///
/// A program that fails, loops or eats memory is an outcome as well:
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), belljar::Error> {
/// use std::time::Duration;
///
/// let run = belljar::execute_code("while True: pass")
///     .timeout(Duration::from_millis(300))
///     .await?;
/// assert_eq!(run.outcome.status, belljar::SandboxStatus::Timeout);
/// # Ok(())
/// # }
/// ```
pub fn execute_code(code: impl AsRef<[u8]>) -> Run {
    Builder::new(Once::code(code.as_ref()))
}

/// Runs the program in a file of the host. Its language is the one said, else the one that the
/// file's ending or first line means.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let path = std::env::temp_dir().join(format!("belljar-doc-{}.py", std::process::id()));
/// std::fs::write(&path, "import sys; print(sys.argv[1])")?;
/// let run = belljar::execute_file(&path).arg("hello").await?;
/// assert_eq!(run.outcome.stdout.text(), "hello\n");
/// # std::fs::remove_file(&path)?;
/// # Ok(())
/// # }
/// ```
pub fn execute_file(path: impl AsRef<Path>) -> Run {
    Builder::new(Once::file(path.as_ref()))
}

/// The purpose of a builder that runs one program and is done.
pub struct Once {
    program: Program,
    sink: Option<Sink>,
}

enum Program {
    Code(Arc<[u8]>),
    File(PathBuf),
}

type Sink = Box<dyn FnMut(Stream, &[u8]) + Send>;

impl Once {
    pub(crate) fn code(code: &[u8]) -> Self {
        Self {
            program: Program::Code(code.into()),
            sink: None,
        }
    }

    pub(crate) fn file(path: &Path) -> Self {
        Self {
            program: Program::File(path.to_owned()),
            sink: None,
        }
    }

    pub(crate) fn set_sink(&mut self, sink: impl FnMut(Stream, &[u8]) + Send + 'static) {
        self.sink = Some(Box::new(sink));
    }
}

impl fmt::Debug for Once {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Once");
        if let Program::File(path) = &self.program {
            shown.field("file", path);
        }
        shown.finish_non_exhaustive()
    }
}

impl Run {
    /// Sees output as it comes. It is called between reads, so it should not take long.
    pub fn on_output(mut self, sink: impl FnMut(Stream, &[u8]) + Send + 'static) -> Self {
        self.purpose_mut().set_sink(sink);
        self
    }

    async fn execute(self) -> Result<Execution, Error> {
        let mut wishes = self.wishes()?;
        wishes.request.source = source(&wishes)?;
        let policy = wishes.settle()?;
        let Wishes {
            engine,
            request,
            purpose,
            ..
        } = wishes;
        let mut sink = purpose.sink;
        let io = ExecuteIo {
            sink: sink.as_mut().map(|sink| sink as &mut (dyn OutputSink + Send)),
            ..ExecuteIo::default()
        };
        Ok(engine.execute(&policy, &request, io).await?)
    }
}

impl IntoFuture for Run {
    type Output = Result<Execution, Error>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.execute())
    }
}

fn source(wishes: &Wishes<Once>) -> Result<Source, Error> {
    let request = match &wishes.purpose.program {
        Program::Code(code) => Request::code(wishes.language.unwrap_or(Language::Python), Arc::clone(code)),
        Program::File(path) => {
            let code = load::code_file(path)?;
            let language = match wishes.language {
                Some(language) => language,
                None => load::language_of(path, &code)?,
            };
            Request::code(language, code)
        }
    };
    Ok(request.source)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_can_be_spawned() {
        fn spawnable<T: Send + 'static>(_: &T) {}
        spawnable(&execute_code("1").into_future());
        spawnable(&crate::Sandbox::builder().build());
        spawnable(&crate::Session::builder().build());
        fn future<'a>(session: &'a crate::Session) -> impl Future + Send + 'a {
            session.execute("1")
        }
        let _ = future;
    }

    #[test]
    fn code_is_python_and_a_file_is_what_its_name_says() {
        let language = |run: Run| {
            source(&run.wishes().unwrap()).map(|source| match source {
                Source::Code { language, .. } => language,
                Source::Command { .. } | Source::Interpreter { .. } => panic!("a run is of code"),
            })
        };
        assert_eq!(language(execute_code("1")).unwrap(), Language::Python);
        assert_eq!(
            language(execute_code("1").language(Language::Lua)).unwrap(),
            Language::Lua
        );
        assert_eq!(language(execute_file("src/lib.rs")).unwrap(), Language::Rust);
        assert!(matches!(
            language(execute_file("Cargo.toml")),
            Err(Error::UnknownLanguage { .. })
        ));
        assert!(matches!(
            language(execute_file("absent.py")),
            Err(Error::Read { .. })
        ));
    }
}
