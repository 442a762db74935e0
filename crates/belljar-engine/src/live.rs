//! A sandbox that is alive, with its lifecycle (R50).

use std::sync::Arc;

use belljar_core::outcome::CompileOutput;
use belljar_core::provider::{BoxFuture, Ended, OutputSink, Sandbox, StageEnd, StageIo, StageStdin, Stream};
use belljar_core::{
    Captured, FailureKind, Lifecycle, Outcome, Plan, Policy, Record, Request, SandboxStatus, Seconds,
    StageKind, Usage, Weight,
};

use crate::environment::Lease;
use crate::execute::{Engine, EngineError, ExecuteIo, Execution, now, stage_stdin};
use crate::ident::fresh_id;
use crate::judge::judge;

/// A live sandbox. Dropping it ends everything in it; [`LiveSandbox::close`] also waits for that.
#[derive(Debug)]
pub struct LiveSandbox {
    engine: Engine,
    policy: Policy,
    /// The plan it was made with.
    plan: Arc<Plan>,
    sandbox: Option<Box<dyn Sandbox>>,
    state: Lifecycle,
    /// Keeps its environment from being removed.
    _lease: Option<Lease>,
}

impl LiveSandbox {
    pub(crate) fn new(
        engine: Engine,
        policy: Policy,
        plan: Arc<Plan>,
        sandbox: Box<dyn Sandbox>,
        lease: Option<Lease>,
    ) -> Self {
        Self {
            engine,
            policy,
            plan,
            sandbox: Some(sandbox),
            state: Lifecycle::Ready,
            _lease: lease,
        }
    }

    pub fn id(&self) -> &str {
        self.sandbox.as_ref().map_or("", |sandbox| sandbox.id())
    }

    pub const fn state(&self) -> Lifecycle {
        self.state
    }

    /// What it weighs from now on beside other sandboxes.
    pub fn weigh(&mut self, weight: Weight) {
        if let Some(sandbox) = self.sandbox.as_mut() {
            sandbox.weigh(weight);
        }
    }

    /// Runs what the sandbox was opened for.
    pub async fn execute_opened(&mut self, io: ExecuteIo<'_>) -> Result<Execution, EngineError> {
        let plan = Arc::clone(&self.plan);
        self.run(&plan, io).await
    }

    /// Runs one more command or script of the same language in the same place. Files persist.
    pub async fn execute(&mut self, request: &Request, io: ExecuteIo<'_>) -> Result<Execution, EngineError> {
        let plan = self.engine.plan(&self.policy, request)?;
        if let Some(what) = missing(&self.plan, &plan, request.hosts.is_some()) {
            return Err(EngineError::MadeWithout { what });
        }
        if self.state == Lifecycle::Ready
            && let Some(sandbox) = self.sandbox.as_mut()
        {
            sandbox.put(plan.files()).await?;
        }
        self.run(&plan, io).await
    }

    async fn run(&mut self, plan: &Plan, io: ExecuteIo<'_>) -> Result<Execution, EngineError> {
        let not_ready = EngineError::NotReady(self.state);
        let Some(sandbox) = self.sandbox.as_mut() else {
            return Err(not_ready);
        };
        self.state.go(Lifecycle::Running).map_err(|_| not_ready)?;
        match run_stages(&mut **sandbox, plan, io).await {
            Ok(outcome) => {
                // A stage that was ended from outside took its sandbox with it.
                let next = if outlives(&outcome) {
                    Lifecycle::Ready
                } else {
                    Lifecycle::Error
                };
                let _ = self.state.go(next);
                let record = Record::of_outcome(fresh_id("rec"), plan, &outcome);
                Ok(Execution { outcome, record })
            }
            Err(error) => {
                let _ = self.state.go(Lifecycle::Error);
                Err(error)
            }
        }
    }

    /// Ends everything in it and leaves the clearing away to the provider.
    pub(crate) async fn discard(mut self) -> Result<(), EngineError> {
        let _ = self.state.go(Lifecycle::Teardown);
        match self.sandbox.take() {
            Some(sandbox) => Ok(sandbox.discard().await?),
            None => Ok(()),
        }
    }

    /// Ends everything in it and waits until nothing is left.
    pub async fn close(mut self) -> Result<(), EngineError> {
        let _ = self.state.go(Lifecycle::Teardown);
        match self.sandbox.take() {
            Some(sandbox) => Ok(sandbox.close().await?),
            None => Ok(()),
        }
    }
}

/// What `wanted` needs of its surroundings that a sandbox made for `made` does not have.
pub(crate) fn missing(made: &Plan, wanted: &Plan, names_hosts: bool) -> Option<&'static str> {
    if wanted.mounts().iter().any(|mount| !made.mounts().contains(mount)) {
        return Some("mount");
    }
    if wanted.environment() != made.environment() {
        return Some("environment");
    }
    if wanted.network() != made.network() {
        return Some("network");
    }
    // Whoever names no hosts takes those that are there; whoever does wants those and no others.
    if names_hosts && wanted.egress() != made.egress() {
        return Some("hosts");
    }
    if wanted.workspace() != made.workspace() {
        return Some("work directory");
    }
    wanted
        .shows()
        .iter()
        .any(|path| !made.shows().contains(path))
        .then_some("language")
}

pub(crate) fn outlives(outcome: &Outcome) -> bool {
    !matches!(
        outcome.error.as_ref().map(|failure| failure.kind),
        Some(
            FailureKind::Timeout
                | FailureKind::CpuTime
                | FailureKind::OutOfMemory
                | FailureKind::Cancelled
                | FailureKind::EngineLost
        )
    )
}

/// Runs the stages in order until one does not end well.
pub(crate) async fn run_stages(
    sandbox: &mut dyn Sandbox,
    plan: &Plan,
    io: ExecuteIo<'_>,
) -> Result<Outcome, EngineError> {
    let started_at = now();
    let ExecuteIo {
        mut sink,
        mut stdin,
        mut stop,
    } = io;
    let mut compile = None;
    let mut usage = Usage::default();
    let mut last = None;
    for stage in plan.stages() {
        let mut stage_sink = StageSink {
            sink: sink.as_deref_mut(),
            kind: stage.kind(),
        };
        let stop = stop
            .as_mut()
            .map(|stop| Box::pin(stop.as_mut()) as BoxFuture<'_, ()>);
        // Compilers read nothing.
        let stdin = match stage.kind() {
            StageKind::Compile => StageStdin::Empty,
            StageKind::Run | StageKind::Interpreter => stage_stdin(plan, stdin.take()),
        };
        let end = sandbox
            .run(
                stage,
                StageIo {
                    stdin,
                    sink: &mut stage_sink,
                    stop,
                },
            )
            .await?;
        usage = usage.and(end.usage);
        let compiled = stage.kind() == StageKind::Compile && end.ended == Ended::Exited(0);
        if compiled {
            compile = Some(compile_output(end));
        } else {
            last = Some((stage, end));
            break;
        }
    }
    let files = sandbox
        .collect(plan.outputs(), plan.limits().output().get())
        .await;
    let network = sandbox.met(true).await;
    let receipt = sandbox.receipt();
    let completed_at = now();
    let (status, exit_code, signal, error) = match &last {
        Some((stage, end)) => judge(stage.kind(), stage.limits(), &end.ended),
        None => (SandboxStatus::Completed, Some(0), None, None),
    };
    let (mut stdout, mut stderr) = (Captured::default(), Captured::default());
    match last {
        Some((stage, end)) if stage.kind() == StageKind::Compile => compile = Some(compile_output(end)),
        Some((_, end)) => (stdout, stderr) = (end.stdout, end.stderr),
        None => {}
    }
    Ok(Outcome {
        sandbox_id: sandbox.id().to_owned(),
        status,
        exit_code,
        signal,
        stdout,
        stderr,
        compile,
        error,
        value: None,
        displays: Vec::new(),
        tool_calls: Vec::new(),
        network,
        exception: None,
        state_lost: None,
        flags: Vec::new(),
        files,
        usage,
        receipt,
        started_at,
        completed_at,
        duration: Seconds::new(usage.wall_seconds).unwrap_or(Seconds::ZERO),
    })
}

/// The caller's sink, as one stage sees it. What a compiler prints is for people: all of it goes to
/// the error stream.
struct StageSink<'a, 'b> {
    sink: Option<&'a mut (dyn OutputSink + Send + 'b)>,
    kind: StageKind,
}

impl OutputSink for StageSink<'_, '_> {
    fn write(&mut self, stream: Stream, bytes: &[u8]) {
        let stream = if self.kind == StageKind::Compile {
            Stream::Stderr
        } else {
            stream
        };
        if let Some(sink) = &mut self.sink {
            sink.write(stream, bytes);
        }
    }
}

pub(crate) fn compile_output(end: StageEnd) -> CompileOutput {
    let exit_code = match end.ended {
        Ended::Exited(code) => Some(code),
        _ => None,
    };
    CompileOutput {
        exit_code,
        stdout: end.stdout,
        stderr: end.stderr,
        usage: end.usage,
    }
}

#[cfg(test)]
mod tests {
    use belljar_core::{Language, NetworkPolicy, guard};

    use super::*;

    /// A kept sandbox has its doors already: a request that names other hosts, or fewer, is not held to them.
    #[test]
    fn hosts_are_those_that_a_sandbox_was_made_with() {
        let mut capabilities = crate::fake::capabilities(&[Language::Python]);
        capabilities.networks.insert(NetworkPolicy::Restricted);
        let mut policy = Policy::builtin("standard").unwrap();
        (policy.network, policy.allow_network) = (NetworkPolicy::Restricted, true);
        policy.allowed_hosts = vec!["a.example.com".parse().unwrap(), "b.example.com".parse().unwrap()];
        let plan = |hosts: Option<&[&str]>| {
            let mut request = Request::code(Language::Python, &b"1"[..]);
            request.hosts = hosts.map(|hosts| hosts.iter().map(|host| host.parse().unwrap()).collect());
            guard::check(&policy, &capabilities, &request).unwrap()
        };
        let (both, one) = (plan(None), plan(Some(&["a.example.com"])));
        assert_eq!(missing(&both, &one, true), Some("hosts"));
        assert_eq!(
            missing(&one, &plan(Some(&["b.example.com"])), true),
            Some("hosts")
        );
        assert_eq!(missing(&one, &one, true), None);
        assert_eq!(missing(&one, &both, false), None);
    }
}
