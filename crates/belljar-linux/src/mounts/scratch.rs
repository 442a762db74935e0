//! Scratch memory: one file system for the work directory, `/tmp` and `/dev/shm` together.

use std::io;
use std::os::fd::AsFd;

use rustix::fs::{AtFlags, Mode};
use rustix::mount::{OpenTreeFlags, open_tree};

use super::{open_dir, place, tmpfs};

/// A part of scratch memory: where it is attached, its name within the whole, and its mode.
#[derive(Debug)]
pub(crate) struct Part {
    pub path: &'static str,
    name: &'static str,
    mode: u32,
}

const fn part(path: &'static str, name: &'static str, mode: u32) -> Part {
    Part { path, name, mode }
}

/// The parts; each place is there in every root.
pub(crate) const PARTS: [Part; 3] = [
    part("/workspace", "workspace", 0o755),
    part("/dev/shm", "shm", 0o1777),
    part(LAST, "tmp", 0o1777),
];
const LAST: &str = "/tmp";

/// Mounts scratch memory of that size on the places that the root has for it; not on the work
/// directory where that is a tree of its own.
pub(crate) fn mount(bytes: u64, inodes: u64, workspace_is_tree: bool) -> io::Result<()> {
    let scratch = tmpfs(&[
        ("size", bytes.to_string()),
        ("nr_inodes", inodes.to_string()),
        ("mode", "0755".to_owned()),
    ])?;
    // Parts can be cloned only from a mount that is attached (before 6.15), so the whole stands where its last part covers
    // it in the end. Nobody inside can take that away again; and taking the whole away instead would keep us waiting for all
    // processors of the machine.
    place::attach(scratch.as_fd(), open_dir(LAST)?.as_fd())?;
    for part in &PARTS {
        if part.name == "workspace" && workspace_is_tree {
            continue;
        }
        // mkdir's own mode is cut by the umask; the sticky bit needs a chmod anyway.
        rustix::fs::mkdirat(&scratch, part.name, Mode::from_raw_mode(0o700))?;
        let mode = Mode::from_raw_mode(part.mode);
        rustix::fs::chmodat(&scratch, part.name, mode, AtFlags::empty())?;
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        let mount = open_tree(&scratch, part.name, flags)?;
        place::attach(mount.as_fd(), open_dir(part.path)?.as_fd())?;
    }
    Ok(())
}
