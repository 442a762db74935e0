//! A sandbox of gVisor's with an agent in it.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, Weak};
use std::time::Duration;

use belljar_core::egress::Ports;
use belljar_core::plan::WORK_DIR;
use belljar_core::provider::{BoxFuture, Doors, Ended};
use belljar_core::receipt::Observed;
use belljar_core::{Control, Limits, ProviderError, Support, Weight};
use belljar_linux::agent::Surroundings;
use belljar_linux::descendants;
use belljar_linux::groups::{Beside, ProcessGroup};
use rustix::pipe::PipeFlags;
use tempfile::TempDir;
use tokio::process::{Child, Command};
use tokio_util::io::ReaderStream;

use super::Shared;
use super::bundle::Shape;
use super::runsc::Runsc;
use crate::agent::{Connected, Counters, Held, Line, Made, Seen};
use crate::background::Background;
use crate::clearing::Clearing;
use crate::mounts::{self, OpenMount};
use crate::own_kernel::{self, USERS};
use crate::place::{Place, Used, no_doors};
use crate::pool::Waiting;

/// How long everything may take to go.
const ENDING: Duration = Duration::from_secs(10);

/// A sandbox that is up, before anybody uses it.
#[derive(Debug)]
pub(super) struct Raised {
    place: GvisorPlace,
    connected: Connected,
    seen: Seen,
}

impl Raised {
    /// Makes a sandbox and waits until its agent says that it is there.
    pub(super) async fn raise(
        shared: &Arc<Shared>,
        runsc: &Arc<Runsc>,
        shape: &Shape,
        name: &str,
    ) -> Result<Self, ProviderError> {
        let failed = |operation, source| ProviderError::Io {
            operation,
            object: "a gVisor sandbox".to_owned(),
            source,
        };
        let state = shared.dir().map_err(|error| failed("make", error))?;
        let dir = tempfile::Builder::new()
            .prefix("bundle-")
            .tempdir_in(state.path())
            .map_err(|error| failed("make", error))?;
        let mounts = mounts::open(shape.plan().mounts())?;
        let shown = shape.write(dir.path()).map_err(|error| failed("make", error))?;
        let beside = Beside {
            memory: own_kernel::MEMORY,
            // The host sees its kernel's tasks, not the guest's.
            tasks: None,
        };
        let group = shared.groups.make(name, shape.plan().limits(), beside)?;
        let (leash, end) =
            rustix::pipe::pipe_with(PipeFlags::CLOEXEC).map_err(|error| failed("make", error.into()))?;
        let log = dir.path().join("log");
        let program = shared.program().map_err(|error| failed("hold", error))?;
        let mut command = Command::new(program.path());
        let entries = group.as_ref().map(ProcessGroup::entries).unwrap_or_default();
        command.arg("leash").arg(entries.len().to_string()).args(&entries);
        command
            .arg(&runsc.program)
            .args(runsc.options(state.path(), &log))
            .arg(shape.network())
            .args(shape.options())
            .arg("run")
            .arg(format!("--bundle={}", dir.path().display()))
            .arg(name)
            .env_clear()
            .env(
                "PATH",
                "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            )
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::from(leash))
            .kill_on_drop(false);
        let child = command.spawn().map_err(|error| failed("start", error))?;
        let mut place = GvisorPlace {
            background: shared.background.clone(),
            runsc: Arc::clone(runsc),
            bounds: group
                .as_ref()
                .map(|group| group.controls().clone())
                .unwrap_or_default(),
            kept: Some(Kept {
                child,
                _end: end,
                group,
                dir,
                state: state.path().to_owned(),
            }),
            line: Weak::new(),
            controls: BTreeMap::new(),
            shown,
            origin: "made on demand",
            _state: state,
            name: name.to_owned(),
            clearing: shared.clearing.clone(),
        };
        match place.connect(shared).await {
            Ok((connected, seen)) => match place.check(&mounts) {
                Ok(()) => Ok(Self {
                    place,
                    connected,
                    seen,
                }),
                Err(error) => {
                    let _ = place.end_everything().await;
                    Err(error)
                }
            },
            Err(error) => {
                let said = last_words(&log);
                let _ = place.end_everything().await;
                Err(match said {
                    Some(why) => ProviderError::Engine {
                        engine: "gvisor".to_owned(),
                        why,
                        fix: "`belljar providers` shows what is there".to_owned(),
                    },
                    None => failed("start", error),
                })
            }
        }
    }

    /// For a plan: with what was found out about it.
    pub(super) fn into_made(mut self, origin: &'static str) -> Made {
        self.place.origin = origin;
        let bounded = self
            .place
            .bounds
            .get(&Control::MemoryCgroup)
            .is_some_and(Support::is_present);
        let held = Held {
            memory: !bounded,
            processes: true,
        };
        Made {
            surroundings: Surroundings {
                work_dir: WORK_DIR.to_owned(),
                places: Vec::new(),
                variables: Vec::new(),
                landlock: self.seen.landlock,
                ceilings: self.seen.ceilings,
                memory_accounted: bounded,
                walls: true,
                users: Some(USERS),
            },
            place: Box::new(self.place),
            connected: self.connected,
            counters: Counters::default(),
            held,
        }
    }
}

impl Waiting for Raised {
    fn is_there(&self) -> bool {
        self.connected.line.is_open()
    }

    fn close(mut self) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let _ = self.place.end_everything().await;
        })
    }
}

/// What `runsc` wrote about why it failed.
fn last_words(log: &std::path::Path) -> Option<String> {
    let text = fs::read_to_string(log).ok()?;
    let line = text.lines().rev().find(|line| !line.trim().is_empty())?;
    let read: Option<serde_json::Value> = serde_json::from_str(line).ok();
    let said = read.and_then(|line| Some(line.get("msg")?.as_str()?.to_owned()));
    Some(said.unwrap_or_else(|| line.to_owned()))
}

/// What of the host's belongs to a sandbox.
#[derive(Debug)]
struct Kept {
    child: Child,
    /// Dropping it lets the leash go, and with it everything that it holds.
    _end: OwnedFd,
    group: Option<ProcessGroup>,
    dir: TempDir,
    state: PathBuf,
}

impl Kept {
    /// Ends everything and waits until nothing is left.
    async fn end(self, name: &str) -> io::Result<()> {
        let Self {
            mut child,
            _end: end,
            group,
            dir,
            state,
        } = self;
        drop(end);
        let waited = tokio::time::timeout(ENDING, child.wait()).await;
        if let Some(group) = &group {
            group.kill();
        }
        if waited.is_err() {
            child.kill().await?;
        }
        let removed = group.map_or(Ok(()), ProcessGroup::remove);
        // What it noted about itself.
        for entry in fs::read_dir(&state).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with(name) {
                let path = entry.path();
                let _ = if path.is_dir() {
                    fs::remove_dir_all(&path)
                } else {
                    fs::remove_file(&path)
                };
            }
        }
        dir.close()?;
        removed.map_err(io::Error::other)
    }
}

#[derive(Debug)]
struct GvisorPlace {
    background: Background,
    runsc: Arc<Runsc>,
    kept: Option<Kept>,
    bounds: BTreeMap<Control, Support>,
    line: Weak<Line>,
    controls: BTreeMap<Control, Observed>,
    shown: Vec<String>,
    origin: &'static str,
    /// The directory that its own is in.
    _state: Arc<TempDir>,
    name: String,
    clearing: Clearing,
}

impl GvisorPlace {
    async fn connect(&mut self, shared: &Arc<Shared>) -> io::Result<(Connected, Seen)> {
        let streams = self
            .kept
            .as_mut()
            .map(|kept| (kept.child.stdin.take(), kept.child.stdout.take()));
        let Some((Some(stdin), Some(stdout))) = streams else {
            return Err(io::Error::other("it has no streams"));
        };
        let runtime = shared.background.handle()?;
        let incoming = Box::pin(ReaderStream::with_capacity(stdout, 64 << 10));
        let connected = Line::connect(&runtime, incoming, Box::pin(stdin)).await?;
        self.line = Arc::downgrade(&connected.line);
        let seen = Seen::look(&connected).await;
        self.controls = seen.controls();
        if let Some(Observed::Enforced { detail }) = self.controls.get_mut(&Control::OwnKernel) {
            *detail = format!("gVisor, {}", self.runsc.words());
        }
        for (control, support) in &self.bounds {
            let observed = match support {
                Support::Present { detail } => Observed::enforced(format!("{detail}, with its kernel")),
                Support::Absent { why, .. } => Observed::absent(why.clone()),
            };
            self.controls.insert(*control, observed);
        }
        self.controls.insert(
            Control::PidsCgroup,
            Observed::absent("its own kernel counts tasks, the host's sees others"),
        );
        Ok((connected, seen))
    }

    /// The process of gVisor's that calls itself so.
    fn process(&self, name: &str) -> Option<i32> {
        let first = self.kept.as_ref().and_then(|kept| kept.child.id());
        let first = first.and_then(|pid| i32::try_from(pid).ok());
        let mut all = descendants(first.into_iter().collect()).into_iter();
        all.find(|pid| {
            fs::read(format!("/proc/{pid}/cmdline"))
                .is_ok_and(|words| words.split(|byte| *byte == 0).next() == Some(name.as_bytes()))
        })
    }

    /// Makes sure that what was mounted is what was opened here. Its kernel has names of its own for files; the process that
    /// brings them to it has the host's.
    fn check(&self, mounts: &[OpenMount]) -> Result<(), ProviderError> {
        if mounts.is_empty() {
            return Ok(());
        }
        let brings = self.process("runsc-gofer");
        mounts.iter().try_for_each(|mount| mount.check_in(brings))
    }

    async fn end_everything(&mut self) -> Result<(), ProviderError> {
        if let Some(line) = self.line.upgrade() {
            line.hang_up();
        }
        let Some(kept) = self.kept.take() else {
            return Ok(());
        };
        let name = self.name.clone();
        let ended = self.background.run(async move { kept.end(&name).await });
        ended.await.map_err(|source| ProviderError::Io {
            operation: "end",
            object: "a gVisor sandbox".to_owned(),
            source,
        })
    }
}

impl Drop for GvisorPlace {
    fn drop(&mut self) {
        if let Some(line) = self.line.upgrade() {
            line.hang_up();
        }
        if let Some(kept) = self.kept.take()
            && let Ok(runtime) = self.background.handle()
        {
            let (name, background) = (self.name.clone(), self.background.clone());
            let state = Arc::clone(&self._state);
            let under_way = self.clearing.begin();
            runtime.spawn(async move {
                let _ = kept.end(&name).await;
                drop((background, state, under_way));
            });
        }
    }
}

impl Place for GvisorPlace {
    fn limit(&mut self, limits: &Limits) -> Result<(), ProviderError> {
        match self.kept.as_mut().and_then(|kept| kept.group.as_mut()) {
            Some(group) => group.limit(limits),
            None => Ok(()),
        }
    }

    fn weigh(&mut self, weight: Weight) {
        if let Some(group) = self.kept.as_mut().and_then(|kept| kept.group.as_mut()) {
            group.weigh(weight);
        }
    }

    /// What its group counts is the kernel's work as well; how many processes there are only that one knows.
    fn used(&self) -> Option<Used> {
        None
    }

    fn cpu(&self) -> Option<Duration> {
        self.kept.as_ref()?.group.as_ref()?.cpu()
    }

    fn open_doors(&mut self, ports: Ports) -> BoxFuture<'_, Result<Doors, ProviderError>> {
        // Its kernel has the network of the process that it is.
        let kernel = self.process("runsc-sandbox");
        Box::pin(async move {
            let kernel = kernel.ok_or_else(|| no_doors("its kernel is not to be found"))?;
            let opening = move || belljar_linux::doors::open_in(kernel, None, &ports);
            let opened = tokio::task::spawn_blocking(opening).await;
            opened
                .map_err(io::Error::other)
                .and_then(|opened| opened)
                .map_err(no_doors)
        })
    }

    fn end(&mut self) -> BoxFuture<'_, Result<(), ProviderError>> {
        Box::pin(self.end_everything())
    }

    fn discard(self: Box<Self>) -> BoxFuture<'static, Result<(), ProviderError>> {
        // Dropping it has everything ended in the background.
        drop(self);
        Box::pin(std::future::ready(Ok(())))
    }

    fn why_gone(&mut self) -> BoxFuture<'_, Ended> {
        let group = self.kept.as_ref().and_then(|kept| kept.group.as_ref());
        let kills = group.map_or(0, ProcessGroup::out_of_memory_kills);
        Box::pin(std::future::ready(if kills > 0 {
            Ended::OutOfMemory
        } else {
            Ended::Lost("its kernel ended from outside".to_owned())
        }))
    }

    fn controls(&self) -> BTreeMap<Control, Observed> {
        self.controls.clone()
    }

    fn shown(&self) -> Vec<String> {
        self.shown.clone()
    }

    fn origin(&self) -> String {
        self.origin.to_owned()
    }
}
