//! What the `host` environment shows of this machine, for providers that put a root together themselves.

use std::path::PathBuf;

use belljar_core::Plan;

use crate::host::rootfs::HostRoot;
use crate::host::spec::{self, Machine};
use crate::wire::{HostIds, TreeKind};

/// One part of the host that is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    pub host: PathBuf,
    pub guest: String,
    pub is_dir: bool,
    pub writable: bool,
}

/// The root of one sandbox: what of the host it shows, and what is made for it.
#[derive(Clone, Debug)]
pub struct HostView {
    /// Those further up come first.
    pub shown: Vec<Shown>,
    /// Symbolic links: where, and to what.
    pub links: Vec<(String, String)>,
    /// Small files: where, and what is in them.
    pub files: Vec<(String, Vec<u8>)>,
}

/// What is made for every root, and nothing of what is shown.
pub fn bare() -> HostView {
    let root = HostRoot::look();
    HostView {
        shown: Vec::new(),
        links: root.links,
        files: root.files,
    }
}

/// What `plan` shows of this machine, with its mounts.
pub fn view(plan: &Plan) -> HostView {
    let nobody = Machine {
        host_ids: HostIds::Fresh,
        memory_accounted: true,
        count_processes: false,
    };
    let root = plan.root().map_or_else(HostRoot::look, HostRoot::of);
    let root = spec::root(plan, root, nobody);
    let trees = root.trees.into_iter();
    HostView {
        shown: trees
            // A root of somebody else's has devices of its own.
            .filter(|tree| tree.kind != TreeKind::Device)
            .map(|tree| Shown {
                host: PathBuf::from(String::from_utf8_lossy(&tree.host).into_owned()),
                guest: tree.guest,
                is_dir: tree.is_dir,
                writable: tree.writable,
            })
            .collect(),
        links: root.links,
        files: root.files,
    }
}
