//! Tools of a session that live at its caller: calls go out to whoever is connected, and answers come back.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use belljar_core::Value;
use belljar_engine::{Arguments, ToolError, Tools};
use tokio::sync::{mpsc, oneshot};

/// A call on its way out.
#[derive(Debug)]
pub struct ToolAsked {
    /// The number by which it is answered.
    pub call: u64,
    pub name: String,
    pub arguments: Arguments,
}

type Answer = Result<Value, ToolError>;

/// The calls of one session. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Bridge {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    /// Whoever is connected, and which of those they are.
    connected: Option<(u64, mpsc::UnboundedSender<ToolAsked>)>,
    connections: u64,
    calls: u64,
    waiting: HashMap<u64, oneshot::Sender<Answer>>,
}

/// Somebody who is connected and gets the calls. Dropping it disconnects.
#[derive(Debug)]
pub struct Connected {
    bridge: Bridge,
    connection: u64,
    pub calls: mpsc::UnboundedReceiver<ToolAsked>,
}

impl Bridge {
    /// The tools of these names.
    pub(super) fn tools(&self, names: &[String]) -> Tools {
        let mut tools = Tools::new();
        for name in names {
            let (bridge, called) = (self.clone(), name.clone());
            tools.add_raw(name, move |arguments| {
                let (bridge, name) = (bridge.clone(), called.clone());
                async move { bridge.call(name, arguments).await }
            });
        }
        tools
    }

    async fn call(&self, name: String, arguments: Arguments) -> Answer {
        let unavailable = || {
            let message = "whoever has this tool is not connected; a WebSocket of the session brings it";
            ToolError::new("ToolUnavailable", message)
        };
        let answer = {
            let mut state = self.lock();
            state.calls += 1;
            let call = state.calls;
            let (sender, answer) = oneshot::channel();
            let Some((_, calls)) = &state.connected else {
                return Err(unavailable());
            };
            let asked = ToolAsked {
                call,
                name,
                arguments,
            };
            if calls.send(asked).is_err() {
                return Err(unavailable());
            }
            state.waiting.retain(|_, waiting| !waiting.is_closed());
            state.waiting.insert(call, sender);
            answer
        };
        answer.await.unwrap_or_else(|_| Err(unavailable()))
    }

    /// From now on calls go to whoever has this; who had them before gets no more, and what they did not answer fails.
    pub fn connect(&self) -> Connected {
        let (sender, calls) = mpsc::unbounded_channel();
        let mut state = self.lock();
        state.connections += 1;
        let connection = state.connections;
        state.connected = Some((connection, sender));
        state.waiting.clear();
        Connected {
            bridge: self.clone(),
            connection,
            calls,
        }
    }

    /// Answers a call; false if nobody waits for that.
    pub fn answer(&self, call: u64, answer: Answer) -> bool {
        let waiting = self.lock().waiting.remove(&call);
        waiting.is_some_and(|waiting| waiting.send(answer).is_ok())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        let mut state = self.bridge.lock();
        if state
            .connected
            .as_ref()
            .is_some_and(|(connection, _)| *connection == self.connection)
        {
            state.connected = None;
            state.waiting.clear();
        }
    }
}
