//! The controls of a wall, and how much a policy insists on each.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::status::words;

words! {
    /// One thing that holds a guest. A receipt lists them as observed.
    Control {
        UserNamespace = "user-namespace",
        MountNamespace = "mount-namespace",
        PidNamespace = "pid-namespace",
        NetworkNamespace = "network-namespace",
        IpcNamespace = "ipc-namespace",
        UtsNamespace = "uts-namespace",
        CgroupNamespace = "cgroup-namespace",
        /// A private root: pivoted, the host's detached.
        PrivateRoot = "private-root",
        /// `/proc` of its own processes only.
        PrivateProc = "private-proc",
        /// A host uid that no other sandbox has.
        FreshUid = "fresh-uid",
        NoCapabilities = "no-capabilities",
        NoNewPrivileges = "no-new-privileges",
        Seccomp = "seccomp",
        Landlock = "landlock",
        Rlimits = "rlimits",
        /// Memory bounded by the kernel for the whole sandbox.
        MemoryCgroup = "memory-cgroup",
        /// Tasks bounded by the kernel for the whole sandbox.
        PidsCgroup = "pids-cgroup",
        /// CPU share bounded by the kernel for the whole sandbox.
        CpuCgroup = "cpu-cgroup",
        /// Processes bounded by themselves, threads aside.
        ProcessCount = "process-count",
        /// System calls are served by a kernel of its own, not by the machine's.
        OwnKernel = "own-kernel",
    }
}

impl Control {
    /// What a guest gains where this one is missing; shown by `belljar doctor`.
    pub const fn effect_of_absence(self) -> &'static str {
        match self {
            Self::UserNamespace => "no sandbox can be made without root",
            Self::MountNamespace => "the guest would see the host's files",
            Self::PidNamespace => "the guest would see and signal the host's processes",
            Self::NetworkNamespace => "the guest would have the host's network",
            Self::IpcNamespace => "the guest would share System V and POSIX queues with the host",
            Self::UtsNamespace => "the guest would see the host's name",
            Self::CgroupNamespace => "the guest can read the name of its own cgroup",
            Self::PrivateRoot => "the host's files would be reachable",
            Self::PrivateProc => "the guest runs without /proc; some programs miss it",
            Self::FreshUid => {
                "sandboxes run under the caller's own uid and are told apart by namespaces only"
            }
            Self::NoCapabilities => "the guest would hold privileges inside its namespaces",
            Self::NoNewPrivileges => "setuid programs would gain privileges",
            Self::Seccomp => "the whole system-call surface of the kernel would be open",
            Self::Landlock => "file access is held by mounts alone, without a second layer",
            Self::Rlimits => "descriptors, file sizes and CPU time of a process would be unbounded",
            Self::MemoryCgroup => {
                "memory is watched from outside instead: a fast guest can overshoot its limit briefly"
            }
            Self::PidsCgroup => "tasks are bounded by a resource limit per user instead",
            Self::CpuCgroup => "a share of the CPU cannot be enforced; CPU time still is",
            Self::ProcessCount => "processes are bounded together with threads, less exactly",
            Self::OwnKernel => "the guest speaks to the machine's own kernel, through the filter",
        }
    }
}

words! {
    /// How much a policy insists on a control.
    Demand {
        /// Use it where the machine has it; the receipt says whether.
        Prefer = "prefer",
        /// Refuse to run without it.
        Require = "require",
    }
}
