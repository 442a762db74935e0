//! The wall as a trait. The engine knows this and no concrete provider.
//!
//! Futures are boxed so that the traits need no runtime of their own and can be used as objects.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::fs::File;
use std::io;
use std::net::{TcpListener, UdpSocket};
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::capabilities::Capabilities;
use crate::control::Control;
use crate::egress::Log;
use crate::environment::Environment;
use crate::guard::Missing;
use crate::language::Language;
use crate::limits::Limits;
use crate::outcome::{Captured, CollectedFile, Usage};
use crate::path::GuestPath;
use crate::plan::{Plan, Stage};
use crate::receipt::Receipt;
use crate::request::FileIn;
use crate::status::ProviderName;
use crate::weight::Weight;

/// A future that can be sent and stored.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The name of images that are made of others, with what a sandbox needs inside.
pub const AGENT_IMAGE: &str = "belljar-agent";
/// The name of images that are made of environments.
pub const ENVIRONMENT_IMAGE: &str = "belljar-environment";

/// What the root of a sandbox is.
#[derive(Clone, Copy, Debug)]
pub enum Footing<'a> {
    /// What the provider has for requests that ask for nothing.
    Usual,
    /// One that was named; whether it may be fetched where it is not there.
    Image {
        name: &'a str,
        fetch: bool,
    },
    Environment(&'a Environment),
}

/// A wall: makes sandboxes out of plans.
pub trait Provider: Send + Sync + Debug {
    fn name(&self) -> ProviderName;

    /// Whether it is there, and in which version. Quick: what takes time was found out before.
    fn presence(&self) -> Result<String, Missing> {
        Ok(String::new())
    }

    /// What this machine gives. Looks only for the languages in `languages`, since looking costs time.
    fn capabilities(&self, languages: &[Language]) -> Capabilities;

    /// The same for sandboxes that stand on something else than usual. What is not there is fetched, and that may take long.
    fn capabilities_of(
        &self,
        footing: Footing<'_>,
        languages: &[Language],
    ) -> Result<Capabilities, ProviderError> {
        let _ = footing;
        Ok(self.capabilities(languages))
    }

    /// The same for people who want to know: every language with its version, and the controls tried
    /// out for real. Takes its time.
    fn examine(&self) -> Capabilities {
        self.capabilities(Language::ALL)
    }

    /// Starts in the background what the first sandbox would otherwise wait for.
    fn warm_up(&self) {}

    /// Raises, ahead of time and until it is done, what sandboxes for such a plan need. Blocks.
    fn prepare(&self, plan: &Plan) -> Result<(), ProviderError> {
        let _ = plan;
        Ok(())
    }

    /// The processor time that all sandboxes have used so far, where that is counted. It begins anew now and then.
    fn cpu_used(&self) -> Option<Duration> {
        None
    }

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

    /// What it weighs from now on beside other sandboxes, where the provider can have that.
    fn weigh(&mut self, weight: Weight) {
        let _ = weight;
    }

    /// Runs one stage to its end, whatever that is. When this returns, no process of the stage is alive.
    fn run<'a>(
        &'a mut self,
        stage: &'a Stage,
        io: StageIo<'a>,
    ) -> BoxFuture<'a, Result<StageEnd, ProviderError>>;

    /// The same place for an interpreter that stays, where the provider can have one.
    fn interpreting(&mut self) -> Option<&mut dyn Interpreting> {
        None
    }

    /// Takes files out of the work directory, at most `limit` bytes in all.
    fn collect<'a>(&'a mut self, paths: &'a [GuestPath], limit: u64) -> BoxFuture<'a, Vec<CollectedFile>>;

    /// Where the guest's network ends, for whoever stands there. Once, and only where the plan lets it reach somebody.
    fn take_doors(&mut self) -> Option<Doors> {
        None
    }

    /// Whom the guest asked for and connected to since this was asked last. Where it has ended, its connections are
    /// given a moment to end as well.
    fn met(&mut self, ended: bool) -> BoxFuture<'_, Log> {
        let _ = ended;
        Box::pin(std::future::ready(Log::default()))
    }

    /// What was observed to hold.
    fn receipt(&self) -> Receipt;

    /// Ends everything, like [`Sandbox::close`], without waiting for what takes longer than a result should.
    /// No process of a stage that has ended is alive by then anyway.
    fn discard(self: Box<Self>) -> BoxFuture<'static, Result<(), ProviderError>> {
        self.close()
    }

    /// Ends everything and waits until nothing is left.
    fn close(self: Box<Self>) -> BoxFuture<'static, Result<(), ProviderError>>;
}

/// Sockets in a sandbox's network, which are all that is there.
#[derive(Debug, Default)]
pub struct Doors {
    /// Where its resolver is asked.
    pub resolver_datagrams: Vec<UdpSocket>,
    pub resolver_streams: Vec<TcpListener>,
    /// Where connections to any address arrive, one for each port.
    pub listeners: Vec<TcpListener>,
    /// Where those arrive that were for any other address and port; the kernel remembers which.
    pub redirected: Vec<TcpListener>,
}

/// A sandbox whose interpreter stays between executions.
pub trait Interpreting: Send + Debug {
    /// Starts an interpreter that stays, and waits until it runs. One at a time: after it
    /// has ended, or [`Interpreting::stop`] has ended it, another one may be started among the same files.
    fn start<'a>(&'a mut self, stage: &'a Stage) -> BoxFuture<'a, Result<(), ProviderError>>;

    /// From now on `limits` hold for what the interpreter does, until [`Interpreting::finish`].
    fn begin(&mut self, limits: &Limits) -> Result<(), ProviderError>;

    /// Has a message for the runner sent as soon as it takes it, while [`Interpreting::hear`] is awaited.
    fn say(&mut self, message: &[u8]);

    /// How many bytes of what was said the runner has not taken yet.
    fn unsaid(&self) -> usize;

    /// What the interpreter says or does next. Cancel-safe.
    fn hear(&mut self) -> BoxFuture<'_, Result<Heard, ProviderError>>;

    /// The limits of [`Interpreting::begin`] no longer count. Output that is there already goes to `sink`.
    fn finish(&mut self, sink: &mut dyn OutputSink) -> Usage;

    /// Time on the clock does not count until [`Interpreting::start_clock`]. All other limits go on.
    fn stop_clock(&mut self);

    /// Time on the clock counts again, from where it stood.
    fn start_clock(&mut self);

    /// Interrupts what the interpreter does, as Ctrl-C would.
    fn interrupt(&mut self);

    /// Ends the interpreter and every other process; true if the files are still there.
    fn stop(&mut self) -> BoxFuture<'_, bool>;

    /// The work directory's files, for those who read them while a guest runs.
    fn files(&self) -> Option<WorkFiles>;
}

/// The files of a sandbox that is alive.
#[derive(Clone, Debug)]
pub enum WorkFiles {
    /// A handle of the work directory.
    Directory(Arc<OwnedFd>),
    /// Somebody inside who is asked.
    Asked(Arc<dyn Filing>),
}

/// Files of a work directory that is not to be seen from outside. Whoever answers follows no link and leaves nothing. All of it
/// blocks until there is an answer.
pub trait Filing: Send + Sync + Debug {
    /// A regular file.
    fn read(&self, path: &GuestPath) -> io::Result<ReadFile>;

    /// What is in the directory of that path, itself alone; an empty path is the work directory.
    fn list(&self, path: &[u8]) -> io::Result<Vec<Listed>>;

    /// Removes a file, or a directory with everything below it.
    fn remove(&self, path: &GuestPath) -> io::Result<()>;
}

/// A file that was read: a copy of it, which nobody else has.
#[derive(Debug)]
pub struct ReadFile {
    pub file: File,
    pub size: u64,
    pub executable: bool,
}

/// One entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    pub name: Vec<u8>,
    /// Its type and permissions, as `stat` has them.
    pub mode: u32,
    pub size: u64,
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

/// What an interpreter that stays says or does.
#[derive(Debug)]
pub enum Heard {
    /// One message of its runner. Untrusted: the guest's code can send the same.
    Message(Vec<u8>),
    Output(Stream, Vec<u8>),
    /// It is over; the sandbox may be too (see [`Interpreting::stop`]).
    Ended(Ended),
    /// It sent something that is no message. Nothing more will be heard on its channel.
    Broken(String),
}

/// The longest message that goes to a runner, and the longest frame that one may announce. What is kept of a runner's frames is
/// less.
pub const LONGEST_MESSAGE: usize = 64 << 20;
/// The longest message of a runner that is kept: a value, a display beside it, and what is around them.
pub const MAX_MESSAGE_BYTES: usize = 17 << 20;

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
    /// The kernel of this machine is in a state in which no sandbox can be started.
    #[error("the kernel cannot start a sandbox: {why}")]
    Kernel { why: String, fix: String },
    #[error("the launcher or init broke the protocol: {0}")]
    Protocol(String),
    /// The image that a request names cannot be had, or cannot be used.
    #[error("image `{image}`: {why}")]
    Image { image: String, why: String, fix: String },
    /// The engine that a provider works through.
    #[error("{engine}: {why}")]
    Engine {
        engine: String,
        why: String,
        fix: String,
    },
}
