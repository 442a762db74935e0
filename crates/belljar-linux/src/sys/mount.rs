//! `mount_setattr`: the one call of the new mount API that rustix lacks.

use std::ffi::CStr;
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::checked;

pub(crate) const READ_ONLY: u64 = 0x1;
pub(crate) const NO_SUID: u64 = 0x2;
pub(crate) const NO_DEV: u64 = 0x4;

/// Sets attributes of the mount at `path` below `dir` (or of `dir` itself where `path` is empty),
/// makes it private, and where `ids` is given maps its owners through that user namespace.
pub(crate) fn set_attributes(
    dir: BorrowedFd<'_>,
    path: &CStr,
    attributes: u64,
    recursive: bool,
    ids: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    const MOUNT_ATTR_IDMAP: u64 = 0x0010_0000;
    // SAFETY: mount_attr is plain integers, for which all zeroes is a valid value.
    let mut request: libc::mount_attr = unsafe { mem::zeroed() };
    request.attr_set = attributes;
    request.propagation = libc::MS_PRIVATE;
    if let Some(ids) = ids {
        request.attr_set |= MOUNT_ATTR_IDMAP;
        request.userns_fd = ids.as_raw_fd() as u64;
    }
    let recursive = if recursive { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: `path` is NUL-terminated and `request` is a live mount_attr of the size given.
    checked(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            dir.as_raw_fd(),
            path.as_ptr(),
            libc::AT_EMPTY_PATH | recursive,
            &raw const request,
            mem::size_of::<libc::mount_attr>(),
        )
    })?;
    Ok(())
}
