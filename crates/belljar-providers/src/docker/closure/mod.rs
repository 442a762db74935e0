//! A root file system out of this host's files: an environment, its interpreter, and what both need to run.
//!
//! Packages are whatever somebody uploaded. A link or a library's name that points out of what every guest sees is
//! not followed: an image must not carry what a package wished for out of somebody's home.

mod elf;
mod libraries;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};

use belljar_core::{Language, Toolchain};
use belljar_linux::host_root::{self, HostView};
use sha2::{Digest, Sha256};

use libraries::Libraries;

/// Directories that every guest sees.
const SYSTEM: [&str; 6] = ["/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc/alternatives"];
/// What of `/etc` programs need; no secrets among it.
const ETC: [&str; 7] = [
    "/etc/ld.so.cache",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
    "/etc/pki/tls/certs",
    "/etc/mime.types",
    "/etc/services",
    "/etc/protocols",
];
/// What programs look for without saying so anywhere.
const UNSAID: [&str; 3] = ["/usr/share/zoneinfo", "/usr/lib/locale/C.utf8", "/etc/localtime"];
/// A library that the C library loads when a thread ends early.
const UNSAID_LIBRARY: &str = "libgcc_s.so.1";
/// Programs that commands are made of.
const TOOLS: [&str; 73] = [
    "awk",
    "base64",
    "basename",
    "bash",
    "cat",
    "chmod",
    "cmp",
    "comm",
    "cp",
    "cut",
    "date",
    "dd",
    "df",
    "diff",
    "dirname",
    "du",
    "echo",
    "env",
    "expr",
    "false",
    "find",
    "fold",
    "grep",
    "gunzip",
    "gzip",
    "head",
    "id",
    "join",
    "ln",
    "ls",
    "md5sum",
    "mkdir",
    "mktemp",
    "mv",
    "nl",
    "nproc",
    "od",
    "paste",
    "printenv",
    "printf",
    "pwd",
    "readlink",
    "realpath",
    "rev",
    "rm",
    "rmdir",
    "sed",
    "seq",
    "sh",
    "sha256sum",
    "shuf",
    "sleep",
    "sort",
    "split",
    "stat",
    "tac",
    "tail",
    "tar",
    "tee",
    "test",
    "timeout",
    "touch",
    "tr",
    "true",
    "truncate",
    "tty",
    "uname",
    "uniq",
    "wc",
    "which",
    "whoami",
    "xargs",
    "yes",
];
/// Parts of the standard library that are other packages, or nobody's business at run time.
const LEFT_OUT: [&str; 5] = ["site-packages", "dist-packages", "test", "idlelib", "config-*"];
/// As many as the kernel follows.
const MOST_LINKS: u32 = 40;
/// Raised when a root for the same files would be another one.
const FORM: u8 = 1;

/// Which of these languages run in such a root beside the environment's own.
pub(super) fn languages(wanted: &[Language]) -> BTreeMap<Language, Toolchain> {
    let found = wanted.iter().filter(|language| **language == Language::Bash);
    found
        .filter_map(|language| Some((*language, belljar_linux::find_toolchain(*language, false)?)))
        .collect()
}

/// What goes into the root, by where it stands here and there.
#[derive(Debug, Default)]
pub(super) struct Closure {
    entries: BTreeMap<PathBuf, Entry>,
    /// Programs and libraries whose needs have not been looked at.
    unread: Vec<PathBuf>,
    /// What may be followed into beside the system's own: where it really stands, and as it was named.
    shown: Vec<PathBuf>,
    named: Vec<PathBuf>,
}

#[derive(Debug)]
enum Entry {
    Directory,
    Link(PathBuf),
    /// As it is here.
    File,
    Made(Vec<u8>),
}

impl Closure {
    /// What the environment needs that shows these. One of them is its tree, with the interpreter in `bin/python`.
    pub(super) fn of_environment(shows: &[PathBuf]) -> io::Result<Self> {
        let real = |path: &PathBuf| fs::canonicalize(path).unwrap_or_else(|_| path.clone());
        let mut closure = Self {
            shown: shows.iter().map(real).collect(),
            named: shows.to_vec(),
            ..Self::default()
        };
        let libraries = Libraries::look();
        let HostView { links, files, .. } = host_root::bare();
        for (place, target) in links {
            closure.entries.insert(place.into(), Entry::Link(target.into()));
        }
        for (place, content) in files {
            closure.make_above(Path::new(&place));
            closure.entries.insert(place.into(), Entry::Made(content));
        }
        for tree in shows {
            let program = tree.join("bin/python");
            match fs::canonicalize(&program) {
                // The interpreter's own installation: of that, what programs need.
                Ok(program) if program.starts_with(fs::canonicalize(tree)?) => {}
                Ok(end) => {
                    closure.add_tree(tree, &[])?;
                    closure.add(&program)?;
                    closure.add_standard_library(tree, &end)?;
                }
                Err(_) => closure.add_tree(tree, &[])?,
            }
        }
        for tool in TOOLS {
            let found = ["/usr/bin", "/bin"].map(|dir| Path::new(dir).join(tool));
            if let Some(path) = found.iter().find(|path| path.is_file()) {
                // One that is a link to somebody's own is not for everybody.
                let _ = closure.add(path);
            }
        }
        for path in ETC.into_iter().chain(UNSAID).map(Path::new) {
            if path.exists() {
                closure.add_tree(path, &[])?;
            }
        }
        if let Some(library) = libraries.find(UNSAID_LIBRARY, &[]) {
            closure.add(&library)?;
        }
        closure.add_needs(&libraries);
        Ok(closure)
    }

    /// Changes with every file that goes in.
    pub(super) fn sum(&self) -> String {
        let mut hash = Sha256::new_with_prefix([FORM]);
        let mut put = |bytes: &[u8]| {
            hash.update((bytes.len() as u64).to_le_bytes());
            hash.update(bytes);
        };
        for (path, entry) in &self.entries {
            put(path.as_os_str().as_bytes());
            match entry {
                Entry::Directory => put(b"directory"),
                Entry::Link(target) => put(target.as_os_str().as_bytes()),
                Entry::Made(content) => put(content),
                Entry::File => {
                    let found = fs::metadata(path).map_or((0, 0, 0), |found| {
                        (found.size(), found.mtime(), found.mtime_nsec())
                    });
                    put(format!("{found:?}").as_bytes());
                }
            }
        }
        hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Writes everything, owned by root.
    pub(super) fn write(&self, archive: &mut tar::Builder<impl io::Write>) -> io::Result<()> {
        for (path, entry) in &self.entries {
            let Ok(within) = path.strip_prefix("/") else {
                continue;
            };
            if within.as_os_str().is_empty() {
                continue;
            }
            let mut header = tar::Header::new_gnu();
            header.set_uid(0);
            header.set_gid(0);
            header.set_mtime(1);
            header.set_size(0);
            match entry {
                Entry::Directory => {
                    header.set_mode(0o755);
                    header.set_entry_type(tar::EntryType::Directory);
                    archive.append_data(&mut header, within, io::empty())?;
                }
                Entry::Link(target) => {
                    header.set_mode(0o777);
                    header.set_entry_type(tar::EntryType::Symlink);
                    archive.append_link(&mut header, within, target)?;
                }
                Entry::Made(content) => {
                    header.set_mode(0o644);
                    header.set_size(content.len() as u64);
                    archive.append_data(&mut header, within, content.as_slice())?;
                }
                Entry::File => {
                    let file = fs::File::open(path)?;
                    let found = file.metadata()?;
                    header.set_size(found.len());
                    header.set_mode(found.permissions().mode() & 0o755);
                    header.set_mtime(u64::try_from(found.mtime()).unwrap_or(1));
                    archive.append_data(&mut header, within, io::Read::take(file, found.len()))?;
                }
            }
        }
        Ok(())
    }

    /// The part of the interpreter's installation that everything needs.
    fn add_standard_library(&mut self, tree: &Path, program: &Path) -> io::Result<()> {
        let Some(prefix) = program.parent().and_then(Path::parent) else {
            return Ok(());
        };
        // A virtual environment has a directory of the same name.
        for entry in fs::read_dir(tree.join("lib"))?.flatten() {
            let name = entry.file_name();
            for library in ["lib", "lib64"].map(|lib| prefix.join(lib).join(&name)) {
                if name.as_bytes().starts_with(b"python") && library.is_dir() {
                    self.add_tree(&library, &LEFT_OUT)?;
                }
            }
        }
        Ok(())
    }

    /// Adds a path: all directories and links on the way, and what is at its end.
    fn add(&mut self, path: &Path) -> io::Result<()> {
        let mut rest = path.to_owned();
        let mut here = PathBuf::from("/");
        for _ in 0..MOST_LINKS {
            let mut followed = None;
            let mut parts = rest.components();
            while let Some(part) = parts.next() {
                match part {
                    Component::Normal(name) => here.push(name),
                    Component::ParentDir => {
                        here.pop();
                        continue;
                    }
                    _ => continue,
                }
                // A way that leads past what is for everybody tells what is there.
                if !self.is_on_the_way(&here) {
                    return Err(io::ErrorKind::PermissionDenied.into());
                }
                let found = fs::symlink_metadata(&here)?;
                if found.is_symlink() {
                    let target = fs::read_link(&here)?;
                    self.entries.insert(here.clone(), Entry::Link(target.clone()));
                    here.pop();
                    if target.is_absolute() {
                        here = PathBuf::from("/");
                    }
                    followed = Some(target.join(parts.as_path()));
                    break;
                }
                self.put(&here, &found);
            }
            match followed {
                Some(next) => rest = next,
                None => return Ok(()),
            }
        }
        Err(io::Error::from_raw_os_error(libc::ELOOP))
    }

    /// Adds a directory with all that is in it; links out of it only where that is for everybody.
    fn add_tree(&mut self, path: &Path, without: &[&str]) -> io::Result<()> {
        self.add(path)?;
        let path = fs::canonicalize(path)?;
        if !path.is_dir() {
            return Ok(());
        }
        for entry in fs::read_dir(&path)? {
            let entry = entry?;
            let place = entry.path();
            let found = entry.metadata()?;
            let name = entry.file_name();
            if without
                .iter()
                .any(|other| name == **other || is_prefix(other, &name))
            {
                continue;
            }
            if found.is_dir() {
                self.put(&place, &found);
                self.add_tree(&place, &[])?;
            } else if !found.is_symlink() {
                self.put(&place, &found);
            } else if self.is_for_everybody(&place) {
                self.add(&place)?;
            } else {
                self.entries
                    .insert(place.clone(), Entry::Link(fs::read_link(&place)?));
            }
        }
        Ok(())
    }

    fn put(&mut self, path: &Path, found: &fs::Metadata) {
        if found.is_dir() {
            self.entries.entry(path.to_owned()).or_insert(Entry::Directory);
        } else if found.is_file() && is_readable_by_all(found) && !self.entries.contains_key(path) {
            self.entries.insert(path.to_owned(), Entry::File);
            let name = path.file_name().unwrap_or_default().as_bytes();
            if found.permissions().mode() & 0o111 != 0 || name.windows(3).any(|part| part == b".so") {
                self.unread.push(path.to_owned());
            }
        }
    }

    fn make_above(&mut self, path: &Path) {
        for above in path.ancestors().skip(1) {
            self.entries.entry(above.to_owned()).or_insert(Entry::Directory);
        }
    }

    /// Adds what programs and libraries say that they need.
    fn add_needs(&mut self, libraries: &Libraries) {
        while let Some(path) = self.unread.pop() {
            let needs = elf::needs(&path);
            let found = needs
                .libraries
                .iter()
                .filter_map(|name| libraries.find(name, &needs.places));
            for needed in found.chain(needs.loader).collect::<Vec<_>>() {
                if self.is_for_everybody(&needed) {
                    // What is missing is missed when it is loaded, as it would be here.
                    let _ = self.add(&needed);
                }
            }
        }
    }

    /// Whether guests see what is at the end of that path anyway.
    fn is_for_everybody(&self, path: &Path) -> bool {
        let Ok(end) = fs::canonicalize(path) else {
            return false;
        };
        let readable = fs::metadata(&end).is_ok_and(|found| is_readable_by_all(&found));
        readable && self.seen().any(|place| end.starts_with(place)) && is_reachable_by_all(&end, &self.shown)
    }

    /// Whether a path is one that guests see, or leads there.
    fn is_on_the_way(&self, path: &Path) -> bool {
        self.seen()
            .any(|place| path.starts_with(place) || place.starts_with(path))
    }

    fn seen(&self) -> impl Iterator<Item = &Path> {
        let system = SYSTEM.iter().chain(&ETC).chain(&UNSAID).map(Path::new);
        let shown = self.shown.iter().chain(&self.named).map(PathBuf::as_path);
        system.chain(shown)
    }
}

/// Whether every guest could read it where it stands.
fn is_readable_by_all(found: &fs::Metadata) -> bool {
    let needed = if found.is_dir() { 0o005 } else { 0o004 };
    found.permissions().mode() & needed == needed
}

/// Whether every guest could come to it: what is shown as a whole can be come to, wherever it stands.
fn is_reachable_by_all(path: &Path, shown: &[PathBuf]) -> bool {
    let up_to = shown
        .iter()
        .find(|dir| path.starts_with(dir))
        .map(PathBuf::as_path);
    path.ancestors()
        .skip(1)
        .take_while(|above| Some(*above) != up_to)
        .all(|above| fs::metadata(above).is_ok_and(|found| found.permissions().mode() & 0o001 != 0))
}

/// Whether `pattern` ends in a star and `name` begins as it does.
fn is_prefix(pattern: &str, name: &std::ffi::OsStr) -> bool {
    let beginning = pattern.strip_suffix('*');
    beginning.is_some_and(|beginning| name.as_bytes().starts_with(beginning.as_bytes()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn has(closure: &Closure, path: &str) -> bool {
        closure.entries.contains_key(Path::new(path))
    }

    #[test]
    fn what_a_package_points_at_is_carried_only_where_every_guest_sees_it() {
        let dir = tempfile::tempdir().unwrap();
        let (tree, secret) = (dir.path().join("tree"), dir.path().join("secret"));
        fs::create_dir(&tree).unwrap();
        fs::write(&secret, "of somebody's home").unwrap();
        fs::write(tree.join("own"), "its own").unwrap();
        symlink(&secret, tree.join("link")).unwrap();
        symlink("../secret", tree.join("up")).unwrap();
        symlink("own", tree.join("inside")).unwrap();
        symlink("/usr/bin/env", tree.join("env")).unwrap();
        let closure = Closure::of_environment(std::slice::from_ref(&tree)).unwrap();
        assert!(!closure.entries.contains_key(&secret));
        for name in ["own", "link", "up", "inside", "env"] {
            assert!(closure.entries.contains_key(&tree.join(name)), "{name}");
        }
        assert!(has(&closure, "/usr/bin/env"));
    }

    /// What only root may read, and what lies beside the way to something that everybody may.
    #[test]
    fn what_not_everybody_can_read_is_not_carried() {
        let dir = tempfile::tempdir().unwrap();
        let tree = dir.path().join("tree");
        fs::create_dir_all(tree.join("closed")).unwrap();
        for (name, mode) in [("open", 0o644), ("key", 0o600), ("closed/inside", 0o644)] {
            fs::write(tree.join(name), "x").unwrap();
            fs::set_permissions(tree.join(name), fs::Permissions::from_mode(mode)).unwrap();
        }
        symlink("closed/inside", tree.join("link")).unwrap();
        fs::set_permissions(tree.join("closed"), fs::Permissions::from_mode(0o700)).unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o700)).unwrap();
        let mut closure = Closure::of_environment(std::slice::from_ref(&tree)).unwrap();
        assert!(closure.entries.contains_key(&tree.join("open")));
        assert!(!closure.entries.contains_key(&tree.join("key")));
        assert!(
            !closure.is_for_everybody(&tree.join("key")) && !closure.is_for_everybody(&tree.join("link"))
        );
        let secret = dir.path().join("secret");
        fs::create_dir(&secret).unwrap();
        assert!(closure.add(&secret.join("../tree/open")).is_err());
        assert!(!closure.entries.contains_key(&secret));
    }

    #[test]
    fn programs_come_with_their_libraries_and_nothing_else_of_the_host() {
        let dir = tempfile::tempdir().unwrap();
        let closure = Closure::of_environment(&[dir.path().to_owned()]).unwrap();
        let libc = closure.entries.keys().any(|path| {
            path.file_name()
                .is_some_and(|name| name.to_string_lossy().starts_with("libc.so"))
        });
        assert!(libc, "{:?}", closure.entries.keys());
        for path in ["/etc/shadow", "/root", "/home", "/var"] {
            assert!(!has(&closure, path), "{path}");
        }
        let passwd = closure.entries.get(Path::new("/etc/passwd"));
        assert!(matches!(passwd, Some(Entry::Made(_))), "{passwd:?}");
    }

    #[test]
    fn another_file_is_another_sum() {
        let dir = tempfile::tempdir().unwrap();
        let sum = || Closure::of_environment(&[dir.path().to_owned()]).unwrap().sum();
        let before = sum();
        assert_eq!(sum(), before);
        fs::write(dir.path().join("more"), "").unwrap();
        assert_ne!(sum(), before);
    }
}
