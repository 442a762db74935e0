//! Providers whose walls are somebody else's: containers of an engine, gVisor, and none at all.
//!
//! Inside of each stands the agent, a small program of ours, and does what the native provider's init does there: it starts guests,
//! passes their streams, and ends them. `agent` is the engine's end of that, the same for every provider; a provider
//! itself only makes a place with an agent in it, says what holds there, and takes it away.

mod agent;
mod background;
mod believed;
mod clearing;
mod docker;
mod gvisor;
mod mounts;
mod own_kernel;
mod place;
mod pool;
mod program;
mod scratch;
mod venv;

pub use docker::{DockerProvider, DockerSettings, Progress};
pub use gvisor::{GvisorProvider, GvisorSettings};
pub use venv::VenvProvider;

/// For the fuzz target: reads what an agent sends as the engine does, until it is no frame.
#[doc(hidden)]
pub fn read_agent_frames(bytes: &[u8]) -> usize {
    let mut frames = agent::Frames::default();
    frames.push(bytes);
    let mut count = 0;
    while let Ok(Some(_)) = frames.next() {
        count += 1;
    }
    count
}
