//! Unpacking the archive of a root file system. All of it is somebody else's: names, lengths, links, order.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use belljar_core::egress::RESOLV_CONF;
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use tar::EntryType;

use super::error::EnvironmentError;
use super::import::{not_a_root, open_root, unreadable, within};
use super::progress::Cancel;
use crate::archive::show;

/// How much an archive may come to once it is unpacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImportLimits {
    /// Bytes of files as they are written, whatever they take in the archive.
    pub bytes: u64,
    /// Files, links and directories, those that are made on the way among them.
    pub entries: u64,
}

impl Default for ImportLimits {
    fn default() -> Self {
        Self {
            bytes: 20 << 30,
            entries: 1_000_000,
        }
    }
}

/// The longest that an archive may say about one entry beside its header.
const LONGEST_EXTENSION: u64 = 64 << 10;
/// The longest name of an entry, and of where it really comes to stand: every program must be able to name it.
const LONGEST_PATH: usize = 2048;

/// Unpacks a tar, which may be compressed with gzip.
pub(super) fn unpack(
    mut archive: impl Read,
    place: &Path,
    limits: ImportLimits,
    cancel: &Cancel,
) -> Result<(), EnvironmentError> {
    let mut head = [0u8; 2];
    let mut have = 0;
    while have < head.len() {
        match archive.read(&mut head[have..]).map_err(unreadable)? {
            0 => break,
            count => have += count,
        }
    }
    let whole = io::Cursor::new(head[..have].to_vec()).chain(archive);
    if head == [0x1f, 0x8b] {
        unpack_tar(flate2::read::MultiGzDecoder::new(whole), place, limits, cancel)
    } else {
        unpack_tar(whole, place, limits, cancel)
    }
}

fn unpack_tar(
    archive: impl Read,
    place: &Path,
    limits: ImportLimits,
    cancel: &Cancel,
) -> Result<(), EnvironmentError> {
    let root = open_root(place).map_err(|error| EnvironmentError::io("open", place, error))?;
    // What is left out counts as well, and headers: none of it may go on without end.
    let headers = limits.entries.saturating_mul(ENTRY_OVERHEAD);
    let mut archive = tar::Archive::new(Bounded {
        archive,
        left: limits.bytes.saturating_add(headers),
        limits,
    });
    let mut unpacking = Unpacking {
        root: root.as_fd(),
        place: place.as_os_str().len(),
        entries: 0,
        left: limits.bytes,
        limits,
    };
    let mut said = Said::default();
    // What extends a header is read here: nobody else bounds it.
    for entry in archive.entries().map_err(unreadable)?.raw(true) {
        let mut entry = entry.map_err(unreadable)?;
        if cancel.is_cancelled() {
            return Err(EnvironmentError::Cancelled);
        }
        if said.take(&mut entry)? {
            continue;
        }
        let named = said
            .name
            .take()
            .unwrap_or_else(|| entry.path_bytes().into_owned());
        let target = said
            .target
            .take()
            .unwrap_or_else(|| entry.link_name_bytes().unwrap_or_default().into_owned());
        let path = plain(&named)?;
        unpacking.count().map_err(unreadable)?;
        let put = unpacking.put(&path, &target, &mut entry);
        put.map_err(|error| {
            exceeded(&error).unwrap_or_else(|| not_a_root(format!("`{}`: {error}", show(&path))))
        })?;
    }
    if unpacking.entries == 0 {
        return Err(not_a_root("the archive is empty, or no tar"));
    }
    let written = unpacking.write(b"etc/resolv.conf", RESOLV_CONF.as_bytes());
    written.map_err(|error| not_a_root(format!("`etc/resolv.conf`: {error}")))
}

/// How many bytes of an archive an entry takes beside its content: its header, what extends it, and what fills a block.
const ENTRY_OVERHEAD: u64 = 4 << 10;

/// An archive of which no more than so much is read.
struct Bounded<R> {
    archive: R,
    left: u64,
    limits: ImportLimits,
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.archive.read(into)?;
        self.left = self
            .left
            .checked_sub(count as u64)
            .ok_or(TooLarge::Bytes(self.limits.bytes))?;
        Ok(count)
    }
}

/// Which limit an archive is beyond.
#[derive(Clone, Copy, Debug, thiserror::Error)]
enum TooLarge {
    #[error("more than {0} bytes")]
    Bytes(u64),
    #[error("more than {0} entries")]
    Entries(u64),
}

impl From<TooLarge> for io::Error {
    fn from(error: TooLarge) -> Self {
        Self::other(error)
    }
}

/// The error for an archive that is too large, if that is what this says.
pub(super) fn exceeded(error: &io::Error) -> Option<EnvironmentError> {
    let mut source = error
        .get_ref()
        .map(|inner| inner as &(dyn std::error::Error + 'static));
    while let Some(error) = source {
        match error.downcast_ref::<TooLarge>() {
            Some(TooLarge::Bytes(limit)) => {
                let limit = belljar_core::Bytes::new(*limit).to_string();
                return Some(EnvironmentError::TooLarge { limit });
            }
            Some(TooLarge::Entries(limit)) => {
                let limit = format!("{limit} entries");
                return Some(EnvironmentError::TooLarge { limit });
            }
            // Where one error is inside of another, what is inside of that is no source of its own.
            None => {
                source = match error.downcast_ref::<io::Error>() {
                    Some(error) => error.get_ref().map(|inner| inner as _),
                    None => error.source(),
                };
            }
        }
    }
    None
}

fn create(parent: &OwnedFd, name: &[u8], executable: bool) -> io::Result<File> {
    let mode = Mode::from_raw_mode(if executable { 0o755 } else { 0o644 });
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(File::from(rustix::fs::openat(parent, name, flags, mode)?))
}

/// What an archive has said about its next entry.
#[derive(Debug, Default)]
struct Said {
    name: Option<Vec<u8>>,
    target: Option<Vec<u8>>,
}

impl Said {
    /// Takes an entry that only says something about the next one; false where it is one itself.
    fn take<R: Read>(&mut self, entry: &mut tar::Entry<'_, R>) -> Result<bool, EnvironmentError> {
        let kind = entry.header().entry_type();
        if !matches!(
            kind,
            EntryType::GNULongName | EntryType::GNULongLink | EntryType::XHeader | EntryType::XGlobalHeader
        ) {
            return Ok(false);
        }
        if entry.header().size().map_err(unreadable)? > LONGEST_EXTENSION {
            return Err(not_a_root(
                "the archive says more about an entry than any entry needs",
            ));
        }
        let mut text = Vec::new();
        entry.read_to_end(&mut text).map_err(unreadable)?;
        let ended = |mut text: Vec<u8>| {
            let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
            text.truncate(end);
            Some(text)
        };
        match kind {
            EntryType::GNULongName => self.name = ended(text),
            EntryType::GNULongLink => self.target = ended(text),
            EntryType::XHeader => self.read(&text)?,
            // What is said about all of them is for people. A name for everything has no honest use.
            _ => {
                let mut of_all = Self::default();
                of_all.read(&text)?;
                if of_all.name.is_some() || of_all.target.is_some() {
                    return Err(not_a_root("the archive renames every entry"));
                }
            }
        }
        Ok(true)
    }

    /// Reads `LENGTH KEY=VALUE` lines.
    fn read(&mut self, text: &[u8]) -> Result<(), EnvironmentError> {
        for extension in tar::PaxExtensions::new(text) {
            let extension = extension.map_err(unreadable)?;
            match extension.key_bytes() {
                b"path" => self.name = Some(extension.value_bytes().to_vec()),
                b"linkpath" => self.target = Some(extension.value_bytes().to_vec()),
                b"size" => return Err(not_a_root("the archive holds a file of more than 8 GiB")),
                key if key.starts_with(b"GNU.sparse") => return Err(sparse()),
                _ => {}
            }
        }
        Ok(())
    }
}

fn sparse() -> EnvironmentError {
    not_a_root("the archive holds files with holes; write it without --sparse")
}

/// A name without anything that leads out.
fn plain(path: &[u8]) -> Result<Vec<u8>, EnvironmentError> {
    let parts: Vec<&[u8]> = path
        .split(|byte| *byte == b'/')
        .filter(|part| !part.is_empty() && *part != b".")
        .collect();
    if parts.iter().any(|part| *part == b".." || part.contains(&0)) {
        return Err(not_a_root(format!("an entry is called `{}`", show(path))));
    }
    let path = parts.join(&b'/');
    if path.len() > LONGEST_PATH {
        return Err(not_a_root(format!(
            "an entry's name is too long: `{}…`",
            show(&path)
        )));
    }
    Ok(path)
}

/// Where things are put, and how much more may be.
struct Unpacking<'a> {
    root: BorrowedFd<'a>,
    /// How long the tree's own path is.
    place: usize,
    entries: u64,
    left: u64,
    limits: ImportLimits,
}

impl Unpacking<'_> {
    fn count(&mut self) -> io::Result<()> {
        self.entries += 1;
        if self.entries > self.limits.entries {
            return Err(TooLarge::Entries(self.limits.entries).into());
        }
        Ok(())
    }

    /// The directory that the last part of a path stands in, made where it is missing, and that part.
    fn above<'p>(&mut self, path: &'p [u8]) -> io::Result<(OwnedFd, &'p [u8])> {
        let at = path.iter().rposition(|byte| *byte == b'/');
        let (parent, name) = at.map_or((&b""[..], path), |at| (&path[..at], &path[at + 1..]));
        let parent = self.directory(parent)?;
        // By links in the archive it may stand deeper than its name says.
        let real = rustix::fs::readlink(format!("/proc/self/fd/{}", parent.as_raw_fd()), Vec::new())?;
        if real.as_bytes().len() + name.len() > self.place + LONGEST_PATH {
            return Err(Errno::NAMETOOLONG.into());
        }
        Ok((parent, name))
    }

    fn directory(&mut self, path: &[u8]) -> io::Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        match within(self.root, path, flags) {
            Err(Errno::NOENT) if !path.is_empty() => {
                let (parent, name) = self.above(path)?;
                self.count()?;
                rustix::fs::mkdirat(&parent, name, Mode::from_raw_mode(0o755))?;
                Ok(within(self.root, path, flags)?)
            }
            found => Ok(found?),
        }
    }

    fn put<R: Read>(&mut self, path: &[u8], target: &[u8], entry: &mut tar::Entry<'_, R>) -> io::Result<()> {
        if path.is_empty() {
            return Ok(());
        }
        let kind = entry.header().entry_type();
        if kind == EntryType::Directory {
            return self.directory(path).map(drop);
        }
        if kind == EntryType::GNUSparse {
            return Err(io::Error::other(sparse()));
        }
        let is_file = matches!(kind, EntryType::Regular | EntryType::Continuous);
        if !is_file && !matches!(kind, EntryType::Symlink | EntryType::Link) {
            // Devices, pipes and the like: every sandbox has its own, or none.
            return Ok(());
        }
        if is_file && entry.header().mode().unwrap_or(0) & 0o004 == 0 {
            // A guest could not read it in a container either, and here everything becomes readable: passwords, keys.
            return Ok(());
        }
        let (parent, name) = self.cleared(path)?;
        match kind {
            EntryType::Symlink => Ok(rustix::fs::symlinkat(target, &parent, name)?),
            EntryType::Link => {
                let target = plain(target).map_err(io::Error::other)?;
                let (from, old) = self.above(&target)?;
                Ok(rustix::fs::linkat(&from, old, &parent, name, AtFlags::empty())?)
            }
            _ => {
                let executable = entry.header().mode().unwrap_or(0) & 0o111 != 0;
                let mut file = create(&parent, name, executable)?;
                self.copy(entry, &mut file)
            }
        }
    }

    /// Puts a file of our own there.
    fn write(&mut self, path: &[u8], content: &[u8]) -> io::Result<()> {
        let (parent, name) = self.cleared(path)?;
        create(&parent, name, false)?.write_all(content)
    }

    /// Where something is to stand. Whatever stood there is replaced, never written through.
    fn cleared<'p>(&mut self, path: &'p [u8]) -> io::Result<(OwnedFd, &'p [u8])> {
        let (parent, name) = self.above(path)?;
        match rustix::fs::unlinkat(&parent, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok((parent, name)),
            Err(error) => Err(error.into()),
        }
    }

    fn copy(&mut self, from: &mut impl Read, to: &mut File) -> io::Result<()> {
        let mut chunk = vec![0; 128 << 10];
        loop {
            let count = from.read(&mut chunk)?;
            if count == 0 {
                return Ok(());
            }
            self.left = self
                .left
                .checked_sub(count as u64)
                .ok_or(TooLarge::Bytes(self.limits.bytes))?;
            to.write_all(&chunk[..count])?;
        }
    }
}
