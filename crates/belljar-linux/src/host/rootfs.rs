//! What the `host` environment shows: what an interpreter needs and nothing else.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use belljar_core::egress::RESOLV_CONF;

use crate::wire::{Tree, TreeKind};

/// The fixed part of every guest's root.
#[derive(Clone, Debug, Default)]
pub(crate) struct HostRoot {
    pub trees: Vec<Tree>,
    pub links: Vec<(String, String)>,
    pub files: Vec<(String, Vec<u8>)>,
}

/// Directories at the top that are part of the system, or links into `/usr`.
const TOP: [&str; 7] = ["/usr", "/bin", "/sbin", "/lib", "/lib64", "/lib32", "/libx32"];

/// Entries of `/etc` that programs need and that hold no secrets. Never `/etc` as a whole.
const ETC: [&str; 13] = [
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "alternatives",
    "ssl/certs",
    "ssl/openssl.cnf",
    "pki/tls/certs",
    "fonts",
    "mime.types",
    "services",
    "protocols",
    "perl",
    "php",
];
/// Beginnings of further such entries: `java-17-openjdk`, `python3.11`.
const ETC_PREFIXES: [&str; 3] = ["java-", "python3", "lua"];

/// Places in a root of its own that are made for each sandbox.
const OURS: [&str; 7] = ["/proc", "/dev", "/sys", "/tmp", "/run", "/workspace", "/.belljar"];

const DEVICES: [&str; 5] = ["null", "zero", "full", "random", "urandom"];

const PASSWD: &[u8] = b"root:x:0:0:root:/nonexistent:/bin/false\n\
guest:x:1000:1000:guest:/workspace:/bin/sh\n\
nobody:x:65534:65534:nobody:/nonexistent:/bin/false\n";
const GROUP: &[u8] = b"root:x:0:\nguest:x:1000:\nnogroup:x:65534:\n";

impl HostRoot {
    pub(crate) fn look() -> Self {
        let mut root = Self::default();
        for top in TOP {
            match fs::symlink_metadata(top) {
                Ok(found) if found.is_symlink() => {
                    if let Ok(target) = fs::read_link(top) {
                        root.links
                            .push((top.to_owned(), target.to_string_lossy().into_owned()));
                    }
                }
                Ok(found) if found.is_dir() => root.show(Path::new(top)),
                _ => {}
            }
        }
        for name in ETC {
            root.show_if_there(&Path::new("/etc").join(name));
        }
        let entries = fs::read_dir("/etc").into_iter().flatten().flatten();
        for entry in entries {
            let name = entry.file_name();
            if ETC_PREFIXES
                .iter()
                .any(|prefix| name.to_string_lossy().starts_with(prefix))
            {
                root.show_if_there(&entry.path());
            }
        }
        if let Ok(zone) = fs::read_link("/etc/localtime") {
            root.links
                .push(("/etc/localtime".to_owned(), zone.to_string_lossy().into_owned()));
        }
        root.add_usual();
        root
    }

    /// The root that stands at `path` on the host: an environment's own. Nothing of the host's is shown beside it.
    pub(crate) fn of(path: &Path) -> Self {
        let mut root = Self::default();
        let entries = fs::read_dir(path).into_iter().flatten().flatten();
        for entry in entries {
            let Ok(name) = entry.file_name().into_string() else {
                continue;
            };
            let Ok(kind) = entry.file_type() else { continue };
            let guest = format!("/{name}");
            if OURS.contains(&guest.as_str()) {
                continue;
            }
            if kind.is_symlink() {
                if let Ok(target) = fs::read_link(entry.path()) {
                    root.links.push((guest, target.to_string_lossy().into_owned()));
                }
            } else if kind.is_dir() {
                root.trees.push(Tree {
                    host: entry.path().into_os_string().into_encoded_bytes(),
                    guest,
                    kind: TreeKind::System,
                    is_dir: true,
                    writable: false,
                });
            }
        }
        root.add_usual();
        root
    }

    /// What every guest sees, whatever its root is.
    fn add_usual(&mut self) {
        for device in DEVICES {
            let path = format!("/dev/{device}");
            // It is shown writable, so it had better be what it is called.
            if fs::metadata(&path).is_ok_and(|found| found.file_type().is_char_device()) {
                self.trees.push(Tree {
                    host: path.clone().into_bytes(),
                    guest: path,
                    kind: TreeKind::Device,
                    is_dir: false,
                    writable: true,
                });
            }
        }
        for (place, target) in [
            ("/dev/fd", "/proc/self/fd"),
            ("/dev/stdin", "/proc/self/fd/0"),
            ("/dev/stdout", "/proc/self/fd/1"),
            ("/dev/stderr", "/proc/self/fd/2"),
            ("/var/tmp", "/tmp"),
        ] {
            self.links.push((place.to_owned(), target.to_owned()));
        }
        for (place, content) in [
            ("/etc/passwd", PASSWD),
            ("/etc/group", GROUP),
            (
                "/etc/hosts",
                b"127.0.0.1 localhost belljar\n::1 localhost\n".as_slice(),
            ),
            ("/etc/hostname", b"belljar\n"),
            (
                "/etc/nsswitch.conf",
                b"passwd: files\ngroup: files\nhosts: files dns\n",
            ),
            ("/etc/resolv.conf", RESOLV_CONF.as_bytes()),
        ] {
            self.files.push((place.to_owned(), content.to_vec()));
        }
        self.files.extend(super::runners::files());
        // A root of its own may have them: what is shown there stays as it is.
        let trees = std::mem::take(&mut self.trees);
        let shown = |place: &str| {
            trees
                .iter()
                .any(|tree| tree.is_dir && Path::new(place).starts_with(&tree.guest))
        };
        self.files.retain(|(place, _)| !shown(place));
        self.links.retain(|(place, _)| !shown(place));
        self.trees = trees;
    }

    /// Shows a directory or file where it stands, read-only.
    pub(crate) fn show(&mut self, path: &Path) {
        let Some(guest) = path.to_str() else { return };
        let covered = self
            .trees
            .iter()
            .any(|tree| tree.is_dir && path.starts_with(&tree.guest));
        if !covered {
            self.trees.push(Tree {
                host: guest.as_bytes().to_vec(),
                guest: guest.to_owned(),
                kind: TreeKind::System,
                is_dir: path.is_dir(),
                writable: false,
            });
        }
    }

    fn show_if_there(&mut self, path: &Path) {
        // A link is shown as what it leads to; one that leads nowhere is left out.
        if fs::metadata(path).is_ok_and(|found| found.is_dir() || found.is_file()) && readable(path) {
            self.show(path);
        }
    }
}

fn readable(path: &Path) -> bool {
    rustix::fs::access(path, rustix::fs::Access::READ_OK).is_ok()
}

/// Whether a directory holds a person's things: a home, what holds homes, or `.local` within one.
pub(crate) fn is_private(dir: &Path) -> bool {
    let home = std::env::var_os("HOME")
        .map(PathBuf::from)
        .filter(|home| home.is_absolute());
    let homes = [home, Some(PathBuf::from("/root"))];
    let of_someone = homes
        .iter()
        .flatten()
        .any(|home| home.starts_with(dir) || dir == home.join(".local"));
    of_someone || dir.parent() == Some(Path::new("/home")) || dir == Path::new("/home")
}

/// Whether a path lies in what every guest sees anyway.
pub(crate) fn is_system(path: &Path) -> bool {
    TOP.iter().any(|top| path.starts_with(top)) && !path.starts_with("/usr/home")
}

/// The directory that may be shown so that `program` works: its installation prefix, if it has
/// one that holds nothing else; never a home directory or the root.
pub(crate) fn prefix_of(program: &Path) -> Option<PathBuf> {
    if is_system(program) {
        return None;
    }
    let text = program.to_str()?;
    if let Some(at) = text.find("/node_modules/") {
        return Some(PathBuf::from(&text[..at + "/node_modules".len()]));
    }
    let prefix = program.parent()?.parent()?;
    let is_prefix = program.parent()?.ends_with("bin") && prefix.join("lib").is_dir();
    if is_private(prefix) || !is_prefix || prefix.components().count() < 3 {
        Some(program.to_path_buf())
    } else {
        Some(prefix.to_path_buf())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_home_is_never_shown_as_a_whole() {
        let home = std::env::var("HOME").unwrap_or_else(|_| "/root".to_owned());
        let program = PathBuf::from(&home).join("bin/tool");
        assert_eq!(prefix_of(&program), Some(program));
        let program = PathBuf::from(&home).join(".local/bin/tool");
        assert_eq!(prefix_of(&program), Some(program));
        assert!(is_private(Path::new("/")) && is_private(Path::new("/home/someone")));
        assert!(!is_private(Path::new("/opt/tools")));
        assert_eq!(prefix_of(Path::new("/usr/bin/python3")), None);
        assert_eq!(prefix_of(Path::new("/bin/sh")), None);
    }

    #[test]
    fn etc_is_shown_in_parts_only() {
        let root = HostRoot::look();
        assert!(
            root.trees
                .iter()
                .all(|tree| tree.guest != "/etc" && tree.guest != "/")
        );
        assert!(
            root.trees
                .iter()
                .all(|tree| !tree.guest.contains("shadow") && !tree.guest.contains("private"))
        );
        assert!(
            root.trees
                .iter()
                .filter(|tree| tree.kind == TreeKind::System)
                .all(|tree| !tree.writable)
        );
    }
}
