//! What a caller sees of an execution while it runs.

use belljar_core::provider::Stream;
use belljar_core::{Display, ToolCall};

/// Something that happened in an execution.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Event {
    Output(Stream, Vec<u8>),
    Display(Display),
    /// A call of a host tool was let through and starts, or waits for its turn.
    ToolStarted {
        call: u64,
        name: String,
    },
    ToolEnded(ToolCall),
}

/// Receives what happens, in its order.
pub trait SessionSink {
    fn event(&mut self, event: Event);
}

/// A sink for callers that only want the outcome.
impl SessionSink for () {
    fn event(&mut self, _: Event) {}
}

impl<F: FnMut(Event)> SessionSink for F {
    fn event(&mut self, event: Event) {
        self(event);
    }
}
