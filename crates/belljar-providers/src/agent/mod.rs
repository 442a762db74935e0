//! The engine's end of an agent, and sandboxes that have one.

mod counters;
mod feed;
mod files;
mod line;
mod sandbox;
mod seen;
mod stage;
mod talk;
mod told;
mod watch;

pub(crate) use counters::Counters;
pub(crate) use line::{Connected, Line};
pub(crate) use sandbox::{AgentSandbox, Made};
pub(crate) use seen::Seen;
pub(crate) use told::{Frames, Identity};
pub(crate) use watch::Held;
