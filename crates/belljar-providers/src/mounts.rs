//! What a request mounts, opened without following a link: a policy permits paths, and a guest may have planted the link.

use std::io;
use std::os::fd::OwnedFd;

use belljar_core::ProviderError;
use belljar_core::mount::Mount;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};

use crate::agent::{Identity, Line};

/// A mount whose host side is held as it was found.
#[derive(Debug)]
pub(crate) struct OpenMount {
    file: OwnedFd,
    mount: Mount,
}

/// Opens all of them.
pub(crate) fn open(mounts: &[Mount]) -> Result<Vec<OpenMount>, ProviderError> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let opened = mounts.iter().map(|mount| {
        let file = openat2(CWD, mount.host(), flags, Mode::empty(), resolve);
        let file = file.map_err(|error| failed(mount, error.into()))?;
        Ok(OpenMount {
            file,
            mount: mount.clone(),
        })
    });
    opened.collect()
}

fn failed(mount: &Mount, source: io::Error) -> ProviderError {
    ProviderError::Io {
        operation: "mount",
        object: mount.host().display().to_string(),
        source,
    }
}

impl OpenMount {
    pub(crate) fn guest(&self) -> String {
        self.mount.guest().display().to_string()
    }

    fn compare(&self, seen: Identity) -> Result<(), ProviderError> {
        let own = rustix::fs::fstat(&self.file).map_err(|error| failed(&self.mount, error.into()))?;
        if seen == identity(&own) {
            return Ok(());
        }
        Err(failed(
            &self.mount,
            io::Error::other(
                "something else is shown there: the engine is on another machine, or a link led it astray",
            ),
        ))
    }

    /// Makes sure that an agent, before it has started anybody, sees there what was opened here and nothing else.
    pub(crate) async fn check(&self, line: &Line) -> Result<(), ProviderError> {
        let seen = line.look(&self.guest(), 0).await;
        self.compare(seen.map_err(|error| failed(&self.mount, error))?.identity)
    }

    /// The same for a process of this machine that brings what is mounted to the guest.
    pub(crate) fn check_in(&self, process: Option<i32>) -> Result<(), ProviderError> {
        let unseen = || {
            failed(
                &self.mount,
                io::Error::other("what was mounted cannot be looked at"),
            )
        };
        let path = format!("/proc/{}/root{}", process.ok_or_else(unseen)?, self.guest());
        let seen = rustix::fs::stat(&path).map_err(|error| failed(&self.mount, error.into()))?;
        self.compare(identity(&seen))
    }
}

/// As an agent tells it.
fn identity(found: &rustix::fs::Stat) -> Identity {
    let (major, minor) = (rustix::fs::major(found.st_dev), rustix::fs::minor(found.st_dev));
    let mut device = [0; 8];
    device[..4].copy_from_slice(&major.to_ne_bytes());
    device[4..].copy_from_slice(&minor.to_ne_bytes());
    Identity {
        device: u64::from_ne_bytes(device),
        inode: found.st_ino,
    }
}

#[cfg(test)]
mod tests {
    use belljar_core::mount::Access;

    use super::*;

    #[test]
    fn no_link_is_followed_and_what_is_shown_must_be_what_was_opened() {
        let dir = tempfile::tempdir().unwrap();
        let (one, other, link) = (
            dir.path().join("one"),
            dir.path().join("other"),
            dir.path().join("link"),
        );
        std::fs::create_dir(&one).unwrap();
        std::fs::create_dir(&other).unwrap();
        std::os::unix::fs::symlink(&other, &link).unwrap();
        let mount = |host: &std::path::Path, guest: &std::path::Path| {
            open(&[Mount::new(host, guest, Access::ReadWrite).unwrap()])
        };
        let refused = mount(&link, &one).unwrap_err().to_string();
        assert!(refused.contains("link"), "{refused}");
        let own = Some(std::process::id().cast_signed());
        assert!(mount(&one, &one).unwrap()[0].check_in(own).is_ok());
        // As it would be if a link had been there when the engine looked.
        assert!(mount(&one, &other).unwrap()[0].check_in(own).is_err());
        assert!(mount(&one, &one).unwrap()[0].check_in(None).is_err());
    }
}
