//! One program, many inputs: compiled once, then run once for each case.
//!
//! Every case has a sandbox of its own, into which what was compiled is copied. So no case sees
//! another's files, processes or memory, none finds the place more used up than the first did, and
//! one that is ended by a limit, which ends its sandbox too, takes no other with it. Making a
//! sandbox costs a few milliseconds; a place that cases share would save those and promise less.

mod built;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use belljar_core::egress::Log;
use belljar_core::provider::{BoxFuture, NoSink, Sandbox, StageEnd, StageIo, StageStdin};
use belljar_core::request::Stdin;
use belljar_core::{
    Captured, Comparison, Denial, Failure, FailureKind, Outcome, Plan, Policy, Receipt, Record, Request,
    SandboxStatus, Seconds, Stage, StageKind, Usage, Verdict,
};
use serde::Serialize;

use crate::execute::{Engine, EngineError, ExecuteIo, now, stage_stdin};
use crate::ident::fresh_id;
use crate::judge::{Judgement, judge};
use built::Built;

/// One input for a program. What a case does not say it has from the request.
#[derive(Clone, Debug, Default)]
pub struct Case {
    pub stdin: Option<Arc<[u8]>>,
    pub args: Option<Vec<String>>,
    /// What it should print; without one there is nothing to judge.
    pub expected_stdout: Option<Arc<[u8]>>,
}

impl Case {
    /// The request as this case wants it.
    pub fn request(&self, request: &Request) -> Request {
        let mut wanted = request.clone();
        if let Some(stdin) = &self.stdin {
            wanted.stdin = Stdin::Bytes(Arc::clone(stdin));
        }
        if let Some(args) = &self.args {
            wanted.args.clone_from(args);
        }
        wanted
    }
}

/// What came of one case.
#[derive(Clone, Debug, Default, Serialize)]
pub struct CaseEnd {
    /// `None` where it ended well and nothing was expected.
    pub verdict: Option<Verdict>,
    /// `None` where it did not come to run.
    pub status: Option<SandboxStatus>,
    pub exit_code: Option<i32>,
    pub signal: Option<i32>,
    pub stdout: Captured,
    pub stderr: Captured,
    pub error: Option<Failure>,
    /// Why the policy did not allow it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub denial: Option<Box<Denial>>,
    pub usage: Usage,
}

/// A request that ran with its cases.
#[derive(Clone, Debug)]
pub struct CasesExecution {
    /// Of the request as a whole: the compiler's if that did not end well, else that of the first case
    /// that did not, else of a success. What cases printed is with them.
    pub outcome: Outcome,
    /// One for each case, in their order.
    pub cases: Vec<CaseEnd>,
    pub record: Record,
}

impl CasesExecution {
    /// Whether every case ended well and, where something was expected, printed it.
    pub fn success(&self) -> bool {
        self.outcome.success() && self.cases.iter().all(CaseEnd::success)
    }

    /// Whether the caller stopped it before all cases had run.
    pub fn cancelled(&self) -> bool {
        let failure = self.outcome.error.as_ref();
        failure.is_some_and(|failure| failure.kind == FailureKind::Cancelled)
    }
}

impl CaseEnd {
    pub fn success(&self) -> bool {
        matches!(self.verdict, None | Some(Verdict::Accepted))
    }

    /// One that did not come to run.
    pub fn without_run(verdict: Verdict) -> Self {
        Self {
            verdict: Some(verdict),
            ..Self::default()
        }
    }
}

impl Engine {
    /// Compiles a request once, where its language is compiled, and runs it once for each case, one
    /// after another.
    ///
    /// Of each stream, the request's output limit is kept for all cases together; verdicts are
    /// found before anything is cut for that. Without cases it is [`Engine::execute`].
    pub async fn execute_cases(
        &self,
        policy: &Policy,
        request: &Request,
        cases: &[Case],
        comparison: Comparison,
        mut stop: Option<BoxFuture<'_, ()>>,
    ) -> Result<CasesExecution, EngineError> {
        if cases.is_empty() {
            let io = ExecuteIo {
                stop,
                ..ExecuteIo::default()
            };
            let execution = self.execute(policy, request, io).await?;
            return Ok(CasesExecution {
                outcome: execution.outcome,
                cases: Vec::new(),
                record: execution.record,
            });
        }
        // Looked up once: all cases run in the same environment, whatever its name comes to mean.
        let (environment, _lease) = self.look_up(request)?;
        let plan = Arc::new(self.plan_in(policy, request, environment.clone())?);
        let mut whole = Whole::new(&plan);
        let build = built::build(self, policy, request, &plan, &mut stop).await?;
        if let Some(built) = &build {
            whole.saw(&built.sandbox_id, &built.receipt, built.usage);
            if let Some(bad) = &built.bad {
                whole.bad = Some(bad.clone());
                let verdict = match &bad.3 {
                    Some(failure) if failure.kind == FailureKind::Cancelled => Verdict::Lost,
                    _ => Verdict::CompileError,
                };
                whole.cases = vec![CaseEnd::without_run(verdict); cases.len()];
                return whole.finish(&plan, build, None);
            }
        }
        let mut denied = None;
        for case in cases {
            let wanted = case.request(request);
            match self.plan_in(policy, &wanted, environment.clone()) {
                Ok(plan) => {
                    let ran = self
                        .run_case(policy, &wanted, Arc::new(plan), build.as_ref(), &mut stop)
                        .await?;
                    whole.judge(ran, case, comparison);
                }
                Err(EngineError::Denied { denial, record }) => {
                    whole.cases.push(CaseEnd {
                        denial: Some(denial.clone()),
                        ..CaseEnd::without_run(Verdict::Denied)
                    });
                    denied.get_or_insert(EngineError::Denied { denial, record });
                }
                Err(error) => return Err(error),
            }
            if whole.stopped() {
                let lost = CaseEnd::without_run(Verdict::Lost);
                whole.cases.resize(cases.len(), lost);
                break;
            }
        }
        whole.finish(&plan, build, denied)
    }

    /// Runs one case in a sandbox of its own.
    async fn run_case(
        &self,
        policy: &Policy,
        request: &Request,
        plan: Arc<Plan>,
        built: Option<&Built>,
        stop: &mut Option<BoxFuture<'_, ()>>,
    ) -> Result<Ran, EngineError> {
        let mut sandbox = self.raise(policy, request, Arc::clone(&plan)).await?;
        let ran = run_in(&mut *sandbox, &plan, built, stop).await;
        let closed = sandbox.close().await;
        let ran = ran?;
        closed?;
        Ok(ran)
    }
}

/// How the run stage of a case ended.
struct Ran {
    sandbox_id: String,
    network: Log,
    receipt: Receipt,
    judgement: Judgement,
    end: StageEnd,
}

async fn run_in(
    sandbox: &mut dyn Sandbox,
    plan: &Plan,
    built: Option<&Built>,
    stop: &mut Option<BoxFuture<'_, ()>>,
) -> Result<Ran, EngineError> {
    if let Some(built) = built {
        sandbox.put(&built.files).await?;
    }
    // The guard puts the run stage last, and makes no plan without one.
    let Some(stage) = plan.stages().iter().find(|stage| stage.kind() == StageKind::Run) else {
        return Err(EngineError::NotReady(belljar_core::Lifecycle::Ready));
    };
    let end = run_stage(sandbox, stage, stage_stdin(plan, None), stop).await?;
    Ok(Ran {
        sandbox_id: sandbox.id().to_owned(),
        network: sandbox.met(true).await,
        receipt: sandbox.receipt(),
        judgement: judge(stage.kind(), stage.limits(), &end.ended),
        end,
    })
}

async fn run_stage(
    sandbox: &mut dyn Sandbox,
    stage: &Stage,
    stdin: StageStdin,
    stop: &mut Option<BoxFuture<'_, ()>>,
) -> Result<StageEnd, EngineError> {
    let stop = stop
        .as_mut()
        .map(|stop| Box::pin(stop.as_mut()) as BoxFuture<'_, ()>);
    let mut sink = NoSink;
    let io = StageIo {
        stdin,
        sink: &mut sink,
        stop,
    };
    Ok(sandbox.run(stage, io).await?)
}

/// The request as a whole, while its cases run.
struct Whole {
    started_at: f64,
    /// Of the first sandbox that there was.
    first: Option<(String, Receipt)>,
    usage: Usage,
    /// How the first thing ended that did not end well.
    bad: Option<Judgement>,
    cases: Vec<CaseEnd>,
    network: Log,
    /// Bytes that may still be kept of each stream.
    stdout_room: u64,
    stderr_room: u64,
}

impl Whole {
    fn new(plan: &Plan) -> Self {
        let room = plan.limits().output().get();
        Self {
            started_at: now(),
            first: None,
            usage: Usage::default(),
            bad: None,
            cases: Vec::new(),
            network: Log::default(),
            stdout_room: room,
            stderr_room: room,
        }
    }

    fn saw(&mut self, sandbox_id: &str, receipt: &Receipt, usage: Usage) {
        self.first
            .get_or_insert_with(|| (sandbox_id.to_owned(), receipt.clone()));
        self.usage = self.usage.and(usage);
    }

    fn stopped(&self) -> bool {
        let failure = self.bad.as_ref().and_then(|bad| bad.3.as_ref());
        failure.is_some_and(|failure| failure.kind == FailureKind::Cancelled)
    }

    fn judge(&mut self, ran: Ran, case: &Case, comparison: Comparison) {
        self.saw(&ran.sandbox_id, &ran.receipt, ran.end.usage);
        self.network.append(ran.network);
        let (status, exit_code, signal, error) = ran.judgement;
        let verdict = Verdict::of(
            error.as_ref(),
            &ran.end.stdout,
            case.expected_stdout.as_deref(),
            comparison,
        );
        let cancelled = error
            .as_ref()
            .is_some_and(|failure| failure.kind == FailureKind::Cancelled);
        // Being stopped says more about the whole than a case that failed before.
        if error.is_some() && (self.bad.is_none() || cancelled) {
            self.bad = Some((status, exit_code, signal, error.clone()));
        }
        self.cases.push(CaseEnd {
            verdict,
            status: Some(status),
            exit_code,
            signal,
            stdout: keep(ran.end.stdout, &mut self.stdout_room),
            stderr: keep(ran.end.stderr, &mut self.stderr_room),
            error,
            denial: None,
            usage: ran.end.usage,
        });
    }

    /// `denied` is why the first refused case was refused: all there is to say where none ran.
    fn finish(
        self,
        plan: &Plan,
        build: Option<Built>,
        denied: Option<EngineError>,
    ) -> Result<CasesExecution, EngineError> {
        let (sandbox_id, receipt) = match (self.first, denied) {
            (Some(first), _) => first,
            (None, Some(denied)) => return Err(denied),
            (None, None) => return Err(EngineError::NotReady(belljar_core::Lifecycle::Setup)),
        };
        let well = (SandboxStatus::Completed, Some(0), None, None);
        let (status, exit_code, signal, error) = self.bad.unwrap_or(well);
        let outcome = Outcome {
            sandbox_id,
            status,
            exit_code,
            signal,
            stdout: Captured::default(),
            stderr: Captured::default(),
            compile: build.map(|built| built.output),
            error,
            value: None,
            displays: Vec::new(),
            tool_calls: Vec::new(),
            network: self.network,
            exception: None,
            state_lost: None,
            flags: Vec::new(),
            files: Vec::new(),
            usage: self.usage,
            receipt,
            started_at: self.started_at,
            completed_at: now(),
            duration: Seconds::new(self.usage.wall_seconds).unwrap_or(Seconds::ZERO),
        };
        let record = Record::of_outcome(fresh_id("rec"), plan, &outcome);
        Ok(CasesExecution {
            outcome,
            cases: self.cases,
            record,
        })
    }
}

/// As much of `captured` as there is room for.
fn keep(captured: Captured, room: &mut u64) -> Captured {
    let size = captured.bytes().len() as u64;
    if size <= *room {
        *room -= size;
        return captured;
    }
    let kept = usize::try_from(*room).unwrap_or(usize::MAX);
    *room = 0;
    let bytes = captured.bytes().get(..kept).unwrap_or_default().to_vec();
    Captured::new(bytes, captured.dropped() + (size - kept as u64))
}
