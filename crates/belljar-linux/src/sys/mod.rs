//! The only module in the project with unsafe code: system calls that no safe wrapper covers.
//!
//! Every block names the invariant that makes it sound, and nothing here decides anything: policy
//! lives above.
#![expect(unsafe_code, reason = "this is the module for it")]

/// Shared with the agent: both ends of its line say the same.
#[path = "agent/wire.rs"]
pub mod agent_wire;
pub(crate) mod calls;
pub(crate) mod events;
pub(crate) mod filter;
pub(crate) mod hook;
pub(crate) mod memory;
pub(crate) mod mount;
pub(crate) mod net;
pub(crate) mod process;

use std::io;

/// The result of a raw system call as std has it.
fn checked(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}
