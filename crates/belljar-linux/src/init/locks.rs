//! Bounds the byte-range locks of a guest.
//!
//! The kernel charges a record lock (`fcntl` with `F_SETLK` or `F_SETLKW`) to no cgroup and bounds their number by nothing: two million of
//! them pin half a gigabyte under any memory limit. SQLite and others need a few, so the filter hands each such call to init, and init
//! lets it pass while the sandbox holds fewer than `MAX_LOCKS`. The arguments are behind a pointer and may change while init looks, so init
//! counts calls, and only when those could have reached the bound it counts locks. Locks of open file descriptions
//! (`F_OFD_SETLK`) are refused by the filter. `flock` has one lock for each open file, which the limit of open files bounds; see
//! `file_locks.rs`.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags};

use super::room::own_proc;

/// How many record locks all processes of a sandbox may hold. One takes some 200 bytes of kernel memory.
const MAX_LOCKS: u64 = 4096;
/// How many locks a single call can add at the most: a lock of another kind in the middle of one splits it into three.
const LOCKS_PER_CALL: u64 = 2;

/// The record locks of a guest, as far as init knows them.
#[derive(Debug)]
pub(super) struct RecordLocks {
    /// How many more calls cannot reach the bound.
    calls_left: u64,
    proc: Option<OwnedFd>,
}

impl Default for RecordLocks {
    fn default() -> Self {
        Self {
            calls_left: MAX_LOCKS / LOCKS_PER_CALL,
            proc: None,
        }
    }
}

impl RecordLocks {
    /// Whether one more call may pass. It may set, change or release locks: which of them, nobody but the kernel can see.
    pub(super) fn admit(&mut self) -> bool {
        if self.calls_left == 0 {
            // Without a count there is no bound, so then nothing passes.
            let held = self.count().unwrap_or(MAX_LOCKS);
            self.calls_left = MAX_LOCKS.saturating_sub(held) / LOCKS_PER_CALL;
        }
        let admitted = self.calls_left > 0;
        self.calls_left = self.calls_left.saturating_sub(1);
        admitted
    }

    fn count(&mut self) -> io::Result<u64> {
        let proc = match self.proc.take() {
            Some(proc) => proc,
            None => own_proc()?,
        };
        count_locks(self.proc.insert(proc).as_fd())
    }
}

/// The record locks of every process in this pid namespace. A lock belongs to a process and goes when that closes the file,
/// so each shows at one of the open descriptors of its owner.
fn count_locks(proc: BorrowedFd<'_>) -> io::Result<u64> {
    let mut count = 0;
    for pid in numbered_entries(proc)? {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = match rustix::fs::openat(proc, format!("{pid}/fdinfo"), flags, Mode::empty()) {
            Ok(directory) => directory,
            // It has ended.
            Err(rustix::io::Errno::NOENT | rustix::io::Errno::SRCH) => continue,
            Err(error) => return Err(error.into()),
        };
        for fd in numbered_entries(directory.as_fd())? {
            count += locks_of(directory.as_fd(), &fd)?;
        }
    }
    Ok(count)
}

fn locks_of(directory: BorrowedFd<'_>, fd: &str) -> io::Result<u64> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let file = match rustix::fs::openat(directory, fd, flags, Mode::empty()) {
        Ok(file) => file,
        Err(rustix::io::Errno::NOENT | rustix::io::Errno::SRCH) => return Ok(0),
        Err(error) => return Err(error.into()),
    };
    // The bound on locks bounds this text, too: some 60 bytes each.
    const MAX_TEXT: u64 = 4 << 20;
    let mut text = Vec::new();
    match std::fs::File::from(file).take(MAX_TEXT).read_to_end(&mut text) {
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH)) => return Ok(0),
        read => read?,
    };
    let lines = text.split(|byte| *byte == b'\n');
    Ok(lines.filter(|line| line.starts_with(b"lock:")).count() as u64)
}

/// The names in a directory of `/proc` that are numbers.
fn numbered_entries(directory: BorrowedFd<'_>) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in rustix::fs::Dir::read_from(directory)? {
        let entry = match entry {
            Ok(entry) => entry,
            // Its process has ended.
            Err(rustix::io::Errno::NOENT | rustix::io::Errno::SRCH) => break,
            Err(error) => return Err(error.into()),
        };
        let name = entry.file_name().to_str().unwrap_or_default();
        if name.bytes().all(|byte| byte.is_ascii_digit()) && !name.is_empty() {
            names.push(name.to_owned());
        }
    }
    Ok(names)
}
