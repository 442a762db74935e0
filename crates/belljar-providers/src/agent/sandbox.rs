//! A live sandbox with an agent in it.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use belljar_core::outcome::CollectedFile;
use belljar_core::provider::{BoxFuture, Doors, Ended, Heard, Interpreting, StageEnd, StageIo};
use belljar_core::receipt::Observed;
use belljar_core::request::FileIn;
use belljar_core::{Control, GuestPath, Plan, ProviderError, Receipt, Sandbox, Stage, Usage, Weight};
use belljar_linux::agent::wire::{GRANTED, ask};
use belljar_linux::agent::{Start, Surroundings};

use super::counters::Counters;
use super::line::{Connected, Guests, Line};
use super::talk::Interpreter;
use super::told::Told;
use super::watch::{Held, Watch};
use crate::place::Place;

/// How long an agent may take to end a guest before the place is ended around it.
const ENDING: Duration = Duration::from_secs(5);

/// A place with an agent, as a provider made it.
#[derive(Debug)]
pub(crate) struct Made {
    pub place: Box<dyn Place>,
    pub connected: Connected,
    pub surroundings: Surroundings,
    pub counters: Counters,
    /// What has to be held from here.
    pub held: Held,
}

/// One sandbox.
#[derive(Debug)]
pub(crate) struct AgentSandbox {
    id: String,
    provider: &'static str,
    pub(super) plan: Arc<Plan>,
    pub(super) line: Arc<Line>,
    pub(super) guests: Guests,
    pub(super) place: Box<dyn Place>,
    pub(super) surroundings: Surroundings,
    pub(super) counters: Counters,
    pub(super) held: Held,
    doors: Option<Doors>,
    /// What was listened to and not yet granted anew.
    listened: usize,
    pub(super) interpreter: Option<Interpreter>,
    /// What the interpreter printed before it ended, and how it ended.
    pub(super) leftovers: VecDeque<Heard>,
    /// What the execution had used by then.
    pub(super) used: Usage,
}

impl AgentSandbox {
    pub(crate) async fn open(
        id: String,
        provider: &'static str,
        plan: Arc<Plan>,
        made: Made,
    ) -> Result<Self, ProviderError> {
        let Made {
            place,
            connected,
            surroundings,
            counters,
            held,
        } = made;
        let mut sandbox = Self {
            id,
            provider,
            plan,
            line: connected.line,
            guests: connected.guests,
            place,
            surroundings,
            counters,
            held,
            doors: None,
            listened: 0,
            interpreter: None,
            leftovers: VecDeque::new(),
            used: Usage::default(),
        };
        let ready = sandbox.prepare().await;
        match ready {
            Ok(()) => Ok(sandbox),
            Err(error) => {
                // Nothing of it is left, whatever was wrong.
                let _ = sandbox.place.end().await;
                Err(error)
            }
        }
    }

    async fn prepare(&mut self) -> Result<(), ProviderError> {
        self.check_required()?;
        if let Some(egress) = self.plan.egress() {
            self.doors = Some(self.place.open_doors(egress.ports()).await?);
        }
        self.put_files(Arc::clone(&self.plan).files()).await
    }

    /// What the plan requires must have been observed.
    fn check_required(&self) -> Result<(), ProviderError> {
        let controls = self.controls();
        for control in self.plan.required() {
            if let Some(Observed::Absent { why }) = controls.get(control) {
                return Err(ProviderError::ControlMissing {
                    control: *control,
                    why: why.clone(),
                    fix: format!(
                        "have the {} provider's engine enforce it, or pick another provider",
                        self.provider
                    ),
                });
            }
        }
        Ok(())
    }

    async fn put_files(&self, files: &BTreeMap<GuestPath, FileIn>) -> Result<(), ProviderError> {
        for (path, file) in files {
            self.line.put(path, file).await?;
        }
        Ok(())
    }

    /// What holds: what the place has, and what every guest is given by the agent.
    fn controls(&self) -> BTreeMap<Control, Observed> {
        let mut controls = self.place.controls();
        let inside = if self.surroundings.walls {
            controls
                .entry(Control::Seccomp)
                .or_insert_with(|| Observed::enforced("allowlist"));
            // A guest without these is not started: the calls say what they must return.
            controls.insert(Control::NoNewPrivileges, Observed::enforced("set"));
            if let Some(users) = self.surroundings.users {
                controls.insert(Control::NoCapabilities, Observed::enforced("none left to guests"));
                let text = format!("uid {} of a kernel of its own", users.writer);
                controls.insert(Control::FreshUid, Observed::enforced(text));
            }
            match self.surroundings.landlock {
                0 => Observed::absent("the kernel in there has none"),
                version => Observed::enforced(format!("ABI {}", version.min(9))),
            }
        } else {
            Observed::absent("the provider has no walls")
        };
        controls.insert(Control::Landlock, inside);
        controls.insert(Control::Rlimits, Observed::enforced("set before the start"));
        for control in Control::ALL {
            controls
                .entry(*control)
                .or_insert_with(|| Observed::absent("the provider does not have it"));
        }
        controls
    }

    /// Tells the agent to start the guest of a stage.
    pub(super) fn start_guest(&mut self, stage: &Stage, channel: bool) -> Start {
        let start = Start::new(&self.plan, stage, &self.surroundings, channel);
        self.listened = 0;
        self.line.tell(ask::START, &start.frame);
        start
    }

    /// So much of what a guest wrote was listened to, so it may write as much again.
    pub(super) fn listened_to(&mut self, count: usize) {
        self.listened += count;
        if self.listened >= GRANTED / 4 {
            self.line.tell(ask::GRANT, &(self.listened as u32).to_le_bytes());
            self.listened = 0;
        }
    }

    /// A program that could not be started is the caller's mistake; a wall that could not be
    /// raised is ours.
    pub(super) fn cannot_start(stage: &Stage, step: &str, errno: i32) -> Result<Ended, ProviderError> {
        let source = io::Error::from_raw_os_error(errno);
        if step != "Exec" {
            return Err(ProviderError::Setup {
                step: step.to_owned(),
                source,
            });
        }
        let program = stage.argv().first().map_or("", String::as_str);
        let why = match errno {
            libc::ENOENT => format!("`{program}` is not there"),
            libc::EACCES => format!("`{program}` cannot be executed"),
            libc::ENOEXEC => format!("`{program}` is not a program"),
            libc::E2BIG => "its arguments and variables are too long".to_owned(),
            _ => format!("`{program}`: {source}"),
        };
        Ok(Ended::CannotStart(why))
    }

    /// How the guest ended, from its wait status and what the kernel counted.
    pub(super) fn judge(status: i32, watch: Option<&Watch>) -> Ended {
        if watch.is_some_and(Watch::saw_memory_run_out) {
            return Ended::OutOfMemory;
        }
        if libc::WIFEXITED(status) {
            return Ended::Exited(libc::WEXITSTATUS(status));
        }
        if watch.is_some_and(Watch::is_late) {
            return Ended::WallTime;
        }
        Ended::Signaled(libc::WTERMSIG(status))
    }

    /// Ends the place with everything in it; what it said until then is left to be heard.
    pub(super) async fn end_all(&mut self) {
        let _ = self.place.end().await;
    }

    /// Has the agent end the guest; true if it did.
    pub(super) async fn end_guest(&mut self) -> bool {
        self.line.tell(ask::END, &[]);
        let ended = tokio::time::timeout(ENDING, async {
            loop {
                match self.guests.recv().await {
                    Some(Told::Ended { .. } | Told::NotStarted { .. }) => return true,
                    Some(_) => {}
                    None => return false,
                }
            }
        });
        ended.await.unwrap_or(false)
    }
}

impl Sandbox for AgentSandbox {
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
        self.place.weigh(weight);
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
        Box::pin(self.line.collect(paths, limit))
    }

    fn take_doors(&mut self) -> Option<Doors> {
        self.doors.take()
    }

    fn receipt(&self) -> Receipt {
        Receipt {
            provider: self.provider.to_owned(),
            isolation: self.plan.isolation(),
            policy_id: self.plan.policy_id().to_owned(),
            policy_hash: self.plan.policy_hash().to_owned(),
            environment: self.plan.environment().cloned(),
            controls: self.controls(),
            network: self.plan.network(),
            limits: self.plan.limits().clone(),
            shown: self.place.shown(),
            origin: self.place.origin(),
        }
    }

    fn discard(self: Box<Self>) -> BoxFuture<'static, Result<(), ProviderError>> {
        self.place.discard()
    }

    fn close(mut self: Box<Self>) -> BoxFuture<'static, Result<(), ProviderError>> {
        Box::pin(async move { self.place.end().await })
    }
}
