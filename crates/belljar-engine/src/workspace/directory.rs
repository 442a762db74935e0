//! The base directory and what lies directly below it. Everything goes through directory handles.

use std::collections::BTreeSet;
use std::ffi::{CStr, CString};
use std::fs::DirBuilder;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use belljar_core::WorkspaceId;
use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags, Stat, fstat, mkdirat, openat, unlinkat};
use rustix::io::Errno;

use super::WorkspaceError;
use super::remove::{open_directory, remove_tree};

/// How often set-up tries again when a workspace's directory goes away under it.
const MOST_TRIES: usize = 100;

/// A handle on the base directory.
#[derive(Debug)]
pub(super) struct Base {
    handle: OwnedFd,
    path: PathBuf,
}

impl Base {
    /// Opens the base directory, and makes it where it is missing.
    pub(super) fn open_or_make(path: &Path) -> Result<Self, WorkspaceError> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path)
            .map_err(|source| base_error("create", path, source))?;
        Self::open(path)?.ok_or_else(|| base_error("open", path, Errno::NOENT.into()))
    }

    /// Opens the base directory if there is one.
    pub(super) fn open(path: &Path) -> Result<Option<Self>, WorkspaceError> {
        // The path is the caller's own, so a link in it is meant.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let handle = match openat(CWD, path, flags, Mode::empty()) {
            Ok(handle) => handle,
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(base_error("open", path, errno.into())),
        };
        let stat = fstat(&handle).map_err(|errno| base_error("look at", path, errno.into()))?;
        // Others who may rename in it could put their own directory in a sandbox's place.
        let sticky = stat.st_mode & 0o1000 != 0;
        if (!sticky && writable_by_others(&stat)) || !(owned_by_us(&stat) || stat.st_uid == 0) {
            let source = io::Error::new(
                io::ErrorKind::PermissionDenied,
                "other users can change what is in it; take one that only you can write to (chmod 700)",
            );
            return Err(base_error("use", path, source));
        }
        Ok(Some(Self {
            handle,
            path: path.to_owned(),
        }))
    }

    /// Makes `base/<workspace>/<id>`, for its owner only.
    pub(super) fn make_sandbox(&self, workspace: &WorkspaceId, id: &str) -> Result<(), WorkspaceError> {
        let root = self.path.join(workspace.as_str());
        let failed = |operation, object: &Path, errno: Errno| WorkspaceError::Setup {
            operation,
            object: object.display().to_string(),
            source: errno.into(),
        };
        for _ in 0..MOST_TRIES {
            match mkdirat(&self.handle, workspace.as_str(), Mode::RWXU) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(failed("create", &root, errno)),
            }
            let parent = match open_directory(self.handle.as_fd(), &c_name(workspace.as_str())) {
                Ok(parent) => parent,
                // The last sandbox of this workspace was just torn down, and its directory with it.
                Err(Errno::NOENT) => continue,
                Err(errno) => return Err(failed("open", &root, errno)),
            };
            let stat = fstat(&parent).map_err(|errno| failed("look at", &root, errno))?;
            if !owned_by_us(&stat) || writable_by_others(&stat) {
                // Below a shared base such as /tmp, somebody else was here first.
                return Err(failed("use", &root, Errno::PERM));
            }
            match mkdirat(&parent, id, Mode::RWXU) {
                Ok(()) => return Ok(()),
                Err(Errno::NOENT) => {}
                Err(errno) => return Err(failed("create", &root.join(id), errno)),
            }
        }
        Err(failed("create", &root, Errno::AGAIN))
    }

    /// What lies in a workspace's directory, without the names in `except`.
    pub(super) fn entries(
        &self,
        workspace: &WorkspaceId,
        except: &BTreeSet<&str>,
    ) -> Result<Vec<CString>, WorkspaceError> {
        let failed = |errno: Errno| self.teardown_error("list", workspace.as_str(), errno.into());
        let handle = match open_directory(self.handle.as_fd(), &c_name(workspace.as_str())) {
            Ok(handle) => handle,
            Err(Errno::NOENT) => return Ok(Vec::new()),
            Err(errno) => return Err(failed(errno)),
        };
        let mut names = Vec::new();
        for entry in Dir::new(handle).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name();
            let kept = name.to_str().is_ok_and(|name| except.contains(name));
            if !kept && !is_dots(name) {
                names.push(name.to_owned());
            }
        }
        Ok(names)
    }

    /// Removes `names` from a workspace's directory, and that directory too if it is empty then.
    /// Goes on after a failure and tells of the first one.
    pub(super) fn remove(&self, workspace: &WorkspaceId, names: &[CString]) -> Result<(), WorkspaceError> {
        let parent = match open_directory(self.handle.as_fd(), &c_name(workspace.as_str())) {
            Ok(parent) => parent,
            Err(Errno::NOENT) => return Ok(()),
            Err(errno) => return Err(self.teardown_error("open", workspace.as_str(), errno.into())),
        };
        let mut result = Ok(());
        for name in names {
            if let Err(failure) = remove_tree(parent.as_fd(), name) {
                let object = format!("{workspace}/{}", failure.object);
                result = result.and(Err(self.teardown_error(
                    failure.operation,
                    &object,
                    failure.source,
                )));
            }
        }
        match unlinkat(&self.handle, workspace.as_str(), AtFlags::REMOVEDIR) {
            // Another sandbox of this workspace lives in it.
            Ok(()) | Err(Errno::NOENT | Errno::NOTEMPTY | Errno::EXIST) => result,
            Err(errno) => result.and(Err(self.teardown_error(
                "remove",
                workspace.as_str(),
                errno.into(),
            ))),
        }
    }

    fn teardown_error(&self, operation: &'static str, object: &str, source: io::Error) -> WorkspaceError {
        WorkspaceError::Teardown {
            operation,
            object: self.path.join(object).display().to_string(),
            source,
        }
    }
}

/// A name for the kernel. Workspace and sandbox ids hold no NUL, so nothing is cut.
pub(super) fn c_name(name: &str) -> CString {
    CString::new(name).unwrap_or_default()
}

pub(super) fn is_dots(name: &CStr) -> bool {
    matches!(name.to_bytes(), b"." | b"..")
}

fn base_error(operation: &'static str, path: &Path, source: io::Error) -> WorkspaceError {
    WorkspaceError::Base {
        operation,
        object: path.display().to_string(),
        source,
    }
}

fn owned_by_us(stat: &Stat) -> bool {
    stat.st_uid == rustix::process::geteuid().as_raw()
}

const fn writable_by_others(stat: &Stat) -> bool {
    stat.st_mode & 0o022 != 0
}
