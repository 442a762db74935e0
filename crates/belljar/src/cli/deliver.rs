//! Puts what was taken out of the work directory where it was wanted.
//!
//! A guest chose the bytes and, below a wanted directory, the names; with a writable mount it may
//! have rearranged the host's side too. So every step starts at a directory that was opened before
//! the run, follows no link, and a file appears whole or not at all.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};

use belljar::{CollectedFile, FileState, GuestPath};
use belljar_engine::fresh_id;
use rustix::fs::{AtFlags, Mode, OFlags, mkdirat, openat, renameat, unlinkat};

use super::problem::Problem;
use super::settings::Output;

/// What came of the wanted files.
#[derive(Debug, Default)]
pub(crate) struct Delivery {
    /// What the guest's side did not give, a sentence each.
    pub(crate) missing: Vec<String>,
    /// What could not be written here.
    pub(crate) failed: Vec<Problem>,
}

/// Writes `files` to where `outputs` want them.
pub(crate) fn deliver(outputs: &[Output], files: &[CollectedFile]) -> Delivery {
    let mut delivery = Delivery::default();
    for output in outputs {
        let mut found = false;
        for file in files {
            let Some(below) = below(&output.guest, &file.path) else {
                continue;
            };
            found = true;
            match &file.state {
                FileState::Refused { reason } => {
                    delivery
                        .missing
                        .push(format!("`{}` was not taken: {reason}", file.path));
                }
                FileState::Collected {
                    bytes, executable, ..
                } => {
                    if let Err(error) = place(output, below, bytes, *executable) {
                        delivery.failed.push(Problem::engine(format!(
                            "cannot write `{}` to {}: {error}",
                            file.path,
                            output.shown.display()
                        )));
                    }
                }
            }
        }
        if !found {
            delivery
                .missing
                .push(format!("`{}` was not taken: nothing is there", output.guest));
        }
    }
    delivery
}

/// The rest of `path` below `wanted`; empty where it is the wanted one itself. `path` is escaped as
/// [`CollectedFile::path`] says, and its rest stays so: no byte of a guest's choice becomes part of
/// a name here that is not plain text.
fn below<'a>(wanted: &GuestPath, path: &'a str) -> Option<&'a str> {
    let mut rest = path.as_bytes();
    for byte in wanted.as_str().bytes() {
        let (found, after) = unescape_first(rest)?;
        rest = after;
        if found != byte {
            return None;
        }
    }
    let rest = path.get(path.len() - rest.len()..)?;
    match rest.strip_prefix('/') {
        Some(rest) => Some(rest),
        None => rest.is_empty().then_some(rest),
    }
}

/// The first byte that an escaped name stands for, and what follows it.
fn unescape_first(name: &[u8]) -> Option<(u8, &[u8])> {
    match name {
        [b'\\', b'\\', after @ ..] => Some((b'\\', after)),
        [b'\\', b'x', high, low, after @ ..] => {
            let digit = |byte: u8| char::from(byte).to_digit(16);
            let byte = u8::try_from(digit(*high)? * 16 + digit(*low)?).ok()?;
            Some((byte, after))
        }
        [byte, after @ ..] => Some((*byte, after)),
        [] => None,
    }
}

fn place(output: &Output, below: &str, bytes: &[u8], executable: bool) -> io::Result<()> {
    if below.is_empty() {
        return write_whole(output.directory.as_fd(), &output.name, bytes, executable);
    }
    // The collector gives plain relative paths; this holds it to that.
    let path = GuestPath::new(below).map_err(io::Error::other)?;
    let mut directory = enter(output.directory.as_fd(), &output.name)?;
    let mut names = path.parts().peekable();
    while let Some(name) = names.next() {
        if names.peek().is_some() {
            directory = enter(directory.as_fd(), OsStr::new(name))?;
        } else {
            write_whole(directory.as_fd(), OsStr::new(name), bytes, executable)?;
        }
    }
    Ok(())
}

/// Opens a directory below another, making it where it is not there.
fn enter(directory: impl AsFd, name: &OsStr) -> io::Result<OwnedFd> {
    match mkdirat(&directory, name, Mode::from_raw_mode(0o777)) {
        Ok(()) | Err(rustix::io::Errno::EXIST) => {}
        Err(error) => return Err(error.into()),
    }
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(&directory, name, flags, Mode::empty())?)
}

/// Writes a file under a name of its own, then gives it the wanted one.
fn write_whole(directory: impl AsFd, name: &OsStr, bytes: &[u8], executable: bool) -> io::Result<()> {
    let temporary = format!(".{}.tmp", fresh_id("belljar"));
    let mode = if executable { 0o777 } else { 0o666 };
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = openat(&directory, &temporary, flags, Mode::from_raw_mode(mode))?;
    let written = File::from(file)
        .write_all(bytes)
        .and_then(|()| Ok(renameat(&directory, &temporary, &directory, name)?));
    if written.is_err() {
        // The first error is the one to tell.
        let _ = unlinkat(&directory, &temporary, AtFlags::empty());
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;

    struct Place(PathBuf);

    impl Place {
        fn new() -> Self {
            let path = std::env::temp_dir().join(fresh_id("belljar-deliver"));
            fs::create_dir(&path).unwrap();
            Self(path)
        }

        fn output(&self, guest: &str, name: &str) -> Output {
            Output {
                guest: GuestPath::new(guest).unwrap(),
                directory: File::open(&self.0).unwrap(),
                name: name.into(),
                shown: self.0.join(name),
            }
        }

        fn names(&self) -> Vec<String> {
            let entries = fs::read_dir(&self.0).unwrap();
            let mut names: Vec<_> = entries
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect();
            names.sort();
            names
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn collected(path: &str, bytes: &[u8]) -> CollectedFile {
        CollectedFile {
            path: path.to_owned(),
            state: FileState::Collected {
                size: bytes.len() as u64,
                executable: path.ends_with(".sh"),
                bytes: bytes.to_vec(),
            },
        }
    }

    #[test]
    fn files_and_directories_land_where_they_are_wanted() {
        let place = Place::new();
        let outputs = [place.output("a/x.sh", "y.sh"), place.output("d", "d")];
        let files = [
            collected("a/x.sh", b"1"),
            collected("d/e/f", b"2"),
            collected("dx", b"3"),
        ];
        let delivery = deliver(&outputs, &files);
        assert!(
            delivery.missing.is_empty() && delivery.failed.is_empty(),
            "{delivery:?}"
        );
        assert_eq!(place.names(), ["d", "y.sh"]);
        assert_eq!(fs::read(place.0.join("d/e/f")).unwrap(), b"2");
        let mode = fs::metadata(place.0.join("y.sh")).unwrap().permissions().mode();
        assert_ne!(mode & 0o100, 0);
    }

    #[test]
    fn collected_paths_are_matched_unescaped() {
        let below = |wanted: &str, path| below(&GuestPath::new(wanted).unwrap(), path);
        assert_eq!(below("a", "a"), Some(""));
        assert_eq!(below("a", "a/b/c"), Some("b/c"));
        assert_eq!(below("a", "ab"), None);
        assert_eq!(below("a/b", "a"), None);
        assert_eq!(below("b\\s", "b\\\\s"), Some(""));
        assert_eq!(below("new\nline", "new\\x0aline/\\x1b[2J"), Some("\\x1b[2J"));
        assert_eq!(below("é", "é/x"), Some("x"));
    }

    #[test]
    fn a_planted_link_is_replaced_or_refused_but_never_followed() {
        let place = Place::new();
        let outside = Place::new();
        std::os::unix::fs::symlink(outside.0.join("canary"), place.0.join("x")).unwrap();
        std::os::unix::fs::symlink(&outside.0, place.0.join("d")).unwrap();
        let outputs = [place.output("x", "x"), place.output("d", "d")];
        let delivery = deliver(&outputs, &[collected("x", b"1"), collected("d/f", b"2")]);
        assert_eq!(delivery.failed.len(), 1, "{delivery:?}");
        assert!(outside.names().is_empty());
        assert!(fs::symlink_metadata(place.0.join("x")).unwrap().is_file());
    }

    #[test]
    fn names_that_leave_are_refused() {
        let place = Place::new();
        let delivery = deliver(&[place.output("d", "d")], &[collected("d/../../x", b"1")]);
        assert_eq!(delivery.failed.len(), 1);
        assert!(place.names().is_empty());
    }

    #[test]
    fn what_is_not_there_is_told_and_leaves_nothing() {
        let place = Place::new();
        let refused = CollectedFile {
            path: "a".to_owned(),
            state: FileState::Refused {
                reason: "it is a symbolic link".to_owned(),
            },
        };
        let delivery = deliver(&[place.output("a", "a"), place.output("b", "b")], &[refused]);
        assert_eq!(
            delivery.missing,
            [
                "`a` was not taken: it is a symbolic link",
                "`b` was not taken: nothing is there"
            ]
        );
        assert!(place.names().is_empty());
    }

    #[test]
    fn a_file_that_cannot_get_its_name_leaves_no_other() {
        let place = Place::new();
        fs::create_dir(place.0.join("x")).unwrap();
        let delivery = deliver(&[place.output("x", "x")], &[collected("x", b"1")]);
        assert_eq!(delivery.failed.len(), 1);
        assert_eq!(place.names(), ["x"]);
    }
}
