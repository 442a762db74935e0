//! Putting files into the work directory, on the engine's behalf.
//!
//! A guest may have been there before, so every part of the path is opened without following
//! links, below a handle of the work directory.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags, ResolveFlags};

/// Copies `content` to `path` below the work directory, making directories on the way.
pub(super) fn put(
    work_dir: BorrowedFd<'_>,
    path: &str,
    executable: bool,
    content: &OwnedFd,
) -> io::Result<()> {
    let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
    let mut dir = work_dir.try_clone_to_owned()?;
    for part in above.split('/').filter(|part| !part.is_empty()) {
        match rustix::fs::mkdirat(&dir, part, Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        dir = open_below(dir.as_fd(), part, OFlags::DIRECTORY | OFlags::PATH, 0)?;
    }
    let mode = if executable { 0o755 } else { 0o644 };
    // Whatever stood there is replaced, never written through.
    match rustix::fs::unlinkat(&dir, name, rustix::fs::AtFlags::empty()) {
        Ok(()) | Err(rustix::io::Errno::NOENT) => {}
        Err(error) => return Err(error.into()),
    }
    let file = open_below(
        dir.as_fd(),
        name,
        OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY,
        mode,
    )?;
    copy(content, &file)
}

fn open_below(dir: BorrowedFd<'_>, name: &str, flags: OFlags, mode: u32) -> io::Result<OwnedFd> {
    Ok(rustix::fs::openat2(
        dir,
        name,
        flags | OFlags::CLOEXEC | OFlags::NOFOLLOW,
        Mode::from_raw_mode(mode),
        ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS,
    )?)
}

fn copy(from: &OwnedFd, to: &OwnedFd) -> io::Result<()> {
    loop {
        // The kernel copies without passing the bytes through this process.
        match rustix::fs::sendfile(to, from, None, 1 << 20) {
            Ok(0) => return Ok(()),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
