//! Whether a fork shares memory that can be written with the zygote, and so with every other fork.
//!
//! A module that was imported beforehand may have made some. Asked in the sandbox, where there is a `/proc`; where there is
//! none, nobody can say.

use super::syscall::{self, number};

/// What the host itself may map for everybody, to be read.
const HARMLESS: [&[u8]; 3] = [b"/usr/", b"/lib", b"/etc/"];

pub fn are_shared() -> bool {
    const HERE: i64 = -100;
    const CLOSE_ON_EXEC: i64 = 0o2_000_000;
    let args = [HERE, c"/proc/self/maps".as_ptr() as i64, CLOSE_ON_EXEC, 0, 0, 0];
    // SAFETY: the address is that of a text.
    let file = unsafe { syscall::call(number::OPENAT, args) };
    if file < 0 {
        return false;
    }
    let shared = any_shared(file as i32);
    syscall::close(file as i32);
    shared
}

fn any_shared(file: i32) -> bool {
    let mut line = [0u8; 256];
    let mut size = 0;
    let mut chunk = [0u8; 4096];
    loop {
        let got = syscall::read(file, &mut chunk);
        if got <= 0 {
            return false;
        }
        for byte in chunk.iter().take(got as usize) {
            if *byte == b'\n' {
                if line.get(..size).is_some_and(is_shared) {
                    return true;
                }
                size = 0;
            } else if let Some(place) = line.get_mut(size) {
                // What does not fit is the rest of a path.
                *place = *byte;
                size += 1;
            }
        }
    }
}

/// A line is `from-to rwxp offset device inode path`, the last only if it has one.
fn is_shared(line: &[u8]) -> bool {
    let mut fields = line.split(|byte| *byte == b' ').filter(|field| !field.is_empty());
    let rights = fields.nth(1).unwrap_or(b"");
    if rights.get(3) != Some(&b's') {
        return false;
    }
    let path = fields.nth(3).unwrap_or(b"");
    rights.get(1) == Some(&b'w') || !HARMLESS.iter().any(|start| path.starts_with(start))
}
