//! What the kernel says of this process's memory. Where there is no `/proc`, nobody can say.

use core::ffi::CStr;

use super::syscall::{self, check, number};

/// What the host itself may map for everybody, to be read.
const HARMLESS: [&[u8]; 3] = [b"/usr/", b"/lib", b"/etc/"];
/// Said by the kernel of memory about which there is nothing particular.
const PLAIN: [&[u8]; 9] = [b"rd", b"wr", b"mr", b"mw", b"me", b"ac", b"sd", b"nh", b"hg"];

/// Whether a fork shares memory that can be written with the zygote, and so with every other fork. A module that was imported
/// beforehand may have made some. Asked in the sandbox.
pub fn are_shared() -> bool {
    let mut shared = false;
    lines(c"/proc/self/maps", |line| {
        shared |= is_shared(line);
    });
    shared
}

/// A line is `from-to rwxp offset device inode path`, the last only if it has one.
fn is_shared(line: &[u8]) -> bool {
    let mut words = words(line);
    let rights = words.nth(1).unwrap_or(b"");
    if rights.get(3) != Some(&b's') {
        return false;
    }
    let path = words.nth(3).unwrap_or(b"");
    rights.get(1) == Some(&b'w') || !HARMLESS.iter().any(|start| path.starts_with(start))
}

/// Shows all plain memory of this process that can be written and is nearly all in use, in small pages: from where, to where.
pub fn written(mut show: impl FnMut(usize, usize)) {
    let (mut range, mut in_use, mut huge) = (None, 0, 0);
    lines(c"/proc/self/smaps", |line| {
        let mut words = words(line);
        let Some(first) = words.next() else {
            return;
        };
        let mut kibibytes = || {
            words
                .next()
                .and_then(|word| parse(word, 10))
                .map_or(0, |count| count << 10)
        };
        match first {
            b"Rss:" => in_use = kibibytes(),
            b"AnonHugePages:" => huge = kibibytes(),
            b"VmFlags:" => {
                if let Some((from, to)) = range.take()
                    && words.all(|flag| PLAIN.contains(&flag))
                    && in_use > (to - from) / 4 * 3
                    && huge < in_use / 2
                {
                    show(from, to);
                }
            }
            _ if first.ends_with(b":") => {}
            _ => range = (words.next() == Some(b"rw-p")).then(|| bounds(first)).flatten(),
        }
    });
}

/// `from-to`
fn bounds(word: &[u8]) -> Option<(usize, usize)> {
    let mut ends = word.split(|byte| *byte == b'-');
    let (from, to) = (parse(ends.next()?, 16)?, parse(ends.next()?, 16)?);
    (from < to).then_some((from, to))
}

fn parse(word: &[u8], base: u32) -> Option<usize> {
    word.iter().try_fold(0usize, |number, byte| {
        let digit = char::from(*byte).to_digit(base)?;
        number.checked_mul(base as usize)?.checked_add(digit as usize)
    })
}

fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|byte| *byte == b' ').filter(|word| !word.is_empty())
}

/// Shows the lines of a file.
fn lines(path: &CStr, mut show: impl FnMut(&[u8])) {
    const HERE: i64 = -100;
    const CLOSE_ON_EXEC: i64 = 0o2_000_000;
    let args = [HERE, path.as_ptr() as i64, CLOSE_ON_EXEC, 0, 0, 0];
    // SAFETY: the address is that of a text.
    let Ok(file) = check(unsafe { syscall::call(number::OPENAT, args) }) else {
        return;
    };
    let file = file as i32;
    let mut line = [0u8; 256];
    let mut size = 0;
    let mut chunk = [0u8; 4096];
    loop {
        let got = syscall::read(file, &mut chunk);
        if got <= 0 {
            break;
        }
        for byte in chunk.iter().take(got as usize) {
            if *byte == b'\n' {
                show(line.get(..size).unwrap_or(&[]));
                size = 0;
            } else if let Some(place) = line.get_mut(size) {
                // What does not fit is the rest of a path.
                *place = *byte;
                size += 1;
            }
        }
    }
    syscall::close(file);
}
