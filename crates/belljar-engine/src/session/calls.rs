//! The tool calls of one execution: counted, queued, run, recorded.
//!
//! Every number here comes from the guest. A number that was seen before is a replay and is refused;
//! so is everything past the budget, and what would have to wait behind too many others. Arguments are built when a call's turn
//! has come: until then it costs the bytes of its message.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use belljar_core::{Seconds, ToolCall};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::watch;
use tokio::task::{Id, JoinSet};

use super::builder::MessageBuilder;
use super::event::Event;
use super::message::{self, DEEPEST_VALUE, Message, tool_error, tool_result};
use crate::tools::{Approver, ToolError, Tools, panicked};

/// The most calls that wait for their turn.
const MOST_WAITING: usize = 1_000;
/// How many bytes of messages may wait for their turn.
const MAX_WAITING_BYTES: usize = 32 << 20;
/// The longest result that is sent.
const LONGEST_RESULT: usize = 32 << 20;

/// One call as the guest asked for it.
#[derive(Debug)]
pub(super) struct Asked {
    pub call: u64,
    pub name: String,
    /// With its arguments.
    pub message: Message,
}

#[derive(Debug)]
struct Started {
    call: u64,
    name: String,
    bytes: u64,
    at: Instant,
}

/// Why a call was refused, and whether that breaks the rules of the protocol.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// Its number was used before.
    Replay,
    Other,
}

#[derive(Debug)]
pub(super) struct Calls {
    tools: Tools,
    /// Those that somebody has to approve, and who is asked.
    approve: Vec<String>,
    approver: Option<Approver>,
    /// How many calls wait for somebody's word.
    asking: watch::Sender<usize>,
    budget: u32,
    concurrent: usize,
    /// The highest number seen in this interpreter.
    last: u64,
    asked: u32,
    waiting: VecDeque<(Started, Message)>,
    waiting_bytes: usize,
    running: JoinSet<Result<Vec<u8>, ToolError>>,
    started: HashMap<Id, Started>,
    records: Vec<ToolCall>,
    events: UnboundedSender<Event>,
    builder: Arc<MessageBuilder>,
}

impl Calls {
    /// `last` is the highest call number that this interpreter has used so far.
    pub(super) fn new(
        (tools, approver): (Tools, Option<Approver>),
        rules: &belljar_core::SessionRules,
        last: u64,
        events: UnboundedSender<Event>,
        builder: Arc<MessageBuilder>,
    ) -> Self {
        Self {
            tools,
            approve: rules.approve_tools.clone(),
            approver,
            asking: watch::Sender::new(0),
            budget: rules.max_tool_calls,
            concurrent: rules.max_concurrent_tools as usize,
            last,
            asked: 0,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            running: JoinSet::new(),
            started: HashMap::new(),
            records: Vec::new(),
            events,
            builder,
        }
    }

    /// Takes a call on; else the refusal, and the answer to send where there is one.
    pub(super) fn ask(&mut self, asked: Asked) -> Result<(), (Refusal, Option<Vec<u8>>)> {
        let Asked { call, name, message } = asked;
        let bytes = message.bytes.len();
        if call <= self.last {
            // One that is under way will have its own answer; this one must not take its place.
            let in_flight = self.started.values().any(|started| started.call == call)
                || self.waiting.iter().any(|(started, _)| started.call == call);
            let error = ToolError::new("ToolCallReplayed", "this call's number was used before");
            let answer = (!in_flight).then(|| refusal(call, &error));
            return Err((Refusal::Replay, answer));
        }
        self.last = call;
        let budget = self.budget;
        let error = if self.asked >= budget {
            ToolError::new(
                "ToolBudgetExceeded",
                format!("an execution may call tools {budget} times, and has"),
            )
        } else if self.tools.get(&name).is_none() {
            ToolError::new("ToolNotFound", format!("there is no tool `{}`", cut(&name)))
        } else if self.approver.is_none() && self.approve.contains(&name) {
            let message = format!(
                "`{}` needs somebody's approval, and there is nobody to ask",
                cut(&name)
            );
            ToolError::new("PermissionError", message)
        } else if self.waiting.len() >= MOST_WAITING {
            ToolError::new(
                "ToolQueueFull",
                format!("{MOST_WAITING} calls are waiting already"),
            )
        } else if self.waiting_bytes.saturating_add(bytes) > MAX_WAITING_BYTES {
            let message = format!("the calls that are waiting have {MAX_WAITING_BYTES} bytes already");
            ToolError::new("ToolQueueFull", message)
        } else {
            self.asked += 1;
            let at = Instant::now();
            let _ = self.events.send(Event::ToolStarted {
                call,
                name: name.clone(),
            });
            self.waiting_bytes += bytes;
            self.waiting.push_back((
                Started {
                    call,
                    name,
                    bytes: bytes as u64,
                    at,
                },
                message,
            ));
            self.start_waiting();
            return Ok(());
        };
        Err((Refusal::Other, Some(refusal(call, &error))))
    }

    fn start_waiting(&mut self) {
        while self.running.len() < self.concurrent {
            let Some((started, message)) = self.waiting.pop_front() else {
                return;
            };
            self.waiting_bytes -= message.bytes.len();
            // It was there when the call was taken on.
            let Some(tool) = self.tools.get(&started.name) else {
                continue;
            };
            let approver = self.approver.clone();
            let approver = approver.filter(|_| self.approve.contains(&started.name));
            let (name, asking, builder) = (
                started.name.clone(),
                self.asking.clone(),
                Arc::clone(&self.builder),
            );
            let task = self.running.spawn(async move {
                let arguments = builder.build(message, message::arguments).await;
                let arguments = arguments.ok().flatten().ok_or_else(|| {
                    let message = "the arguments of this call are neither a list nor names with their values";
                    ToolError::new("ToolCallInvalid", message)
                })?;
                if let Some(approver) = approver {
                    let question = approver.ask(&name, &arguments);
                    let asking = Asking::new(&asking);
                    question.await?;
                    drop(asking);
                }
                encode(tool(arguments).await?)
            });
            self.started.insert(task.id(), started);
        }
    }

    /// The answer of the next tool that ends; pending for ever while none runs. Cancel-safe.
    pub(super) async fn next(&mut self) -> Vec<u8> {
        loop {
            let Some(joined) = self.running.join_next_with_id().await else {
                return std::future::pending().await;
            };
            let (id, result) = match joined {
                Ok((id, result)) => (id, result),
                Err(error) => (error.id(), Err(panicked())),
            };
            let Some(started) = self.started.remove(&id) else {
                continue;
            };
            self.start_waiting();
            return self.conclude(started, result);
        }
    }

    fn conclude(&mut self, started: Started, result: Result<Vec<u8>, ToolError>) -> Vec<u8> {
        let Started {
            call,
            name,
            bytes,
            at,
        } = started;
        let record = ToolCall {
            call,
            name,
            duration: Seconds::new(at.elapsed().as_secs_f64()).unwrap_or(Seconds::ZERO),
            argument_bytes: bytes,
            result_bytes: result.as_ref().map_or(0, |json| json.len() as u64),
            error: result.as_ref().err().map(|error| error.kind.clone()),
        };
        self.records.push(record.clone());
        let _ = self.events.send(Event::ToolEnded(record));
        match result {
            Ok(json) => tool_result(call, &json),
            Err(error) => tool_error(call, &error.kind, &error.message),
        }
    }

    /// How many calls wait for somebody's word, as that changes.
    pub(super) fn asking(&self) -> watch::Receiver<usize> {
        self.asking.subscribe()
    }

    /// The execution is over: what still runs is dropped. The calls, and the highest number seen.
    pub(super) fn finish(mut self) -> (Vec<ToolCall>, u64) {
        self.running.abort_all();
        let left: Vec<_> = self.started.drain().map(|(_, started)| started).collect();
        for started in left.into_iter().chain(
            self.waiting
                .drain(..)
                .map(|(started, _)| started)
                .collect::<Vec<_>>(),
        ) {
            let error = ToolError::new("Cancelled", "the execution ended first");
            self.conclude(started, Err(error));
        }
        self.records.sort_by_key(|record| record.call);
        (self.records, self.last)
    }
}

/// A call that waits for somebody's word, for as long as this is there.
struct Asking(watch::Sender<usize>);

impl Asking {
    fn new(asking: &watch::Sender<usize>) -> Self {
        asking.send_modify(|count| *count += 1);
        Self(asking.clone())
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

/// The answer to a call that belongs to no execution of the moment.
pub(super) fn stray(call: u64) -> Vec<u8> {
    let error = ToolError::new(
        "ToolCallRefused",
        "the execution that this call belongs to is over",
    );
    refusal(call, &error)
}

fn refusal(call: u64, error: &ToolError) -> Vec<u8> {
    tool_error(call, &error.kind, &error.message)
}

/// A tool's result as JSON, if a guest can take it.
fn encode(value: belljar_core::Value) -> Result<Vec<u8>, ToolError> {
    if !value.within_depth(DEEPEST_VALUE) {
        let message = format!("the tool's result is nested deeper than {DEEPEST_VALUE}");
        return Err(ToolError::new("ToolResultInvalid", message));
    }
    let json = value
        .to_json()
        .map_err(|error| ToolError::new("ToolResultInvalid", format!("the tool's result: {error}")))?;
    if json.len() > LONGEST_RESULT {
        let message = format!("the tool's result is longer than {LONGEST_RESULT} bytes");
        return Err(ToolError::new("ToolResultInvalid", message));
    }
    Ok(json)
}

/// A guest's name, short enough to repeat.
fn cut(name: &str) -> String {
    name.chars().take(80).collect()
}
