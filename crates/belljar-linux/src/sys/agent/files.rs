//! Files, on the engine's behalf. A guest may have been there before: below the work directory no link is followed.

use core::sync::atomic::{AtomicU32, Ordering};

use super::kernel::{
    self, CREATE, DIRECTORY, EEXIST, EFBIG, EINVAL, ELOOP, ENAMETOOLONG, ENOENT, ENOTEMPTY, EXCLUSIVE, EXDEV,
    HERE, IS_DIRECTORY, LINK, NO_FOLLOW, NO_TERMINAL, NONBLOCK, PATH_ONLY, REGULAR, Stat, WRITE_ONLY,
};
use super::line::{Gone, Line, Passed};
use super::syscall;
use super::wire::{self, ANYWHERE, tell};

/// The longest path, with its NUL.
const LONGEST: usize = 4096;
/// The most entries that are told.
const MOST: usize = 20_000;
/// The deepest that is removed.
const DEEPEST: usize = 200;
/// The most that is removed at once.
const MOST_REMOVED: u32 = 200_000;

/// Whose the files are that are put here: the agent's own, unless it was told another.
pub static OWNER: AtomicU32 = AtomicU32::new(u32::MAX);

fn give(dir: i32, name: &[u8]) -> Result<(), i32> {
    match OWNER.load(Ordering::Relaxed) {
        u32::MAX => Ok(()),
        owner => kernel::give(dir, name, owner),
    }
}

/// A descriptor that is closed when it is no longer used.
struct Open(i32);

impl Drop for Open {
    fn drop(&mut self) {
        syscall::close(self.0);
    }
}

/// A text with a NUL at its end.
struct Text {
    bytes: [u8; LONGEST],
    size: usize,
}

impl Text {
    fn new(text: &[u8]) -> Result<Self, i32> {
        let mut bytes = [0; LONGEST];
        if text.len() >= LONGEST {
            return Err(ENAMETOOLONG);
        }
        if text.contains(&0) {
            return Err(EINVAL);
        }
        bytes[..text.len()].copy_from_slice(text);
        Ok(Self {
            bytes,
            size: text.len() + 1,
        })
    }

    fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.size]
    }
}

/// One part of a path.
fn part(name: &[u8]) -> Result<Text, i32> {
    if name.is_empty() || name == b"." || name == b".." {
        return Err(EINVAL);
    }
    Text::new(name)
}

/// What is on another file system than the work directory was mounted there, and is somebody else's.
fn check_device(dir: i32, device: u64) -> Result<(), i32> {
    if kernel::stat(dir)?.device == device {
        Ok(())
    } else {
        Err(EXDEV)
    }
}

fn own_device() -> Result<u64, i32> {
    let here = Open(kernel::open(HERE, b".\0", PATH_ONLY | DIRECTORY, 0)?);
    Ok(kernel::stat(here.0)?.device)
}

/// The directory that the last part of `path` stands in, and that part. Makes the directories on the way where `make` says so.
fn above(path: &[u8], make: bool) -> Result<(Open, Text), i32> {
    let mut dir = Open(kernel::open(HERE, b".\0", PATH_ONLY | DIRECTORY, 0)?);
    let device = kernel::stat(dir.0)?.device;
    let mut rest = path;
    while let Some(at) = rest.iter().position(|byte| *byte == b'/') {
        let name = part(&rest[..at])?;
        if make {
            match kernel::make_directory(dir.0, name.as_bytes(), 0o755) {
                Ok(()) => give(dir.0, name.as_bytes())?,
                Err(EEXIST) => {}
                Err(errno) => return Err(errno),
            }
        }
        dir = Open(open_directory(dir.0, &name)?);
        check_device(dir.0, device)?;
        rest = &rest[at + 1..];
    }
    Ok((dir, part(rest)?))
}

/// Follows no link; says so where there is one.
fn open_directory(dir: i32, name: &Text) -> Result<i32, i32> {
    let found = Open(kernel::open(dir, name.as_bytes(), PATH_ONLY | NO_FOLLOW, 0)?);
    if kernel::stat(found.0)?.kind() == LINK {
        return Err(ELOOP);
    }
    kernel::open(dir, name.as_bytes(), PATH_ONLY | DIRECTORY | NO_FOLLOW, 0)
}

/// Tells what stands there and, of a regular file, what is in it.
pub fn read(line: &mut Line, body_size: usize) -> Result<(), Gone> {
    let body = line.body(body_size);
    let Some(([how, limit @ ..], path)) = body.split_first_chunk::<9>() else {
        return Err(Gone);
    };
    let (how, limit) = (*how, u64::from_le_bytes(*limit));
    let path = Text::new(path);
    line.done(body_size);
    if how == wire::LINK {
        let mut target = [0u8; LONGEST];
        let errno = match path.and_then(|path| kernel::read_link(path.as_bytes(), &mut target)) {
            Ok(size) => {
                line.say(tell::CONTENT, &[target.get(..size).unwrap_or(&[])])?;
                0
            }
            Err(errno) => errno,
        };
        return line.answer(errno);
    }
    let errno = match path.and_then(|path| find(how, &path)) {
        Ok((file, stat)) => {
            let words = [stat.size, stat.device, stat.inode].map(u64::to_le_bytes);
            let [size, device, inode] = &words;
            line.say(tell::FOUND, &[&stat.mode.to_le_bytes(), size, device, inode])?;
            match file {
                Some(file) if limit > 0 => pass(line, &file, limit)?,
                _ => 0,
            }
        }
        Err(errno) => errno,
    };
    line.answer(errno)
}

type Found = (Option<Open>, Stat);

/// What stands there; open where it is a regular file.
fn find(how: u8, path: &Text) -> Result<Found, i32> {
    if how == ANYWHERE {
        return found(HERE, path, 0, None);
    }
    let (above, last) = above(&path.bytes[..path.size - 1], false)?;
    found(above.0, &last, NO_FOLLOW, Some(own_device()?))
}

fn found(dir: i32, name: &Text, follow: i64, device: Option<u64>) -> Result<Found, i32> {
    // The type is looked at before anything is opened: opening a device or a FIFO can have effects of its own.
    let look = Open(kernel::open(dir, name.as_bytes(), PATH_ONLY | follow, 0)?);
    let stat = kernel::stat(look.0)?;
    if device.is_some_and(|device| device != stat.device) {
        return Err(EXDEV);
    }
    if stat.kind() != REGULAR {
        return Ok((None, stat));
    }
    let flags = follow | NONBLOCK | NO_TERMINAL;
    let file = Open(kernel::open(dir, name.as_bytes(), flags, 0)?);
    // What was opened then may be another one.
    let stat = kernel::stat(file.0)?;
    if device.is_some_and(|device| device != stat.device) {
        return Err(EXDEV);
    }
    Ok(((stat.kind() == REGULAR).then_some(file), stat))
}

fn pass(line: &mut Line, file: &Open, limit: u64) -> Result<i32, Gone> {
    let mut told = 0u64;
    loop {
        match line.pass(tell::CONTENT, file.0)? {
            Passed::Some(count) => told += count as u64,
            Passed::End | Passed::Nothing => return Ok(0),
            Passed::Failed(errno) => return Ok(errno),
        }
        if told > limit {
            return Ok(EFBIG);
        }
    }
}

/// A file that is being written.
pub struct Writing {
    file: Result<i32, i32>,
}

impl Writing {
    pub fn begin(body: &[u8]) -> Result<Self, Gone> {
        let Some((mode, path)) = body.split_first_chunk::<4>() else {
            return Err(Gone);
        };
        let mode = i64::from(u32::from_le_bytes(*mode));
        Ok(Self {
            file: create(path, mode),
        })
    }

    pub fn write(&mut self, mut bytes: &[u8]) {
        let Ok(file) = self.file else { return };
        while !bytes.is_empty() {
            match syscall::check(syscall::write(file, bytes)) {
                Ok(count) => bytes = bytes.get(count as usize..).unwrap_or(&[]),
                Err(kernel::EINTR) => {}
                Err(errno) => {
                    syscall::close(file);
                    self.file = Err(errno);
                    return;
                }
            }
        }
    }

    /// How it went.
    pub fn end(self) -> i32 {
        match self.file {
            Ok(file) => {
                syscall::close(file);
                0
            }
            Err(errno) => errno,
        }
    }
}

/// Whatever stood there is replaced, never written through.
fn create(path: &[u8], mode: i64) -> Result<i32, i32> {
    let (dir, name) = above(path, true)?;
    match kernel::unlink(dir.0, name.as_bytes(), false) {
        Ok(()) | Err(ENOENT) => {}
        Err(errno) => return Err(errno),
    }
    let flags = CREATE | EXCLUSIVE | WRITE_ONLY | NO_FOLLOW;
    let file = kernel::open(dir.0, name.as_bytes(), flags, mode)?;
    match give(file, b"\0") {
        Ok(()) => Ok(file),
        Err(errno) => {
            syscall::close(file);
            Err(errno)
        }
    }
}

/// Tells what is in a directory.
pub fn list(line: &mut Line, body_size: usize) -> Result<(), Gone> {
    let path = Text::new(line.body(body_size));
    line.done(body_size);
    let opened = path.and_then(|path| {
        if path.size == 1 {
            return kernel::open(HERE, b".\0", DIRECTORY, 0).map(Open);
        }
        let (dir, name) = above(&path.bytes[..path.size - 1], false)?;
        drop(Open(open_directory(dir.0, &name)?));
        let opened = Open(kernel::open(dir.0, name.as_bytes(), DIRECTORY | NO_FOLLOW, 0)?);
        check_device(opened.0, own_device()?)?;
        Ok(opened)
    });
    let errno = match opened {
        Ok(dir) => tell_entries(line, &dir)?,
        Err(errno) => errno,
    };
    line.answer(errno)
}

fn tell_entries(line: &mut Line, dir: &Open) -> Result<i32, Gone> {
    let mut memory = [0u8; 8 << 10];
    let mut told = 0;
    loop {
        let count = match kernel::entries(dir.0, &mut memory) {
            Ok(0) => return Ok(0),
            Ok(count) => count,
            Err(errno) => return Ok(errno),
        };
        for name in names(&memory[..count]) {
            if told >= MOST {
                return Ok(0);
            }
            // What is gone already is not there.
            let Ok(text) = part(name) else { continue };
            let Ok(entry) = kernel::open(dir.0, text.as_bytes(), PATH_ONLY | NO_FOLLOW, 0).map(Open) else {
                continue;
            };
            let Ok(stat) = kernel::stat(entry.0) else {
                continue;
            };
            line.say(
                tell::ENTRY,
                &[&stat.mode.to_le_bytes(), &stat.size.to_le_bytes(), name],
            )?;
            told += 1;
        }
    }
}

/// The names in what the kernel wrote, but for the directory itself and the one above.
pub fn names(mut entries: &[u8]) -> impl Iterator<Item = &[u8]> {
    core::iter::from_fn(move || {
        loop {
            let size = usize::from(u16::from_ne_bytes([*entries.get(16)?, *entries.get(17)?]));
            let name = entries.get(19..size)?;
            entries = entries.get(size..)?;
            let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
            let name = name.get(..end)?;
            if name != b"." && name != b".." {
                return Some(name);
            }
        }
    })
}

/// Removes what stands at `path`, and everything below it.
pub fn remove(path: &[u8]) -> i32 {
    let mut left = MOST_REMOVED;
    let removed = above(path, false).and_then(|(dir, name)| remove_entry(dir.0, &name, 0, &mut left));
    removed.err().unwrap_or(0)
}

/// `left` is how many more may be: a guest may put in as much as is taken out, for ever.
fn remove_entry(dir: i32, name: &Text, depth: usize, left: &mut u32) -> Result<(), i32> {
    *left = left.checked_sub(1).ok_or(ENOTEMPTY)?;
    let found = Open(kernel::open(dir, name.as_bytes(), PATH_ONLY | NO_FOLLOW, 0)?);
    if kernel::stat(found.0)?.kind() != IS_DIRECTORY {
        return kernel::unlink(dir, name.as_bytes(), false);
    }
    if depth >= DEEPEST {
        return Err(ENAMETOOLONG);
    }
    let inner = Open(kernel::open(dir, name.as_bytes(), DIRECTORY | NO_FOLLOW, 0)?);
    check_device(inner.0, kernel::stat(dir)?.device)?;
    let mut memory = [0u8; 1024];
    loop {
        let count = kernel::entries(inner.0, &mut memory)?;
        if count == 0 {
            break;
        }
        for name in names(&memory[..count]) {
            match part(name).and_then(|name| remove_entry(inner.0, &name, depth + 1, left)) {
                Ok(()) | Err(ENOENT) => {}
                Err(errno) => return Err(errno),
            }
        }
    }
    kernel::unlink(dir, name.as_bytes(), true)
}
