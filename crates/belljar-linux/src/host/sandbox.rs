//! A live sandbox of the native provider.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use belljar_core::outcome::{Capture, CollectedFile};
use belljar_core::provider::{
    BoxFuture, Ended, Heard, Interpreting, OutputSink, StageEnd, StageIo, StageStdin, Stream,
};
use belljar_core::request::{Content, FileIn};
use belljar_core::{Control, GuestPath, Limits, Plan, ProviderError, Receipt, Sandbox, Stage, Usage};
use rustix::fs::{Mode, OFlags};

use super::channel::Channel;
use super::group::SandboxGroup;
use super::interpreter::{Interpreter, Next};
use super::output::Output;
use super::provider::Shared;
use super::shell::{Shell, step_text};
use super::spec::{self, Machine};
use super::watch::Watch;
use super::{cgroup, collect, probe, receipt, stdin};
use crate::wire::{InitEvent, InitRequest, Note};

/// One sandbox: a shell, its control group, and what was observed of it.
#[derive(Debug)]
pub(crate) struct NativeSandbox {
    id: String,
    plan: Arc<Plan>,
    shared: Arc<Shared>,
    machine: Machine,
    /// Before the group: dropping goes in this order, and a group must be empty to be removed.
    shell: Shell,
    group: Option<SandboxGroup>,
    notes: Vec<Note>,
    interpreter: Option<Interpreter>,
    /// What the interpreter printed before it ended, and how it ended.
    leftovers: VecDeque<Heard>,
}

impl NativeSandbox {
    pub(crate) async fn open(
        shared: Arc<Shared>,
        id: String,
        plan: Arc<Plan>,
    ) -> Result<Self, ProviderError> {
        let machine = shared.machine();
        let nursery = shared.nursery(&plan)?;
        let group = match shared.hierarchy() {
            Ok(hierarchy) => {
                let name = cgroup::group_name(shared.tag(), &id);
                Some(SandboxGroup::make(hierarchy, &name, plan.limits())?)
            }
            Err(_) => None,
        };
        let mut spec = spec::shell(&plan);
        let mut fds = Vec::new();
        if let Some(group) = &group {
            (spec.cgroup, fds) = group.join()?;
        }
        let asked = nursery
            .ask(spec, &fds)
            .map_err(|error| failed("ask", "the nursery", error))?;
        drop(fds);
        let shell = Shell::raise(nursery, asked).await?;
        let notes = shell.notes.clone();
        let mut sandbox = Self {
            id,
            plan,
            shared,
            machine,
            group,
            shell,
            notes,
            interpreter: None,
            leftovers: VecDeque::new(),
        };
        sandbox.machine.count_processes &= sandbox.notes.contains(&Note::ProcMounted);
        sandbox.check_required()?;
        sandbox.put_files(Arc::clone(&sandbox.plan).files()).await?;
        Ok(sandbox)
    }

    /// What turned out to be missing only when it was tried.
    fn check_required(&self) -> Result<(), ProviderError> {
        if self.plan.required().contains(&Control::PrivateProc) && !self.notes.contains(&Note::ProcMounted) {
            return Err(ProviderError::ControlMissing {
                control: Control::PrivateProc,
                why: "the kernel refuses a new /proc here".to_owned(),
                fix: "docker run --security-opt systempaths=unconfined, or run outside of the container"
                    .to_owned(),
            });
        }
        Ok(())
    }

    async fn put_files(&mut self, files: &BTreeMap<GuestPath, FileIn>) -> Result<(), ProviderError> {
        for (path, file) in files {
            let content = match &file.content {
                Content::Inline(bytes) => {
                    stdin::sealed(bytes).map_err(|error| failed("hold", path.as_str(), error))?
                }
                Content::HostFile(host) => {
                    open_host_file(host).map_err(|error| failed("read", &host.to_string_lossy(), error))?
                }
            };
            let request = InitRequest::PutFile {
                path: path.as_str().to_owned(),
                executable: file.executable,
            };
            self.shell
                .send(&request, &[content.as_fd()])
                .await
                .map_err(|error| failed("put", path.as_str(), error))?;
            match self.shell.answer().await {
                Ok(InitEvent::FilePut) => {}
                Ok(InitEvent::FileFailed(failure)) => {
                    return Err(failed(
                        "put",
                        path.as_str(),
                        io::Error::from_raw_os_error(failure.errno),
                    ));
                }
                Ok(_) => return Err(ProviderError::Protocol("no answer about a file".to_owned())),
                Err(error) => return Err(failed("put", path.as_str(), error)),
            }
        }
        Ok(())
    }

    async fn run_stage(&mut self, stage: &Stage, io: StageIo<'_>) -> Result<StageEnd, ProviderError> {
        if let Some(group) = &mut self.group {
            group.limit(stage.limits())?;
        }
        let cap = stage.limits().output().get();
        let (mut stdout, mut stderr) = (Capture::new(cap), Capture::new(cap));
        let (mut output, [stdout_guest, stderr_guest]) =
            Output::new().map_err(|error| failed("make", "a pipe", error))?;
        let (stdin_guest, pump) =
            stdin::connect(io.stdin).map_err(|error| failed("connect", "stdin", error))?;
        let request = InitRequest::Exec(Box::new(spec::guest(&self.plan, stage, self.machine)));
        let fds = [stdin_guest.as_fd(), stdout_guest.as_fd(), stderr_guest.as_fd()];
        let started = Instant::now();
        let sent = self.shell.send(&request, &fds).await;
        drop((stdin_guest, stdout_guest, stderr_guest));
        let mut watch = Watch::new(
            stage.limits(),
            started,
            self.group.as_ref(),
            self.machine.memory_accounted,
        );
        let mut ended = match sent {
            Ok(()) => None,
            Err(_) => Some(self.why_gone(&watch).await),
        };
        let mut cpu_reported = None;
        let init = self.shell.pid();
        let sink = io.sink;
        let mut keep = |stream, bytes: &[u8]| {
            let kept = match stream {
                Stream::Stdout => stdout.keep(bytes),
                Stream::Stderr => stderr.keep(bytes),
            };
            if !kept.is_empty() {
                sink.write(stream, kept);
            }
        };
        let mut stop = io.stop.unwrap_or_else(|| Box::pin(std::future::pending()));

        while ended.is_none() {
            tokio::select! {
                // Limits come before output: a guest that never stops printing must not outrun them.
                biased;
                reason = watch.trip(self.group.as_ref(), init) => {
                    self.end_all().await;
                    ended = Some(reason);
                }
                () = &mut stop => {
                    self.end_all().await;
                    ended = Some(Ended::Stopped);
                }
                event = self.shell.event() => match event {
                    Ok(InitEvent::Started { notes }) => self.observe(notes),
                    Ok(InitEvent::NotStarted(failure)) => {
                        ended = Some(self.cannot_start(stage, &failure)?);
                    }
                    Ok(InitEvent::Ended { status, cpu_micros }) => {
                        cpu_reported = Some(Duration::from_micros(cpu_micros));
                        ended = Some(self.judge(status.unwrap_or_default(), &watch));
                    }
                    Ok(_) => return Err(ProviderError::Protocol("init said something out of turn".to_owned())),
                    Err(_) => ended = Some(self.why_gone(&watch).await),
                },
                bytes = output.next() => {
                    let (stream, bytes) = bytes.map_err(|error| failed("read", "output", error))?;
                    keep(stream, bytes);
                }
            }
        }
        drop(pump);
        // Everything that could write is dead by now, so all it wrote is in the pipes.
        output.drain(keep);
        Ok(StageEnd {
            ended: ended.unwrap_or(Ended::Lost("no end was seen".to_owned())),
            usage: watch.usage(self.group.as_ref(), cpu_reported, started.elapsed()),
            stdout: stdout.into_captured(),
            stderr: stderr.into_captured(),
        })
    }

    async fn start_interpreter(&mut self, stage: &Stage) -> Result<(), ProviderError> {
        if let Some(group) = &mut self.group {
            group.limit(stage.limits())?;
        }
        self.leftovers.clear();
        let (output, [stdout, stderr]) = Output::new().map_err(|error| failed("make", "a pipe", error))?;
        let (channel, theirs) = Channel::new().map_err(|error| failed("make", "a channel", error))?;
        let (stdin, _) =
            stdin::connect(StageStdin::Empty).map_err(|error| failed("connect", "stdin", error))?;
        let mut spec = spec::guest(&self.plan, stage, self.machine);
        // Executions have clocks of their own.
        spec.wall_millis = u64::MAX;
        let request = InitRequest::Exec(Box::new(spec));
        let fds = [stdin.as_fd(), stdout.as_fd(), stderr.as_fd(), theirs.as_fd()];
        self.shell
            .send(&request, &fds)
            .await
            .map_err(|error| failed("start", "an interpreter", error))?;
        match self.shell.event().await {
            Ok(InitEvent::Started { notes }) => self.observe(notes),
            Ok(InitEvent::NotStarted(failure)) => return Err(probe::explain(&failure)),
            Ok(_) => {
                return Err(ProviderError::Protocol(
                    "init said something out of turn".to_owned(),
                ));
            }
            Err(error) => return Err(failed("start", "an interpreter", error)),
        }
        self.interpreter = Some(Interpreter {
            channel,
            output,
            execution: None,
        });
        Ok(())
    }

    async fn hear_interpreter(&mut self) -> Result<Heard, ProviderError> {
        if let Some(heard) = self.leftovers.pop_front() {
            return Ok(heard);
        }
        loop {
            let Some(interpreter) = &mut self.interpreter else {
                return Err(ProviderError::Protocol("no interpreter is running".to_owned()));
            };
            let init = self.shell.pid();
            let ended = tokio::select! {
                biased;
                event = self.shell.event() => match event {
                    Ok(InitEvent::Ended { status, .. }) => self.judge_interpreter(status.unwrap_or_default()),
                    Ok(_) => return Err(ProviderError::Protocol("init said something out of turn".to_owned())),
                    Err(_) => self.interpreter_gone().await,
                },
                next = interpreter.next(self.group.as_ref(), init) => match next {
                    Next::Nothing => continue,
                    Next::Heard(heard) => return Ok(heard),
                    Next::Limit(reason) => {
                        self.end_all().await;
                        reason
                    }
                },
            };
            // What it printed comes first, then its end.
            if let Some(mut interpreter) = self.interpreter.take() {
                let words = interpreter.last_words().into_iter();
                self.leftovers
                    .extend(words.map(|(stream, bytes)| Heard::Output(stream, bytes)));
            }
            self.leftovers.push_back(Heard::Ended(ended));
            if let Some(heard) = self.leftovers.pop_front() {
                return Ok(heard);
            }
        }
    }

    fn judge_interpreter(&self, status: i32) -> Ended {
        let execution = self.interpreter.as_ref().and_then(|it| it.execution.as_ref());
        match execution {
            Some(execution) => self.judge(status, &execution.watch),
            None if libc::WIFEXITED(status) => Ended::Exited(libc::WEXITSTATUS(status)),
            None => Ended::Signaled(libc::WTERMSIG(status)),
        }
    }

    async fn interpreter_gone(&mut self) -> Ended {
        self.end_all().await;
        let execution = self.interpreter.as_ref().and_then(|it| it.execution.as_ref());
        if execution.is_some_and(|execution| execution.watch.saw_memory_run_out(self.group.as_ref())) {
            return Ended::OutOfMemory;
        }
        Ended::Lost("the sandbox's init was killed from outside".to_owned())
    }

    fn observe(&mut self, notes: Vec<Note>) {
        for note in notes {
            if !self.notes.contains(&note) {
                self.notes.push(note);
            }
        }
    }

    /// A program that could not be started is the caller's mistake; a wall that could not be
    /// raised is ours.
    fn cannot_start(
        &self,
        stage: &Stage,
        failure: &crate::wire::StepFailure,
    ) -> Result<Ended, ProviderError> {
        if failure.step != "Exec" {
            return Err(probe::explain(failure));
        }
        let program = stage.argv().first().map_or("", String::as_str);
        let why = match failure.errno {
            libc::ENOENT => format!("`{program}` is not there"),
            libc::EACCES => format!("`{program}` cannot be executed"),
            libc::ENOEXEC => format!("`{program}` is not a program"),
            libc::E2BIG => "its arguments and variables are too long".to_owned(),
            _ => step_text(failure),
        };
        Ok(Ended::CannotStart(why))
    }

    /// How the guest ended, from its wait status and what the kernel counted.
    fn judge(&self, status: i32, watch: &Watch) -> Ended {
        if watch.saw_memory_run_out(self.group.as_ref()) {
            return Ended::OutOfMemory;
        }
        if watch.is_late() && libc::WIFSIGNALED(status) {
            // Init keeps the deadline as well, for an engine that is held up.
            return Ended::WallTime;
        }
        if libc::WIFEXITED(status) {
            return Ended::Exited(libc::WEXITSTATUS(status));
        }
        Ended::Signaled(libc::WTERMSIG(status))
    }

    /// Init is gone although nobody here ended it.
    async fn why_gone(&mut self, watch: &Watch) -> Ended {
        self.end_all().await;
        if watch.saw_memory_run_out(self.group.as_ref()) {
            return Ended::OutOfMemory;
        }
        Ended::Lost("the sandbox's init was killed from outside".to_owned())
    }

    async fn end_all(&mut self) {
        self.shell.kill();
        self.shell.gone().await;
    }
}

/// Opens a file of the host that a request names; only regular ones.
fn open_host_file(path: &std::path::Path) -> io::Result<OwnedFd> {
    let file = rustix::fs::open(
        path,
        OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK,
        Mode::empty(),
    )?;
    let kind = rustix::fs::FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode);
    if kind.is_file() {
        Ok(file)
    } else {
        Err(io::Error::other("not a regular file"))
    }
}

fn failed(operation: &'static str, object: &str, source: io::Error) -> ProviderError {
    ProviderError::Io {
        operation,
        object: object.to_owned(),
        source,
    }
}

impl Sandbox for NativeSandbox {
    fn id(&self) -> &str {
        &self.id
    }

    fn put<'a>(
        &'a mut self,
        files: &'a BTreeMap<GuestPath, FileIn>,
    ) -> BoxFuture<'a, Result<(), ProviderError>> {
        Box::pin(self.put_files(files))
    }

    fn run<'a>(
        &'a mut self,
        stage: &'a Stage,
        io: StageIo<'a>,
    ) -> BoxFuture<'a, Result<StageEnd, ProviderError>> {
        Box::pin(self.run_stage(stage, io))
    }

    fn interpreting(&mut self) -> Option<&mut dyn Interpreting> {
        Some(self)
    }

    fn collect<'a>(&'a mut self, paths: &'a [GuestPath], limit: u64) -> BoxFuture<'a, Vec<CollectedFile>> {
        let files = if paths.is_empty() {
            Vec::new()
        } else {
            collect::collect(self.shell.work_dir.as_fd(), paths, limit)
        };
        Box::pin(std::future::ready(files))
    }

    fn receipt(&self) -> Receipt {
        let group = self.group.as_ref().map(SandboxGroup::version);
        receipt::build(&self.plan, &self.shared, &self.notes, group)
    }

    fn close(mut self: Box<Self>) -> BoxFuture<'static, Result<(), ProviderError>> {
        Box::pin(async move {
            self.end_all().await;
            let removed = match self.group.take() {
                Some(group) => group.remove(),
                None => Ok(()),
            };
            if spec::has_private_root(&self.plan) {
                self.shell.nursery().close().await;
            }
            removed
        })
    }
}

impl Interpreting for NativeSandbox {
    fn start<'a>(&'a mut self, stage: &'a Stage) -> BoxFuture<'a, Result<(), ProviderError>> {
        Box::pin(self.start_interpreter(stage))
    }

    fn begin(&mut self, limits: &Limits) -> Result<(), ProviderError> {
        if let Some(group) = &mut self.group {
            group.limit(limits)?;
        }
        if let Some(interpreter) = &mut self.interpreter {
            interpreter.begin(limits, self.group.as_ref(), self.machine.memory_accounted);
        }
        Ok(())
    }

    fn say(&mut self, message: &[u8]) {
        if let Some(interpreter) = &mut self.interpreter {
            interpreter.channel.say(message);
        }
    }

    fn hear(&mut self) -> BoxFuture<'_, Result<Heard, ProviderError>> {
        Box::pin(self.hear_interpreter())
    }

    fn finish(&mut self, sink: &mut dyn OutputSink) -> Usage {
        match &mut self.interpreter {
            Some(interpreter) => interpreter.finish(self.group.as_ref(), sink),
            None => Usage::default(),
        }
    }

    fn interrupt(&mut self) {
        self.shell.tell(&InitRequest::Interrupt);
    }

    fn stop(&mut self) -> BoxFuture<'_, bool> {
        Box::pin(async move {
            self.leftovers.clear();
            if self.interpreter.take().is_none() {
                return self.shell.is_alive();
            }
            self.shell.tell(&InitRequest::EndGuest);
            loop {
                match self.shell.event().await {
                    Ok(InitEvent::Ended { .. }) => return true,
                    Ok(_) => {}
                    Err(_) => {
                        self.end_all().await;
                        return false;
                    }
                }
            }
        })
    }

    fn work_dir(&self) -> Option<BorrowedFd<'_>> {
        Some(self.shell.work_dir.as_fd())
    }
}
