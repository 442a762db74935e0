//! The messages themselves.

use std::io;

use belljar_core::egress::Ports;
use serde::{Deserialize, Serialize};

/// Engine to launcher.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum LauncherRequest {
    /// Where groups of this engine are and how their names begin, for clean-up should the engine die.
    Groups { subtrees: Vec<String>, prefix: String },
    /// Make a nursery. Descriptor: its end of the socket to the engine.
    MakeNursery { nursery: u64, spec: RootSpec },
}

/// Launcher to engine.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum LauncherEvent {
    /// The nursery was reaped, or never came to be: nothing of it or its shells is left.
    Ended { nursery: u64 },
}

/// Engine to nursery.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum NurseryRequest {
    /// Make a shell. Descriptors: the v2 cgroup's directory, or the v1 groups' `tasks` files.
    MakeShell { shell: u64, spec: ShellSpec },
    /// Start a warm interpreter. Descriptor: its end of its channel to the engine.
    StartZygote(ZygoteSpec),
}

/// Nursery to engine.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum NurseryEvent {
    /// The root stands.
    Ready {
        notes: Vec<Note>,
    },
    /// There will be no root and no shell.
    SetupFailed(StepFailure),
    /// Descriptors: init's pidfd, the engine's end of init's control socket, handles of its namespaces where they were asked
    /// for, and so many doors.
    Made {
        shell: u64,
        doors: u8,
    },
    Failed {
        shell: u64,
        failure: StepFailure,
    },
    /// Init was reaped: nothing of the shell is left.
    Ended {
        shell: u64,
    },
}

/// Engine to init.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum InitRequest {
    /// Join groups. Descriptors: files into which a task writes `0` to move there.
    Join,
    /// Put a file into the work directory. Descriptor: its content.
    PutFile { path: String, executable: bool },
    /// Start a guest. Descriptors: its standard input, output and error, and its control channel if
    /// it has one.
    Exec(Box<GuestSpec>),
    /// Take in a guest that a warm interpreter forks. Descriptors: the channel to the fork, then the
    /// same as for `Exec`. One that is `held` has a process beside it.
    Adopt { spec: Box<GuestSpec>, held: bool },
    /// Interrupt the guest, as Ctrl-C would.
    Interrupt,
    /// End the guest and everything else in the sandbox.
    EndGuest,
    /// From now on the guest has so long.
    Backstop { wall_millis: u64 },
}

/// Init to engine. Those of one message are told together, so that whoever waits for the last is woken once.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum InitEvent {
    /// The shell stands. Descriptor: the work directory.
    Ready {
        notes: Vec<Note>,
    },
    SetupFailed(StepFailure),
    FilePut,
    FileFailed(StepFailure),
    /// The guest runs. Descriptor: its pidfd, if it was taken in.
    Started {
        notes: Vec<Note>,
    },
    NotStarted(StepFailure),
    /// The guest has ended and so has everything it started. Who forked it knows its status.
    Ended {
        status: Option<i32>,
        cpu_micros: u64,
    },
}

/// Which step failed, and how.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct StepFailure {
    pub step: String,
    pub errno: i32,
}

impl StepFailure {
    pub(crate) fn new(step: &str, error: impl Into<io::Error>) -> Self {
        Self {
            step: step.to_owned(),
            errno: error.into().raw_os_error().unwrap_or(0),
        }
    }
}

/// Something observed while the walls went up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Note {
    /// Landlock holds, with this effective version of its interface.
    Landlock(u32),
    LandlockAbsent,
    ProcMounted,
    ProcAbsent(i32),
    /// Processes are counted exactly.
    ProcessesCounted,
    /// The file system below this mount cannot map owners.
    MountNotMapped(String),
    /// The kernel's word on the guest's state right before it started.
    NoNewPrivileges,
    NoCapabilities,
    Seccomp,
    Weakened(String),
}

/// What the root of a nursery's shells is. Paths are absolute host or guest paths.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RootSpec {
    pub trees: Vec<Tree>,
    /// Symbolic links: where, and to what.
    pub links: Vec<(String, String)>,
    /// Small files made on the spot: where, and what is in them.
    pub files: Vec<(String, Vec<u8>)>,
    pub host_ids: HostIds,
}

impl RootSpec {
    /// Whether the work directory is a tree of its own instead of scratch memory.
    pub(crate) fn workspace_is_tree(&self) -> bool {
        self.trees.iter().any(|tree| tree.guest == "/workspace")
    }
}

/// How a shell is to be made.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct ShellSpec {
    pub disk_bytes: u64,
    pub inodes: u64,
    pub network: ShellNetwork,
    pub cgroup: CgroupJoin,
    /// Whether handles of its namespaces are wanted, for a warm interpreter's fork to enter.
    pub namespaces: bool,
}

/// What a shell's network has in it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum ShellNetwork {
    Nothing,
    /// The guest itself.
    Loopback,
    /// Whoever stands at its doors: every address leads there, on these ports and to a resolver.
    Doors(Ports),
}

/// A shell's namespaces, in the order in which a fork enters them. The network is the nursery's to give, so it is entered with the
/// rights that the zygote has there. The user namespace comes next, since it gives the right to enter the others. A pid namespace
/// is entered by being born into it.
pub(crate) const NAMESPACE_NAMES: [(&str, i32); 7] = [
    ("pid", libc::CLONE_NEWPID),
    ("net", libc::CLONE_NEWNET),
    ("user", libc::CLONE_NEWUSER),
    ("ipc", libc::CLONE_NEWIPC),
    ("uts", libc::CLONE_NEWUTS),
    ("cgroup", libc::CLONE_NEWCGROUP),
    ("mnt", libc::CLONE_NEWNS),
];

/// How a zygote is to be started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ZygoteSpec {
    pub argv: Vec<String>,
    pub env: Vec<(String, String)>,
}

/// Which host ids the guest gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum HostIds {
    /// A fresh one of the launcher's range: the launcher is root.
    Fresh,
    /// The caller's own.
    Own { uid: u32, gid: u32 },
}

/// How init gets into its cgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum CgroupJoin {
    None,
    /// Born into the v2 group whose directory is the first descriptor.
    Born,
    /// Waits for [`InitRequest::Join`] before it does anything else. The group can be made meanwhile.
    Later,
}

/// One part of the host shown to the guest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Tree {
    pub host: Vec<u8>,
    pub guest: String,
    pub kind: TreeKind,
    pub is_dir: bool,
    pub writable: bool,
}

/// Why a tree is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum TreeKind {
    /// Part of the host's system that an interpreter needs.
    System,
    /// A device node.
    Device,
    /// Asked for by the request: its owner is mapped to the guest where that is possible.
    Asked,
}

/// How a guest is to be started.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct GuestSpec {
    pub argv: Vec<String>,
    pub env: Vec<(String, String)>,
    pub file_write: bool,
    /// Where it may write, when it may write at all.
    pub writable: Vec<String>,
    /// Refuse TCP in Landlock as well.
    pub no_network: bool,
    pub limits: GuestLimits,
    pub memory_accounted: bool,
    pub count_processes: bool,
    /// When init ends it by itself, should the engine be held up: the engine's own clock decides
    /// before that.
    pub wall_millis: u64,
}

/// Limits of a guest process, in the kernel's units.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct GuestLimits {
    pub cpu_seconds: u64,
    pub file_size: u64,
    pub open_files: u64,
    pub tasks: u64,
    pub processes: u32,
    pub data: Option<u64>,
}
