//! Places below the new root: made where they are missing, reached through no link.
//!
//! While the root is put together the host's tree is still within reach, and a work directory that
//! is kept may hold what an earlier guest left. A link there must lead nowhere.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::mount::{MoveMountFlags, move_mount};

/// The directory `path` below `root`, made where it is missing.
pub(crate) fn dir(root: BorrowedFd<'_>, path: &str) -> io::Result<OwnedFd> {
    let mut here = root.try_clone_to_owned()?;
    for part in path.split('/').filter(|part| !part.is_empty()) {
        match rustix::fs::mkdirat(&here, part, Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        here = open(here.as_fd(), part, OFlags::PATH | OFlags::DIRECTORY)?;
    }
    Ok(here)
}

/// The file `path` below `root`, made empty where it is missing.
pub(crate) fn file(root: BorrowedFd<'_>, path: &str) -> io::Result<OwnedFd> {
    let (above, name) = split(path);
    let above = dir(root, above)?;
    // Without blocking: what stands there already may be a FIFO.
    open(
        above.as_fd(),
        name,
        OFlags::CREATE | OFlags::WRONLY | OFlags::NONBLOCK,
    )
}

/// Makes `path` below `root` a link to `target`.
pub(crate) fn link(root: BorrowedFd<'_>, path: &str, target: &str) -> io::Result<()> {
    let (above, name) = split(path);
    Ok(rustix::fs::symlinkat(target, dir(root, above)?, name)?)
}

/// Attaches a detached mount at a place.
pub(crate) fn attach(mount: BorrowedFd<'_>, place: BorrowedFd<'_>) -> io::Result<()> {
    let by_handles = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    Ok(move_mount(mount, "", place, "", by_handles)?)
}

/// Attaches a detached mount at `path` below `root`, which is made where it is missing.
pub(crate) fn attach_at(
    mount: BorrowedFd<'_>,
    root: BorrowedFd<'_>,
    path: &str,
    is_dir: bool,
) -> io::Result<()> {
    let place = if is_dir {
        dir(root, path)?
    } else {
        file(root, path)?
    };
    attach(mount, place.as_fd())
}

fn split(path: &str) -> (&str, &str) {
    path.trim_end_matches('/').rsplit_once('/').unwrap_or(("", path))
}

fn open(dir: BorrowedFd<'_>, name: &str, flags: OFlags) -> io::Result<OwnedFd> {
    // openat2 takes a mode only together with the wish for a new file.
    let mode = if flags.contains(OFlags::CREATE) { 0o644 } else { 0 };
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    Ok(rustix::fs::openat2(
        dir,
        name,
        flags | OFlags::CLOEXEC | OFlags::NOFOLLOW,
        Mode::from_raw_mode(mode),
        resolve,
    )?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_made_behind_a_link() {
        let base = std::env::temp_dir().join(format!("belljar-place-{}", std::process::id()));
        let (root, outside) = (base.join("root"), base.join("outside"));
        std::fs::create_dir_all(&root).unwrap();
        std::fs::create_dir_all(&outside).unwrap();
        std::os::unix::fs::symlink(&outside, root.join("absolute")).unwrap();
        std::os::unix::fs::symlink("../outside", root.join("up")).unwrap();
        let handle = rustix::fs::open(&root, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).unwrap();
        for link in ["absolute", "up"] {
            assert!(dir(handle.as_fd(), &format!("{link}/made")).is_err());
            assert!(file(handle.as_fd(), &format!("{link}/made")).is_err());
            assert!(file(handle.as_fd(), link).is_err());
        }
        assert!(dir(handle.as_fd(), "/a/b//c").is_ok());
        assert!(file(handle.as_fd(), "/a/b/file").is_ok());
        assert!(link(handle.as_fd(), "/a/link", "b").is_ok());
        assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 0);
        assert!(root.join("a/link/file").is_file());
        std::fs::remove_dir_all(&base).unwrap();
    }
}
