//! Taking files out of a work directory, from a guest that may have prepared it.
//!
//! Everything is opened below a directory handle, following no link of any kind, and only regular
//! files are read. It happens when no process of the guest is alive, so nothing can be swapped in
//! between; the flags would hold even then.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use belljar_core::GuestPath;
use belljar_core::outcome::{CollectedFile, FileState};
use belljar_core::path::{MAX_DEPTH, escape_name};
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};

/// The most files taken for one request.
const MOST_FILES: usize = 10_000;

/// Collects `paths` below `work_dir`, at most `limit` bytes in all. A directory gives all regular
/// files below it.
pub(crate) fn collect(work_dir: BorrowedFd<'_>, paths: &[GuestPath], limit: u64) -> Vec<CollectedFile> {
    let mut collector = Collector {
        files: Vec::new(),
        room: limit,
        full: false,
    };
    for path in paths {
        collector.take(work_dir, path.as_str().as_bytes(), path.as_str().as_bytes(), 0);
        if std::mem::take(&mut collector.full) {
            let reason = format!("not all of it: more than {MOST_FILES} files were asked for");
            collector.refuse(path.as_str().as_bytes(), reason);
        }
    }
    collector.files
}

struct Collector {
    files: Vec<CollectedFile>,
    room: u64,
    /// Whether something was left out because there were too many files.
    full: bool,
}

impl Collector {
    /// Takes `name` below `dir`; `shown` is its path from the work directory.
    fn take(&mut self, dir: BorrowedFd<'_>, name: &[u8], shown: &[u8], depth: usize) {
        if self.files.len() >= MOST_FILES {
            // Told once for each path that was asked for, by whoever asked.
            self.full = true;
            return;
        }
        match open(dir, name) {
            Ok(handle) => self.take_open(&handle, shown, depth),
            Err(error) => self.refuse(shown, reason(&error)),
        }
    }

    fn take_open(&mut self, handle: &OwnedFd, shown: &[u8], depth: usize) {
        let stat = match rustix::fs::fstat(handle) {
            Ok(stat) => stat,
            Err(error) => return self.refuse(shown, error.to_string()),
        };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => {
                let executable = stat.st_mode & 0o111 != 0;
                let size = u64::try_from(stat.st_size).unwrap_or(u64::MAX);
                if size > self.room {
                    let text = format!(
                        "{size} bytes are more than the {} left of the output limit",
                        self.room
                    );
                    return self.refuse(shown, text);
                }
                match read(handle, self.room) {
                    Ok(bytes) => self.keep(shown, bytes, executable),
                    Err(error) => self.refuse(shown, reason(&error)),
                }
            }
            FileType::Directory if depth >= MAX_DEPTH => {
                self.refuse(shown, format!("deeper than {MAX_DEPTH} directories"));
            }
            FileType::Directory => self.take_dir(handle, shown, depth),
            other => self.refuse(shown, format!("a {}, not a regular file", kind(other))),
        }
    }

    fn take_dir(&mut self, handle: &OwnedFd, shown: &[u8], depth: usize) {
        let mut names = match list(handle) {
            Ok(names) => names,
            Err(error) => return self.refuse(shown, reason(&error)),
        };
        self.full |= names.len() > MOST_FILES;
        names.sort_unstable();
        for name in names {
            let path = [shown, b"/", &name].concat();
            self.take(handle.as_fd(), &name, &path, depth + 1);
        }
    }

    fn keep(&mut self, shown: &[u8], bytes: Vec<u8>, executable: bool) {
        let size = bytes.len() as u64;
        self.room = self.room.saturating_sub(size);
        let state = FileState::Collected {
            size,
            executable,
            bytes,
        };
        self.files.push(CollectedFile {
            path: escape_name(shown),
            state,
        });
    }

    fn refuse(&mut self, shown: &[u8], reason: String) {
        self.files.push(CollectedFile {
            path: escape_name(shown),
            state: FileState::Refused { reason },
        });
    }
}

/// Opens without blocking on a FIFO and without following anything.
fn open(dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<OwnedFd> {
    if crate::weaken::is_off("collectsafely") {
        return Ok(rustix::fs::openat(
            dir,
            name,
            OFlags::RDONLY | OFlags::CLOEXEC,
            Mode::empty(),
        )?);
    }
    let resolve = ResolveFlags::BENEATH
        | ResolveFlags::NO_SYMLINKS
        | ResolveFlags::NO_MAGICLINKS
        | ResolveFlags::NO_XDEV;
    let flags = OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    // The type is looked at before anything is opened for reading: opening a device or a FIFO can
    // have effects of its own.
    let look = OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let path = rustix::fs::openat2(dir, name, look, Mode::empty(), resolve)?;
    match FileType::from_raw_mode(rustix::fs::fstat(&path)?.st_mode) {
        FileType::RegularFile | FileType::Directory => Ok(rustix::fs::openat2(
            dir,
            name,
            flags | OFlags::RDONLY,
            Mode::empty(),
            resolve,
        )?),
        _ => Ok(path),
    }
}

fn list(dir: &OwnedFd) -> io::Result<Vec<Vec<u8>>> {
    let mut names = Vec::new();
    for entry in rustix::fs::Dir::read_from(dir)? {
        let name = entry?.file_name().to_bytes().to_vec();
        if name != b"." && name != b".." {
            names.push(name);
        }
        if names.len() > MOST_FILES {
            break;
        }
    }
    Ok(names)
}

fn read(file: &OwnedFd, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut chunk = vec![0u8; 64 << 10];
    loop {
        match rustix::io::read(file, &mut chunk) {
            Ok(0) => return Ok(bytes),
            Ok(count) if (bytes.len() + count) as u64 > limit => {
                return Err(io::ErrorKind::FileTooLarge.into());
            }
            Ok(count) => bytes.extend_from_slice(&chunk[..count]),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn reason(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::ENOENT) => "not there".to_owned(),
        Some(libc::ELOOP) => "a symbolic link, or behind one".to_owned(),
        Some(libc::EXDEV) => "outside of the work directory's own file system".to_owned(),
        Some(libc::EACCES) => "made unreadable by the guest".to_owned(),
        _ => error.to_string(),
    }
}

const fn kind(file_type: FileType) -> &'static str {
    match file_type {
        FileType::Fifo => "FIFO",
        FileType::Socket => "socket",
        FileType::CharacterDevice | FileType::BlockDevice => "device",
        FileType::Symlink => "symbolic link",
        _ => "thing of another kind",
    }
}
