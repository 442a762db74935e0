//! Names that stay where they belong: paths inside the work directory and workspace ids.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The longest path taken, the kernel's own limit with room for the work directory before it.
const MAX_PATH: usize = 3072;
/// The longest single name a Linux file system takes.
const MAX_NAME: usize = 255;
/// How deep a path may go; the collector walks no deeper either.
pub const MAX_DEPTH: usize = 64;

/// A path relative to the guest's work directory that cannot leave it (R19).
///
/// Normalised at construction: no empty, `.` or `..` part, no leading or trailing slash.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct GuestPath(String);

/// Why a path or id was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    #[error("the path is empty")]
    Empty,
    #[error("`{0}` is absolute; name it relative to the work directory")]
    Absolute(String),
    #[error("`{0}` leaves the work directory with `..`")]
    Escapes(String),
    #[error("`{0}` starts with `~`, which nothing inside the sandbox expands")]
    Tilde(String),
    #[error("a path holds a NUL byte")]
    Nul,
    #[error("a path of {0} bytes is too long; at most {MAX_PATH} in all and {MAX_NAME} a name")]
    TooLong(usize),
    #[error("a path of {0} parts is too deep; at most {MAX_DEPTH}")]
    TooDeep(usize),
    #[error(
        "workspace id `{0}` may hold only letters, digits, `-`, `_` and `.`, and must not start with `.`"
    )]
    WorkspaceId(String),
}

impl GuestPath {
    pub fn new(text: &str) -> Result<Self, PathError> {
        if text.is_empty() {
            return Err(PathError::Empty);
        }
        if text.contains('\0') {
            return Err(PathError::Nul);
        }
        if text.len() > MAX_PATH {
            return Err(PathError::TooLong(text.len()));
        }
        if text.starts_with('/') {
            return Err(PathError::Absolute(text.to_owned()));
        }
        let mut parts = Vec::new();
        for part in text.split('/') {
            match part {
                "" | "." => {}
                ".." => return Err(PathError::Escapes(text.to_owned())),
                name if name.len() > MAX_NAME => return Err(PathError::TooLong(name.len())),
                // Also behind a `./` that normalising takes away.
                name if parts.is_empty() && name.starts_with('~') => {
                    return Err(PathError::Tilde(text.to_owned()));
                }
                name => parts.push(name),
            }
        }
        match parts.len() {
            0 => Err(PathError::Empty),
            deep if deep > MAX_DEPTH => Err(PathError::TooDeep(deep)),
            _ => Ok(Self(parts.join("/"))),
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The names from the work directory down.
    pub fn parts(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.0.split('/')
    }

    /// The last name.
    pub fn name(&self) -> &str {
        self.parts().next_back().unwrap_or(&self.0)
    }
}

impl fmt::Display for GuestPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for GuestPath {
    type Err = PathError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::new(text)
    }
}

impl<'de> Deserialize<'de> for GuestPath {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(&String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

/// The name of a workspace: one plain directory name (R51).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct WorkspaceId(String);

impl WorkspaceId {
    pub fn new(text: &str) -> Result<Self, PathError> {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if text.is_empty() {
            Err(PathError::Empty)
        } else if text.len() > 128 {
            Err(PathError::TooLong(text.len()))
        } else if text.starts_with('.') || !text.chars().all(plain) {
            Err(PathError::WorkspaceId(text.escape_default().to_string()))
        } else {
            Ok(Self(text.to_owned()))
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for WorkspaceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The path check of document 003 (R47): refuses an argument that names a place outside the work
/// directory. It is for callers who want honest mistakes caught early; the walls do not need it.
pub fn check_argument(argument: &str) -> Result<(), PathError> {
    // `--output=../x` hides a path behind an option; look at each piece.
    for piece in argument.split('=') {
        if piece.starts_with('/') {
            return Err(PathError::Absolute(argument.to_owned()));
        }
        if piece.starts_with('~') {
            return Err(PathError::Tilde(argument.to_owned()));
        }
        if piece.split(['/', '\\']).any(|part| part == "..") {
            return Err(PathError::Escapes(argument.to_owned()));
        }
    }
    Ok(())
}

/// A guest's file name as text that is safe to show and can be turned back: printable characters
/// stay, everything else becomes `\xNN`.
pub fn escape_name(name: &[u8]) -> String {
    let mut text = String::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        for c in chunk.valid().chars() {
            if c == '\\' {
                text.push_str("\\\\");
            } else if c.is_control() || is_invisible(c) {
                let mut bytes = [0; 4];
                c.encode_utf8(&mut bytes)
                    .bytes()
                    .for_each(|byte| push_hex(&mut text, byte));
            } else {
                text.push(c);
            }
        }
        chunk.invalid().iter().for_each(|byte| push_hex(&mut text, *byte));
    }
    text
}

/// Marks that reorder or hide the text around them.
const fn is_invisible(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

fn push_hex(text: &mut String, byte: u8) {
    use std::fmt::Write;
    let _ = write!(text, "\\x{byte:02x}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// R19: a name that escapes the work directory is rejected.
    #[test]
    fn escaping_names_are_rejected() {
        for text in [
            "..",
            "../x",
            "a/../../x",
            "a/..",
            "/etc/passwd",
            "~",
            "~/x",
            "~root",
            "./~",
            ".//~/x",
            "",
            ".",
            "./",
            "a\0b",
        ] {
            assert!(GuestPath::new(text).is_err(), "{text:?}");
        }
        assert!(GuestPath::new(&"a/".repeat(65)).is_err());
        assert!(GuestPath::new(&"a".repeat(256)).is_err());
    }

    #[test]
    fn paths_are_normalised() {
        for (text, path) in [
            ("a", "a"),
            ("./a//b/", "a/b"),
            ("...", "..."),
            ("a..b/c", "a..b/c"),
            ("a~", "a~"),
        ] {
            assert_eq!(GuestPath::new(text).unwrap().as_str(), path);
        }
    }

    /// R51: separators and `..` cannot be part of a workspace id.
    #[test]
    fn workspace_ids_are_single_names() {
        for text in ["ws", "ws-2", "a.b_c", "A1"] {
            assert!(WorkspaceId::new(text).is_ok(), "{text}");
        }
        for text in ["", "..", ".", ".hidden", "a/b", "a\\b", "a b", "é", "a\0", "a\n"] {
            assert!(WorkspaceId::new(text).is_err(), "{text:?}");
        }
    }

    /// R47: arguments with `..`, absolute paths and `~` are rejected when the check is on.
    #[test]
    fn suspicious_arguments_are_rejected() {
        for text in [
            "..",
            "../x",
            "a/../b",
            "/etc/passwd",
            "~",
            "~/x",
            "--out=/etc",
            "--in=../x",
            "..\\x",
        ] {
            assert!(check_argument(text).is_err(), "{text}");
        }
        for text in ["a", "a/b", "a..b", "--x=1", "-la", "x~", "..."] {
            assert!(check_argument(text).is_ok(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_guest_path_never_leaves(text in "[a./~\\\\\n]{0,24}") {
            if let Ok(path) = GuestPath::new(&text) {
                prop_assert!(path.parts().all(|part| !part.is_empty() && part != "." && part != ".."));
                prop_assert!(!path.as_str().starts_with('/'));
                prop_assert_eq!(GuestPath::new(path.as_str()), Ok(path));
            }
        }
    }

    #[test]
    fn names_are_escaped_so_that_they_cannot_act() {
        assert_eq!(escape_name(b"plain-\xc3\xa4.txt"), "plain-\u{e4}.txt");
        assert_eq!(escape_name(b"a\nb\x1b[2J\xff\\"), "a\\x0ab\\x1b[2J\\xff\\\\");
        assert_eq!(escape_name("\u{202e}x".as_bytes()), "\\xe2\\x80\\xaex");
    }

    proptest! {
        #[test]
        fn escaped_names_hold_no_control_characters(name in proptest::collection::vec(any::<u8>(), 0..64)) {
            prop_assert!(!escape_name(&name).chars().any(char::is_control));
        }
    }
}
