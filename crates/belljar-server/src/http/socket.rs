//! A session's WebSocket: code and answers of tools come in; output, calls of tools and results go out.
//!
//! Every message is one JSON object with a `type`. Messages about an execution have the `id` that it was asked for with.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::extract::{FromRequestParts, State};
use axum::http::request::Parts;
use axum::response::Response;
use belljar_core::value::JsonCaps;
use belljar_core::{ErrorKind, Value};
use belljar_engine::ToolError;
use serde::Deserialize;
use serde::de::{Error as _, IgnoredAny};
use serde_json::json;
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::Shared;
use super::answer::Failed;
use super::caller::Caller;
use super::connections::ConnectionSlot;
use super::read::Id;
use super::stream;
use crate::service::{Identity, LiveSession, Service, ServiceError, ToolAsked};
use crate::wire::{CellRequest, Problem, WireError};

/// The longest message that is taken.
const LONGEST: usize = 32 << 20;
/// The longest name of an execution.
const LONGEST_ID: usize = 256;
/// How often whoever says nothing is looked at.
const LOOKING: Duration = Duration::from_secs(2);
/// How many executions may be asked for and not be over.
const MOST_EXECUTIONS: usize = 64;
/// How much of an answer of a tool is taken.
const CAPS: JsonCaps = JsonCaps {
    bytes: LONGEST,
    depth: 100,
    items: 1_000_000,
};

/// What comes in.
#[derive(Debug)]
enum In {
    Execute(Box<ExecuteIn>),
    Interrupt,
    Reset(ResetIn),
    ToolResult(ToolResultIn),
    ToolError(ToolErrorIn),
}

#[derive(Debug, Deserialize)]
struct TypeIn {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    id: serde_json::Value,
}

#[derive(Debug)]
struct ExecuteIn {
    id: serde_json::Value,
    cell: CellRequest,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct InterruptIn {
    #[serde(rename = "type")]
    _kind: IgnoredAny,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ResetIn {
    #[serde(rename = "type")]
    _kind: IgnoredAny,
    #[serde(default)]
    id: serde_json::Value,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ToolResultIn {
    #[serde(rename = "type")]
    _kind: IgnoredAny,
    call: u64,
    /// As it came: a number of any length stays what it is.
    #[serde(default)]
    value: Option<Box<RawValue>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ToolErrorIn {
    #[serde(rename = "type")]
    _kind: IgnoredAny,
    call: u64,
    /// The name of an exception.
    #[serde(default = "runtime_error")]
    kind: String,
    #[serde(default)]
    message: String,
}

impl In {
    fn read(text: &str) -> Result<Self, serde_json::Error> {
        let TypeIn { kind, id } = serde_json::from_str(text)?;
        // It stands in everything that is told of it.
        if !matches!(&id, serde_json::Value::Null | serde_json::Value::Number(_))
            && id.as_str().is_none_or(|id| id.len() > LONGEST_ID)
        {
            let form = format!("`id` is neither a number nor text of at most {LONGEST_ID} bytes");
            return Err(serde_json::Error::custom(form));
        }
        Ok(match kind.as_str() {
            "execute" => {
                let mut fields: serde_json::Map<_, _> = serde_json::from_str(text)?;
                fields.remove("type");
                fields.remove("id");
                let cell = serde_json::from_value(fields.into())?;
                Self::Execute(Box::new(ExecuteIn { id, cell }))
            }
            "interrupt" => serde_json::from_str::<InterruptIn>(text).map(|_| Self::Interrupt)?,
            "reset" => Self::Reset(serde_json::from_str(text)?),
            "tool_result" => Self::ToolResult(serde_json::from_str(text)?),
            "tool_error" => Self::ToolError(serde_json::from_str(text)?),
            _ => {
                let known = "`type` is none of execute, interrupt, reset, tool_result and tool_error";
                return Err(serde_json::Error::custom(known));
            }
        })
    }
}

fn runtime_error() -> String {
    "RuntimeError".to_owned()
}

/// A request to become a WebSocket.
#[derive(Debug)]
pub(super) struct Upgrade(WebSocketUpgrade, Option<Arc<ConnectionSlot>>);

impl<S: Send + Sync> FromRequestParts<S> for Upgrade {
    type Rejection = Failed;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failed> {
        let upgrade = WebSocketUpgrade::from_request_parts(parts, state)
            .await
            .map_err(|error| {
                Failed::new(ErrorKind::Usage, error.body_text()).hint("connect with a WebSocket client")
            })?;
        Ok(Self(upgrade, parts.extensions.get().cloned()))
    }
}

/// A session by WebSocket: `execute`, `interrupt`, `reset`, `tool_result` and `tool_error` come in; `started`, `pending`,
/// `output`, `display`, `tool_call`, `result`, `reset_done` and `problem` go out. Whoever connects last gets the calls of tools.
#[utoipa::path(
    get, path = "/v1/sessions/{id}/socket", tag = "sessions", params(("id" = String, Path)),
    responses(
        (status = 101, description = "It is a WebSocket now"),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn socket(
    State(shared): State<Shared>,
    Caller(who): Caller,
    Id(id): Id,
    Upgrade(upgrade, slot): Upgrade,
) -> Result<Response, Failed> {
    let live = shared.service.session(&who, &id)?;
    let service = Arc::clone(&shared.service);
    let upgrade = upgrade.max_message_size(LONGEST).max_frame_size(LONGEST);
    Ok(upgrade.on_upgrade(move |socket| async move {
        Conversation::new(service, who, live).hold(socket).await;
        drop(slot);
    }))
}

struct Conversation {
    service: Arc<Service>,
    who: Identity,
    live: Arc<LiveSession>,
    /// What goes out, from whoever has something to say.
    out: mpsc::UnboundedSender<serde_json::Value>,
    said: mpsc::UnboundedReceiver<serde_json::Value>,
    /// What is under way, by a number of ours.
    under_way: HashMap<u64, CancellationToken>,
    asked: u64,
    over: (mpsc::UnboundedSender<u64>, mpsc::UnboundedReceiver<u64>),
}

impl Conversation {
    fn new(service: Arc<Service>, who: Identity, live: Arc<LiveSession>) -> Self {
        let (out, said) = mpsc::unbounded_channel();
        Self {
            service,
            who,
            live,
            out,
            said,
            under_way: HashMap::new(),
            asked: 0,
            over: mpsc::unbounded_channel(),
        }
    }

    async fn hold(mut self, mut socket: WebSocket) {
        let mut connected = self.live.bridge().connect();
        let mut looking = tokio::time::interval(LOOKING);
        loop {
            let message = tokio::select! {
                _ = looking.tick() => match self.service.still_is(&self.who).await {
                    // A key that is revoked opens nothing, whatever it opened before.
                    Err(ServiceError::Unauthorized) => break,
                    // Where that cannot be known at the moment, nothing new is taken.
                    _ => continue,
                },
                message = socket.recv() => match message {
                    Some(Ok(message)) => message,
                    _ => break,
                },
                Some(call) = connected.calls.recv() => {
                    if send(&mut socket, &tool_call(call)).await.is_err() {
                        break;
                    }
                    continue;
                }
                Some(said) = self.said.recv() => {
                    if send(&mut socket, &said).await.is_err() {
                        break;
                    }
                    continue;
                }
                Some(over) = self.over.1.recv() => {
                    self.under_way.remove(&over);
                    continue;
                }
            };
            let text = match &message {
                Message::Text(text) => text.as_str(),
                Message::Close(_) => break,
                Message::Binary(_) => {
                    self.refuse(
                        serde_json::Value::Null,
                        "binary messages are not understood; send JSON as text",
                    );
                    continue;
                }
                _ => continue,
            };
            if let Err(error) = self.service.still_is(&self.who).await {
                let sent = send(&mut socket, &problem(&serde_json::Value::Null, &error)).await;
                match error {
                    ServiceError::Unauthorized => break,
                    _ if sent.is_err() => break,
                    _ => continue,
                }
            }
            match In::read(text) {
                Ok(message) => self.take(message).await,
                Err(error) => self.refuse(serde_json::Value::Null, &format!("the message: {error}")),
            }
        }
        // Whoever hangs up interrupts what runs for them.
        for cancel in self.under_way.values() {
            cancel.cancel();
        }
    }

    async fn take(&mut self, message: In) {
        match message {
            In::Execute(wish) => self.execute(wish.id, wish.cell).await,
            In::Interrupt => {
                self.live.interrupt();
            }
            In::Reset(ResetIn { id, .. }) => {
                let (live, out) = (Arc::clone(&self.live), self.out.clone());
                tokio::spawn(async move {
                    let told = match live.reset().await {
                        Ok(()) => json!({ "type": "reset_done", "id": id }),
                        Err(error) => problem(&id, &error),
                    };
                    let _ = out.send(told);
                });
            }
            In::ToolResult(ToolResultIn { call, value, .. }) => {
                let json = value.as_ref().map_or("null", |value| value.get());
                let answer = Value::from_json(json.as_bytes(), CAPS)
                    .map_err(|error| ToolError::new("ToolResultInvalid", error.to_string()));
                self.answer(call, answer);
            }
            In::ToolError(ToolErrorIn {
                call, kind, message, ..
            }) => self.answer(call, Err(ToolError::new(kind, message))),
        }
    }

    fn answer(&self, call: u64, answer: Result<Value, ToolError>) {
        if !self.live.bridge().answer(call, answer) {
            let error =
                ServiceError::Wire(WireError::new("message", format!("nobody waits for call {call}")));
            let mut late = problem(&serde_json::Value::Null, &error);
            // So that nobody takes it for the end of an execution.
            late["call"] = json!(call);
            let _ = self.out.send(late);
        }
    }

    async fn execute(&mut self, id: serde_json::Value, cell: CellRequest) {
        if self.under_way.len() >= MOST_EXECUTIONS {
            let error = ServiceError::Busy {
                waiting: MOST_EXECUTIONS,
            };
            let _ = self.out.send(problem(&id, &error));
            return;
        }
        let (sender, mut events) = mpsc::unbounded_channel();
        let started = match self
            .service
            .execute_cell(Arc::clone(&self.live), cell, Some(sender))
            .await
        {
            Ok(started) => started,
            Err(error) => {
                let _ = self.out.send(problem(&id, &error));
                return;
            }
        };
        let kind = if started.approval_id.is_some() {
            "pending"
        } else {
            "started"
        };
        let _ = self.out.send(json!({
            "type": kind, "id": id, "execution_id": started.execution_id, "approval_id": started.approval_id,
        }));
        self.asked += 1;
        let (number, over, out) = (self.asked, self.over.0.clone(), self.out.clone());
        self.under_way.insert(number, started.cancel.clone());
        tokio::spawn(async move {
            while let Some(event) = events.recv().await {
                let (kind, mut data) = stream::happening(event);
                data["type"] = json!(kind);
                data["id"] = id.clone();
                let _ = out.send(data);
            }
            let told = match started.done.await.unwrap_or(Err(ServiceError::ShuttingDown)) {
                Ok(execution) => json!({ "type": "result", "id": id, "execution": execution }),
                Err(error) => problem(&id, &error),
            };
            let _ = out.send(told);
            let _ = over.send(number);
        });
    }

    fn refuse(&self, id: serde_json::Value, detail: &str) {
        let error = ServiceError::Wire(WireError::new("message", detail));
        let _ = self.out.send(problem(&id, &error));
    }
}

fn problem(id: &serde_json::Value, error: &ServiceError) -> serde_json::Value {
    json!({ "type": "problem", "id": id, "problem": error.problem() })
}

fn tool_call(asked: ToolAsked) -> serde_json::Value {
    let kwargs: serde_json::Map<_, _> = asked
        .arguments
        .kwargs
        .iter()
        .map(|(name, value)| (name.clone(), json!(value)))
        .collect();
    json!({
        "type": "tool_call", "call": asked.call, "name": asked.name, "args": asked.arguments.args, "kwargs": kwargs,
    })
}

async fn send(socket: &mut WebSocket, message: &serde_json::Value) -> Result<(), axum::Error> {
    socket.send(Message::text(message.to_string())).await
}
