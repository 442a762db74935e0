//! The wall as a trait. The engine knows this and no concrete provider.
//!
//! Futures are boxed so that the traits need no runtime of their own and can be used as objects.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;

use crate::capabilities::Capabilities;
use crate::control::Control;
use crate::language::Language;
use crate::outcome::{Captured, CollectedFile, Usage};
use crate::path::GuestPath;
use crate::plan::{Plan, Stage};
use crate::receipt::Receipt;
use crate::request::FileIn;

/// A future that can be sent and stored.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A wall: makes sandboxes out of plans.
pub trait Provider: Send + Sync + Debug {
    /// What this machine gives. Looks only for the languages in `languages`, since looking costs time.
    fn capabilities(&self, languages: &[Language]) -> Capabilities;

    /// The same for people who want to know: every language with its version, and the controls tried
    /// out for real. Takes its time.
    fn examine(&self) -> Capabilities {
        self.capabilities(Language::ALL)
    }

    /// Starts in the background what the first sandbox would otherwise wait for.
    fn warm_up(&self) {}

    /// Makes a live place for the plan: set up, files in, nothing running yet.
    fn open(&self, id: String, plan: Arc<Plan>) -> BoxFuture<'_, Result<Box<dyn Sandbox>, ProviderError>>;
}

/// A live place. Dropping it ends everything in it at once.
pub trait Sandbox: Send + Debug {
    fn id(&self) -> &str;

    /// Puts files into the work directory, over what is there.
    fn put<'a>(
        &'a mut self,
        files: &'a BTreeMap<GuestPath, FileIn>,
    ) -> BoxFuture<'a, Result<(), ProviderError>>;

    /// Runs one stage to its end, whatever that is. When this returns, no process of the stage is alive.
    fn run<'a>(
        &'a mut self,
        stage: &'a Stage,
        io: StageIo<'a>,
    ) -> BoxFuture<'a, Result<StageEnd, ProviderError>>;

    /// Takes files out of the work directory, at most `limit` bytes in all.
    fn collect<'a>(&'a mut self, paths: &'a [GuestPath], limit: u64) -> BoxFuture<'a, Vec<CollectedFile>>;

    /// What was observed to hold.
    fn receipt(&self) -> Receipt;

    /// Ends everything and waits until nothing is left.
    fn close(self: Box<Self>) -> BoxFuture<'static, Result<(), ProviderError>>;
}

/// What a stage is connected to.
pub struct StageIo<'a> {
    pub stdin: StageStdin,
    /// Sees every kept byte of output as it comes.
    pub sink: &'a mut (dyn OutputSink + Send),
    /// Resolves when the caller wants it to stop; a stage without one runs to its end or limits.
    pub stop: Option<BoxFuture<'a, ()>>,
}

impl Debug for StageIo<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StageIo")
            .field("stdin", &self.stdin)
            .finish_non_exhaustive()
    }
}

/// Where a stage's standard input comes from.
#[derive(Debug)]
pub enum StageStdin {
    Empty,
    Bytes(Arc<[u8]>),
    /// A descriptor that becomes the guest's standard input.
    Descriptor(OwnedFd),
}

/// One of the two output streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    Stdout,
    Stderr,
}

/// Receives output while it is produced.
pub trait OutputSink {
    fn write(&mut self, stream: Stream, bytes: &[u8]);
}

/// A sink for callers that only want the outcome.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoSink;

impl OutputSink for NoSink {
    fn write(&mut self, _: Stream, _: &[u8]) {}
}

impl<F: FnMut(Stream, &[u8])> OutputSink for F {
    fn write(&mut self, stream: Stream, bytes: &[u8]) {
        self(stream, bytes);
    }
}

/// How a stage ended, as the kernel and our own clock saw it.
#[derive(Debug)]
pub struct StageEnd {
    pub ended: Ended,
    pub stdout: Captured,
    pub stderr: Captured,
    pub usage: Usage,
}

/// The reason a stage is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    Exited(i32),
    Signaled(i32),
    WallTime,
    CpuTime,
    OutOfMemory,
    /// The caller asked for it.
    Stopped,
    /// The program could not be started; the text says why.
    CannotStart(String),
    /// The sandbox died under it for a reason outside of it.
    Lost(String),
}

/// belljar could not do its work. Never used for a guest that failed.
#[derive(Debug, thiserror::Error)]
pub enum ProviderError {
    /// The machine turned out to lack something that the plan requires.
    #[error("{control} cannot be had on this machine: {why}")]
    ControlMissing {
        control: Control,
        why: String,
        fix: String,
    },
    #[error("cannot {operation} {object}: {source}")]
    Io {
        operation: &'static str,
        object: String,
        source: std::io::Error,
    },
    #[error("the launcher is gone: {0}")]
    LauncherLost(String),
    #[error("set-up failed at {step}: {source}")]
    Setup { step: String, source: std::io::Error },
    #[error("the launcher or init broke the protocol: {0}")]
    Protocol(String),
}
