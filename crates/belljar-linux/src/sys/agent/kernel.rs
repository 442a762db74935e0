//! What the agent asks of the kernel.

use super::syscall::{self, call, check, number};

#[cfg(target_arch = "x86_64")]
mod more {
    pub const GETUID: i64 = 102;
    pub const GETRUSAGE: i64 = 98;
    pub const EXECVE: i64 = 59;
    pub const PRCTL: i64 = 157;
    pub const RT_SIGACTION: i64 = 13;
    pub const CHDIR: i64 = 80;
    pub const UMASK: i64 = 95;
    pub const GETDENTS64: i64 = 217;
    pub const MKDIRAT: i64 = 258;
    pub const UNLINKAT: i64 = 263;
    pub const STATX: i64 = 332;
    pub const SOCKETPAIR: i64 = 53;
    pub const READLINKAT: i64 = 267;
    pub const PRLIMIT64: i64 = 302;
    pub const FCHOWNAT: i64 = 260;
}

#[cfg(target_arch = "aarch64")]
mod more {
    pub const GETUID: i64 = 174;
    pub const GETRUSAGE: i64 = 165;
    pub const EXECVE: i64 = 221;
    pub const PRCTL: i64 = 167;
    pub const RT_SIGACTION: i64 = 134;
    pub const CHDIR: i64 = 49;
    pub const UMASK: i64 = 166;
    pub const GETDENTS64: i64 = 61;
    pub const MKDIRAT: i64 = 34;
    pub const UNLINKAT: i64 = 35;
    pub const STATX: i64 = 291;
    pub const SOCKETPAIR: i64 = 199;
    pub const READLINKAT: i64 = 78;
    pub const PRLIMIT64: i64 = 261;
    pub const FCHOWNAT: i64 = 54;
}

const LANDLOCK_CREATE_RULESET: i64 = 444;
const LANDLOCK_ADD_RULE: i64 = 445;

pub const EINTR: i32 = 4;
pub const EAGAIN: i32 = 11;
pub const EEXIST: i32 = 17;
pub const EINVAL: i32 = 22;
pub const EFBIG: i32 = 27;
pub const ENOENT: i32 = 2;
pub const ENAMETOOLONG: i32 = 36;
pub const EXDEV: i32 = 18;
pub const ENOTEMPTY: i32 = 39;
pub const ELOOP: i32 = 40;

pub const CLOSE_ON_EXEC: i64 = 0o2_000_000;
pub const NONBLOCK: i64 = 0o4000;
pub const WRITE_ONLY: i64 = 1;
pub const CREATE: i64 = 0o100;
pub const EXCLUSIVE: i64 = 0o200;
pub const NO_TERMINAL: i64 = 0o400;
pub const PATH_ONLY: i64 = 0o10_000_000;
#[cfg(target_arch = "x86_64")]
pub const DIRECTORY: i64 = 0o200_000;
#[cfg(target_arch = "x86_64")]
pub const NO_FOLLOW: i64 = 0o400_000;
#[cfg(target_arch = "aarch64")]
pub const DIRECTORY: i64 = 0o40_000;
#[cfg(target_arch = "aarch64")]
pub const NO_FOLLOW: i64 = 0o100_000;

/// The directory that a process stands in.
pub const HERE: i32 = -100;

pub const KIND: u32 = 0o170_000;
pub const REGULAR: u32 = 0o100_000;
pub const IS_DIRECTORY: u32 = 0o040_000;
pub const LINK: u32 = 0o120_000;

pub const SIGKILL: i64 = 9;
const SIGPIPE: i64 = 13;
const SIGCHLD: i64 = 17;

/// Opens a NUL-terminated path.
pub fn open(dir: i32, path: &[u8], flags: i64, mode: i64) -> Result<i32, i32> {
    if path.last() != Some(&0) {
        return Err(EINVAL);
    }
    let args = [
        i64::from(dir),
        path.as_ptr() as i64,
        flags | CLOSE_ON_EXEC,
        mode,
        0,
        0,
    ];
    // SAFETY: the path ends with a NUL.
    check(unsafe { call(number::OPENAT, args) }).map(|fd| fd as i32)
}

pub fn make_directory(dir: i32, name: &[u8], mode: i64) -> Result<(), i32> {
    if name.last() != Some(&0) {
        return Err(EINVAL);
    }
    // SAFETY: the name ends with a NUL.
    check(unsafe {
        call(
            more::MKDIRAT,
            [i64::from(dir), name.as_ptr() as i64, mode, 0, 0, 0],
        )
    })
    .map(|_| ())
}

pub fn unlink(dir: i32, name: &[u8], is_directory: bool) -> Result<(), i32> {
    if name.last() != Some(&0) {
        return Err(EINVAL);
    }
    let flags = if is_directory { 0x200 } else { 0 };
    // SAFETY: the name ends with a NUL.
    check(unsafe {
        call(
            more::UNLINKAT,
            [i64::from(dir), name.as_ptr() as i64, flags, 0, 0, 0],
        )
    })
    .map(|_| ())
}

/// Gives what stands under a name, or the directory or file itself where the name is empty, to another user.
pub fn give(dir: i32, name: &[u8], user: u32) -> Result<(), i32> {
    const EMPTY_PATH: i64 = 0x1000;
    const NO_FOLLOW_LINK: i64 = 0x100;
    if name.last() != Some(&0) {
        return Err(EINVAL);
    }
    let user = i64::from(user);
    let flags = EMPTY_PATH | NO_FOLLOW_LINK;
    // SAFETY: the name ends with a NUL.
    check(unsafe {
        call(
            more::FCHOWNAT,
            [i64::from(dir), name.as_ptr() as i64, user, user, flags, 0],
        )
    })
    .map(|_| ())
}

/// What is known of an open file.
#[derive(Clone, Copy)]
pub struct Stat {
    pub mode: u32,
    pub size: u64,
    /// The file system that it is on, and its number there.
    pub device: u64,
    pub inode: u64,
}

impl Stat {
    pub const fn kind(&self) -> u32 {
        self.mode & KIND
    }
}

pub fn stat(fd: i32) -> Result<Stat, i32> {
    const EMPTY_PATH: i64 = 0x1000;
    const TYPE_MODE_INODE_SIZE: i64 = 0x303;
    let mut answer = [0u8; 256];
    let args = [
        i64::from(fd),
        c"".as_ptr() as i64,
        EMPTY_PATH,
        TYPE_MODE_INODE_SIZE,
        answer.as_mut_ptr() as i64,
        0,
    ];
    // SAFETY: the path is empty, and the answer has the 256 bytes of the kernel's struct.
    check(unsafe { call(more::STATX, args) })?;
    let mode = u16::from_ne_bytes([answer[28], answer[29]]);
    let long = |at: usize| {
        let mut bytes = [0u8; 8];
        bytes.copy_from_slice(&answer[at..at + 8]);
        u64::from_ne_bytes(bytes)
    };
    Ok(Stat {
        mode: u32::from(mode),
        size: long(40),
        // Its two halves, as they stand there.
        device: long(136),
        inode: long(32),
    })
}

/// Where a link points to.
pub fn read_link(path: &[u8], memory: &mut [u8]) -> Result<usize, i32> {
    if path.last() != Some(&0) {
        return Err(EINVAL);
    }
    let args = [
        i64::from(HERE),
        path.as_ptr() as i64,
        memory.as_mut_ptr() as i64,
        memory.len() as i64,
        0,
        0,
    ];
    // SAFETY: the path ends with a NUL, and the address and the size are those of `memory`.
    check(unsafe { call(more::READLINKAT, args) }).map(|size| size as usize)
}

/// The next entries of a directory, as the kernel writes them; nothing at its end.
pub fn entries(dir: i32, memory: &mut [u8]) -> Result<usize, i32> {
    let args = [
        i64::from(dir),
        memory.as_mut_ptr() as i64,
        memory.len() as i64,
        0,
        0,
        0,
    ];
    // SAFETY: the address and the size are those of `memory`.
    check(unsafe { call(more::GETDENTS64, args) }).map(|count| count as usize)
}

/// A pipe: what is read from it, what is written to it.
pub fn pipe(flags: i64) -> Result<[i32; 2], i32> {
    let mut ends = [-1i32; 2];
    let args = [ends.as_mut_ptr() as i64, flags | CLOSE_ON_EXEC, 0, 0, 0, 0];
    // SAFETY: there is room for two descriptors.
    check(unsafe { call(number::PIPE2, args) }).map(|_| ends)
}

/// Two sockets that are connected with each other.
pub fn sockets() -> Result<[i32; 2], i32> {
    const UNIX: i64 = 1;
    const STREAM: i64 = 1;
    let mut ends = [-1i32; 2];
    let args = [UNIX, STREAM | CLOSE_ON_EXEC, 0, ends.as_mut_ptr() as i64, 0, 0];
    // SAFETY: there is room for two descriptors.
    check(unsafe { call(more::SOCKETPAIR, args) }).map(|_| ends)
}

pub fn set_nonblocking(fd: i32) {
    const GET_FLAGS: i64 = 3;
    const SET_FLAGS: i64 = 4;
    let flags = syscall::plain(number::FCNTL, [i64::from(fd), GET_FLAGS, 0]);
    syscall::plain(number::FCNTL, [i64::from(fd), SET_FLAGS, flags | NONBLOCK]);
}

/// A copy of this process; 0 in the copy.
pub fn fork() -> Result<i32, i32> {
    // SAFETY: without an address of a stack the copy goes on with its copy of ours.
    check(unsafe { call(number::CLONE, [SIGCHLD, 0, 0, 0, 0, 0]) }).map(|pid| pid as i32)
}

/// Becomes another program. Returns only why it could not.
///
/// # Safety
/// `words` and `variables` must be lists of addresses of NUL-terminated texts, with a null at their end.
pub unsafe fn exec(program: &[u8], words: *const *const u8, variables: *const *const u8) -> i32 {
    if program.last() != Some(&0) {
        return EINVAL;
    }
    let args = [program.as_ptr() as i64, words as i64, variables as i64, 0, 0, 0];
    // SAFETY: the program ends with a NUL; the caller answers for the lists.
    match check(unsafe { call(more::EXECVE, args) }) {
        Err(errno) => errno,
        Ok(_) => EINVAL,
    }
}

/// One child that has ended: its pid, its status, the most memory that it had. Nothing where none has.
pub fn wait(block: bool) -> Result<Option<(i32, i32, u64)>, i32> {
    const NO_HANG: i64 = 1;
    // Of children that were made without a signal, too.
    const ALL: i64 = 0x4000_0000;
    let mut status = 0i32;
    let mut usage = [0i64; 18];
    let options = if block { ALL } else { ALL | NO_HANG };
    let args = [
        -1,
        &raw mut status as i64,
        options,
        usage.as_mut_ptr() as i64,
        0,
        0,
    ];
    loop {
        // SAFETY: both addresses are of memory of the sizes that the kernel writes.
        match check(unsafe { call(number::WAIT4, args) }) {
            Err(EINTR) => {}
            Err(errno) => return Err(errno),
            Ok(0) => return Ok(None),
            Ok(pid) => return Ok(Some((pid as i32, status, usage[4] as u64))),
        }
    }
}

/// The processor time, in microseconds, of all children that have ended and were waited for.
pub fn children_cpu() -> u64 {
    const CHILDREN: i64 = -1;
    let mut usage = [0i64; 18];
    // SAFETY: there is room for the kernel's struct.
    unsafe { call(more::GETRUSAGE, [CHILDREN, usage.as_mut_ptr() as i64, 0, 0, 0, 0]) };
    let [seconds, micros, more_seconds, more_micros] = [usage[0], usage[1], usage[2], usage[3]];
    ((seconds + more_seconds) * 1_000_000 + micros + more_micros) as u64
}

/// The most that a resource limit of this process can be raised to; 0 where there is no such limit.
pub fn highest_limit(number: i64) -> u64 {
    let mut both = [0u64; 2];
    // SAFETY: there is room for both of a limit's numbers.
    unsafe { call(more::PRLIMIT64, [0, number, 0, both.as_mut_ptr() as i64, 0, 0]) };
    both[1]
}

pub fn prctl(option: i64, value: i64) -> Result<i64, i32> {
    // SAFETY: those that are used here take no address.
    check(unsafe { call(more::PRCTL, [option, value, 0, 0, 0, 0]) })
}

/// Ignores the signal of a closed pipe, or has it end the process again.
pub fn ignore_closed_pipes(ignore: bool) {
    // Handler, flags, restorer, mask.
    let action = [i64::from(ignore), 0, 0, 0];
    // SAFETY: the action is the kernel's struct, with a handler that is a number.
    unsafe { call(more::RT_SIGACTION, [SIGPIPE, action.as_ptr() as i64, 0, 8, 0, 0]) };
}

/// A descriptor that tells of children's ends, which are no longer told otherwise.
pub fn watch_children() -> Result<i32, i32> {
    let set = 1u64 << (SIGCHLD - 1);
    syscall::block_signals(set);
    let args = [-1, &raw const set as i64, 8, CLOSE_ON_EXEC | NONBLOCK, 0, 0];
    // SAFETY: the set has eight bytes.
    check(unsafe { call(number::SIGNALFD4, args) }).map(|fd| fd as i32)
}

pub fn kill(pid: i32, signal: i64) {
    syscall::plain(number::KILL, [i64::from(pid), signal, 0]);
}

pub fn own_pid() -> i32 {
    syscall::plain(number::GETPID, [0; 3]) as i32
}

pub fn own_uid() -> u32 {
    syscall::plain(more::GETUID, [0; 3]) as u32
}

pub fn enter_directory(path: *const u8) -> Result<(), i32> {
    // SAFETY: the caller has a NUL-terminated text of its own arguments.
    check(unsafe { call(more::CHDIR, [path as i64, 0, 0, 0, 0, 0]) }).map(|_| ())
}

pub fn clear_umask() {
    syscall::plain(more::UMASK, [0; 3]);
}

/// What is waited for on a descriptor, and whether it came.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Wait {
    pub fd: i32,
    pub wanted: i16,
    pub seen: i16,
}

impl Wait {
    pub const READABLE: i16 = 1;
    pub const WRITABLE: i16 = 4;

    pub const fn new(fd: i32, wanted: i16) -> Self {
        Self { fd, wanted, seen: 0 }
    }
}

/// Waits until something has come.
pub fn poll(waits: &mut [Wait]) {
    let args = [waits.as_mut_ptr() as i64, waits.len() as i64, 0, 0, 8, 0];
    // SAFETY: the address and the count are those of `waits`.
    unsafe { call(number::PPOLL, args) };
}

/// Landlock's version; 0 where there is none.
pub fn landlock_version() -> u32 {
    const VERSION: i64 = 1;
    // SAFETY: it takes no address here.
    let answer = unsafe { call(LANDLOCK_CREATE_RULESET, [0, 0, VERSION, 0, 0, 0]) };
    answer.max(0) as u32
}

pub fn landlock_rules(attributes: &[u8]) -> Result<i32, i32> {
    let args = [attributes.as_ptr() as i64, attributes.len() as i64, 0, 0, 0, 0];
    // SAFETY: the address and the size are those of `attributes`.
    check(unsafe { call(LANDLOCK_CREATE_RULESET, args) }).map(|fd| fd as i32)
}

pub fn landlock_allow(rules: i32, path: i32, access: u64) -> Result<(), i32> {
    const BELOW: i64 = 1;
    let mut rule = [0u8; 12];
    rule[..8].copy_from_slice(&access.to_ne_bytes());
    rule[8..].copy_from_slice(&path.to_ne_bytes());
    // SAFETY: the kernel's struct is packed: eight bytes, then four.
    check(unsafe {
        call(
            LANDLOCK_ADD_RULE,
            [i64::from(rules), BELOW, rule.as_ptr() as i64, 0, 0, 0],
        )
    })
    .map(|_| ())
}
