//! What takes turns: processes, servers of their own timing, and belljar's engine in this process.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use belljar::{Bytes, Engine, ExecuteIo, Policy, Request};
use belljar_linux::{NativeProvider, PoolSettings};

use crate::Measured;
use crate::wishes::{Kind, PoolKind, Wish};

#[derive(Debug)]
pub(crate) struct Contender {
    pub id: String,
    pub pause: Duration,
    pub kind: Contending,
}

#[derive(Debug)]
pub(crate) enum Contending {
    Process(Arc<Process>),
    Server(Server),
    Engine(Arc<Sandboxed>),
}

impl Contender {
    pub(crate) fn new(wish: &Wish) -> Measured<Self> {
        let kind = match &wish.kind {
            Kind::Command { argv } => Contending::Process(Arc::new(Process {
                argv: argv.clone(),
                prints: wish.prints.clone(),
            })),
            Kind::Server { argv } => Contending::Server(Server::start(argv)?),
            Kind::Engine { .. } => Contending::Engine(Arc::new(Sandboxed::new(wish)?)),
        };
        Ok(Self {
            id: wish.id.clone(),
            pause: Duration::from_millis(wish.pause_ms),
            kind,
        })
    }

    /// Has everything ready that it may have ready.
    pub(crate) fn prepare(&self) -> Measured<()> {
        match &self.kind {
            Contending::Engine(engine) => engine.prepare(),
            _ => Ok(()),
        }
    }
}

/// A process for each run.
#[derive(Debug)]
pub(crate) struct Process {
    argv: Vec<String>,
    prints: String,
}

impl Process {
    pub(crate) fn once(&self) -> Measured<Duration> {
        let (program, arguments) = self.argv.split_first().ok_or("an empty command")?;
        let started = Instant::now();
        let done = Command::new(program)
            .args(arguments)
            .stdin(Stdio::null())
            .output()?;
        let took = started.elapsed();
        if !done.status.success() || done.stdout != self.prints.as_bytes() {
            let said = String::from_utf8_lossy(&done.stderr);
            return Err(format!("{:?} failed: {} {said}", self.argv, done.status).into());
        }
        Ok(took)
    }
}

/// A process that times runs of its own.
#[derive(Debug)]
pub(crate) struct Server {
    child: Mutex<(Child, ChildStdin, BufReader<ChildStdout>)>,
}

impl Server {
    fn start(argv: &[String]) -> Measured<Self> {
        let (program, arguments) = argv.split_first().ok_or("an empty command")?;
        let mut child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let stdin = child.stdin.take().ok_or("no standard input")?;
        let stdout = BufReader::new(child.stdout.take().ok_or("no standard output")?);
        Ok(Self {
            child: Mutex::new((child, stdin, stdout)),
        })
    }

    /// So many at the same time for so many seconds; one run of each for none. Also how many runs failed: what
    /// a neighbour cannot do is part of the result.
    pub(crate) fn runs(&self, level: usize, seconds: f64) -> Measured<(Vec<Duration>, usize)> {
        let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        let (_, stdin, stdout) = &mut *child;
        writeln!(stdin, "{level} {seconds}")?;
        let mut line = String::new();
        stdout.read_line(&mut line)?;
        let (failed, taken): (Vec<_>, Vec<_>) = line.split_whitespace().partition(|word| *word == "-");
        if taken.is_empty() {
            return Err("a server ended, or nothing that it ran came to a good end".into());
        }
        let taken: Result<Vec<u64>, _> = taken.into_iter().map(str::parse).collect();
        let taken = taken.map_err(|_| format!("a server said {line}"))?;
        Ok((
            taken.into_iter().map(Duration::from_nanos).collect(),
            failed.len(),
        ))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let (child, ..) = self.child.get_mut().unwrap_or_else(PoisonError::into_inner);
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// A fresh sandbox for each run, made by an engine of its own.
#[derive(Debug)]
pub(crate) struct Sandboxed {
    engine: Engine,
    policy: Policy,
    request: Request,
    /// What is prepared: of another shape where the pool must have nothing for the request.
    prepared: Request,
    prints: String,
}

impl Sandboxed {
    fn new(wish: &Wish) -> Measured<Self> {
        let Kind::Engine {
            language,
            code,
            pool,
            preload,
        } = &wish.kind
        else {
            return Err(format!("{} is no engine", wish.id).into());
        };
        let mut settings = PoolSettings {
            preload: preload.clone(),
            ..PoolSettings::default()
        };
        let request = Request::code(*language, code.as_bytes());
        let mut prepared = request.clone();
        if *pool == PoolKind::Empty {
            // No number of requests earns a stock, and the one that is prepared starts the interpreter that both
            // shapes are forked from.
            settings = PoolSettings {
                stock: 1,
                after: u32::MAX,
                ..settings
            };
            prepared.limits.memory = Some(Bytes::from_mib(200));
        }
        let sandboxed = Self {
            engine: Engine::new(Arc::new(NativeProvider::with_pool(settings))),
            policy: Policy::builtin("standard").ok_or("no policy `standard`")?,
            request,
            prepared,
            prints: wish.prints.clone(),
        };
        Ok(sandboxed)
    }

    fn prepare(&self) -> Measured<()> {
        Ok(self.engine.prepare(&self.policy, &self.prepared)?)
    }

    /// One run, and how its sandbox came to be.
    pub(crate) async fn once(&self) -> Measured<(Duration, String)> {
        let started = Instant::now();
        let run = self
            .engine
            .execute(&self.policy, &self.request, ExecuteIo::default())
            .await?;
        let took = started.elapsed();
        let outcome = run.outcome;
        if !outcome.success() || outcome.stdout.bytes() != self.prints.as_bytes() {
            let said = outcome.stderr.text();
            return Err(format!("a sandbox failed: {} {said}", outcome.status).into());
        }
        Ok((took, outcome.receipt.origin))
    }
}
