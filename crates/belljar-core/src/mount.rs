//! Host directories and files that a request wants to see inside: `HOST:GUEST[:ro|rw]`.

use std::fmt;
use std::path::{Component, Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::language::RUNNER_DIR;

/// What the guest may do with a mount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Access {
    #[default]
    ReadOnly,
    ReadWrite,
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ReadOnly => "ro",
            Self::ReadWrite => "rw",
        })
    }
}

/// One host path shown to the guest. Both paths are absolute and plain: no `..`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Mount {
    host: PathBuf,
    guest: PathBuf,
    access: Access,
}

/// Why a mount was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MountError {
    #[error("`{0}` is not a mount; write HOST:GUEST, HOST:GUEST:ro or HOST:GUEST:rw")]
    Form(String),
    #[error("mount access `{0}` is neither ro nor rw")]
    Access(String),
    #[error("the host side of a mount must be an absolute path without `..`, not `{0}`")]
    Host(String),
    #[error("the guest side of a mount must be an absolute path without `..`, not `{0}`")]
    Guest(String),
    #[error("nothing can be mounted at `{0}`: belljar builds that part of the guest's file system itself")]
    Reserved(String),
}

/// Where the guest's own file system must stay ours.
const RESERVED: [&str; 10] = [
    "/",
    RUNNER_DIR,
    "/proc",
    "/dev",
    "/sys",
    "/etc",
    "/usr",
    "/workspace",
    "/tmp",
    "/run",
];
/// The places below which a mount is fine although the place itself is ours.
const OPEN_BELOW: [&str; 2] = ["/workspace", "/tmp"];

impl Mount {
    pub fn new(host: &Path, guest: &Path, access: Access) -> Result<Self, MountError> {
        let host = plain(host).ok_or_else(|| MountError::Host(host.display().to_string()))?;
        let guest = plain(guest).ok_or_else(|| MountError::Guest(guest.display().to_string()))?;
        let reserved = RESERVED.iter().map(Path::new).any(|place| {
            guest == place
                || (place != Path::new("/")
                    && guest.starts_with(place)
                    && !OPEN_BELOW.iter().any(|open| place == Path::new(open)))
        });
        if reserved || is_system(&guest) {
            return Err(MountError::Reserved(guest.display().to_string()));
        }
        Ok(Self { host, guest, access })
    }

    pub fn host(&self) -> &Path {
        &self.host
    }

    pub fn guest(&self) -> &Path {
        &self.guest
    }

    pub const fn access(&self) -> Access {
        self.access
    }

    /// Reads `HOST:GUEST[:ro|rw]`; a relative host path is taken from `base`.
    pub fn parse(text: &str, base: &Path) -> Result<Self, MountError> {
        let mut parts = text.split(':');
        let (Some(host), Some(guest)) = (parts.next(), parts.next()) else {
            return Err(MountError::Form(text.to_owned()));
        };
        let access = match parts.next() {
            None | Some("ro") => Access::ReadOnly,
            Some("rw") => Access::ReadWrite,
            Some(other) => return Err(MountError::Access(other.to_owned())),
        };
        if parts.next().is_some() || host.is_empty() || guest.is_empty() || text.contains('\0') {
            return Err(MountError::Form(text.to_owned()));
        }
        Self::new(&base.join(host), Path::new(guest), access)
    }
}

impl fmt::Display for Mount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}:{}:{}",
            self.host.display(),
            self.guest.display(),
            self.access
        )
    }
}

impl FromStr for Mount {
    type Err = MountError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text, Path::new("/"))
    }
}

/// `/bin`, `/lib64` and their kind are links into `/usr` on most hosts.
fn is_system(guest: &Path) -> bool {
    guest.components().nth(1).is_some_and(|first| {
        let name = first.as_os_str().to_string_lossy();
        name == "bin" || name == "sbin" || name.starts_with("lib")
    })
}

/// The path with `.` parts removed, if it is absolute and has no `..`.
fn plain(path: &Path) -> Option<PathBuf> {
    if !path.is_absolute() || path.as_os_str().as_encoded_bytes().contains(&0) {
        return None;
    }
    path.components()
        .all(|part| !matches!(part, Component::ParentDir))
        .then(|| path.components().collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn mounts_are_read_with_read_only_as_default() {
        let mount: Mount = "/data:/workspace/data".parse().unwrap();
        assert_eq!(mount.to_string(), "/data:/workspace/data:ro");
        assert_eq!(mount.access(), Access::ReadOnly);
        let mount = Mount::parse("./x:/data:rw", Path::new("/home/a")).unwrap();
        assert_eq!(mount.host(), Path::new("/home/a/x"));
        assert_eq!(mount.access(), Access::ReadWrite);
    }

    #[test]
    fn bad_mounts_are_refused() {
        for text in [
            "",
            ":",
            "/a",
            "/a:",
            ":/b",
            "/a:/b:rx",
            "/a:/b:ro:x",
            "/a:b",
            "/a:/../b",
            "/a/../b:/c",
            "/a:/",
            "/a:/proc",
            "/a:/proc/sys",
            "/a:/dev/shm",
            "/a:/etc/x",
            "/a:/usr/lib/x",
            "/a:/workspace",
            "/a:/lib64",
            "/a:/bin",
            "/a:/tmp",
            "/a:/.belljar",
            "/a:/.belljar/agent",
            "/a\0:/b",
        ] {
            assert!(text.parse::<Mount>().is_err(), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_safe_mount_or_an_error(text in "[a/.:rwo\0-]{0,24}") {
            if let Ok(mount) = text.parse::<Mount>() {
                prop_assert!(mount.guest().is_absolute() && mount.host().is_absolute());
                let up = mount.guest().components().any(|part| part == Component::ParentDir);
                prop_assert!(!up);
                prop_assert_eq!(mount.to_string().parse(), Ok(mount));
            }
        }
    }
}
