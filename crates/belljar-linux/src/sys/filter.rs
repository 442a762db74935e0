//! Receives and answers the calls that a filter hands over, and finds out which filters the kernel takes.

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

use super::checked;

/// The flags that make installing a filter return the descriptor on which its notifications arrive.
pub(crate) fn listener_flags() -> i64 {
    // Once the supervisor has seen a call, only death may interrupt it: a signal handler that
    // restarts the call would be asked about a second time.
    const WAIT_KILLABLE_RECV: libc::c_ulong = 1 << 5;
    let listener = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER;
    // Before 5.19 the kernel does not know that flag.
    let flags = if refuses_null_program(listener | WAIT_KILLABLE_RECV) {
        listener | WAIT_KILLABLE_RECV
    } else {
        listener
    };
    flags as i64
}

/// A call that waits for an answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Notice {
    id: u64,
    /// The thread that made it, as this pid namespace numbers it.
    pub task: u32,
    /// The number of the system call.
    pub number: i32,
    pub args: [u64; 6],
}

/// Takes the next waiting call; `None` where its caller has gone meanwhile.
pub(crate) fn receive(listener: BorrowedFd<'_>) -> io::Result<Option<Notice>> {
    // SAFETY: seccomp_notif is plain integers; the kernel wants it zeroed.
    let mut notice: libc::seccomp_notif = unsafe { mem::zeroed() };
    // SAFETY: the ioctl writes one seccomp_notif, which `notice` is.
    let result = unsafe { libc::ioctl(listener.as_raw_fd(), SECCOMP_IOCTL_NOTIF_RECV, &raw mut notice) };
    match checked(libc::c_long::from(result)) {
        Ok(_) => Ok(Some(Notice {
            id: notice.id,
            task: notice.pid,
            number: notice.data.nr,
            args: notice.data.args,
        })),
        Err(error)
            if matches!(
                error.raw_os_error(),
                Some(libc::ENOENT | libc::EINTR | libc::EAGAIN)
            ) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Lets the kernel carry out the call.
pub(crate) fn let_go_on(listener: BorrowedFd<'_>, notice: Notice) -> io::Result<()> {
    respond(listener, notice, 0, libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32)
}

/// Has the call return 0 without being carried out.
pub(crate) fn succeed(listener: BorrowedFd<'_>, notice: Notice) -> io::Result<()> {
    respond(listener, notice, 0, 0)
}

/// Whether the caller still waits for the answer.
pub(crate) fn is_waiting(listener: BorrowedFd<'_>, notice: Notice) -> bool {
    // SAFETY: the ioctl reads one u64, which `id` is.
    let result = unsafe {
        libc::ioctl(
            listener.as_raw_fd(),
            SECCOMP_IOCTL_NOTIF_ID_VALID,
            &raw const notice.id,
        )
    };
    result == 0
}

/// Has the call fail with this error.
pub(crate) fn refuse(listener: BorrowedFd<'_>, notice: Notice, errno: i32) -> io::Result<()> {
    respond(listener, notice, -errno, 0)
}

fn respond(listener: BorrowedFd<'_>, notice: Notice, error: i32, flags: u32) -> io::Result<()> {
    let response = libc::seccomp_notif_resp {
        id: notice.id,
        val: 0,
        error,
        flags,
    };
    // SAFETY: the ioctl reads one seccomp_notif_resp, which `response` is.
    let result = unsafe {
        libc::ioctl(
            listener.as_raw_fd(),
            SECCOMP_IOCTL_NOTIF_SEND,
            &raw const response,
        )
    };
    match checked(libc::c_long::from(result)) {
        // The caller died meanwhile.
        Err(error) if error.raw_os_error() != Some(libc::ENOENT) => Err(error),
        _ => Ok(()),
    }
}

/// Whether the kernel knows a filter action, such as handing calls over.
pub(crate) fn action_available(action: u32) -> bool {
    // SAFETY: the call reads one u32, which `action` is.
    let result = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_GET_ACTION_AVAIL,
            0,
            &raw const action,
        )
    };
    result == 0
}

/// Whether the kernel takes filters at all.
pub(crate) fn filters_available() -> bool {
    refuses_null_program(0)
}

/// A null program is refused with EFAULT where the kernel takes filters with these flags.
fn refuses_null_program(flags: libc::c_ulong) -> bool {
    // SAFETY: the kernel refuses the null pointer before it reads anything.
    let result = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            flags,
            ptr::null::<libc::sock_fprog>(),
        )
    };
    result < 0 && io::Error::last_os_error().raw_os_error() == Some(libc::EFAULT)
}

/// The version of Landlock's interface that the kernel has.
pub(crate) fn landlock_version() -> io::Result<libc::c_long> {
    const VERSION: libc::c_uint = 1;
    // SAFETY: with this flag the kernel takes a null pointer and no size, and returns a number.
    checked(unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            ptr::null::<u8>(),
            0usize,
            VERSION,
        )
    })
}

const SECCOMP_IOCTL_NOTIF_RECV: libc::c_ulong = ioctl_number(3, 0, mem::size_of::<libc::seccomp_notif>());
const SECCOMP_IOCTL_NOTIF_SEND: libc::c_ulong =
    ioctl_number(3, 1, mem::size_of::<libc::seccomp_notif_resp>());

const SECCOMP_IOCTL_NOTIF_ID_VALID: libc::c_ulong = ioctl_number(1, 2, mem::size_of::<u64>());

/// `_IOC(direction, '!', number, size)`.
const fn ioctl_number(direction: u64, number: u64, size: usize) -> libc::c_ulong {
    direction << 30 | (size as u64) << 16 | (b'!' as u64) << 8 | number
}
