//! The files of a sandbox that is alive.
//!
//! The guest may change every name while it is looked at. So nothing is ever resolved as a path of the
//! host: everything is opened below a handle of the work directory, following no link of any kind and
//! entering no other mount, and only regular files are read (P36, P37, P40).

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use belljar_core::GuestPath;
use belljar_core::path::{MAX_DEPTH, escape_name};
use belljar_core::provider::{Filing, Listed, WorkFiles};
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};

use crate::workspace::remove;

/// The most entries that are listed.
const MOST_ENTRIES: usize = 10_000;

/// What could not be done with a file of a session.
#[derive(Debug, thiserror::Error)]
#[error("cannot {operation} `{path}`: {reason}")]
pub struct FileError {
    pub operation: &'static str,
    /// Escaped: a guest may have chosen it.
    pub path: String,
    pub reason: String,
    pub kind: io::ErrorKind,
}

impl FileError {
    fn new(operation: &'static str, path: &str, error: &io::Error) -> Self {
        use rustix::io::Errno;
        let reason = match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::NOENT) => "it is not there".to_owned(),
            Some(Errno::LOOP) => "it is a symbolic link, or behind one".to_owned(),
            Some(Errno::XDEV) => "it is outside of the work directory's own file system".to_owned(),
            Some(Errno::ACCESS) => "the guest made it unreadable".to_owned(),
            Some(Errno::NOTDIR) => "something above it is no directory".to_owned(),
            _ => error.to_string(),
        };
        Self {
            operation,
            path: escape_name(path.as_bytes()),
            reason,
            kind: error.kind(),
        }
    }
}

/// What stands under a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    File,
    Directory,
    /// A link, a FIFO, a socket or a device: nothing that can be read.
    Other,
}

/// One entry of a work directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileEntry {
    /// From the work directory; bytes that are not plain text are escaped as `\xNN`, a backslash as `\\`.
    pub path: String,
    pub kind: EntryKind,
    pub size: u64,
    pub executable: bool,
}

/// A regular file of a session, read in pieces. Never gives more than its size when it was opened.
#[derive(Debug)]
pub struct FileReader {
    file: io::Take<File>,
    size: u64,
    executable: bool,
}

impl FileReader {
    pub const fn size(&self) -> u64 {
        self.size
    }

    pub const fn executable(&self) -> bool {
        self.executable
    }

    /// Everything at once, if it is at most `limit` bytes.
    pub fn bytes(mut self, limit: u64) -> io::Result<Vec<u8>> {
        if self.size > limit {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let mut bytes = Vec::new();
        self.read_to_end(&mut bytes)?;
        Ok(bytes)
    }
}

impl Read for FileReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.file.read(buffer)
    }
}

pub(super) fn open(files: &WorkFiles, path: &GuestPath) -> Result<FileReader, FileError> {
    let opened = match files {
        WorkFiles::Directory(directory) => open_regular(directory.as_fd(), path.as_str()),
        WorkFiles::Asked(filing) => filing.read(path).map(|read| FileReader {
            file: read.file.take(read.size),
            size: read.size,
            executable: read.executable,
        }),
    };
    opened.map_err(|error| FileError::new("read", path.as_str(), &error))
}

fn open_regular(directory: BorrowedFd<'_>, path: &str) -> io::Result<FileReader> {
    // The type is looked at before anything is opened for reading: opening a device or a FIFO can have
    // effects of its own. What is opened then may be another file, so it is looked at as well.
    let look = below(directory, path.as_bytes(), OFlags::PATH)?;
    must_be_regular(&look)?;
    let file = below(
        directory,
        path.as_bytes(),
        OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY,
    )?;
    let (size, executable) = must_be_regular(&file)?;
    Ok(FileReader {
        file: File::from(file).take(size),
        size,
        executable,
    })
}

fn must_be_regular(file: &OwnedFd) -> io::Result<(u64, bool)> {
    let stat = rustix::fs::fstat(file)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok((
            u64::try_from(stat.st_size).unwrap_or_default(),
            stat.st_mode & 0o111 != 0,
        )),
        FileType::Directory => Err(io::Error::other("it is a directory")),
        FileType::Symlink => Err(rustix::io::Errno::LOOP.into()),
        _ => Err(io::Error::other("it is no regular file")),
    }
}

/// Opens `path` below `directory`, following nothing and leaving nothing.
fn below(directory: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> io::Result<OwnedFd> {
    Ok(rustix::fs::openat2(
        directory,
        path,
        flags | OFlags::CLOEXEC | OFlags::NOFOLLOW,
        Mode::empty(),
        ResolveFlags::BENEATH
            | ResolveFlags::NO_SYMLINKS
            | ResolveFlags::NO_MAGICLINKS
            | ResolveFlags::NO_XDEV,
    )?)
}

pub(super) fn list(files: &WorkFiles, path: Option<&GuestPath>) -> Result<Vec<FileEntry>, FileError> {
    let shown = path.map_or("", GuestPath::as_str);
    let mut entries = Vec::new();
    let listed = match files {
        WorkFiles::Directory(directory) => {
            let top = if shown.is_empty() { "." } else { shown };
            below(
                directory.as_fd(),
                top.as_bytes(),
                OFlags::RDONLY | OFlags::DIRECTORY,
            )
            .and_then(|top| walk(&top, shown.as_bytes(), 0, &mut entries))
        }
        WorkFiles::Asked(filing) => ask(&**filing, shown.as_bytes(), &mut entries),
    };
    listed.map_err(|error| FileError::new("list", shown, &error))?;
    entries.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(entries)
}

/// The same by asking: what is below a directory that goes meanwhile is not there.
fn ask(filing: &dyn Filing, top: &[u8], entries: &mut Vec<FileEntry>) -> io::Result<()> {
    let mut left = vec![(top.to_vec(), filing.list(top)?, 0)];
    while let Some((above, listed, depth)) = left.pop() {
        for Listed { name, mode, size } in listed {
            if entries.len() >= MOST_ENTRIES {
                return Ok(());
            }
            let path = joined(&above, &name);
            let entry = described(&path, mode, size);
            let is_directory = entry.kind == EntryKind::Directory;
            entries.push(entry);
            if is_directory
                && depth + 1 < MAX_DEPTH
                && let Ok(below) = filing.list(&path)
            {
                left.push((path, below, depth + 1));
            }
        }
    }
    Ok(())
}

fn joined(above: &[u8], name: &[u8]) -> Vec<u8> {
    if above.is_empty() {
        name.to_vec()
    } else {
        [above, b"/", name].concat()
    }
}

fn described(path: &[u8], mode: u32, size: u64) -> FileEntry {
    let kind = match FileType::from_raw_mode(mode) {
        FileType::RegularFile => EntryKind::File,
        FileType::Directory => EntryKind::Directory,
        _ => EntryKind::Other,
    };
    let is_file = kind == EntryKind::File;
    FileEntry {
        path: escape_name(path),
        kind,
        size: if is_file { size } else { 0 },
        executable: is_file && mode & 0o111 != 0,
    }
}

/// Depth is bounded, so that it costs neither stack nor descriptors.
fn walk(directory: &OwnedFd, shown: &[u8], depth: usize, entries: &mut Vec<FileEntry>) -> io::Result<()> {
    for entry in rustix::fs::Dir::read_from(directory)? {
        let name = entry?.file_name().to_bytes().to_vec();
        if name == b"." || name == b".." {
            continue;
        }
        if entries.len() >= MOST_ENTRIES {
            return Ok(());
        }
        // What is gone already is not there.
        let Ok(handle) = below(directory.as_fd(), &name, OFlags::PATH) else {
            continue;
        };
        let Ok(stat) = rustix::fs::fstat(&handle) else {
            continue;
        };
        let path = joined(shown, &name);
        let entry = described(
            &path,
            stat.st_mode,
            u64::try_from(stat.st_size).unwrap_or_default(),
        );
        let is_directory = entry.kind == EntryKind::Directory;
        entries.push(entry);
        if is_directory
            && depth + 1 < MAX_DEPTH
            && let Ok(inner) = below(directory.as_fd(), &name, OFlags::RDONLY | OFlags::DIRECTORY)
        {
            walk(&inner, &path, depth + 1, entries)?;
        }
    }
    Ok(())
}

pub(super) fn delete(files: &WorkFiles, path: &GuestPath) -> Result<(), FileError> {
    let failed = |error: io::Error| FileError::new("delete", path.as_str(), &error);
    let directory = match files {
        WorkFiles::Directory(directory) => directory,
        WorkFiles::Asked(filing) => return filing.remove(path).map_err(failed),
    };
    let (above, name) = path.as_str().rsplit_once('/').unwrap_or((".", path.as_str()));
    let parent = below(
        directory.as_fd(),
        above.as_bytes(),
        OFlags::PATH | OFlags::DIRECTORY,
    )
    .map_err(failed)?;
    // Removing what is not there is told; removing what goes meanwhile is not.
    rustix::fs::statat(&parent, name, rustix::fs::AtFlags::SYMLINK_NOFOLLOW)
        .map_err(|errno| failed(errno.into()))?;
    let name = CString::new(name).map_err(|error| failed(error.into()))?;
    remove::remove_tree(parent.as_fd(), &name).map_err(|failure| failed(failure.source))
}
