//! The control group of one sandbox, from before its shell to after it.

use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;

use belljar_core::{Limits, ProviderError, Weight};

use super::cgroup::{self, Group, GroupLimits, Hierarchy};

/// A group that is removed when it goes out of scope; by then nothing may be in it.
#[derive(Debug)]
pub(crate) struct SandboxGroup {
    group: Box<dyn Group>,
    version: &'static str,
    dirs: Vec<PathBuf>,
    /// What it is limited to, so that a stage with the same limits costs no writes.
    limited: Option<GroupLimits>,
    weight: Weight,
}

impl SandboxGroup {
    /// Makes the group of that name, limited from the start; `shares` where it may get a share of the processors later.
    pub(crate) fn make(
        hierarchy: &dyn Hierarchy,
        name: &str,
        limits: GroupLimits,
        shares: bool,
    ) -> Result<Self, ProviderError> {
        let shares = shares || limits.cpu_percent.is_some();
        let group = hierarchy
            .create(name, shares)
            .map_err(|error| failed("make", error))?;
        let mut made = Self {
            dirs: group.dirs(),
            version: hierarchy.version(),
            group,
            limited: None,
            weight: Weight::FULL,
        };
        made.set(limits)?;
        Ok(made)
    }

    pub(crate) const fn version(&self) -> &'static str {
        self.version
    }

    /// The descriptor that a process is born into it by; none where nobody can be.
    pub(crate) fn birthplace(&self) -> Result<Option<OwnedFd>, ProviderError> {
        self.group.birthplace().map_err(|error| failed("enter", error))
    }

    /// Files into which a task writes `0` to move here.
    pub(crate) fn entries(&self) -> Result<Vec<OwnedFd>, ProviderError> {
        self.group.entries().map_err(|error| failed("enter", error))
    }

    /// The same files by name.
    pub(crate) fn entry_paths(&self) -> Vec<PathBuf> {
        self.dirs.iter().map(|dir| dir.join("cgroup.procs")).collect()
    }

    pub(crate) fn limit(&mut self, limits: &Limits) -> Result<(), ProviderError> {
        self.set(limits_of(limits))
    }

    pub(crate) fn set(&mut self, limits: GroupLimits) -> Result<(), ProviderError> {
        if self.limited != Some(limits) {
            self.group
                .limit(&limits)
                .map_err(|error| failed("limit", error))?;
            self.limited = Some(limits);
        }
        Ok(())
    }

    /// Sets what it weighs beside others. That is courtesy, not a wall: where it fails, everything goes on.
    pub(crate) fn weigh(&mut self, weight: Weight) {
        if self.weight != weight && self.group.weigh(weight).is_ok() {
            self.weight = weight;
        }
    }

    /// The processor time that it has used so far, where that is counted.
    pub(crate) fn cpu(&self) -> Option<Duration> {
        self.group.cpu()
    }

    pub(crate) fn memory_peak(&self) -> Option<u64> {
        self.group.memory_peak()
    }

    pub(crate) fn out_of_memory_kills(&self) -> u64 {
        self.group.out_of_memory_kills()
    }

    /// Becomes readable when memory runs out, where the kernel does not end the whole group by itself.
    pub(crate) fn out_of_memory_event(&self) -> Option<OwnedFd> {
        self.group.out_of_memory_event()
    }

    /// Removes it and says whether that worked.
    pub(crate) fn remove(mut self) -> Result<(), ProviderError> {
        // Nothing is left for the drop to do.
        cgroup::remove(&std::mem::take(&mut self.dirs)).map_err(|error| failed("remove", error))
    }
}

impl Drop for SandboxGroup {
    fn drop(&mut self) {
        let _ = cgroup::remove(&self.dirs);
    }
}

/// What a whole sandbox is limited to.
pub(crate) const fn limits_of(limits: &Limits) -> GroupLimits {
    GroupLimits {
        memory: limits.memory().get(),
        // Init is one of them, and the holder of a warm guest another.
        tasks: limits.tasks() + 2,
        cpu_percent: limits.cpu_percent(),
    }
}

fn failed(operation: &'static str, source: io::Error) -> ProviderError {
    ProviderError::Io {
        operation,
        object: "a control group".to_owned(),
        source,
    }
}
