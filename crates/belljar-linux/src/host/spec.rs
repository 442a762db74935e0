//! From a plan to what launcher and init are told.

use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use belljar_core::egress::{Egress, Ports, TRUST_FILE};
use belljar_core::mount::Access;
use belljar_core::plan::WORK_DIR;
use belljar_core::request::Workspace;
use belljar_core::{NetworkPolicy, Plan, Stage, StageKind};

use super::rootfs::HostRoot;
use crate::nursery::root::is_below_scratch;
use crate::wire::{
    CgroupJoin, GuestLimits, GuestSpec, HostIds, RootSpec, ShellNetwork, ShellSpec, Tree, TreeKind,
};

/// What of the machine a spec depends on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Machine {
    pub host_ids: HostIds,
    pub memory_accounted: bool,
    pub count_processes: bool,
}

/// The root that shows these on top of what every guest sees.
pub(crate) fn shared_root(shows: &[PathBuf], mut root: HostRoot, machine: Machine) -> RootSpec {
    for path in shows {
        root.show(path);
    }
    // What lies further up must be attached first.
    root.trees.sort_by_key(|tree| depth(&tree.guest));
    RootSpec {
        trees: root.trees,
        links: root.links,
        files: root.files,
        host_ids: machine.host_ids,
    }
}

/// The root of `plan`'s sandbox, with what only it shows.
pub(crate) fn root(plan: &Plan, root: HostRoot, machine: Machine) -> RootSpec {
    let mut root = shared_root(plan.shows(), root, machine);
    let trees = &mut root.trees;
    if let Workspace::Directory(dir) = plan.workspace() {
        trees.push(asked(dir, WORK_DIR, true));
    }
    for mount in plan.mounts() {
        let guest = mount.guest().to_string_lossy();
        trees.push(asked(mount.host(), &guest, mount.access() == Access::ReadWrite));
    }
    // What lies further up must be attached first.
    trees.sort_by_key(|tree| depth(&tree.guest));
    if let Some(trust) = plan.trust() {
        root.files.push((TRUST_FILE.to_owned(), trust.to_vec()));
    }
    root
}

/// What of the host the root of `plan`'s sandbox shows.
pub(crate) fn shown(plan: &Plan, root: &HostRoot) -> Vec<String> {
    let trees_alone = HostRoot {
        trees: root.trees.clone(),
        ..HostRoot::default()
    };
    let nobody = Machine {
        host_ids: HostIds::Fresh,
        memory_accounted: true,
        count_processes: true,
    };
    let trees = self::root(plan, trees_alone, nobody).trees.into_iter();
    trees.map(|tree| tree.guest).collect()
}

/// Whether the root of `plan`'s sandbox shows what only that sandbox may see, or what stands where every
/// sandbox has memory of its own: that is attached above it, which the kernel does once for each mount.
pub(crate) fn has_private_root(plan: &Plan) -> bool {
    let mut shows = plan.shows().iter();
    !plan.mounts().is_empty()
        || plan.trust().is_some()
        || matches!(plan.workspace(), Workspace::Directory(_))
        || shows.any(|path| is_below_scratch(&path.to_string_lossy()))
}

/// The shell of `plan`.
pub(crate) fn shell(plan: &Plan) -> ShellSpec {
    let disk = plan.limits().disk().get();
    ShellSpec {
        disk_bytes: disk,
        // Empty files cost memory of the kernel's own: one for every two KiB of disk is plenty.
        inodes: (disk >> 11).clamp(1024, 1 << 20),
        network: network(plan),
        cgroup: CgroupJoin::None,
        namespaces: false,
    }
}

/// What the network of `plan`'s sandbox has in it.
fn network(plan: &Plan) -> ShellNetwork {
    match (plan.network(), plan.egress()) {
        (NetworkPolicy::None, _) => ShellNetwork::Nothing,
        (NetworkPolicy::Local, _) => ShellNetwork::Loopback,
        (NetworkPolicy::Restricted | NetworkPolicy::Full, egress) => {
            let nobody = || Ports::These(BTreeSet::new());
            ShellNetwork::Doors(egress.map_or_else(nobody, Egress::ports))
        }
    }
}

fn asked(host: &Path, guest: &str, writable: bool) -> Tree {
    Tree {
        host: host.as_os_str().as_bytes().to_vec(),
        guest: guest.to_owned(),
        kind: TreeKind::Asked,
        is_dir: host.is_dir(),
        writable,
    }
}

fn depth(path: &str) -> usize {
    path.bytes().filter(|byte| *byte == b'/').count()
}

/// The guest of one stage.
pub(crate) fn guest(plan: &Plan, stage: &Stage, machine: Machine) -> GuestSpec {
    let limits = stage.limits();
    let writable_mounts = plan
        .mounts()
        .iter()
        .filter(|mount| mount.access() == Access::ReadWrite)
        .map(|mount| mount.guest().to_string_lossy().into_owned());
    let writable = ["/workspace", "/tmp", "/dev/shm"]
        .map(str::to_owned)
        .into_iter()
        .chain(writable_mounts)
        .collect();
    GuestSpec {
        argv: stage.argv().to_vec(),
        env: stage
            .env()
            .iter()
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect(),
        file_write: stage.file_write(),
        writable,
        no_network: plan.network() == NetworkPolicy::None,
        limits: guest_limits(stage),
        memory_accounted: machine.memory_accounted,
        count_processes: machine.count_processes,
        wall_millis: limits
            .wall_time()
            .duration()
            .as_millis()
            .try_into()
            .unwrap_or(u64::MAX),
    }
}

/// The limits of that stage's guest.
pub(crate) fn guest_limits(stage: &Stage) -> GuestLimits {
    let limits = stage.limits();
    GuestLimits {
        // The kernel counts whole seconds for one process; the engine watches all of them
        // together, to the millisecond. This is the net below.
        cpu_seconds: match stage.kind() {
            // Each execution of an interpreter that stays has all of the time again.
            StageKind::Interpreter => u64::MAX,
            StageKind::Compile | StageKind::Run => limits.cpu_time().get().ceil() as u64 + 1,
        },
        file_size: limits.file_size().get(),
        open_files: u64::from(limits.open_files()),
        tasks: u64::from(limits.tasks()),
        processes: limits.processes(),
        data: stage.data_limit().then(|| data_limit(limits.memory().get())),
    }
}

/// How much data a process may map where that gives it an error it can catch. Well above the memory
/// limit: libraries such as OpenBLAS map far more than they touch.
const fn data_limit(memory: u64) -> u64 {
    memory.saturating_mul(2).saturating_add(128 << 20)
}
