//! System calls, without a C library between.

use core::arch::asm;

/// What the kernel returns: a result, or an error's number below zero.
pub type Answer = i64;

#[cfg(target_arch = "x86_64")]
pub mod number {
    pub const READ: i64 = 0;
    pub const WRITE: i64 = 1;
    pub const CLOSE: i64 = 3;
    pub const MMAP: i64 = 9;
    pub const MPROTECT: i64 = 10;
    pub const MUNMAP: i64 = 11;
    pub const RT_SIGPROCMASK: i64 = 14;
    pub const MREMAP: i64 = 25;
    pub const MSYNC: i64 = 26;
    pub const MADVISE: i64 = 28;
    pub const GETPID: i64 = 39;
    pub const SENDMSG: i64 = 46;
    pub const RECVMSG: i64 = 47;
    pub const CLONE: i64 = 56;
    pub const WAIT4: i64 = 61;
    pub const KILL: i64 = 62;
    pub const FCNTL: i64 = 72;
    pub const EXIT_GROUP: i64 = 231;
    pub const OPENAT: i64 = 257;
    pub const PPOLL: i64 = 271;
    pub const SIGNALFD4: i64 = 289;
    pub const DUP3: i64 = 292;
    pub const PIPE2: i64 = 293;
    pub const SETNS: i64 = 308;
    pub const CLOSE_RANGE: i64 = 436;
}

#[cfg(target_arch = "aarch64")]
pub mod number {
    pub const DUP3: i64 = 24;
    pub const FCNTL: i64 = 25;
    pub const OPENAT: i64 = 56;
    pub const CLOSE: i64 = 57;
    pub const PIPE2: i64 = 59;
    pub const READ: i64 = 63;
    pub const WRITE: i64 = 64;
    pub const PPOLL: i64 = 73;
    pub const SIGNALFD4: i64 = 74;
    pub const EXIT_GROUP: i64 = 94;
    pub const KILL: i64 = 129;
    pub const RT_SIGPROCMASK: i64 = 135;
    pub const GETPID: i64 = 172;
    pub const SENDMSG: i64 = 211;
    pub const RECVMSG: i64 = 212;
    pub const CLONE: i64 = 220;
    pub const MUNMAP: i64 = 215;
    pub const MREMAP: i64 = 216;
    pub const MMAP: i64 = 222;
    pub const MPROTECT: i64 = 226;
    pub const MSYNC: i64 = 227;
    pub const MADVISE: i64 = 233;
    pub const WAIT4: i64 = 260;
    pub const SETNS: i64 = 268;
    pub const CLOSE_RANGE: i64 = 436;
}

/// Makes a system call.
///
/// # Safety
/// Every argument that the kernel takes for an address must be that of memory which it may read or write.
#[cfg(target_arch = "x86_64")]
pub unsafe fn call(number: i64, args: [i64; 6]) -> Answer {
    let result;
    // SAFETY: the kernel changes no more than what is said here, and what the caller lets it.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number => result,
            in("rdi") args[0], in("rsi") args[1], in("rdx") args[2],
            in("r10") args[3], in("r8") args[4], in("r9") args[5],
            lateout("rcx") _, lateout("r11") _,
            options(nostack),
        );
    }
    result
}

/// Makes a system call.
///
/// # Safety
/// Every argument that the kernel takes for an address must be that of memory which it may read or write.
#[cfg(target_arch = "aarch64")]
pub unsafe fn call(number: i64, args: [i64; 6]) -> Answer {
    let result;
    // SAFETY: the kernel changes no more than what is said here, and what the caller lets it.
    unsafe {
        asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") args[0] => result, in("x1") args[1], in("x2") args[2],
            in("x3") args[3], in("x4") args[4], in("x5") args[5],
            options(nostack),
        );
    }
    result
}

/// The result of a call, or its error's number.
pub fn check(answer: Answer) -> Result<i64, i32> {
    if answer < 0 {
        Err(-answer as i32)
    } else {
        Ok(answer)
    }
}

/// Ends this process at once.
pub fn exit(code: i32) -> ! {
    loop {
        // SAFETY: it takes no address.
        unsafe { call(number::EXIT_GROUP, [i64::from(code), 0, 0, 0, 0, 0]) };
    }
}

pub fn close(fd: i32) {
    // SAFETY: it takes no address.
    unsafe { call(number::CLOSE, [i64::from(fd), 0, 0, 0, 0, 0]) };
}

pub fn write(fd: i32, bytes: &[u8]) -> Answer {
    let args = [i64::from(fd), bytes.as_ptr() as i64, bytes.len() as i64, 0, 0, 0];
    // SAFETY: the address and the size are those of `bytes`.
    unsafe { call(number::WRITE, args) }
}

pub fn read(fd: i32, bytes: &mut [u8]) -> Answer {
    let args = [
        i64::from(fd),
        bytes.as_mut_ptr() as i64,
        bytes.len() as i64,
        0,
        0,
        0,
    ];
    // SAFETY: the address and the size are those of `bytes`.
    unsafe { call(number::READ, args) }
}

/// A call that takes no address.
pub fn plain(number: i64, args: [i64; 3]) -> Answer {
    // SAFETY: the callers use it for calls that take none.
    unsafe { call(number, [args[0], args[1], args[2], 0, 0, 0]) }
}

/// Replaces the set of blocked signals, and returns what it was.
pub fn block_signals(set: u64) -> u64 {
    const SETMASK: i64 = 2;
    let mut before = 0u64;
    let args = [SETMASK, &raw const set as i64, &raw mut before as i64, 8, 0, 0];
    // SAFETY: both addresses are of sets of eight bytes.
    unsafe { call(number::RT_SIGPROCMASK, args) };
    before
}

/// Waits until one of these descriptors has something to say, or so many milliseconds have passed.
pub fn poll<const N: usize>(fds: [i32; N], milliseconds: Option<i64>) -> [bool; N] {
    #[derive(Clone, Copy)]
    #[repr(C)]
    struct Wait {
        fd: i32,
        wanted: i16,
        seen: i16,
    }
    const READABLE: i16 = 1;
    let mut waits = fds.map(|fd| Wait {
        fd,
        wanted: READABLE,
        seen: 0,
    });
    // The kernel writes there what is left of it.
    let mut time = milliseconds.map(|count| [count / 1000, count % 1000 * 1_000_000]);
    let time = time.as_mut().map_or(0, |time| time.as_mut_ptr() as i64);
    let args = [waits.as_mut_ptr() as i64, N as i64, time, 0, 8, 0];
    // SAFETY: the addresses are those of `waits` and of the time, which live until it returns.
    unsafe { call(number::PPOLL, args) };
    waits.map(|wait| wait.seen != 0)
}
