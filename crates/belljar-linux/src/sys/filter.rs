//! Installing system-call filters, and answering the calls they hand over.

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;

use super::checked;

/// Installs a filter, the bytes of its instructions, for this thread and what it starts. Needs
/// no_new_privs.
pub(crate) fn install(program: &[u8]) -> io::Result<()> {
    load(program, 0)?;
    Ok(())
}

/// Installs a filter and returns the descriptor on which its notifications arrive.
pub(crate) fn install_with_listener(program: &[u8]) -> io::Result<OwnedFd> {
    // Once the supervisor has seen a call, only death may interrupt it: a signal handler that
    // restarts the call would be asked about a second time.
    const WAIT_KILLABLE_RECV: libc::c_ulong = 1 << 5;
    let listener = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER;
    let fd = match load(program, listener | WAIT_KILLABLE_RECV) {
        // Before 5.19 the kernel does not know the flag.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => load(program, listener)?,
        result => result?,
    };
    // SAFETY: with NEW_LISTENER a successful call returns a new descriptor of ours.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

fn load(program: &[u8], flags: libc::c_ulong) -> io::Result<libc::c_long> {
    let (instructions, cut_off) = program.as_chunks::<{ mem::size_of::<libc::sock_filter>() }>();
    if !cut_off.is_empty() {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    let len = u16::try_from(instructions.len()).map_err(|_| io::Error::from_raw_os_error(libc::E2BIG))?;
    let filter = libc::sock_fprog {
        len,
        filter: instructions.as_ptr().cast_mut().cast(),
    };
    // SAFETY: `filter` points to `len` instructions that outlive the call; the kernel copies them,
    // whatever their alignment.
    checked(unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            flags,
            &raw const filter,
        )
    })
}

/// A call that waits for an answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Notice {
    id: u64,
    /// The thread that made it, as this pid namespace numbers it.
    pub task: u32,
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

/// Lets the call go on.
pub(crate) fn let_go_on(listener: BorrowedFd<'_>, notice: Notice) -> io::Result<()> {
    let response = libc::seccomp_notif_resp {
        id: notice.id,
        val: 0,
        error: 0,
        flags: libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32,
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
        // The caller died while we thought.
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

/// Whether the kernel takes filters at all: a null program is refused with EFAULT where it does.
pub(crate) fn filters_available() -> bool {
    // SAFETY: the kernel refuses the null pointer before it reads anything.
    let result = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            0,
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

/// `_IOC(direction, '!', number, size)`.
const fn ioctl_number(direction: u64, number: u64, size: usize) -> libc::c_ulong {
    direction << 30 | (size as u64) << 16 | (b'!' as u64) << 8 | number
}
