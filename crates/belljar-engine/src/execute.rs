//! One execution from request to record.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use belljar_core::provider::{BoxFuture, OutputSink, Provider, ProviderError, Sandbox, StageStdin};
use belljar_core::request::Stdin;
use belljar_core::{Denial, DenialCode, Outcome, Plan, Policy, Record, Request, guard};

use crate::ident::fresh_id;
use crate::live::LiveSandbox;

/// Runs requests. Cheap to clone; all clones share one provider.
#[derive(Clone, Debug)]
pub struct Engine {
    provider: Arc<dyn Provider>,
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
    /// A sandbox that is kept has its walls already.
    #[error("this sandbox was made without the {what} that the request asks for; open another one")]
    MadeWithout { what: &'static str },
    /// The sandbox is over, or busy.
    #[error("a sandbox in state {0} cannot run anything")]
    NotReady(belljar_core::Lifecycle),
}

impl Engine {
    pub fn new(provider: Arc<dyn Provider>) -> Self {
        Self { provider }
    }

    pub fn provider(&self) -> &dyn Provider {
        &*self.provider
    }

    /// The plan that the guard makes of a request, without running it.
    pub fn plan(&self, policy: &Policy, request: &Request) -> Result<Plan, Denial> {
        let languages: Vec<_> = request.language().into_iter().collect();
        guard::check(policy, &self.provider.capabilities(&languages), request)
    }

    /// Has sandboxes for such a request raised ahead of time, and waits until they stand. Blocks: within a
    /// runtime, call it from a thread that may.
    pub fn prepare(&self, policy: &Policy, request: &Request) -> Result<(), EngineError> {
        let plan = self
            .plan(policy, request)
            .map_err(|denial| denied(policy, request, denial))?;
        Ok(self.provider.prepare(&plan)?)
    }

    /// Makes a sandbox, runs the request in it, and destroys it.
    pub async fn execute(
        &self,
        policy: &Policy,
        request: &Request,
        io: ExecuteIo<'_>,
    ) -> Result<Execution, EngineError> {
        let mut sandbox = self.open(policy, request).await?;
        let result = sandbox.execute_opened(io).await;
        let closed = sandbox.close().await;
        let execution = result?;
        closed?;
        Ok(execution)
    }

    /// Makes a sandbox for a request and keeps it: files in, nothing running yet.
    pub async fn open(&self, policy: &Policy, request: &Request) -> Result<LiveSandbox, EngineError> {
        let plan = Arc::new(
            self.plan(policy, request)
                .map_err(|denial| denied(policy, request, denial))?,
        );
        let sandbox = self.raise(policy, request, Arc::clone(&plan)).await?;
        Ok(LiveSandbox::new(self.clone(), policy.clone(), plan, sandbox))
    }

    /// A new sandbox for a plan that was made of these.
    pub(crate) async fn raise(
        &self,
        policy: &Policy,
        request: &Request,
        plan: Arc<Plan>,
    ) -> Result<Box<dyn Sandbox>, EngineError> {
        match self.provider.open(fresh_id("bj"), plan).await {
            Ok(sandbox) => Ok(sandbox),
            Err(ProviderError::ControlMissing { control, why, fix }) => {
                let denial = Denial::new(
                    DenialCode::ControlUnavailable,
                    format!("controls.{control}"),
                    control.word(),
                    format!("{control} is required and this machine lacks it: {why}"),
                    fix,
                );
                Err(denied(policy, request, denial))
            }
            Err(error) => Err(error.into()),
        }
    }
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
