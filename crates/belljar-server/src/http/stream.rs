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

use crate::service::{Output, ServiceError, Started};
use crate::wire;

/// What is still to be told.
enum State {
    Running {
        output: mpsc::UnboundedReceiver<Output>,
        done: oneshot::Receiver<Result<wire::Execution, ServiceError>>,
        /// Whoever hangs up ends it.
        guard: DropGuard,
    },
    Over,
}

/// Tells an execution: `started`, or `pending` where somebody has to approve it, `output` as it comes, and at last `result` or `problem`.
pub(super) fn tell(started: Started, output: mpsc::UnboundedReceiver<Output>) -> Response {
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
        output,
        done: started.done,
        guard: started.cancel.drop_guard(),
    };
    let rest = stream::unfold(state, async |state| {
        let State::Running {
            mut output,
            done,
            guard,
        } = state
        else {
            return None;
        };
        if let Some((stream, bytes)) = output.recv().await {
            let event = event("output", &piece(stream, &bytes));
            return Some((Ok(event), State::Running { output, done, guard }));
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
