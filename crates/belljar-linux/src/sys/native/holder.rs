//! A process that keeps a guest's memory mapped, so that the guest's exit is reported sooner.

use core::arch::asm;

use super::syscall::{self, number};

/// Clones a process that shares the guest's memory and sleeps. Returns its pid; 0 where it could not be cloned, which only makes
/// the guest's exit slower.
///
/// The kernel reports a process's exit only after it has unmapped its memory, which takes a fork of a warm interpreter ten
/// times as long as the rest of its exit. Where another process has the same memory, nothing is unmapped. The holder runs
/// guest memory, so it is cloned after every restriction is in force. It has no exit signal: the guest's `wait` does not return it.
/// It becomes init's child when the guest exits, and is killed and reaped with everything else. Where the guest kills it
/// before, init takes back the task that was reserved for it (`init/room.rs`).
pub fn hold() -> i32 {
    const VM: i64 = 0x100;
    // Descriptors that the guest closes are closed here too.
    const FILES: i64 = 0x400;
    // With every signal blocked it runs no handler, so it needs no stack.
    let blocked = syscall::block_signals(u64::MAX);
    let result: i64;
    // SAFETY: the new process runs nothing but the loop below, which uses neither memory nor stack.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        asm!(
            "syscall",
            "test rax, rax",
            "jnz 3f",
            "2:",
            "mov eax, {wait}",
            "xor edi, edi",
            "xor esi, esi",
            "xor edx, edx",
            "xor r10d, r10d",
            "syscall",
            "jmp 2b",
            "3:",
            wait = const number::PPOLL,
            inlateout("rax") number::CLONE => result,
            inlateout("rdi") VM | FILES => _,
            inlateout("rsi") 0i64 => _,
            inlateout("rdx") 0i64 => _,
            inlateout("r10") 0i64 => _,
            in("r8") 0i64,
            lateout("rcx") _, lateout("r11") _,
            options(nostack),
        );
    }
    // SAFETY: as above.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        asm!(
            "svc 0",
            "cbnz x0, 3f",
            "2:",
            "mov x8, {wait}",
            "mov x0, xzr",
            "mov x1, xzr",
            "mov x2, xzr",
            "mov x3, xzr",
            "svc 0",
            "b 2b",
            "3:",
            wait = const number::PPOLL,
            inlateout("x8") number::CLONE => _,
            inlateout("x0") VM | FILES => result,
            inlateout("x1") 0i64 => _,
            inlateout("x2") 0i64 => _,
            inlateout("x3") 0i64 => _,
            in("x4") 0i64,
            options(nostack),
        );
    }
    syscall::block_signals(blocked);
    result.max(0) as i32
}
