//! Takes whole-file locks (`flock`) for guests, on files of their own.
//!
//! Sandboxes and the host share the files of system directories, and a lock on one of them holds off everybody else who locks it, however
//! the file was opened. The filter hands `flock` to init, since only the kernel knows which file a descriptor means. Init
//! takes a copy of the descriptor and sets the lock itself: it belongs to the open file and not to the process, so it is the guest's,
//! and no thread of the guest can exchange the descriptor between the check and the lock. Where another holds the lock, init tries
//! again until the caller is gone.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::fs::{FileType, FlockOperation, Mode, OFlags, StatVfsMountFlags};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use super::room::own_proc;
use crate::sys;
use crate::sys::filter::Notice;

/// How long to wait before a lock that another holds is tried again.
const RETRY_INTERVAL: Duration = Duration::from_millis(5);

/// The locks that guests wait for.
#[derive(Debug, Default)]
pub(super) struct FileLocks {
    proc: Option<OwnedFd>,
    waiting: Vec<Waiting>,
}

/// A call that waits for a lock.
#[derive(Debug)]
struct Waiting {
    notice: Notice,
    file: OwnedFd,
    operation: FlockOperation,
}

impl FileLocks {
    /// Answers a call, or keeps it until its lock is free.
    pub(super) fn ask(
        &mut self,
        listener: BorrowedFd<'_>,
        notice: Notice,
        scratch: BorrowedFd<'_>,
    ) -> io::Result<()> {
        let Some((operation, waits)) = operation(notice.args[1]) else {
            return sys::filter::refuse(listener, notice, libc::EINVAL);
        };
        let file = match self.file(listener, notice) {
            Ok(file) => file,
            Err(error) => {
                let errno = match error.raw_os_error() {
                    Some(libc::EBADF) => libc::EBADF,
                    _ => libc::ENOLCK,
                };
                return sys::filter::refuse(listener, notice, errno);
            }
        };
        if !is_own(file.as_fd(), scratch).unwrap_or(false) {
            return sys::filter::refuse(listener, notice, libc::ENOLCK);
        }
        match rustix::fs::flock(&file, operation) {
            Ok(()) => sys::filter::succeed(listener, notice),
            Err(rustix::io::Errno::WOULDBLOCK) if waits => {
                self.waiting.push(Waiting {
                    notice,
                    file,
                    operation,
                });
                Ok(())
            }
            Err(error) => sys::filter::refuse(listener, notice, error.raw_os_error()),
        }
    }

    /// When to try again.
    pub(super) fn retries_in(&self) -> Option<Duration> {
        (!self.waiting.is_empty()).then_some(RETRY_INTERVAL)
    }

    /// Tries again for every call that waits, and forgets those whose caller is gone.
    pub(super) fn retry(&mut self, listener: BorrowedFd<'_>) {
        self.waiting.retain(|waiting| {
            if !sys::filter::is_waiting(listener, waiting.notice) {
                return false;
            }
            let answered = match rustix::fs::flock(&waiting.file, waiting.operation) {
                Err(rustix::io::Errno::WOULDBLOCK) => return true,
                Ok(()) => sys::filter::succeed(listener, waiting.notice),
                Err(error) => sys::filter::refuse(listener, waiting.notice, error.raw_os_error()),
            };
            if answered.is_err() {
                // The caller went meanwhile, so the lock is released with its file, or here.
                let _ = rustix::fs::flock(&waiting.file, FlockOperation::NonBlockingUnlock);
            }
            false
        });
    }

    /// A copy of the caller's descriptor.
    fn file(&mut self, listener: BorrowedFd<'_>, notice: Notice) -> io::Result<OwnedFd> {
        let proc = match self.proc.take() {
            Some(proc) => proc,
            None => own_proc()?,
        };
        let process = process_of(self.proc.insert(proc).as_fd(), notice.task)?;
        let pidfd = pidfd_open(process, PidfdFlags::empty())?;
        let fd =
            i32::try_from(notice.args[0] as u32).map_err(|_| io::Error::from_raw_os_error(libc::EBADF))?;
        let file = pidfd_getfd(&pidfd, fd, PidfdGetfdFlags::empty())?;
        // The caller still waits, so its number was not another's meanwhile.
        if sys::filter::is_waiting(listener, notice) {
            Ok(file)
        } else {
            Err(io::ErrorKind::NotFound.into())
        }
    }
}

/// The lock that is asked for, in the form that does not wait, and whether the caller does.
fn operation(argument: u64) -> Option<(FlockOperation, bool)> {
    let argument = argument as i32;
    let operation = match argument & !libc::LOCK_NB {
        libc::LOCK_SH => FlockOperation::NonBlockingLockShared,
        libc::LOCK_EX => FlockOperation::NonBlockingLockExclusive,
        libc::LOCK_UN => FlockOperation::NonBlockingUnlock,
        _ => return None,
    };
    Some((operation, argument & libc::LOCK_NB == 0))
}

/// Whether only this sandbox can reach the file, or a request gave it for writing: everything on scratch memory, and files and
/// directories on writable mounts. Devices are shared by all.
fn is_own(file: BorrowedFd<'_>, scratch: BorrowedFd<'_>) -> io::Result<bool> {
    let stat = rustix::fs::fstat(file)?;
    if stat.st_dev == rustix::fs::fstat(scratch)?.st_dev {
        return Ok(true);
    }
    let shared = matches!(
        FileType::from_raw_mode(stat.st_mode),
        FileType::CharacterDevice | FileType::BlockDevice
    );
    let read_only = rustix::fs::fstatvfs(file)?
        .f_flag
        .contains(StatVfsMountFlags::RDONLY);
    Ok(!shared && !read_only)
}

/// The process of a thread.
fn process_of(proc: BorrowedFd<'_>, thread: u32) -> io::Result<Pid> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let status = rustix::fs::openat(proc, format!("{thread}/status"), flags, Mode::empty())?;
    let status = io::read_to_string(std::fs::File::from(status))?;
    status
        .lines()
        .find_map(|line| line.strip_prefix("Tgid:"))
        .and_then(|number| number.trim().parse().ok())
        .and_then(Pid::from_raw)
        .ok_or_else(|| io::ErrorKind::InvalidData.into())
}
