//! The order of the steps, as data.

use crate::wire::{CgroupJoin, GuestSpec, ShellSpec};

/// The uid and gid that every guest sees itself as.
pub(crate) const GUEST_ID: u32 = 1000;

/// One step of raising a shell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ShellStep {
    /// Enter the cgroups before using anything.
    JoinCgroups,
    /// A session of its own: no controlling terminal to type into.
    NewSession,
    /// Keep nothing of the launcher's but what this shell was given.
    CloseForeignDescriptors,
    /// Become the mapped user: files made from here on belong to the guest.
    BecomeGuestUser,
    /// Neither readable nor traceable by what runs under the same uid.
    Undumpable,
    /// No mount event reaches the host, or comes from it.
    PrivatePropagation,
    /// An empty root in memory, attached where it can be built up.
    MountRoot,
    MakeLinks,
    MakeFiles,
    /// Attach what of the host is shown, each with its own access.
    AttachTrees,
    /// One file system in memory for the work directory, `/tmp` and `/dev/shm` together.
    MountScratch,
    /// While the old one is still visible: the kernel asks for that in a user namespace.
    MountProc,
    SealRoot,
    PivotRoot,
    DetachOldRoot,
    CheckRoot,
    Loopback,
    HostName,
}

/// The steps that raise the shell of `spec`.
pub(crate) fn shell(spec: &ShellSpec) -> Vec<ShellStep> {
    use ShellStep as S;
    let mut steps = Vec::with_capacity(18);
    if matches!(spec.cgroup, CgroupJoin::Tasks(_)) {
        steps.push(S::JoinCgroups);
    }
    steps.extend([
        S::NewSession,
        S::CloseForeignDescriptors,
        S::BecomeGuestUser,
        S::Undumpable,
        S::PrivatePropagation,
        S::MountRoot,
        S::MakeLinks,
        S::MakeFiles,
        S::AttachTrees,
        S::MountScratch,
        S::MountProc,
        S::SealRoot,
        S::PivotRoot,
        S::DetachOldRoot,
        S::CheckRoot,
    ]);
    if spec.loopback {
        steps.push(S::Loopback);
    }
    steps.push(S::HostName);
    steps
}

/// One step from a fork of init to a running guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum GuestStep {
    Stdio,
    DefaultSignals,
    NewSession,
    WorkDir,
    FirstToDie,
    Rlimits,
    NoCapabilities,
    NoNewPrivileges,
    Landlock,
    /// From here on a new process needs room, and a new thread asks init to make some.
    CountProcesses,
    /// Last: what the steps above call need not be on the list.
    Seccomp,
    CloseDescriptors,
    Exec,
}

/// The steps that turn a fork of init into the guest of `spec`.
pub(crate) fn guest(spec: &GuestSpec) -> Vec<GuestStep> {
    use GuestStep as G;
    let mut steps = vec![
        G::Stdio,
        G::DefaultSignals,
        G::NewSession,
        G::WorkDir,
        G::FirstToDie,
        G::Rlimits,
        G::NoCapabilities,
        G::NoNewPrivileges,
        G::Landlock,
    ];
    if spec.count_processes {
        steps.push(G::CountProcesses);
    }
    steps.extend([G::Seccomp, G::CloseDescriptors, G::Exec]);
    steps
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{GuestLimits, HostIds};

    fn shell_spec(cgroup: CgroupJoin, loopback: bool) -> ShellSpec {
        ShellSpec {
            trees: Vec::new(),
            links: Vec::new(),
            files: Vec::new(),
            disk_bytes: 1 << 20,
            inodes: 1024,
            workspace_is_tree: false,
            loopback,
            host_ids: HostIds::Fresh,
            cgroup,
            cgroup_dirs: Vec::new(),
        }
    }

    fn names<T: std::fmt::Debug>(steps: &[T]) -> String {
        steps
            .iter()
            .map(|step| format!("{step:?}"))
            .collect::<Vec<_>>()
            .join(" ")
    }

    /// The order is the wall. A change here is a change of the design and wants a second look.
    #[test]
    fn a_shell_is_raised_in_this_order() {
        assert_eq!(
            names(&shell(&shell_spec(CgroupJoin::Tasks(3), true))),
            "JoinCgroups NewSession CloseForeignDescriptors BecomeGuestUser Undumpable PrivatePropagation MountRoot \
             MakeLinks MakeFiles AttachTrees MountScratch MountProc SealRoot PivotRoot DetachOldRoot CheckRoot \
             Loopback HostName"
        );
        // Born into a v2 group, or in none: nothing to join. No network: not even loopback.
        let steps = names(&shell(&shell_spec(CgroupJoin::Born, false)));
        assert!(
            !steps.contains("JoinCgroups") && !steps.contains("Loopback"),
            "{steps}"
        );
    }

    #[test]
    fn a_guest_is_made_in_this_order() {
        let mut spec = GuestSpec {
            argv: vec!["true".to_owned()],
            env: Vec::new(),
            file_write: true,
            writable: Vec::new(),
            no_network: true,
            limits: GuestLimits {
                cpu_seconds: 1,
                file_size: 1,
                open_files: 8,
                tasks: 8,
                processes: 1,
                data: None,
            },
            memory_accounted: true,
            count_processes: true,
            wall_millis: 1000,
        };
        assert_eq!(
            names(&guest(&spec)),
            "Stdio DefaultSignals NewSession WorkDir FirstToDie Rlimits NoCapabilities NoNewPrivileges Landlock \
             CountProcesses Seccomp CloseDescriptors Exec"
        );
        spec.count_processes = false;
        assert!(!names(&guest(&spec)).contains("CountProcesses"));
    }
}
