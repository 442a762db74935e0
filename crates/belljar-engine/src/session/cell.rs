//! One execution in a session, from its code to its outcome.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use belljar_core::egress::Log;
use belljar_core::outcome::{Capture, CollectedFile};
use belljar_core::provider::{Ended, Heard, LONGEST_MESSAGE, Stream};
use belljar_core::record::code_hash;
use belljar_core::{
    Denial, DenialCode, Display, Limits, Outcome, Policy, Receipt, Record, Seconds, Usage, guard,
};
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::Instant;

use super::builder::MessageBuilder;
use super::calls::{self, Asked, Calls, Refusal};
use super::error::SessionError;
use super::event::Event;
use super::interpreter::interpreting;
use super::keeper::{Answer, Keeper, check_depth, too_large};
use super::message::{self, End, Execute, MOST_DISPLAYS, RunCommand, Said, ToolName};
use super::shared::Shared;
use super::verdict::Over;
use super::{Cell, Work, check_names};
use crate::execute::{EngineError, Execution, denied, now};
use crate::ident::fresh_id;

/// How long after an interrupt another one is sent, and how long after that an execution is ended
/// that nobody waits for.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long a guest that broke or closed its channel may take to end by itself.
const LAST_BREATH: Duration = Duration::from_millis(500);
/// How much may wait to be read by the guest. One that asks and never listens gets no further answers, so
/// that they do not pile up here.
const MOST_UNSAID: usize = 16 << 20;

/// What came of an execution so far.
struct Run {
    id: u64,
    limits: Limits,
    stdout: Capture,
    stderr: Capture,
    displays: Vec<Display>,
    /// How many bytes of displays there is room for.
    display_room: u64,
    calls: Calls,
    flags: BTreeMap<&'static str, u64>,
    /// Whether the interpreter has not said yet that it is ready.
    starting: bool,
    events: UnboundedSender<Event>,
    shared: Arc<Shared>,
    builder: Arc<MessageBuilder>,
}

impl Keeper {
    pub(super) async fn execute(
        &mut self,
        cell: Cell,
        events: UnboundedSender<Event>,
        answer: &mut Answer<Execution>,
    ) -> Result<Execution, SessionError> {
        self.check(&cell)?;
        self.prepare().await?;
        let limits = self.plan.limits().lowered(&cell.limits);
        let Some(interpreting) = interpreting(&mut self.sandbox) else {
            return Err(SessionError::Closed);
        };
        interpreting.begin(&limits)?;
        self.execute_begun(cell, limits, events, answer).await
    }

    /// Executes the only cell that this one will, in an interpreter that is started for it: what it is told comes together,
    /// and its start counts as the cell's.
    pub(super) async fn execute_only(
        &mut self,
        cell: Cell,
        events: UnboundedSender<Event>,
        answer: &mut Answer<Execution>,
    ) -> Result<Execution, SessionError> {
        self.check(&cell)?;
        self.raise().await?;
        let limits = self.plan.limits().lowered(&cell.limits);
        self.begin(&limits).await?;
        self.interpreting = true;
        self.starting = true;
        self.execute_begun(cell, limits, events, answer).await
    }

    async fn execute_begun(
        &mut self,
        cell: Cell,
        limits: Limits,
        events: UnboundedSender<Event>,
        answer: &mut Answer<Execution>,
    ) -> Result<Execution, SessionError> {
        self.executions += 1;
        self.brought.extend(cell.tools.clone());
        let mut tools = self.tools.clone();
        tools.extend(self.brought.clone());
        let output = limits.output().get();
        let run = Run {
            id: self.executions,
            stdout: Capture::new(output),
            stderr: Capture::new(output),
            displays: Vec::new(),
            display_room: output,
            calls: Calls::new(
                (tools, self.approver.clone()),
                self.plan.session(),
                self.last_call,
                events.clone(),
                Arc::clone(self.engine.messages()),
            ),
            flags: BTreeMap::new(),
            starting: std::mem::take(&mut self.starting),
            limits,
            events,
            shared: Arc::clone(&self.shared),
            builder: Arc::clone(self.engine.messages()),
        };
        self.run(cell, run, answer).await
    }

    /// What can be said against an execution before anything runs.
    fn check(&self, cell: &Cell) -> Result<(), SessionError> {
        check_names(&cell.globals, &cell.tools)?;
        check_depth(&cell.globals)?;
        self.check_limits(cell)?;
        match &cell.work {
            Work::Code(_) => Ok(()),
            Work::Command(argv) => {
                guard::check_command(&self.policy, argv).map_err(|denial| self.denied(cell, denial).into())
            }
        }
    }

    /// An execution asks for no more than its session has, which is no more than the policy permits.
    pub(super) fn check_limits(&self, cell: &Cell) -> Result<(), SessionError> {
        let session = Policy {
            limits: self.plan.limits().clone(),
            ..self.policy.clone()
        };
        guard::check_limits(&session, &cell.limits).map_err(|denial| {
            let denial = match denial.code {
                DenialCode::LimitExceedsPolicy => Denial {
                    message: format!("{} = {}: its session has less", denial.rule, denial.value),
                    fix: "ask for less, or open the session with more".to_owned(),
                    ..denial
                },
                _ => denial,
            };
            self.denied(cell, denial).into()
        })
    }

    /// A refusal, with a record of the code that was refused.
    fn denied(&self, cell: &Cell, denial: Denial) -> EngineError {
        let mut error = denied(&self.policy, &self.request, denial);
        if let EngineError::Denied { record, .. } = &mut error {
            record.code_hash = code_hash(&cell.work.bytes());
        }
        error
    }

    async fn run(
        &mut self,
        cell: Cell,
        mut run: Run,
        answer: &mut Answer<Execution>,
    ) -> Result<Execution, SessionError> {
        let started_at = now();
        let started = Instant::now();
        let too_old = self.too_old();
        let message = message(&cell, run.id)?;
        if let Some(sandbox) = self.sandbox.as_mut() {
            sandbox.weigh(cell.weight);
        }
        let Some(interpreting) = interpreting(&mut self.sandbox) else {
            return Err(SessionError::Closed);
        };
        interpreting.say(&message);
        let mut asking = run.calls.asking();
        let mut stopped_clock = StoppedClock::default();
        let mut insist = None;
        let mut abandoned = None;
        let mut broken: Option<(String, Instant)> = None;
        let over = loop {
            let again = until(insist);
            let too_long_broken = until(broken.as_ref().map(|(_, at)| *at));
            let given_up = async {
                match abandoned {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => answer.closed().await,
                }
            };
            tokio::select! {
                // Whoever floods must not keep its caller from interrupting, nor outlive its session.
                biased;
                () = tokio::time::sleep_until(too_old) => break Over::Aged,
                () = run.shared.interrupted() => {
                    interpreting.interrupt();
                    insist = Some(Instant::now() + PATIENCE);
                }
                () = again => {
                    interpreting.interrupt();
                    insist = None;
                }
                () = given_up => {
                    if abandoned.is_some() {
                        break Over::Abandoned;
                    }
                    interpreting.interrupt();
                    insist = Some(Instant::now() + PATIENCE);
                    abandoned = Some(Instant::now() + 2 * PATIENCE);
                }
                // The clock stands still while a person thinks.
                Ok(()) = asking.changed() => match *asking.borrow_and_update() {
                    0 => {
                        interpreting.start_clock();
                        stopped_clock.start();
                    }
                    _ => {
                        interpreting.stop_clock();
                        stopped_clock.stop();
                    }
                },
                () = too_long_broken => {
                    break Over::Broken(broken.map_or_else(String::new, |(why, _)| why));
                }
                reply = run.calls.next(), if interpreting.unsaid() < MOST_UNSAID => interpreting.say(&reply),
                heard = interpreting.hear() => {
                    match heard {
                        Ok(Heard::Output(stream, bytes)) => run.output(stream, &bytes),
                        Ok(Heard::Ended(ended)) => break Over::Ended(ended),
                        // A process that ends closes its channel first. Then that it ended is the reason.
                        Ok(Heard::Broken(why)) => {
                            broken.get_or_insert((why, Instant::now() + LAST_BREATH));
                        }
                        Ok(Heard::Message(message)) => match run.message(message).await {
                            Ok(Next::Listen) => {}
                            Ok(Next::Refuse(reply)) => {
                                if interpreting.unsaid() < MOST_UNSAID {
                                    interpreting.say(&reply);
                                } else {
                                    run.flag("a refusal that was not waited for");
                                }
                            }
                            Ok(Next::Over(end)) => break Over::Said(end),
                            Err(why) => break Over::Broken(why),
                        },
                        Err(error) => break Over::Ended(Ended::Lost(error.to_string())),
                    }
                    // Many messages come with one read. Without a pause now and then no clock would move
                    // and nobody else of this runtime would have a turn.
                    tokio::task::consume_budget().await;
                }
            }
        };
        let usage = interpreting.finish(&mut |stream: Stream, bytes: &[u8]| run.output(stream, bytes));
        let elapsed = started.elapsed().saturating_sub(stopped_clock.total());
        let Some(sandbox) = &mut self.sandbox else {
            return Err(SessionError::Closed);
        };
        let files = sandbox.collect(&cell.outputs, run.limits.output().get()).await;
        if let (true, Some(why)) = (run.starting, over.why_not_started()) {
            let words = run.stderr.into_captured().text();
            let why = format!("{why} {}", words.trim()).trim().to_owned();
            return Err(SessionError::CannotStart { why });
        }
        let network = sandbox.met(false).await;
        let told = Told {
            files,
            network,
            sandbox_id: sandbox.id().to_owned(),
            receipt: sandbox.receipt(),
            usage: Usage {
                wall_seconds: elapsed.as_secs_f64(),
                ..usage
            },
            started_at,
        };
        if !over.keeps_state() {
            self.stop().await;
        }
        Ok(self.conclude(&cell, run, over, told))
    }

    fn conclude(&mut self, cell: &Cell, run: Run, over: Over, told: Told) -> Execution {
        let (tool_calls, last_call) = run.calls.finish();
        self.last_call = last_call;
        let ((status, exit_code, signal, error), value, exception) = over.verdict(&run.limits);
        let outcome = Outcome {
            sandbox_id: told.sandbox_id,
            status,
            exit_code,
            signal,
            stdout: run.stdout.into_captured(),
            stderr: run.stderr.into_captured(),
            compile: None,
            error,
            value,
            displays: run.displays,
            tool_calls,
            network: told.network,
            exception,
            state_lost: self.lost,
            flags: run
                .flags
                .into_iter()
                .map(|(what, count)| format!("{what} ({count})"))
                .collect(),
            files: told.files,
            duration: Seconds::new(told.usage.wall_seconds).unwrap_or(Seconds::ZERO),
            usage: told.usage,
            receipt: told.receipt,
            started_at: told.started_at,
            completed_at: now(),
        };
        let record = Record {
            code_hash: code_hash(&cell.work.bytes()),
            ..Record::of_outcome(fresh_id("rec"), &self.plan, &outcome)
        };
        Execution { outcome, record }
    }
}

/// How long the clock stood still.
#[derive(Default)]
struct StoppedClock {
    since: Option<Instant>,
    before: Duration,
}

impl StoppedClock {
    fn stop(&mut self) {
        self.since.get_or_insert_with(Instant::now);
    }

    fn start(&mut self) {
        if let Some(since) = self.since.take() {
            self.before += since.elapsed();
        }
    }

    fn total(&self) -> Duration {
        self.before + self.since.map_or(Duration::ZERO, |since| since.elapsed())
    }
}

/// Resolves at that time, if there is one.
async fn until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// What the engine itself saw of an execution.
struct Told {
    sandbox_id: String,
    receipt: Receipt,
    usage: Usage,
    files: Vec<CollectedFile>,
    network: Log,
    started_at: f64,
}

/// What the runner is told to do.
fn message(cell: &Cell, id: u64) -> Result<Vec<u8>, SessionError> {
    let stdin = cell.stdin.as_deref();
    let message = match &cell.work {
        Work::Code(code) => serde_json::to_vec(&Execute {
            op: "execute",
            id,
            code,
            stdin,
            globals: &cell.globals,
            tools: cell.tools.names().map(|name| ToolName { name }).collect(),
        }),
        Work::Command(argv) => serde_json::to_vec(&RunCommand {
            op: "command",
            id,
            argv,
            stdin,
        }),
    };
    let message = message.map_err(|error| SessionError::BadGlobal {
        name: cell.globals.keys().next().cloned().unwrap_or_default(),
        why: error.to_string(),
    })?;
    match message.len() > LONGEST_MESSAGE {
        true => Err(too_large(&cell.globals)),
        false => Ok(message),
    }
}

/// What to do after a message.
enum Next {
    Listen,
    /// Say that a call was refused.
    Refuse(Vec<u8>),
    Over(End),
}

impl Run {
    fn output(&mut self, stream: Stream, bytes: &[u8]) {
        let kept = match stream {
            Stream::Stdout => self.stdout.keep(bytes),
            Stream::Stderr => self.stderr.keep(bytes),
        };
        if !kept.is_empty() {
            self.shared.log().push(stream, kept);
            let _ = self.events.send(Event::Output(stream, kept.to_vec()));
        }
    }

    /// Takes one message; an error is why its channel is of no use any more.
    async fn message(&mut self, message: Vec<u8>) -> Result<Next, String> {
        let broken = |error| format!("a message: {error}");
        let said = self.builder.head(message).await.map_err(broken)?;
        Ok(match said {
            Said::Done { id, message } if id == self.id => {
                match self.builder.build(message, message::end).await.map_err(broken)? {
                    Some(end) => Next::Over(end),
                    None => self.unknown(),
                }
            }
            Said::Display { id, message } if id == self.id => {
                let cost = message.cost();
                if self.displays.len() < MOST_DISPLAYS && cost <= self.display_room {
                    match self
                        .builder
                        .build(message, message::display)
                        .await
                        .map_err(broken)?
                    {
                        Some(display) => self.display(display, cost),
                        None => return Ok(self.unknown()),
                    }
                } else {
                    self.flag("a display that was too much");
                }
                Next::Listen
            }
            Said::ToolCall {
                id,
                call,
                name,
                message,
            } if id == self.id => match self.calls.ask(Asked { call, name, message }) {
                Ok(()) => Next::Listen,
                Err((refusal, reply)) => {
                    if refusal == Refusal::Replay {
                        self.flag("a tool call's number was used again");
                    }
                    reply.map_or(Next::Listen, Next::Refuse)
                }
            },
            Said::ToolCall { call, .. } => {
                self.flag("a tool call of another execution");
                Next::Refuse(calls::stray(call))
            }
            Said::Done { .. } | Said::Display { .. } => {
                self.flag("a message about another execution");
                Next::Listen
            }
            Said::Ready if self.starting => {
                self.starting = false;
                Next::Listen
            }
            Said::Ready | Said::Unknown => self.unknown(),
        })
    }

    fn unknown(&mut self) -> Next {
        self.flag("a message that is not known");
        Next::Listen
    }

    fn display(&mut self, display: Display, cost: u64) {
        self.display_room -= cost;
        let _ = self.events.send(Event::Display(display.clone()));
        self.displays.push(display);
    }

    fn flag(&mut self, what: &'static str) {
        *self.flags.entry(what).or_default() += 1;
    }
}
