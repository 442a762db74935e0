//! Files on their way into a sandbox: init puts them into the work directory.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use belljar_core::request::{Content, FileIn};
use belljar_core::{GuestPath, Plan, ProviderError};
use rustix::fs::{Mode, OFlags};

use super::sandbox::failed;
use super::stdin;
use crate::wire::{InitEvent, InitRequest};

/// So many files are put while a sandbox is being raised, and so large. That must not take long, and nobody reads the answers
/// before all of them are sent.
const QUICK_FILES: usize = 16;
const QUICK_BYTES: usize = 1 << 20;

/// Whether that plan's files are put while its sandbox is being raised.
pub(crate) fn is_quick(plan: &Plan) -> bool {
    let sizes = plan.files().values().map(|file| match &file.content {
        Content::Inline(bytes) => bytes.len(),
        Content::HostFile(_) => usize::MAX,
    });
    plan.files().len() <= QUICK_FILES && sizes.fold(0, usize::saturating_add) <= QUICK_BYTES
}

/// What was tried, in an error about a file that could not be put.
pub(crate) const OPERATION: &str = "put";

/// A file on its way in.
#[derive(Debug)]
pub(crate) struct Put {
    path: String,
    executable: bool,
    content: OwnedFd,
}

impl Put {
    pub(crate) fn new((path, file): (&GuestPath, &FileIn)) -> Result<Self, ProviderError> {
        let content = match &file.content {
            Content::Inline(bytes) => {
                stdin::sealed(bytes).map_err(|error| failed("hold", path.as_str(), error))?
            }
            Content::HostFile(host) => {
                open_host_file(host).map_err(|error| failed("read", &host.to_string_lossy(), error))?
            }
        };
        Ok(Self {
            path: path.as_str().to_owned(),
            executable: file.executable,
            content,
        })
    }

    /// What init is told, with the content's descriptor.
    pub(crate) fn request(&self) -> (InitRequest, BorrowedFd<'_>) {
        let request = InitRequest::PutFile {
            path: self.path.clone(),
            executable: self.executable,
        };
        (request, self.content.as_fd())
    }

    /// What init says then.
    pub(crate) fn check(&self, event: io::Result<InitEvent>) -> Result<(), ProviderError> {
        let failed = |error| failed(OPERATION, &self.path, error);
        match event {
            Ok(InitEvent::FilePut) => Ok(()),
            Ok(InitEvent::FileFailed(failure)) => Err(failed(io::Error::from_raw_os_error(failure.errno))),
            Ok(_) => Err(ProviderError::Protocol("no answer about a file".to_owned())),
            Err(error) => Err(failed(error)),
        }
    }
}

/// Opens a file of the host that a request names; only regular ones.
fn open_host_file(path: &std::path::Path) -> io::Result<OwnedFd> {
    let file = rustix::fs::open(
        path,
        OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK,
        Mode::empty(),
    )?;
    let kind = rustix::fs::FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode);
    if kind.is_file() {
        Ok(file)
    } else {
        Err(io::Error::other("not a regular file"))
    }
}
