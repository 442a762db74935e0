//! The native Linux provider: namespaces, a private root, capabilities, seccomp, Landlock, cgroups.
//!
//! - `host`: what the engine does: the launcher's client, cgroups, output, files, probing.
//! - `launcher`: the small single-threaded process from which every other one comes.
//! - `nursery`: one process for each root; its clones are the shells.
//! - `mounts`: file systems and places that a sandbox is put together from.
//! - `init`: what runs between clone and exec, and pid 1 of each sandbox.
//! - `policies`: the system-call rules as data.
//! - `sys`: the only module with unsafe; in `sys/native` is what a zygote loads.
//! - `wire`: what they say to each other.

pub mod agent;
mod birth;
pub mod doors;
pub mod groups;
mod host;
pub mod host_root;
mod init;
mod launcher;
mod mounts;
mod nursery;
pub mod owner;
mod policies;
mod sys;
mod weaken;
mod wire;

pub use host::machine_limits::{MachineLimit, machine_limits};
pub use host::pool::PoolSettings;
pub use host::provider::NativeProvider;
pub use host::stdin::{Pump, pump};
pub use host::toolchain::find as find_toolchain;
pub use host::tree::descendants;
pub use policies::{Rule, RuleAction, arguments, rules};
pub use sys::memory::release_memory;

/// For the fuzz target: reads one frame as the engine reads what a sandbox sends.
#[doc(hidden)]
pub fn read_event_frame(bytes: &[u8]) -> bool {
    wire::decode::<wire::InitEvent>(bytes).is_ok()
}
