//! A process that holds a program's memory.

use core::arch::asm;

use super::syscall::{self, number};

/// Lets a program's end be told before its memory is taken down. Returns the pid of what does that; 0 where there is
/// nothing, which only makes the end slower.
///
/// The kernel tells a process's parent of its end only when its memory has been taken down, and for a fork of a warm
/// interpreter that takes ten times as long as the rest of its end. Unless somebody else has the same memory: then the
/// end is told at once. So beside a program sleeps a process that shares its memory and does nothing. It stands behind the
/// same walls, is no child of the program's, and is ended with everything else when the program has ended.
pub fn hold() -> i32 {
    const VM: i64 = 0x100;
    // What we close it has not either.
    const FILES: i64 = 0x400;
    const PARENT: i64 = 0x8000;
    // It hears no signal but the one that ends it, so it needs no stack.
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
            inlateout("rdi") VM | FILES | PARENT => _,
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
            inlateout("x0") VM | FILES | PARENT => result,
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
