//! One execution from request to record.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use belljar_core::guard::Missing;
use belljar_core::provider::{BoxFuture, Footing, OutputSink, Provider, ProviderError, Sandbox, StageStdin};
use belljar_core::request::Stdin;
use belljar_core::{
    Denial, DenialCode, Environment, IsolationLevel, Outcome, Plan, Policy, ProviderName, Record, Request,
    Weight, guard,
};

use crate::egress::{Authorities, Secrets, all_places, stand_at_doors};
use crate::environment::{EnvironmentError, Environments, Lease};
use crate::ident::fresh_id;
use crate::live::LiveSandbox;
use crate::session::builder::MessageBuilder;

/// Runs requests. Cheap to clone; all clones share their providers.
#[derive(Clone, Debug)]
pub struct Engine {
    providers: Arc<[Arc<dyn Provider>]>,
    environments: Option<Environments>,
    authorities: Authorities,
    messages: Arc<MessageBuilder>,
}

/// What an execution is connected to while it runs.
#[derive(Default)]
pub struct ExecuteIo<'a> {
    /// Sees output as it comes.
    pub sink: Option<&'a mut (dyn OutputSink + Send)>,
    /// The guest's standard input where the request says [`Stdin::Stream`].
    pub stdin: Option<OwnedFd>,
    /// Resolves when the caller wants it to stop.
    pub stop: Option<BoxFuture<'a, ()>>,
}

impl std::fmt::Debug for ExecuteIo<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ExecuteIo")
            .field("stdin", &self.stdin)
            .finish_non_exhaustive()
    }
}

/// A request that the guard let through, with what was looked up for it.
#[derive(Debug)]
pub struct Planned {
    pub(crate) policy: Policy,
    pub(crate) request: Request,
    pub(crate) plan: Plan,
    pub(crate) lease: Option<Lease>,
    weight: Weight,
}

impl Planned {
    pub const fn plan(&self) -> &Plan {
        &self.plan
    }

    /// What its sandbox weighs beside others.
    pub const fn weighing(mut self, weight: Weight) -> Self {
        self.weight = weight;
        self
    }
}

/// An execution that ran, whatever became of the program.
#[derive(Clone, Debug)]
pub struct Execution {
    pub outcome: Outcome,
    pub record: Record,
}

/// Why nothing ran.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The guard or the machine refused it.
    #[error("{denial}")]
    Denied {
        denial: Box<Denial>,
        record: Box<Record>,
    },
    /// belljar could not do its work.
    #[error(transparent)]
    Provider(#[from] ProviderError),
    /// The environment that the request names is not there or cannot be used.
    #[error(transparent)]
    Environment(Box<EnvironmentError>),
    /// A sandbox that is kept has its walls already.
    #[error("this sandbox was made without the {what} that the request asks for; open another one")]
    MadeWithout { what: &'static str },
    /// The sandbox is over, or busy.
    #[error("a sandbox in state {0} cannot run anything")]
    NotReady(belljar_core::Lifecycle),
}

impl Engine {
    /// An engine with one wall.
    pub fn new(provider: Arc<dyn Provider>) -> Self {
        Self::with_providers([provider])
    }

    /// An engine with several walls; which one serves a request its policy says. The first is the usual one.
    pub fn with_providers(providers: impl IntoIterator<Item = Arc<dyn Provider>>) -> Self {
        Self {
            providers: providers.into_iter().collect(),
            environments: None,
            authorities: Authorities::default(),
            messages: MessageBuilder::shared(None),
        }
    }

    /// Calls `release` some time after large messages of guests, to return freed memory to the system. An allocator keeps it
    /// otherwise, for as long as the process lives.
    #[must_use]
    pub fn with_memory_release(mut self, release: fn()) -> Self {
        self.messages = MessageBuilder::shared(Some(release));
        self
    }

    /// What builds the messages of all sessions of this engine.
    pub(crate) const fn messages(&self) -> &Arc<MessageBuilder> {
        &self.messages
    }

    /// The same with a store of environments other than the caller's own.
    #[must_use]
    pub fn with_environments(mut self, environments: Environments) -> Self {
        self.environments = Some(environments);
        self
    }

    /// Where this engine looks environments up.
    pub fn environments(&self) -> Result<Environments, EnvironmentError> {
        match &self.environments {
            Some(environments) => Ok(environments.clone()),
            None => Environments::of_caller(),
        }
    }

    /// All its walls.
    pub fn providers(&self) -> impl Iterator<Item = &dyn Provider> {
        self.providers.iter().map(|provider| &**provider)
    }

    /// The wall that serves whoever asks for nothing in particular.
    pub fn usual_provider(&self) -> Option<&dyn Provider> {
        self.providers().next()
    }

    /// Starts in the background what the first sandbox would otherwise wait for.
    pub fn warm_up(&self) {
        if let Some(provider) = self.usual_provider() {
            provider.warm_up();
        }
    }

    /// The wall of that name, where this engine has it.
    pub fn provider(&self, name: ProviderName) -> Option<&dyn Provider> {
        self.providers().find(|provider| provider.name() == name)
    }

    /// The wall that serves a request: the first of those that its policy allows that is there.
    fn choose(&self, policy: &Policy, request: &Request) -> Result<&dyn Provider, Denial> {
        let mut missing = Vec::new();
        for name in guard::candidates(policy, request)? {
            let why = match self.provider(name) {
                Some(provider) => match provider.presence() {
                    Ok(_) => return Ok(provider),
                    Err(why) => why,
                },
                None => Missing {
                    why: "this engine was made without it".to_owned(),
                    fix: String::new(),
                },
            };
            missing.push((name, why));
        }
        Err(guard::none_present(policy, &missing))
    }

    /// The plan that the guard makes of a request, without running it.
    pub fn plan(&self, policy: &Policy, request: &Request) -> Result<Plan, EngineError> {
        Ok(self.plan_and_hold(policy, request)?.0)
    }

    /// The plan of a request, and a hold on the environment that it names.
    pub(crate) fn plan_and_hold(
        &self,
        policy: &Policy,
        request: &Request,
    ) -> Result<(Plan, Option<Lease>), EngineError> {
        let (environment, lease) = self.look_up(request)?;
        Ok((self.plan_in(policy, request, environment)?, lease))
    }

    /// The environment that a request names, and a hold on it.
    pub(crate) fn look_up(
        &self,
        request: &Request,
    ) -> Result<(Option<Environment>, Option<Lease>), EngineError> {
        let Some(name) = &request.environment else {
            return Ok((None, None));
        };
        let found = self.environments().and_then(|store| store.resolve(name));
        let (environment, lease) = found.map_err(|error| EngineError::Environment(Box::new(error)))?;
        Ok((Some(environment), Some(lease)))
    }

    /// The plan with an environment that was looked up.
    pub(crate) fn plan_in(
        &self,
        policy: &Policy,
        request: &Request,
        environment: Option<Environment>,
    ) -> Result<Plan, EngineError> {
        // What the environment brings need not be looked for.
        let languages: Vec<_> = request
            .language()
            .into_iter()
            .filter(|language| {
                environment
                    .as_ref()
                    .is_none_or(|found| found.root.is_none() && found.language != *language)
            })
            .collect();
        let provider = self
            .choose(policy, request)
            .map_err(|denial| denied(policy, request, denial))?;
        let footing = match (&request.image, &environment) {
            (Some(name), _) => Footing::Image {
                name,
                fetch: guard::may_fetch(policy, request),
            },
            (None, Some(environment)) => Footing::Environment(environment),
            (None, None) => Footing::Usual,
        };
        let mut capabilities = provider
            .capabilities_of(footing, &languages)
            .map_err(|error| refused(policy, request, error))?;
        capabilities.environments = environment
            .into_iter()
            .map(|found| (found.name.clone(), found))
            .collect();
        guard::check(policy, &capabilities, request).map_err(|denial| denied(policy, request, denial))
    }

    /// Has sandboxes for such a request raised ahead of time, and waits until they stand. Blocks: within a
    /// runtime, call it from a thread that may.
    pub fn prepare(&self, policy: &Policy, request: &Request) -> Result<(), EngineError> {
        // Held until they stand, which is when they no longer need the way to it.
        let (plan, _lease) = self.plan_and_hold(policy, request)?;
        self.serving(&plan)?
            .prepare(&plan)
            .map_err(|error| refused(policy, request, error))
    }

    /// The processor time that all sandboxes have used so far, where that is counted. It begins anew now and then.
    pub fn cpu_used(&self) -> Option<Duration> {
        self.providers()
            .filter_map(|provider| provider.cpu_used())
            .reduce(|all, one| all + one)
    }

    /// What [`Engine::execute_planned`] takes: the plan that the guard makes of a request, with the policy as it is now,
    /// and a hold on the environment that it names.
    pub fn plan_run(&self, policy: &Policy, request: &Request) -> Result<Planned, EngineError> {
        let (plan, lease) = self.plan_and_hold(policy, request)?;
        Ok(Planned {
            policy: policy.clone(),
            request: request.clone(),
            plan,
            lease,
            weight: Weight::FULL,
        })
    }

    /// [`Engine::plan_run`] where others are not to be held up: other walls than the usual one may have to be looked for,
    /// and an image fetched, which takes its time.
    pub async fn plan_aside(&self, policy: &Policy, request: &Request) -> Result<Planned, EngineError> {
        let is_usual = policy.providers.is_empty() && policy.isolation_level <= IsolationLevel::Process;
        if is_usual && request.provider.is_none() && request.image.is_none() {
            return self.plan_run(policy, request);
        }
        let (engine, policy, request) = (self.clone(), policy.clone(), request.clone());
        let planning = tokio::task::spawn_blocking(move || engine.plan_run(&policy, &request));
        let broken = |_| ProviderError::Protocol("planning broke off".to_owned());
        planning.await.map_err(broken)?
    }

    /// Makes a sandbox, runs what was planned in it, and destroys it.
    pub async fn execute_planned(
        &self,
        planned: Planned,
        io: ExecuteIo<'_>,
    ) -> Result<Execution, EngineError> {
        let Planned {
            policy,
            request,
            plan,
            lease,
            weight,
        } = planned;
        let mut sandbox = self.open_plan(&policy, &request, plan, lease).await?;
        sandbox.weigh(weight);
        run_to_end(sandbox, io).await
    }

    /// Makes a sandbox, runs the request in it, and destroys it.
    pub async fn execute(
        &self,
        policy: &Policy,
        request: &Request,
        io: ExecuteIo<'_>,
    ) -> Result<Execution, EngineError> {
        let planned = self.plan_aside(policy, request).await?;
        self.execute_planned(planned, io).await
    }

    /// [`Engine::execute`] in an environment that is not in any store.
    pub(crate) async fn execute_in(
        &self,
        policy: &Policy,
        request: &Request,
        environment: Option<Environment>,
        io: ExecuteIo<'_>,
    ) -> Result<Execution, EngineError> {
        let plan = self.plan_in(policy, request, environment)?;
        let sandbox = self.open_plan(policy, request, plan, None).await?;
        run_to_end(sandbox, io).await
    }

    /// Makes a sandbox for a request and keeps it: files in, nothing running yet.
    pub async fn open(&self, policy: &Policy, request: &Request) -> Result<LiveSandbox, EngineError> {
        let Planned { plan, lease, .. } = self.plan_aside(policy, request).await?;
        self.open_plan(policy, request, plan, lease).await
    }

    async fn open_plan(
        &self,
        policy: &Policy,
        request: &Request,
        plan: Plan,
        lease: Option<Lease>,
    ) -> Result<LiveSandbox, EngineError> {
        let plan = Arc::new(plan);
        let sandbox = self.raise(policy, request, Arc::clone(&plan)).await?;
        Ok(LiveSandbox::new(
            self.clone(),
            policy.clone(),
            plan,
            sandbox,
            lease,
        ))
    }

    /// A new sandbox for a plan that was made of these.
    pub(crate) async fn raise(
        &self,
        policy: &Policy,
        request: &Request,
        plan: Arc<Plan>,
    ) -> Result<Box<dyn Sandbox>, EngineError> {
        let secrets = match plan.egress() {
            Some(egress) => {
                // Descriptors for those who wait with doors are needed before anybody connects.
                all_places();
                Secrets::load(egress, &self.authorities).map_err(|denial| denied(policy, request, denial))?
            }
            None => Secrets::default(),
        };
        let plan = match secrets.trust() {
            Some(trust) => Arc::new(Plan::clone(&plan).trusting(trust)),
            None => plan,
        };
        let opened = self.serving(&plan)?.open(fresh_id("bj"), Arc::clone(&plan)).await;
        let sandbox = opened.map_err(|error| refused(policy, request, error))?;
        Ok(stand_at_doors(sandbox, &plan, secrets)?)
    }

    /// The wall that a plan was made for.
    fn serving(&self, plan: &Plan) -> Result<&dyn Provider, ProviderError> {
        self.provider(plan.provider())
            .ok_or_else(|| ProviderError::Protocol("a plan for another engine".to_owned()))
    }
}

/// What a provider could not do for lack of something that was asked for is a denial.
fn refused(policy: &Policy, request: &Request, error: ProviderError) -> EngineError {
    let denial = match error {
        ProviderError::ControlMissing { control, why, fix } => Denial::new(
            DenialCode::ControlUnavailable,
            format!("controls.{control}"),
            control.word(),
            format!("{control} is required and this machine lacks it: {why}"),
            fix,
        ),
        ProviderError::Image { image, why, fix } => Denial::new(
            DenialCode::ImageUnavailable,
            "image",
            &image,
            format!("the image `{image}` cannot be used: {why}"),
            fix,
        ),
        error => return error.into(),
    };
    denied(policy, request, denial)
}

async fn run_to_end(mut sandbox: LiveSandbox, io: ExecuteIo<'_>) -> Result<Execution, EngineError> {
    let result = sandbox.execute_opened(io).await;
    let discarded = sandbox.discard().await;
    let execution = result?;
    discarded?;
    Ok(execution)
}

pub(crate) fn denied(policy: &Policy, request: &Request, denial: Denial) -> EngineError {
    let record = Record::of_denial(fresh_id("rec"), policy, request, &denial, now());
    EngineError::Denied {
        denial: Box::new(denial),
        record: Box::new(record),
    }
}

/// Seconds since the epoch.
pub(crate) fn now() -> f64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0.0, |since| since.as_secs_f64())
}

/// The input of the run stage.
pub(crate) fn stage_stdin(plan: &Plan, stream: Option<OwnedFd>) -> StageStdin {
    match (plan.stdin(), stream) {
        (Stdin::Empty, _) | (Stdin::Stream, None) => StageStdin::Empty,
        (Stdin::Bytes(bytes), _) => StageStdin::Bytes(Arc::clone(bytes)),
        (Stdin::Stream, Some(fd)) => StageStdin::Descriptor(fd),
    }
}
