//! Parts of the host's tree.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::mount::{OpenTreeFlags, open_tree};

use crate::sys::mount::{NO_DEV, NO_SUID, READ_ONLY, set_attributes};
use crate::wire::TreeKind;

/// Clones one part of the host's tree as a detached mount with its access set. Done by the
/// launcher, which may pass directories that the guest's uid cannot enter.
pub(crate) fn clone_tree(
    host: &[u8],
    kind: TreeKind,
    writable: bool,
    ids: Option<BorrowedFd<'_>>,
) -> io::Result<OwnedFd> {
    let path = CString::new(host)?;
    let flags =
        OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
    let tree = if kind == TreeKind::Asked {
        // A policy permits paths, not what a link planted below one of them leads to.
        let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let place = rustix::fs::openat2(CWD, &path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve)?;
        open_tree(&place, "", flags | OpenTreeFlags::AT_EMPTY_PATH)?
    } else {
        open_tree(CWD, &path, flags)?
    };
    let mut attributes = NO_SUID;
    if kind != TreeKind::Device {
        attributes |= NO_DEV;
    }
    if !writable && kind != TreeKind::Device {
        attributes |= READ_ONLY;
    }
    set_attributes(tree.as_fd(), c"", attributes, true, None)?;
    if ids.is_some() {
        // What is mounted further down keeps its owners: another file system may not know mapping.
        set_attributes(tree.as_fd(), c"", 0, false, ids)?;
    }
    Ok(tree)
}
