//! Compares limits that all sandboxes of this machine, or of this user, share with what a sandbox may use.
//!
//! A guest is held to its own limits by its own namespaces and cgroup. Some counters have a second bound further out, for the user or for the
//! whole machine; where that is smaller than the sum of what the sandboxes may use, one that uses its limits to the full leaves
//! less for others. `belljar doctor` shows it.

use std::fs;

use belljar_core::Limits;
use rustix::process::{Resource, getrlimit};

use crate::init::plan::MAX_PENDING_SIGNALS;
use crate::sys;

/// One shared limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineLimit {
    pub name: &'static str,
    /// The limit; `None` where there is none.
    pub available: Option<u64>,
    /// What one sandbox may use of it.
    pub per_sandbox: u64,
    /// How to raise it.
    pub fix: &'static str,
}

impl MachineLimit {
    /// How many sandboxes can use their limits to the full; `None` where nothing bounds it.
    pub fn sandboxes(&self) -> Option<u64> {
        Some(self.available? / self.per_sandbox.max(1))
    }
}

/// A filter's compiled program and its header, rounded up.
const FILTER_BYTES: u64 = 8 << 10;
/// Init, and the process that holds a warm program's memory.
const OWN_TASKS: u64 = 2;

/// The shared limits of this machine beside those of one sandbox.
pub fn machine_limits(limits: &Limits) -> Vec<MachineLimit> {
    let tasks = u64::from(limits.tasks()) + OWN_TASKS;
    let files = u64::from(limits.open_files()) * u64::from(limits.processes());
    let setting = |name: &str| {
        let text = fs::read_to_string(format!("/proc/sys/{name}")).ok()?;
        text.trim().parse::<u64>().ok()
    };
    let row = |name, available, per_sandbox, fix| MachineLimit {
        name,
        available,
        per_sandbox,
        fix,
    };
    vec![
        row(
            "pending signals of the user",
            user_limit(Resource::Sigpending),
            MAX_PENDING_SIGNALS,
            "raise `ulimit -H -i` (LimitSIGPENDING= of the service)",
        ),
        row(
            "tasks of the user",
            user_limit(Resource::Nproc),
            tasks,
            "raise `ulimit -H -u` (LimitNPROC= of the service)",
        ),
        row(
            "tasks of the machine",
            setting("kernel/pid_max").min(setting("kernel/threads-max")),
            tasks,
            "sysctl -w kernel.pid_max=4194304 kernel.threads-max=4194304",
        ),
        row(
            "open files of the machine",
            setting("fs/file-max"),
            files,
            "sysctl -w fs.file-max=10000000",
        ),
        row(
            "network namespaces of the user",
            setting("user/max_net_namespaces"),
            1,
            "sysctl -w user.max_net_namespaces=100000",
        ),
        row(
            "memory for compiled filters",
            setting("net/core/bpf_jit_limit"),
            FILTER_BYTES,
            "sysctl -w net.core.bpf_jit_limit=1073741824",
        ),
    ]
}

/// The limit that the launcher will have: with CAP_SYS_RESOURCE it lifts it, without it raises the soft limit to the hard one.
fn user_limit(resource: Resource) -> Option<u64> {
    const SYS_RESOURCE: u64 = 1 << 24;
    let may_raise = sys::process::effective_capabilities().unwrap_or(0) & SYS_RESOURCE != 0;
    if may_raise {
        return None;
    }
    getrlimit(resource).maximum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p60_shared_limits_are_divided_by_what_a_sandbox_may_use() {
        let limits = Limits::new(&belljar_core::limits::LimitNumbers::default()).unwrap();
        let found = machine_limits(&limits);
        let tasks = found
            .iter()
            .find(|row| row.name == "tasks of the machine")
            .unwrap();
        assert_eq!(tasks.per_sandbox, u64::from(limits.tasks()) + OWN_TASKS);
        let row = MachineLimit {
            name: "x",
            available: Some(100),
            per_sandbox: 30,
            fix: "",
        };
        assert_eq!(row.sandboxes(), Some(3));
        let unlimited = MachineLimit {
            available: None,
            ..row
        };
        assert_eq!(unlimited.sandboxes(), None);
    }
}
