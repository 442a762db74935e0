//! Making, starting and reaping processes.

use std::ffi::{CStr, CString};
use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;
use std::sync::LazyLock;
use std::time::Duration;

use super::checked;

/// Which side of a fork this is.
#[derive(Debug)]
pub(crate) enum Side {
    Child,
    Parent { pid: i32, pidfd: OwnedFd },
}

/// Makes a child in the namespaces of `flags`, in `cgroup` (v2) if one is given.
///
/// Must be called from a process with a single thread: the child keeps using the heap.
pub(crate) fn clone_child(flags: u64, cgroup: Option<BorrowedFd<'_>>) -> io::Result<Side> {
    clone_child_as(flags, cgroup, None)
}

/// The same, with that pid where it is free and the kernel lets us choose.
pub(crate) fn clone_child_as(
    flags: u64,
    cgroup: Option<BorrowedFd<'_>>,
    number: Option<i32>,
) -> io::Result<Side> {
    let mut pidfd: libc::c_int = -1;
    // SAFETY: clone_args is plain integers, for which all zeroes is a valid value.
    let mut arguments: libc::clone_args = unsafe { mem::zeroed() };
    arguments.flags = flags | libc::CLONE_PIDFD as u64;
    arguments.pidfd = &raw mut pidfd as u64;
    arguments.exit_signal = libc::SIGCHLD as u64;
    let number = number.map(|number| [number]);
    if let Some(number) = &number {
        arguments.set_tid = number.as_ptr() as u64;
        arguments.set_tid_size = 1;
    }
    if let Some(cgroup) = cgroup {
        arguments.flags |= CLONE_INTO_CGROUP;
        arguments.cgroup = cgroup.as_raw_fd() as u64;
    }
    // SAFETY: no stack and no CLONE_VM are given, so the child runs on a copy of this one's memory
    // as after fork(); `arguments`, `number` and `pidfd` outlive the call. The launcher and init have one
    // thread, so no lock can be held by a thread that the child lacks.
    let pid = checked(unsafe {
        libc::syscall(
            libc::SYS_clone3,
            &raw mut arguments,
            mem::size_of::<libc::clone_args>(),
        )
    })?;
    if pid == 0 {
        return Ok(Side::Child);
    }
    // SAFETY: the kernel stored a new descriptor of ours in `pidfd` before it returned.
    let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
    Ok(Side::Parent {
        pid: pid as i32,
        pidfd,
    })
}

/// libc's own constant of that name does not fit its type.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// Moves this process, which must have a single thread, into a user and mount namespace of its own.
pub(crate) fn enter_new_user_and_mount_namespace() -> io::Result<()> {
    // SAFETY: unshare takes no pointers, and these flags leave the descriptor table shared with
    // nobody as it was.
    checked(libc::c_long::from(unsafe {
        libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNS)
    }))?;
    Ok(())
}

/// The user namespace that another namespace belongs to.
pub(crate) fn owner_of(namespace: impl AsFd) -> io::Result<OwnedFd> {
    /// `NS_GET_USERNS`: `_IO(0xb7, 1)`.
    const GET_OWNER: libc::Ioctl = 0xb701;
    // SAFETY: this request takes no argument, and gives a new descriptor.
    let fd = checked(libc::c_long::from(unsafe {
        libc::ioctl(namespace.as_fd().as_raw_fd(), GET_OWNER)
    }))?;
    // SAFETY: the kernel has just opened it, for nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as std::os::fd::RawFd) })
}

/// Moves this process into an empty network of its own.
pub(crate) fn enter_new_network() -> io::Result<()> {
    // SAFETY: unshare takes no pointers.
    checked(libc::c_long::from(unsafe { libc::unshare(libc::CLONE_NEWNET) }))?;
    Ok(())
}

/// How a process ended, and what it and its reaped children used.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reaped {
    pub pid: i32,
    /// The wait status as the kernel gives it.
    pub status: i32,
    pub cpu_time: Duration,
}

/// Reaps one child that has ended; `None` where none has, or where there is no child at all.
pub(crate) fn reap() -> io::Result<Option<Reaped>> {
    wait(libc::WNOHANG)
}

/// Waits for the next child to end and reaps it; `None` once there is no child at all.
pub(crate) fn reap_next() -> io::Result<Option<Reaped>> {
    wait(0)
}

fn wait(options: libc::c_int) -> io::Result<Option<Reaped>> {
    loop {
        let mut status = 0;
        // SAFETY: rusage is plain integers, for which all zeroes is a valid value.
        let mut usage: libc::rusage = unsafe { mem::zeroed() };
        // SAFETY: both pointers are to live locals of the right type.
        let pid = unsafe { libc::wait4(-1, &raw mut status, options, &raw mut usage) };
        if pid > 0 {
            return Ok(Some(Reaped {
                pid,
                status,
                cpu_time: time(usage.ru_utime) + time(usage.ru_stime),
            }));
        }
        if pid == 0 {
            return Ok(None);
        }
        match io::Error::last_os_error() {
            error if error.raw_os_error() == Some(libc::ECHILD) => return Ok(None),
            error if error.raw_os_error() == Some(libc::EINTR) => {}
            error => return Err(error),
        }
    }
}

fn time(value: libc::timeval) -> Duration {
    Duration::from_secs(value.tv_sec.unsigned_abs()) + Duration::from_micros(value.tv_usec.unsigned_abs())
}

/// Sends SIGKILL to every process that this one may signal and see, itself excepted: for the init
/// of a pid namespace, everything in it.
pub(crate) fn kill_everything_else() {
    // SAFETY: kill takes no pointers. It is only called as pid 1 of a pid namespace.
    unsafe { libc::kill(-1, libc::SIGKILL) };
}

/// Closes every descriptor from `first` on, or marks them to be closed at exec.
pub(crate) fn close_from(first: u32, at_exec: bool) -> io::Result<()> {
    let flags = if at_exec { libc::CLOSE_RANGE_CLOEXEC } else { 0 };
    // SAFETY: close_range takes no pointers. Callers own no descriptor objects in that range that
    // are used afterwards: it is called right before exec or right after the fork that made init.
    checked(unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, flags) })?;
    Ok(())
}

/// Replaces this process. Returns only the error.
pub(crate) fn exec(program: &CStr, arguments: &[CString], environment: &[CString]) -> io::Error {
    let pointers = |strings: &[CString]| -> Vec<*const libc::c_char> {
        strings
            .iter()
            .map(|string| string.as_ptr())
            .chain([ptr::null()])
            .collect()
    };
    let (arguments, environment) = (pointers(arguments), pointers(environment));
    // SAFETY: both arrays end in a null pointer and point to NUL-terminated strings that outlive
    // the call.
    unsafe { libc::execve(program.as_ptr(), arguments.as_ptr(), environment.as_ptr()) };
    io::Error::last_os_error()
}

/// Gives every signal its default action and blocks none: handlers and masks outlive a fork.
pub(crate) fn reset_signals() {
    for signal in 1..=libc::SIGRTMAX() {
        // SAFETY: SIG_DFL installs no code. The calls that fail (KILL, STOP, glibc's own) leave
        // what cannot be changed anyway.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    // SAFETY: sigset_t is plain integers; sigemptyset initialises it before use.
    unsafe {
        let mut none: libc::sigset_t = mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, ptr::null_mut());
    }
}

/// A descriptor that becomes readable when a child ends. Blocks SIGCHLD for this process.
pub(crate) fn child_events() -> io::Result<OwnedFd> {
    // SAFETY: the set is initialised by sigemptyset before use, and all pointers are to locals.
    let fd = unsafe {
        let mut set: libc::sigset_t = mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGCHLD);
        libc::sigprocmask(libc::SIG_BLOCK, &raw const set, ptr::null_mut());
        libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)
    };
    checked(libc::c_long::from(fd))?;
    // SAFETY: signalfd returned a new descriptor of ours.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// How many capabilities the kernel knows: it answers EINVAL for the first number it does not.
pub(crate) fn capabilities() -> i64 {
    static COUNT: LazyLock<i64> = LazyLock::new(|| {
        // SAFETY: prctl with this option takes no pointers.
        let knows = |number: &i32| unsafe { libc::prctl(libc::PR_CAPBSET_READ, *number, 0, 0, 0) } >= 0;
        (0..64).take_while(knows).count() as i64
    });
    *COUNT
}

/// The capabilities in effect, as a bit set.
pub(crate) fn effective_capabilities() -> io::Result<u64> {
    const VERSION_3: u32 = 0x2008_0522;
    let header: [u32; 2] = [VERSION_3, 0];
    let mut sets = [0u32; 6];
    // SAFETY: version 3 reads an eight-byte header and writes two sets of three words.
    checked(unsafe { libc::syscall(libc::SYS_capget, header.as_ptr(), sets.as_mut_ptr()) })?;
    Ok(u64::from(sets[0]) | u64::from(sets[3]) << 32)
}

/// Leaves without running destructors or exit handlers: the right end for a forked child.
pub(crate) fn exit_now(code: i32) -> ! {
    // SAFETY: _exit takes no pointers and does not return.
    unsafe { libc::_exit(code) }
}

/// Closes every descriptor but those of `keep`.
pub(crate) fn close_all_but<'a>(keep: impl Iterator<Item = BorrowedFd<'a>>) -> io::Result<()> {
    let mut keep: Vec<u32> = keep.map(|fd| fd.as_raw_fd().unsigned_abs()).collect();
    keep.sort_unstable();
    let mut next = 0;
    for fd in keep {
        if fd > next {
            close_between(next, fd - 1)?;
        }
        next = fd + 1;
    }
    close_from(next, false)
}

/// Closes every descriptor from `first` to `last`.
fn close_between(first: u32, last: u32) -> io::Result<()> {
    // SAFETY: close_range takes no pointers. Init calls it right after the fork that made it, for
    // descriptors that only the launcher's objects own; init never returns to those.
    checked(unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) })?;
    Ok(())
}

/// A handle of a process's namespace, by the flag of its kind. Kernels before 6.11 give none.
pub(crate) fn namespace(pidfd: BorrowedFd<'_>, kind: i32) -> io::Result<OwnedFd> {
    // What `linux/pidfd.h` calls PIDFD_GET_CGROUP_NAMESPACE and so on.
    let number: libc::c_ulong = match kind {
        libc::CLONE_NEWCGROUP => 1,
        libc::CLONE_NEWIPC => 2,
        libc::CLONE_NEWNS => 3,
        libc::CLONE_NEWNET => 4,
        libc::CLONE_NEWPID => 5,
        libc::CLONE_NEWUSER => 9,
        libc::CLONE_NEWUTS => 10,
        _ => return Err(io::ErrorKind::InvalidInput.into()),
    };
    // SAFETY: it takes no address, and returns a new descriptor or an error.
    unsafe {
        match libc::ioctl(pidfd.as_raw_fd(), 0xff00 | number, 0) {
            fd if fd >= 0 => Ok(OwnedFd::from_raw_fd(fd)),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// The pid in what `/proc` says of a pidfd, numbered as in the pid namespace of that `/proc`.
pub(crate) fn pid_in_fdinfo(text: &str) -> Option<i32> {
    text.lines()
        .find_map(|line| line.strip_prefix("Pid:"))
        .and_then(|pid| pid.trim().parse().ok())
        .filter(|pid| *pid > 0)
}
