//! A live sandbox of the native provider.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

use belljar_core::outcome::CollectedFile;
use belljar_core::provider::{BoxFuture, Doors, Ended, Heard, Interpreting, StageEnd, StageIo};
use belljar_core::request::FileIn;
use belljar_core::{Control, GuestPath, Plan, ProviderError, Receipt, Sandbox, Stage, Usage, Weight};

use super::bury::Remains;
use super::group::{SandboxGroup, limits_of};
use super::guest::{Guest, Told};
use super::interpreter::Interpreter;
use super::put::Put;
use super::raise::{self, Raised, Wanted};
use super::receipt::Origin;
use super::shared::Shared;
use super::shell::{Shell, step_text};
use super::spec::{self, Machine};
use super::watch::Watch;
use super::{collect, kernel_state, probe, provider, put, receipt, warm};
use crate::doors;
use crate::weaken;
use crate::wire::{InitRequest, Note, StepFailure};

/// One sandbox: a shell, its control group, and what was observed of it.
#[derive(Debug)]
pub(crate) struct NativeSandbox {
    id: String,
    pub(super) plan: Arc<Plan>,
    shared: Arc<Shared>,
    pub(super) machine: Machine,
    /// Before the group: dropping goes in this order, and a group must be empty to be removed.
    pub(super) shell: Shell,
    pub(super) group: Option<SandboxGroup>,
    notes: Vec<Note>,
    pub(super) origin: Origin,
    /// A guest that waits for something to do.
    pub(super) waiting: Option<Guest>,
    pub(super) interpreter: Option<Interpreter>,
    /// What the interpreter printed before it ended, and how it ended.
    pub(super) leftovers: VecDeque<Heard>,
    /// What the execution had used by then.
    pub(super) used: Usage,
    /// Whether init has said that nothing but itself is left.
    pub(super) is_empty: bool,
    /// Why its processes could not be killed.
    hung: Option<ProviderError>,
}

impl NativeSandbox {
    pub(crate) async fn open(
        shared: Arc<Shared>,
        id: String,
        plan: Arc<Plan>,
    ) -> Result<Self, ProviderError> {
        if weaken::path().is_some() {
            let (shared, plan) = (Arc::clone(&shared), Arc::clone(&plan));
            let prepared = tokio::task::spawn_blocking(move || provider::prepare(&shared, &plan)).await;
            prepared.map_err(|_| ProviderError::Protocol("preparing broke off".to_owned()))??;
        }
        let Found {
            raised,
            origin,
            has_files,
        } = find(&shared, &id, &plan).await?;
        let Raised { shell, group, guest } = raised;
        let taken = |error| failed("take", "a sandbox", error);
        let shell = Shell::take(shell).map_err(taken)?;
        let mut sandbox = Self {
            id,
            machine: shared.machine(),
            plan,
            shared,
            group,
            notes: shell.notes.clone(),
            shell,
            origin,
            waiting: guest.map(Guest::take).transpose().map_err(taken)?,
            interpreter: None,
            leftovers: VecDeque::new(),
            used: Usage::default(),
            is_empty: false,
            hung: None,
        };
        let has_proc = sandbox.notes.contains(&Note::ProcMounted);
        sandbox.machine.count_processes &= has_proc;
        sandbox.shared.saw_proc(has_proc);
        sandbox.check_required()?;
        if !has_files {
            sandbox.put_files(Arc::clone(&sandbox.plan).files()).await?;
        }
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
        for file in files {
            let put = Put::new(file)?;
            let (request, content) = put.request();
            let sent = self.shell.send(&request, &[content]).await;
            let answer = match sent {
                Ok(()) => self.shell.answer().await,
                Err(error) => Err(error),
            };
            put.check(answer)?;
        }
        Ok(())
    }

    pub(super) fn observe(&mut self, notes: Vec<Note>) {
        for note in notes {
            if !self.notes.contains(&note) {
                self.notes.push(note);
            }
        }
    }

    /// A program that could not be started is the caller's mistake; a wall that could not be
    /// raised is ours.
    pub(super) fn cannot_start(&self, stage: &Stage, failure: &StepFailure) -> Result<Ended, ProviderError> {
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
    pub(super) fn judge(&self, status: i32, watch: Option<&Watch>) -> Ended {
        if watch.is_some_and(|watch| watch.saw_memory_run_out(self.group.as_ref())) {
            return Ended::OutOfMemory;
        }
        if watch.is_some_and(Watch::is_late) && libc::WIFSIGNALED(status) {
            // Init keeps the deadline as well, for an engine that is held up.
            return Ended::WallTime;
        }
        if libc::WIFEXITED(status) {
            return Ended::Exited(libc::WEXITSTATUS(status));
        }
        Ended::Signaled(libc::WTERMSIG(status))
    }

    /// Init is gone although nobody here ended it.
    pub(super) async fn why_gone(&mut self, watch: Option<&Watch>) -> Ended {
        self.end_all().await;
        if watch.is_some_and(|watch| watch.saw_memory_run_out(self.group.as_ref())) {
            return Ended::OutOfMemory;
        }
        Ended::Lost("the sandbox's init was killed from outside".to_owned())
    }

    pub(super) async fn zygote_lost(&mut self) -> Ended {
        self.end_all().await;
        Ended::Lost("the warm interpreter that it was forked from was killed from outside".to_owned())
    }

    /// Kills every process of the sandbox and waits until all of them are gone.
    pub(super) async fn end_all(&mut self) {
        self.shell.kill();
        let init = self.shell.init_pid();
        if !self.shell.gone().await {
            self.hung = Some(kernel_state::hung(init, "die", kernel_state::KILL_TIMEOUT));
        }
    }

    /// The error of a sandbox that does not start. Its processes are killed, but not waited for: they may hang in the kernel.
    pub(super) fn not_started(&mut self) -> ProviderError {
        let error = kernel_state::hung(self.shell.init_pid(), "start", kernel_state::start_timeout());
        self.shell.kill();
        error
    }

    /// Fails where processes of the sandbox could not be killed.
    pub(super) fn check_dead(&mut self) -> Result<(), ProviderError> {
        self.hung.take().map_or(Ok(()), Err)
    }

    /// Sends away a guest that waits, so that another one can be started.
    pub(super) async fn dismiss(&mut self) -> Result<(), ProviderError> {
        let Some(mut guest) = self.waiting.take() else {
            return Ok(());
        };
        self.shell.tell(&InitRequest::EndGuest);
        loop {
            match guest.fate.next(&mut self.shell).await {
                Ok(Told::Ended(_) | Told::ZygoteLost) => return Ok(()),
                Ok(_) => {}
                Err(error) => return Err(failed("clear", "a sandbox", error)),
            }
        }
    }
}

/// A sandbox that nobody has used.
struct Found {
    raised: Raised,
    origin: Origin,
    /// Whether the plan's files are in it.
    has_files: bool,
}

/// A sandbox for `plan`: one that waits, else one that is made now.
async fn find(shared: &Arc<Shared>, id: &str, plan: &Arc<Plan>) -> Result<Found, ProviderError> {
    let outline = warm::outline(shared, plan);
    if let Some(outline) = outline.as_ref().filter(|_| weaken::path() != Some("forked")) {
        let pooled = shared.pool().take(shared, &outline.shape, || outline.recipe());
        if let Some(raised) = pooled {
            let origin = match &raised.guest {
                Some(guest) if guest.ended.is_some() => Origin::ForkedAhead,
                Some(_) => Origin::StartedAhead,
                None => Origin::Pooled,
            };
            return Ok(Found {
                raised,
                origin,
                has_files: false,
            });
        }
    }
    let has_files = put::is_quick(plan);
    let files = has_files.then(|| Arc::clone(plan));
    let found = |raised, origin| Found {
        raised,
        origin,
        has_files,
    };
    let wanted = match outline.and_then(|outline| outline.on_demand(shared)) {
        Some(wanted) => Wanted { files, ..wanted },
        None => Wanted {
            nursery: shared.nursery(plan)?,
            shell: spec::shell(plan),
            limits: limits_of(plan.limits()),
            shares: true,
            guest: None,
            files,
        },
    };
    let plain = Wanted {
        guest: None,
        ..wanted.clone()
    };
    if wanted.guest.is_some() {
        match raise_aside(shared, wanted, id.to_owned()).await {
            Ok(raised) => return Ok(found(raised, Origin::Forked)),
            // A file that cannot be put cannot be put the next time either.
            Err(
                error @ ProviderError::Io {
                    operation: put::OPERATION,
                    ..
                },
            ) => return Err(error),
            // A zygote that fails at the last moment is no reason to fail: a fresh interpreter will do.
            Err(_) => {}
        }
        let raised = raise_aside(shared, plain, format!("{id}-again")).await?;
        return Ok(found(raised, Origin::Made));
    }
    let raised = raise_aside(shared, plain, id.to_owned()).await?;
    Ok(found(raised, Origin::Made))
}

/// Raising blocks, so a thread of the runtime's own does it.
async fn raise_aside(shared: &Arc<Shared>, wanted: Wanted, name: String) -> Result<Raised, ProviderError> {
    let shared = Arc::clone(shared);
    let (beginning, asking) = raise::prepare(&shared, wanted);
    let raising = tokio::task::spawn_blocking(move || beginning.begin(&shared, &name)?.tell());
    // Meanwhile, and before this thread has to wait: both work side by side then.
    match asking {
        Some(asking) if asking.is_quick() => asking.ask(),
        Some(asking) => drop(tokio::task::spawn_blocking(move || asking.ask())),
        None => {}
    }
    let filling = raising
        .await
        .unwrap_or_else(|_| Err(ProviderError::Protocol("raising a sandbox broke off".to_owned())))?;
    filling.filled().await
}

pub(super) fn failed(operation: &'static str, object: &str, source: io::Error) -> ProviderError {
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

    fn weigh(&mut self, weight: Weight) {
        self.shared.saw_weight(weight);
        if let Some(group) = &mut self.group {
            group.weigh(weight);
        }
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

    fn take_doors(&mut self) -> Option<Doors> {
        let doors = std::mem::take(&mut self.shell.doors);
        let ports = self.plan.egress()?.ports();
        (!doors.is_empty()).then(|| doors::sort(doors, &ports))
    }

    fn receipt(&self) -> Receipt {
        let group = self.group.as_ref().map(SandboxGroup::version);
        receipt::build(&self.plan, &self.shared, &self.notes, group, self.origin)
    }

    fn discard(self: Box<Self>) -> BoxFuture<'static, Result<(), ProviderError>> {
        if spec::has_private_root(&self.plan) {
            return self.close();
        }
        let Self {
            shell,
            group,
            shared,
            is_empty,
            ..
        } = *self;
        // An empty init can wait for its turn.
        if !is_empty {
            shell.kill();
        }
        let Some(mut remains) = shared.undertaker.take(Remains { shell, group }) else {
            return Box::pin(std::future::ready(Ok(())));
        };
        Box::pin(async move {
            remains.shell.kill();
            let init = remains.shell.init_pid();
            if !remains.shell.gone().await {
                return Err(kernel_state::hung(init, "die", kernel_state::KILL_TIMEOUT));
            }
            remains.group.map_or(Ok(()), SandboxGroup::remove)
        })
    }

    fn close(mut self: Box<Self>) -> BoxFuture<'static, Result<(), ProviderError>> {
        Box::pin(async move {
            self.end_all().await;
            self.check_dead()?;
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
