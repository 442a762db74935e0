//! Files of a work directory, by way of its agent.

use std::fs::File;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use belljar_core::GuestPath;
use belljar_core::ProviderError;
use belljar_core::outcome::{CollectedFile, FileState};
use belljar_core::path::{MAX_DEPTH, escape_name};
use belljar_core::provider::{Filing, Listed, ReadFile};
use belljar_core::request::{Content, FileIn};
use belljar_linux::agent::wire::{ANYWHERE, LINK, PIECE, ask};
use rustix::fs::{FileType, MemfdFlags, Mode, OFlags};

use super::line::Line;
use super::told::{Identity, Told};

/// How long an agent may take for a file. It shares the sandbox's processors with its guest.
const ANSWERING: Duration = Duration::from_secs(60);

/// The most entries that an agent tells of one directory.
const MOST_ENTRIES: usize = 20_000;
/// The most files taken for one request.
const MOST_FILES: usize = 10_000;

/// What stands under a name, and its content where that was asked for and it is a regular file.
#[derive(Debug)]
pub(crate) struct Found {
    pub mode: u32,
    pub size: u64,
    pub identity: Identity,
    pub bytes: Vec<u8>,
}

impl Found {
    pub(crate) fn kind(&self) -> FileType {
        FileType::from_raw_mode(self.mode)
    }

    pub(crate) const fn is_executable(&self) -> bool {
        self.mode & 0o111 != 0
    }
}

fn gone() -> io::Error {
    io::Error::new(io::ErrorKind::BrokenPipe, "the agent is gone")
}

fn checked(errno: i32) -> io::Result<()> {
    if errno == 0 {
        Ok(())
    } else {
        Err(io::Error::from_raw_os_error(errno))
    }
}

impl Line {
    /// What stands at `path`, which is looked up as `how` says; at most `limit` bytes of its content go to `keep`.
    async fn read(
        &self,
        how: u8,
        path: &[u8],
        limit: u64,
        keep: &mut (dyn FnMut(&[u8]) -> io::Result<()> + Send),
    ) -> io::Result<Found> {
        let body = [&[how], &limit.to_le_bytes()[..], path].concat();
        let mut answer = self.ask(&[(ask::READ, &body)]);
        let (mut told, mut kept) = (0u64, Ok(()));
        let mut found = Found {
            mode: 0,
            size: 0,
            identity: Identity::default(),
            bytes: Vec::new(),
        };
        loop {
            match answer.recv().await.ok_or_else(gone)? {
                Told::Found { mode, size, identity } => {
                    found = Found {
                        mode,
                        size,
                        identity,
                        ..found
                    };
                }
                Told::Content(bytes) if kept.is_ok() && told <= limit => {
                    told = told.saturating_add(bytes.len() as u64);
                    kept = keep(&bytes);
                }
                // It was told how much is wanted.
                Told::Content(_) => return Err(gone()),
                Told::Done(errno) => {
                    checked(errno)?;
                    return kept.map(|()| found);
                }
                _ => return Err(gone()),
            }
        }
    }

    /// What stands below the work directory; no link is followed.
    pub(crate) async fn fetch(&self, path: &[u8], limit: u64) -> io::Result<Found> {
        let mut bytes = Vec::new();
        let found = self
            .read(0, path, limit, &mut |piece| {
                bytes.extend_from_slice(piece);
                Ok(())
            })
            .await?;
        Ok(Found { bytes, ..found })
    }

    /// A file anywhere in the agent's own view.
    pub(crate) async fn look(&self, path: &str, limit: u64) -> io::Result<Found> {
        let mut bytes = Vec::new();
        let found = self
            .read(ANYWHERE, path.as_bytes(), limit, &mut |piece| {
                bytes.extend_from_slice(piece);
                Ok(())
            })
            .await?;
        Ok(Found { bytes, ..found })
    }

    /// Where a link in the agent's own view points to.
    pub(crate) async fn look_at_link(&self, path: &str) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.read(LINK, path.as_bytes(), 4096, &mut |piece| {
            bytes.extend_from_slice(piece);
            Ok(())
        })
        .await?;
        Ok(bytes)
    }

    /// Puts a file below the work directory, over what is there.
    pub(crate) async fn put(&self, path: &GuestPath, file: &FileIn) -> Result<(), ProviderError> {
        let failed = |operation, object: &str, source| ProviderError::Io {
            operation,
            object: object.to_owned(),
            source,
        };
        let mode: u32 = if file.executable { 0o755 } else { 0o644 };
        let head = [&mode.to_le_bytes()[..], path.as_str().as_bytes()].concat();
        let bytes = match &file.content {
            Content::Inline(bytes) => bytes.to_vec(),
            Content::HostFile(host) => {
                let host = host.clone();
                let shown = host.to_string_lossy().into_owned();
                let read = tokio::task::spawn_blocking(move || read_host_file(&host)).await;
                let read = read.unwrap_or_else(|_| Err(io::Error::other("reading broke off")));
                read.map_err(|error| failed("read", &shown, error))?
            }
        };
        let mut frames: Vec<(u8, &[u8])> = vec![(ask::WRITE, &head)];
        frames.extend(bytes.chunks(PIECE).map(|piece| (ask::CONTENT, piece)));
        frames.push((ask::CLOSE, &[]));
        let mut answer = self.ask(&frames);
        let put = match answer.recv().await {
            Some(Told::Done(errno)) => checked(errno),
            _ => Err(gone()),
        };
        put.map_err(|error| failed("put", path.as_str(), error))
    }

    /// What is in a directory below the work directory.
    async fn entries(&self, path: &[u8]) -> io::Result<Vec<(Vec<u8>, u32, u64)>> {
        let mut answer = self.ask(&[(ask::LIST, path)]);
        let mut entries = Vec::new();
        loop {
            match answer.recv().await.ok_or_else(gone)? {
                Told::Entry { mode, size, name } if entries.len() < MOST_ENTRIES => {
                    entries.push((name, mode, size));
                }
                Told::Done(errno) => {
                    checked(errno)?;
                    entries.sort();
                    return Ok(entries);
                }
                _ => return Err(gone()),
            }
        }
    }

    /// Takes files out of the work directory, at most `limit` bytes in all. A directory gives all regular files below it.
    pub(crate) async fn collect(&self, paths: &[GuestPath], limit: u64) -> Vec<CollectedFile> {
        let mut collector = Collector {
            line: self,
            files: Vec::new(),
            room: limit,
        };
        for path in paths {
            let before = collector.files.len();
            collector.take(path.as_str().as_bytes().to_vec()).await;
            if collector.files.len() >= MOST_FILES && before < MOST_FILES {
                let reason = format!("not all of it: more than {MOST_FILES} files were asked for");
                collector.refuse(path.as_str().as_bytes(), reason);
            }
        }
        collector.files
    }
}

/// Opens a file of the host that a request names; only regular ones.
fn read_host_file(path: &std::path::Path) -> io::Result<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = rustix::fs::open(path, flags, Mode::empty())?;
    if !FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode).is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let mut bytes = Vec::new();
    io::Read::read_to_end(&mut File::from(file), &mut bytes)?;
    Ok(bytes)
}

struct Collector<'a> {
    line: &'a Line,
    files: Vec<CollectedFile>,
    room: u64,
}

impl Collector<'_> {
    /// Takes what stands at `top` and, of a directory, everything below it, in order.
    async fn take(&mut self, top: Vec<u8>) {
        let mut left = vec![(top, 0)];
        while let Some((path, depth)) = left.pop() {
            if self.files.len() >= MOST_FILES {
                return;
            }
            // What is too large is told by its size, before any of it is asked for.
            let found = match self.line.fetch(&path, 0).await {
                Ok(found) => found,
                Err(error) => {
                    self.refuse(&path, reason(&error));
                    continue;
                }
            };
            match found.kind() {
                FileType::RegularFile => self.take_file(&path, &found).await,
                FileType::Directory if depth >= MAX_DEPTH => {
                    self.refuse(&path, format!("deeper than {MAX_DEPTH} directories"));
                }
                FileType::Directory => match self.line.entries(&path).await {
                    Ok(entries) => {
                        let below = entries.into_iter().rev();
                        left.extend(below.map(|(name, ..)| ([&path[..], b"/", &name].concat(), depth + 1)));
                    }
                    Err(error) => self.refuse(&path, reason(&error)),
                },
                other => self.refuse(&path, format!("a {}, not a regular file", kind(other))),
            }
        }
    }

    async fn take_file(&mut self, path: &[u8], found: &Found) {
        if found.size > self.room {
            let text = format!(
                "{} bytes are more than the {} left of the output limit",
                found.size, self.room
            );
            return self.refuse(path, text);
        }
        if found.size == 0 {
            return self.keep(path, Vec::new(), found.is_executable());
        }
        match self.line.fetch(path, self.room.max(1)).await {
            Ok(read) if read.bytes.len() as u64 <= self.room => {
                let executable = read.is_executable();
                self.keep(path, read.bytes, executable);
            }
            Ok(_) => self.refuse(path, "it grew beyond the output limit".to_owned()),
            Err(error) => self.refuse(path, reason(&error)),
        }
    }

    fn keep(&mut self, path: &[u8], bytes: Vec<u8>, executable: bool) {
        let size = bytes.len() as u64;
        self.room = self.room.saturating_sub(size);
        self.files.push(CollectedFile {
            path: escape_name(path),
            state: FileState::Collected {
                size,
                executable,
                bytes,
            },
        });
    }

    fn refuse(&mut self, path: &[u8], reason: String) {
        self.files.push(CollectedFile {
            path: escape_name(path),
            state: FileState::Refused { reason },
        });
    }
}

fn reason(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::ENOENT) => "not there".to_owned(),
        Some(libc::ELOOP) => "a symbolic link, or behind one".to_owned(),
        Some(libc::EACCES) => "made unreadable by the guest".to_owned(),
        Some(libc::EXDEV) => "outside of the work directory's own file system".to_owned(),
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

/// The files of a sandbox that is alive.
#[derive(Debug)]
pub(crate) struct AgentFiles {
    pub line: Arc<Line>,
    /// The largest file that there can be.
    pub largest: u64,
}

impl AgentFiles {
    /// Has the line's own runtime ask, and waits: whoever calls this may have none, or stand in one.
    fn wait<T: Send + 'static>(
        &self,
        work: impl Future<Output = io::Result<T>> + Send + 'static,
    ) -> io::Result<T> {
        let (answer, answered) = std::sync::mpsc::channel();
        self.line.runtime().spawn(async move {
            let _ = answer.send(work.await);
        });
        match answered.recv_timeout(ANSWERING) {
            Ok(answer) => answer,
            Err(RecvTimeoutError::Disconnected) => Err(gone()),
            // Whatever keeps it, a guest can; so that is the end of the guest.
            Err(RecvTimeoutError::Timeout) => {
                self.line.hang_up();
                Err(io::ErrorKind::TimedOut.into())
            }
        }
    }
}

impl Filing for AgentFiles {
    fn read(&self, path: &GuestPath) -> io::Result<ReadFile> {
        let (line, path) = (Arc::clone(&self.line), path.as_str().as_bytes().to_vec());
        let largest = self.largest;
        self.wait(async move { copy(&line, &path, largest).await })
    }

    fn list(&self, path: &[u8]) -> io::Result<Vec<Listed>> {
        let (line, path) = (Arc::clone(&self.line), path.to_vec());
        self.wait(async move {
            let entries = line.entries(&path).await?;
            Ok(entries
                .into_iter()
                .map(|(name, mode, size)| Listed { name, mode, size })
                .collect())
        })
    }

    fn remove(&self, path: &GuestPath) -> io::Result<()> {
        let mut answer = self.line.ask(&[(ask::REMOVE, path.as_str().as_bytes())]);
        self.wait(async move {
            match answer.recv().await {
                Some(Told::Done(errno)) => checked(errno),
                _ => Err(gone()),
            }
        })
    }
}

/// A copy of a regular file, which is not larger than `largest`.
async fn copy(line: &Line, path: &[u8], largest: u64) -> io::Result<ReadFile> {
    let found = line.fetch(path, 0).await?;
    match found.kind() {
        FileType::RegularFile => {}
        FileType::Directory => return Err(io::Error::other("it is a directory")),
        FileType::Symlink => return Err(io::Error::from_raw_os_error(libc::ELOOP)),
        _ => return Err(io::Error::other("it is no regular file")),
    }
    if found.size > largest {
        return Err(io::Error::from_raw_os_error(libc::EFBIG));
    }
    // It may be larger than anybody wants to hold: the kernel holds it.
    let memory = rustix::fs::memfd_create("belljar-file", MemfdFlags::CLOEXEC)?;
    let mut file = File::from(memory);
    // One that grows meanwhile gives what it had.
    let mut left = found.size;
    let mut keep = |piece: &[u8]| {
        let count = piece.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        left -= count as u64;
        file.write_all(&piece[..count])
    };
    let mode = match line.read(0, path, found.size.max(1), &mut keep).await {
        Err(error) if error.raw_os_error() == Some(libc::EFBIG) => found.mode,
        read => read?.mode,
    };
    let size = file.metadata()?.len();
    io::Seek::rewind(&mut file)?;
    Ok(ReadFile {
        file,
        size,
        executable: mode & 0o111 != 0,
    })
}
