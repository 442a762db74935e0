//! Pictures and pages that cells show, saved under names of ours.

use std::fs::File;
use std::io::{self, Write};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use belljar::{Bytes, Display};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::cli::settings::Directory;

/// What is saved, the best first, with the ending of its file. Base64 but for text.
const KINDS: [(&str, &str, bool); 6] = [
    ("image/png", "png", true),
    ("image/jpeg", "jpg", true),
    ("image/gif", "gif", true),
    ("image/webp", "webp", true),
    ("image/svg+xml", "svg", false),
    ("text/html", "html", false),
];
/// How many names are tried.
const MOST_NAMES: u32 = 100_000;

/// What there is to say of a display.
#[derive(Debug, PartialEq)]
pub(super) enum Shown {
    /// Its plain text.
    Text(String),
    /// It was saved; where, and how large it is.
    Saved(String),
    /// It could not be saved.
    Failed(String),
}

/// Saves displays of one cell.
#[derive(Debug)]
pub(super) struct Pictures<'a> {
    directory: &'a Directory,
    cell: u64,
    next: u32,
}

impl<'a> Pictures<'a> {
    pub(super) const fn new(directory: &'a Directory, cell: u64) -> Self {
        Self {
            directory,
            cell,
            next: 1,
        }
    }

    /// Saves the picture that `display` has, or gives its text. A page is saved only where there is no text.
    pub(super) fn show(&mut self, display: &Display) -> Shown {
        let plain = display.data.get("text/plain");
        let found = KINDS
            .iter()
            .find_map(|(mime, ending, encoded)| Some((mime, ending, *encoded, display.data.get(*mime)?)));
        let (mime, ending, encoded, data) = match (found, plain) {
            (Some((&"text/html", ..)) | None, Some(text)) => return Shown::Text(text.clone()),
            (Some(found), _) => found,
            (None, None) => {
                let kinds: Vec<_> = display.data.keys().map(String::as_str).collect();
                return Shown::Text(format!("(a display of {})", kinds.join(", ")));
            }
        };
        let bytes = if encoded {
            let packed: Vec<u8> = data.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
            match STANDARD.decode(packed) {
                Ok(bytes) => bytes,
                Err(error) => return Shown::Failed(format!("a display of {mime} is no base64: {error}")),
            }
        } else {
            data.as_bytes().to_vec()
        };
        match self.save(ending, &bytes) {
            Ok(name) => {
                let place = self.directory.shown.join(&name);
                let place = place.strip_prefix(".").unwrap_or(&place).display().to_string();
                Shown::Saved(format!("{place} ({})", Bytes::new(bytes.len() as u64)))
            }
            Err(error) => Shown::Failed(format!(
                "cannot save a display in {}: {error}",
                self.directory.shown.display()
            )),
        }
    }

    /// Under the next name that is free: nothing is ever written over.
    fn save(&mut self, ending: &str, bytes: &[u8]) -> io::Result<String> {
        for _ in 0..MOST_NAMES {
            let name = format!("belljar-{}-{}.{ending}", self.cell, self.next);
            self.next += 1;
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            match rustix::fs::openat(&self.directory.handle, &name, flags, Mode::from_raw_mode(0o644)) {
                Ok(file) => {
                    File::from(file).write_all(bytes)?;
                    return Ok(name);
                }
                Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn display(data: &[(&str, &str)]) -> Display {
        Display {
            data: data
                .iter()
                .map(|(mime, text)| ((*mime).to_owned(), (*text).to_owned()))
                .collect(),
            value: None,
        }
    }

    fn in_directory(work: impl FnOnce(&Directory)) {
        let path = std::env::temp_dir().join(format!("belljar-pictures-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        let handle = File::open(&path).unwrap();
        work(&Directory {
            handle,
            shown: path.clone(),
        });
        std::fs::remove_dir_all(&path).unwrap();
    }

    #[test]
    fn pictures_have_free_names_and_texts_are_texts() {
        in_directory(|directory| {
            std::fs::write(directory.shown.join("belljar-3-1.png"), "mine").unwrap();
            std::os::unix::fs::symlink("/nowhere", directory.shown.join("belljar-3-2.png")).unwrap();
            let mut pictures = Pictures::new(directory, 3);
            let png = display(&[("image/png", "aGVs\nbG8="), ("text/plain", "<Figure>")]);
            let Shown::Saved(place) = pictures.show(&png) else {
                panic!()
            };
            assert!(place.ends_with("belljar-3-3.png (5 B)"), "{place}");
            let content = std::fs::read(directory.shown.join("belljar-3-3.png")).unwrap();
            assert_eq!(content, b"hello");
            assert_eq!(
                std::fs::read(directory.shown.join("belljar-3-1.png")).unwrap(),
                b"mine"
            );

            let table = display(&[("text/html", "<table>"), ("text/plain", "a\n1")]);
            assert_eq!(pictures.show(&table), Shown::Text("a\n1".to_owned()));
            let page = display(&[("text/html", "<b>")]);
            assert!(
                matches!(pictures.show(&page), Shown::Saved(place) if place.contains("belljar-3-4.html"))
            );
            let svg = display(&[("image/svg+xml", "<svg/>")]);
            assert!(matches!(pictures.show(&svg), Shown::Saved(place) if place.contains("belljar-3-5.svg")));
            let bad = display(&[("image/png", "../../x")]);
            assert!(matches!(pictures.show(&bad), Shown::Failed(_)));
            let other = display(&[("text/latex", "x")]);
            assert_eq!(
                pictures.show(&other),
                Shown::Text("(a display of text/latex)".to_owned())
            );
        });
    }
}
