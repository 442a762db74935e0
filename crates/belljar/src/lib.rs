//! Run code that nobody has read yet, under glass.
//!
//! belljar runs a program in a sandbox of its own, shows what it did and lets nothing out. On Linux
//! it needs no daemon, no image and no root.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), belljar::Error> {
//! let run = belljar::execute_code("print('Hello from under the glass')").await?;
//! print!("{}", run.outcome.stdout.text());
//! # assert_eq!(run.outcome.stdout.text(), "Hello from under the glass\n");
//! # Ok(())
//! # }
//! ```
//!
//! The words, in the order in which they meet:
//!
//! 1. A [`Request`] says what to run. [`execute_code`], [`execute_file`] and [`Sandbox::builder`]
//!    build one.
//! 2. A [`Policy`] says what is permitted. Without a named one, asking is enough, as on one's own
//!    machine; with one, a request may only ask for less.
//! 3. The guard turns both into a [`Plan`], or into a [`Denial`] that says what would have to change.
//! 4. An [`Engine`] has the plan carried out, and the [`Outcome`] says what happened, with a
//!    [`Receipt`] of the controls that really held and a [`Record`] for the audit.
//!
//! A program that fails is an outcome. An [`Error`] means that nothing ran, or that belljar itself
//! could not do its work.
//!
//! Limits, files in and files out:
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), belljar::Error> {
//! use belljar::{Bytes, FileState};
//!
//! let run = belljar::execute_code("open('out.txt', 'w').write(open('in.txt').read().upper())")
//!     .file("in.txt", "quiet")
//!     .output("out.txt")
//!     .memory(Bytes::from_mib(128))
//!     .await?;
//! let FileState::Collected { bytes, .. } = &run.outcome.files[0].state else {
//!     panic!("out.txt was not there");
//! };
//! assert_eq!(bytes, b"QUIET");
//! # Ok(())
//! # }
//! ```
//!
//! A [`Session`] keeps its interpreter and its files, and its code may call functions of yours:
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), belljar::Error> {
//! let session = belljar::Session::builder()
//!     .tool("add", |a: i64, b: i64| a + b)
//!     .build()
//!     .await?;
//! session.execute("x = add(2, 3)").await?;
//! let run = session.execute("x * 10").await?;
//! assert_eq!(run.outcome.value, Some(50.into()));
//! # session.close().await?;
//! # Ok(())
//! # }
//! ```
//!
//! [`blocking`] has all of it without async. [`batch`] runs many requests, in order and in bounded memory.
#![forbid(unsafe_code)]

pub mod batch;
pub mod blocking;
mod builder;
mod error;
pub mod load;
mod native;
mod run;
mod sandbox;
mod session;

pub use belljar_core::outcome::{
    CollectedFile, CompileOutput, Display, Exception, FileState, StateLost, ToolCall,
};
pub use belljar_core::provider::{OutputSink, Stream};
pub use belljar_core::receipt::Observed;
pub use belljar_core::request::{Caller, Content, FileIn, Stdin, Workspace};
pub use belljar_core::{
    Access, Bytes, Capabilities, Captured, Comparison, Control, Demand, Denial, DenialCode, EnvironmentName,
    ErrorKind, Failure, FailureKind, GuestPath, IsolationLevel, Language, Lifecycle, LimitOverrides, Limits,
    Mount, NetworkPolicy, Outcome, Plan, Policy, Provider, ProviderName, Receipt, Record, Request,
    SandboxConfig, SandboxStatus, Seconds, SessionRules, SessionWishes, Source, Support, Usage, Value,
    Verdict, WorkspaceId, value,
};
pub use belljar_engine::session::{
    Cell, EntryKind, Event, Expiry, FileEntry, FileError, FileReader, Interrupter, Logs, SessionError,
    SessionSink, Work,
};
pub use belljar_engine::{
    Arguments, Case, CaseEnd, CasesExecution, Engine, ExecuteIo, Execution, ToolError, Tools, environment,
    tools, workspace,
};

pub use builder::{Builder, DEFAULT_TIMEOUT, narrow_commands};
pub use error::Error;
pub use native::{engine_telling, native_engine};
pub use run::{Once, Run, execute_code, execute_file};
pub use sandbox::{Keep, Sandbox, SandboxBuilder};
pub use session::{Converse, Session, SessionBuilder};
