//! A built tree: sealed against change, summed up, removed.
//!
//! By the time of any of this the sandbox that made the tree is gone, so nothing moves under us. No
//! link is followed.

use std::fs::{self, File, Permissions};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::manifest::{TreeSum, hex};

/// The most files that a tree may have.
const MOST_FILES: u64 = 2_000_000;

/// Takes the right to write from everything, makes it ours and readable for all.
pub(super) fn seal(root: &Path) -> io::Result<()> {
    let (uid, gid) = (
        rustix::process::geteuid().as_raw(),
        rustix::process::getegid().as_raw(),
    );
    for path in walk(root)? {
        let found = fs::symlink_metadata(&path)?;
        // Where owners cannot be mapped, the guest's own uid is on what it made.
        if (found.uid(), found.gid()) != (uid, gid) && rustix::process::geteuid().is_root() {
            std::os::unix::fs::lchown(&path, Some(uid), Some(gid))?;
        }
        if found.is_symlink() {
            continue;
        }
        // Every other bit goes: no setuid file can come out of a build.
        let executable = found.is_dir() || found.mode() & 0o111 != 0;
        let mode = if executable { 0o555 } else { 0o444 };
        fs::set_permissions(&path, Permissions::from_mode(mode))?;
    }
    Ok(())
}

/// Reads all of a tree and sums it up.
pub(super) fn sum(root: &Path) -> io::Result<TreeSum> {
    let mut hash = Sha256::new();
    let (mut files, mut bytes) = (0, 0);
    for path in walk(root)? {
        let found = fs::symlink_metadata(&path)?;
        let name = path.strip_prefix(root).unwrap_or(&path).as_os_str().as_bytes();
        let mut entry = |kind: u8, content: &[u8]| {
            hash.update([kind]);
            for part in [name, content] {
                hash.update((part.len() as u64).to_le_bytes());
                hash.update(part);
            }
        };
        if found.is_symlink() {
            entry(b'l', fs::read_link(&path)?.as_os_str().as_bytes());
        } else if found.is_dir() {
            entry(b'd', &[]);
        } else {
            let (content, size) = hash_file(&path)?;
            files += 1;
            bytes += size;
            entry(if found.mode() & 0o111 == 0 { b'f' } else { b'x' }, &content);
        }
    }
    Ok(TreeSum {
        sha256: hex(&hash.finalize()),
        files,
        bytes,
    })
}

/// The SHA-256 of a file, and its size.
pub(super) fn hash_file(path: &Path) -> io::Result<(Vec<u8>, u64)> {
    let mut file = File::open(path)?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 16];
    let mut size = 0;
    loop {
        let count = file.read(&mut buffer)?;
        if count == 0 {
            return Ok((hash.finalize().to_vec(), size));
        }
        size += count as u64;
        hash.update(&buffer[..count]);
    }
}

/// Everything below `root` and itself, in the order of names. What is neither a file, a directory nor
/// a link is an error: no package has any.
fn walk(root: &Path) -> io::Result<Vec<PathBuf>> {
    let mut all = vec![root.to_owned()];
    let mut waiting = vec![root.to_owned()];
    while let Some(dir) = waiting.pop() {
        for entry in fs::read_dir(&dir)? {
            let entry = entry?;
            let kind = entry.file_type()?;
            if kind.is_fifo() || kind.is_socket() || kind.is_char_device() || kind.is_block_device() {
                return Err(io::Error::other(format!(
                    "{} is no file, directory or link",
                    entry.path().display()
                )));
            }
            if kind.is_dir() {
                waiting.push(entry.path());
            }
            all.push(entry.path());
            if all.len() as u64 > MOST_FILES {
                return Err(io::Error::other("it has too many files"));
            }
        }
    }
    all.sort();
    Ok(all)
}

/// Removes a tree, sealed or not; one that is not there is removed already.
pub(super) fn remove(root: &Path) -> io::Result<()> {
    let mut waiting = vec![root.to_owned()];
    while let Some(dir) = waiting.pop() {
        match fs::symlink_metadata(&dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Ok(found) if found.is_dir() => {}
            other => {
                other?;
                continue;
            }
        }
        // A directory that cannot be written to cannot be emptied.
        fs::set_permissions(&dir, Permissions::from_mode(0o700))?;
        for entry in fs::read_dir(&dir)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                waiting.push(entry.path());
            }
        }
    }
    match fs::remove_dir_all(root) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Place(PathBuf);

    impl Place {
        fn new() -> Self {
            let path = std::env::temp_dir().join(crate::fresh_id("belljar-tree"));
            fs::create_dir_all(path.join("lib/x")).unwrap();
            fs::write(path.join("lib/x/a.py"), "a = 1").unwrap();
            fs::write(path.join("run"), "#!").unwrap();
            fs::set_permissions(path.join("run"), Permissions::from_mode(0o6777)).unwrap();
            std::os::unix::fs::symlink("lib", path.join("lib64")).unwrap();
            Self(path)
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = remove(&self.0);
        }
    }

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().mode() & 0o7777
    }

    #[test]
    fn a_sealed_tree_can_be_read_by_all_and_changed_by_nobody() {
        let place = Place::new();
        seal(&place.0).unwrap();
        assert_eq!(mode(&place.0.join("lib/x/a.py")), 0o444);
        assert_eq!(mode(&place.0.join("run")), 0o555);
        assert_eq!(mode(&place.0.join("lib")), 0o555);
        remove(&place.0).unwrap();
        assert!(!place.0.exists());
        remove(&place.0).unwrap();
    }

    #[test]
    fn every_change_changes_the_sum() {
        let place = Place::new();
        let first = sum(&place.0).unwrap();
        assert_eq!((first.files, first.bytes), (2, 7));
        assert_eq!(first, sum(&place.0).unwrap());
        type Change = fn(&Path);
        let changes: [Change; 5] = [
            |root| fs::write(root.join("lib/x/a.py"), "a = 2").unwrap(),
            |root| fs::write(root.join("lib/x/b.py"), "").unwrap(),
            |root| fs::create_dir(root.join("empty")).unwrap(),
            |root| fs::set_permissions(root.join("run"), Permissions::from_mode(0o644)).unwrap(),
            |root| {
                fs::remove_file(root.join("lib64")).unwrap();
                std::os::unix::fs::symlink("/etc", root.join("lib64")).unwrap();
            },
        ];
        let mut seen = vec![first.sha256];
        for change in changes {
            change(&place.0);
            let sum = sum(&place.0).unwrap().sha256;
            assert!(!seen.contains(&sum));
            seen.push(sum);
        }
    }

    #[test]
    fn a_pipe_in_a_tree_is_an_error_and_is_not_opened() {
        let place = Place::new();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            place.0.join("pipe"),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RWXU,
            0,
        )
        .unwrap();
        assert!(sum(&place.0).is_err() && seal(&place.0).is_err());
    }

    #[test]
    fn removing_follows_no_link() {
        let (place, outside) = (Place::new(), Place::new());
        std::os::unix::fs::symlink(&outside.0, place.0.join("out")).unwrap();
        let before = mode(&outside.0);
        remove(&place.0).unwrap();
        assert_eq!(mode(&outside.0), before);
        assert!(outside.0.join("run").exists());
    }
}
