//! An execution told as it happens, as server-sent events.

use std::convert::Infallible;

use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use belljar_core::provider::Stream;
use futures_util::stream;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::DropGuard;

use belljar_engine::session::Event as SessionEvent;

use crate::service::{ServiceError, Started};
use crate::wire;

/// What is still to be told.
enum State {
    Running {
        happening: mpsc::UnboundedReceiver<SessionEvent>,
        done: oneshot::Receiver<Result<wire::Execution, ServiceError>>,
        /// Whoever hangs up ends it.
        guard: DropGuard,
    },
    Over,
}

/// Tells an execution: `started`, or `pending` where somebody has to approve it, `output` as it comes, and at last `result` or `problem`.
pub(super) fn tell(started: Started, happening: mpsc::UnboundedReceiver<SessionEvent>) -> Response {
    let name = match started.approval_id {
        Some(_) => "pending",
        None => "started",
    };
    let first = event(
        name,
        &json!({
            "execution_id": started.execution_id, "approval_id": started.approval_id, "record": started.record,
        }),
    );
    let state = State::Running {
        happening,
        done: started.done,
        guard: started.cancel.drop_guard(),
    };
    let rest = stream::unfold(state, move |state| async move {
        let State::Running {
            mut happening,
            done,
            guard,
        } = state
        else {
            return None;
        };
        if let Some(one) = happening.recv().await {
            let (name, data) = self::happening(one);
            let state = State::Running {
                happening,
                done,
                guard,
            };
            return Some((Ok(event(name, &data)), state));
        }
        let told = match done.await {
            Ok(Ok(execution)) => event("result", &json!(execution)),
            Ok(Err(error)) => event("problem", &json!(error.problem())),
            Err(_) => event("problem", &json!(ServiceError::ShuttingDown.problem())),
        };
        Some((Ok(told), State::Over))
    });
    let all = stream::StreamExt::chain(stream::iter([Ok::<_, Infallible>(first)]), rest);
    Sse::new(all).keep_alive(KeepAlive::default()).into_response()
}

fn event(name: &str, data: &Value) -> Event {
    // JSON has no line of its own that could end the event.
    Event::default().event(name).data(data.to_string())
}

/// What happens, as an event.
pub(super) fn happening(event: SessionEvent) -> (&'static str, Value) {
    match event {
        SessionEvent::Output(stream, bytes) => ("output", piece(stream, &bytes)),
        SessionEvent::Display(display) => ("display", json!(display)),
        SessionEvent::ToolStarted { call, name } => ("tool_started", json!({ "call": call, "name": name })),
        SessionEvent::ToolEnded(call) => ("tool_ended", json!(wire::ToolCall::from(&call))),
        _ => ("unknown", Value::Null),
    }
}

/// A piece of output: text, or base64 where it is none.
fn piece(stream: Stream, bytes: &[u8]) -> Value {
    let stream = match stream {
        Stream::Stdout => wire::Stream::Stdout,
        Stream::Stderr => wire::Stream::Stderr,
    };
    match std::str::from_utf8(bytes) {
        Ok(text) => json!({ "stream": stream, "text": text }),
        Err(_) => json!({ "stream": stream, "base64": STANDARD.encode(bytes) }),
    }
}
