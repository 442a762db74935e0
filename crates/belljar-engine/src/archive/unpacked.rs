//! What has been taken out of an archive so far, and the rules that hold for every format.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;

use belljar_core::path::PathError;
use belljar_core::request::FileIn;
use belljar_core::{Bytes, GuestPath};

use super::{ArchiveError, MOST_ENTRIES};

/// The files of an archive while it is read.
#[derive(Debug)]
pub(super) struct Unpacked {
    object: String,
    limit: u64,
    /// How many more bytes may come.
    left: u64,
    entries: usize,
    files: BTreeMap<GuestPath, FileIn>,
    /// Directories with an entry of their own. They only matter where a file has the same name.
    directories: BTreeSet<GuestPath>,
}

/// The checked name of an entry.
#[derive(Debug)]
pub(super) struct EntryName {
    /// For messages.
    pub(super) shown: String,
    /// Absent for the top directory itself.
    path: Option<GuestPath>,
    /// Whether it is spelled as a directory.
    pub(super) directory: bool,
}

impl EntryName {
    pub(super) fn new(raw: &[u8]) -> Result<Self, ArchiveError> {
        let shown = show(raw);
        let Ok(text) = std::str::from_utf8(raw) else {
            return Err(ArchiveError::Name {
                entry: shown,
                flaw: "is not UTF-8",
            });
        };
        if text.chars().any(char::is_control) {
            return Err(ArchiveError::Name {
                entry: shown,
                flaw: "holds a control character",
            });
        }
        // A separator to whoever packed it or unpacks it elsewhere, a plain character here.
        if text.contains('\\') {
            return Err(ArchiveError::Name {
                entry: shown,
                flaw: "holds a backslash",
            });
        }
        let directory = text.ends_with('/') || text == "." || text.ends_with("/.");
        match GuestPath::new(text) {
            Ok(path) => Ok(Self {
                shown,
                path: Some(path),
                directory,
            }),
            // `tar -c .` begins with an entry for the directory itself.
            Err(PathError::Empty) if directory => Ok(Self {
                shown,
                path: None,
                directory,
            }),
            Err(source) => Err(ArchiveError::Path { entry: shown, source }),
        }
    }
}

impl Unpacked {
    pub(super) fn new(object: &str, limit: u64) -> Self {
        Self {
            object: object.to_owned(),
            limit,
            left: limit,
            entries: 0,
            files: BTreeMap::new(),
            directories: BTreeSet::new(),
        }
    }

    /// The archive's name, for messages.
    pub(super) fn object(&self) -> String {
        self.object.clone()
    }

    pub(super) fn malformed(&self, flaw: &'static str) -> ArchiveError {
        ArchiveError::Malformed {
            object: self.object(),
            flaw,
        }
    }

    /// Takes a directory. `size` is what its entry claims to hold.
    pub(super) fn directory(&mut self, name: EntryName, size: u64) -> Result<(), ArchiveError> {
        self.count()?;
        if size != 0 {
            return Err(ArchiveError::Kind {
                entry: name.shown,
                kind: "a directory that holds data",
            });
        }
        if let Some(path) = name.path {
            if self.files.contains_key(&path) {
                return Err(below_file(name.shown, &path));
            }
            self.directories.insert(path);
        }
        Ok(())
    }

    /// Takes a file whose bytes are `content` up to its end. `size` is what its entry claims; it
    /// serves to refuse early and is compared afterwards, never to allocate.
    pub(super) fn file(
        &mut self,
        name: EntryName,
        size: u64,
        content: impl Read,
        executable: bool,
    ) -> Result<(), ArchiveError> {
        self.count()?;
        let EntryName { shown, path, .. } = name;
        let Some(path) = path else {
            return Err(ArchiveError::Path {
                entry: shown,
                source: PathError::Empty,
            });
        };
        if self.files.contains_key(&path) {
            return Err(ArchiveError::Twice { entry: shown });
        }
        if self.directories.contains(&path) {
            return Err(below_file(shown, &path));
        }
        let too_large = |entry| ArchiveError::TooLarge {
            entry,
            limit: Bytes::new(self.limit),
        };
        if size > self.left {
            return Err(too_large(shown));
        }
        let mut bytes = Vec::new();
        if let Err(source) = content.take(self.left.saturating_add(1)).read_to_end(&mut bytes) {
            return Err(ArchiveError::Io {
                operation: "unpack",
                object: format!("`{shown}`"),
                source,
            });
        }
        let read = bytes.len() as u64;
        if read > self.left {
            return Err(too_large(shown));
        }
        if read != size {
            return Err(ArchiveError::Malformed {
                object: format!("`{shown}`"),
                flaw: "it is not as long as the archive says",
            });
        }
        self.left -= read;
        let file = FileIn {
            executable,
            ..FileIn::inline(bytes)
        };
        self.files.insert(path, file);
        Ok(())
    }

    /// The files, once the archive has been read to its end.
    pub(super) fn finish(self) -> Result<BTreeMap<GuestPath, FileIn>, ArchiveError> {
        let names: BTreeSet<&str> = self.files.keys().map(GuestPath::as_str).collect();
        for path in self.files.keys().chain(&self.directories) {
            let name = path.as_str();
            for (end, _) in name.match_indices('/') {
                if names.contains(&name[..end]) {
                    return Err(ArchiveError::BelowFile {
                        entry: show(name.as_bytes()),
                        file: show(&name.as_bytes()[..end]),
                    });
                }
            }
        }
        Ok(self.files)
    }

    fn count(&mut self) -> Result<(), ArchiveError> {
        self.entries += 1;
        if self.entries > MOST_ENTRIES {
            return Err(ArchiveError::TooMany {
                object: self.object(),
            });
        }
        Ok(())
    }
}

fn below_file(entry: String, file: &GuestPath) -> ArchiveError {
    ArchiveError::BelowFile {
        entry,
        file: show(file.as_str().as_bytes()),
    }
}

/// A name as people may safely see it: escaped, and cut where it is long.
pub(crate) fn show(raw: &[u8]) -> String {
    const LONGEST: usize = 200;
    let cut = &raw[..raw.len().min(LONGEST)];
    let mut shown = String::new();
    for chunk in cut.utf8_chunks() {
        shown.extend(chunk.valid().escape_debug());
        for byte in chunk.invalid() {
            shown.push_str(&format!("\\x{byte:02x}"));
        }
    }
    if raw.len() > LONGEST {
        shown.push('…');
    }
    shown
}
