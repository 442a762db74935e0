//! Another job of the same program: it holds a program of the host's on a leash.
//!
//! `agent leash COUNT FILE... PROGRAM WORD...`: writes `0` into each of the files, which are those by which a task enters a control
//! group, starts the program, and ends with its status. When what is read on descriptor 2 ends, because whoever
//! holds the other end has gone, everything that the program started is ended, whatever became of its parents.

use super::kernel::{self, WRITE_ONLY, Wait};
use super::{syscall, tree};

const LEASH: i32 = 2;

/// # Safety
/// Both must be the lists that the kernel gave this process: NUL-terminated texts, with a null at the end.
pub unsafe fn hold(count: usize, words: *const *const u8, variables: *const *const u8) -> ! {
    // SAFETY: the caller has the kernel's own list.
    let word = |at: usize| unsafe { text(*words.add(at.min(count))) };
    let groups = word(2)
        .split_last()
        .map_or(&[][..], |(_, digits)| digits)
        .iter()
        .fold(0usize, |number, byte| {
            number
                .saturating_mul(10)
                .saturating_add(usize::from(byte.wrapping_sub(b'0')))
        });
    let program = groups.saturating_add(3);
    if program >= count {
        syscall::exit(64);
    }
    for at in 3..program {
        let path = word(at);
        let entered = kernel::open(kernel::HERE, path, WRITE_ONLY, 0).and_then(|file| {
            let written = syscall::check(syscall::write(file, b"0"));
            syscall::close(file);
            written
        });
        if entered.is_err() {
            syscall::exit(73);
        }
    }
    const SET_CHILD_SUBREAPER: i64 = 36;
    let _ = kernel::prctl(SET_CHILD_SUBREAPER, 1);
    let Ok(children) = kernel::watch_children() else {
        syscall::exit(72)
    };
    let child = match kernel::fork() {
        Ok(0) => {
            syscall::block_signals(0);
            kernel::ignore_closed_pipes(false);
            // What it says there is for nobody.
            if let Ok(nowhere) = kernel::open(kernel::HERE, b"/dev/null\0", WRITE_ONLY, 0) {
                syscall::plain(syscall::number::DUP3, [i64::from(nowhere), i64::from(LEASH), 0]);
            }
            // SAFETY: what follows in the list is NUL-terminated texts with a null at the end.
            let errno = unsafe { kernel::exec(word(program), words.add(program), variables) };
            syscall::exit(if errno == kernel::ENOENT { 127 } else { 126 })
        }
        Ok(pid) => pid,
        Err(_) => syscall::exit(74),
    };
    // The streams are the program's alone.
    for stream in 0..2 {
        syscall::close(stream);
    }
    loop {
        let mut waits = [
            Wait::new(children, Wait::READABLE),
            Wait::new(LEASH, Wait::READABLE),
        ];
        kernel::poll(&mut waits);
        if waits[1].seen != 0 {
            tree::end_all(|_, _, _| {});
            syscall::exit(137);
        }
        let mut word = [0u8; 128];
        syscall::read(children, &mut word);
        while let Ok(Some((pid, status, _))) = kernel::wait(false) {
            if pid == child {
                tree::end_all(|_, _, _| {});
                let (code, signal) = ((status >> 8) & 0xff, status & 0x7f);
                syscall::exit(if signal == 0 { code } else { 128 + signal });
            }
        }
    }
}

/// The text at that address, with its NUL.
///
/// # Safety
/// There must be one.
unsafe fn text<'a>(start: *const u8) -> &'a [u8] {
    let mut size = 0;
    // SAFETY: it ends with a NUL, and nothing behind it is read.
    while unsafe { *start.add(size) } != 0 {
        size += 1;
    }
    // SAFETY: so many bytes were just read, and the NUL.
    unsafe { core::slice::from_raw_parts(start, size + 1) }
}
