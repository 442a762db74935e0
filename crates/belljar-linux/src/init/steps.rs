//! The order of the steps, as data.

use crate::wire::{CgroupJoin, GuestSpec, ShellSpec};

/// The uid and gid that every guest sees itself as.
pub(crate) const GUEST_ID: u32 = 1000;

/// One step of raising the root that a nursery's shells have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RootStep {
    /// A session of its own: no controlling terminal to type into.
    NewSession,
    /// Keep nothing of the launcher's but what this nursery was given.
    CloseForeignDescriptors,
    /// No mount event reaches the host, or comes from it.
    PrivatePropagation,
    /// An empty root in memory, attached where it can be built up.
    MountRoot,
    MakeLinks,
    MakeFiles,
    /// Attach what of the host is shown, each with its own access.
    AttachTrees,
    /// Directories on which each shell mounts what is its own.
    MakePlaces,
    /// While the old one is still visible: the kernel asks for that in a user namespace.
    MountProc,
    SealRoot,
    PivotRoot,
    DetachOldRoot,
    CheckRoot,
}

/// The steps that raise a nursery's root.
pub(crate) const fn root() -> [RootStep; 13] {
    use RootStep as R;
    [
        R::NewSession,
        R::CloseForeignDescriptors,
        R::PrivatePropagation,
        R::MountRoot,
        R::MakeLinks,
        R::MakeFiles,
        R::AttachTrees,
        R::MakePlaces,
        R::MountProc,
        R::SealRoot,
        R::PivotRoot,
        R::DetachOldRoot,
        R::CheckRoot,
    ]
}

/// One step of raising a shell, a clone of its nursery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ShellStep {
    /// Enter the cgroups before using anything.
    JoinCgroups,
    NewSession,
    /// Keep nothing of the nursery's but what this shell was given.
    CloseForeignDescriptors,
    /// Become the mapped user: files made from here on belong to the guest.
    BecomeGuestUser,
    /// Neither readable nor traceable by what runs under the same uid.
    Undumpable,
    /// One file system in memory for the work directory, `/tmp` and `/dev/shm` together.
    MountScratch,
    /// Its own processes only, over the nursery's.
    MountProc,
    CheckRoot,
    HostName,
}

/// The steps that raise the shell of `spec`.
pub(crate) fn shell(spec: &ShellSpec) -> Vec<ShellStep> {
    use ShellStep as S;
    let mut steps = Vec::with_capacity(9);
    if spec.cgroup == CgroupJoin::Later {
        steps.push(S::JoinCgroups);
    }
    steps.extend([
        S::NewSession,
        S::CloseForeignDescriptors,
        S::BecomeGuestUser,
        S::Undumpable,
        S::MountScratch,
        S::MountProc,
        S::CheckRoot,
        S::HostName,
    ]);
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
    /// From here on a new process needs room.
    CountProcesses,
    /// Last: what the steps above call need not be on the list. Where processes are counted, a new
    /// thread asks init to make room from here on.
    Seccomp,
    CloseDescriptors,
    Exec,
    /// Its own `/proc` entries belong to it again, as after an exec.
    Dumpable,
}

impl GuestStep {
    /// What it is called in messages, and by whoever switches it off.
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Stdio => "Stdio",
            Self::DefaultSignals => "DefaultSignals",
            Self::NewSession => "NewSession",
            Self::WorkDir => "WorkDir",
            Self::FirstToDie => "FirstToDie",
            Self::Rlimits => "Rlimits",
            Self::NoCapabilities => "NoCapabilities",
            Self::NoNewPrivileges => "NoNewPrivileges",
            Self::Landlock => "Landlock",
            Self::CountProcesses => "CountProcesses",
            Self::Seccomp => "Seccomp",
            Self::CloseDescriptors => "CloseDescriptors",
            Self::Exec => "Exec",
            Self::Dumpable => "Dumpable",
        }
    }
}

/// How a guest starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// A fork of init that executes a program.
    Exec,
    /// A fork of a warm interpreter that goes on as it is. One that is held has a process beside it.
    Warm { held: bool },
}

/// The steps that turn a fork into the guest of `spec`.
pub(crate) fn guest(spec: &GuestSpec, start: Start) -> Vec<GuestStep> {
    use GuestStep as G;
    let mut steps = vec![G::Stdio];
    if start == Start::Exec {
        steps.push(G::DefaultSignals);
    }
    steps.extend([
        G::NewSession,
        G::WorkDir,
        G::FirstToDie,
        G::Rlimits,
        G::NoCapabilities,
        G::NoNewPrivileges,
        G::Landlock,
    ]);
    if spec.count_processes {
        steps.push(G::CountProcesses);
    }
    match start {
        Start::Exec => steps.extend([G::Seccomp, G::CloseDescriptors, G::Exec]),
        Start::Warm { .. } => steps.extend([G::Dumpable, G::Seccomp]),
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::GuestLimits;

    const fn shell_spec(cgroup: CgroupJoin) -> ShellSpec {
        ShellSpec {
            disk_bytes: 1 << 20,
            inodes: 1024,
            network: crate::wire::ShellNetwork::Loopback,
            cgroup,
            namespaces: false,
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
    fn a_root_is_raised_in_this_order() {
        assert_eq!(
            names(&root()),
            "NewSession CloseForeignDescriptors PrivatePropagation MountRoot MakeLinks MakeFiles AttachTrees \
             MakePlaces MountProc SealRoot PivotRoot DetachOldRoot CheckRoot"
        );
    }

    #[test]
    fn a_shell_is_raised_in_this_order() {
        assert_eq!(
            names(&shell(&shell_spec(CgroupJoin::Later))),
            "JoinCgroups NewSession CloseForeignDescriptors BecomeGuestUser Undumpable MountScratch MountProc \
             CheckRoot HostName"
        );
        // Born into a v2 group, or in none: nothing to join.
        let steps = names(&shell(&shell_spec(CgroupJoin::Born)));
        assert!(!steps.contains("JoinCgroups"), "{steps}");
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
            names(&guest(&spec, Start::Exec)),
            "Stdio DefaultSignals NewSession WorkDir FirstToDie Rlimits NoCapabilities NoNewPrivileges Landlock \
             CountProcesses Seccomp CloseDescriptors Exec"
        );
        // A warm one has the same walls in the same order.
        assert_eq!(
            names(&guest(&spec, Start::Warm { held: true })),
            "Stdio NewSession WorkDir FirstToDie Rlimits NoCapabilities NoNewPrivileges Landlock CountProcesses \
             Dumpable Seccomp"
        );
        spec.count_processes = false;
        assert!(!names(&guest(&spec, Start::Exec)).contains("CountProcesses"));
    }
}
