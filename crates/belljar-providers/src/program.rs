//! The agent as a file that can be started.

use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;

use belljar_linux::agent::PROGRAM;
use rustix::fs::{MemfdFlags, SealFlags};

/// Where it stands in every root of ours.
pub(crate) const AGENT: &str = "/.belljar/agent";

/// The agent in memory that nobody can change.
#[derive(Debug)]
pub(crate) struct AgentProgram(OwnedFd);

impl AgentProgram {
    pub(crate) fn new() -> io::Result<Self> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let memory = rustix::fs::memfd_create("belljar-agent", flags)?;
        let mut file = std::fs::File::from(memory);
        file.write_all(PROGRAM)?;
        let seals = SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&file, seals)?;
        Ok(Self(file.into()))
    }

    /// By which name this process can start it.
    pub(crate) fn path(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.0.as_raw_fd()).into()
    }
}
