//! Code and policies by the names that people give them.
//!
//! Everything here is bounded: whatever a path leads to, only so much of it is read.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use belljar_core::{Bytes, Language, Policy};

use crate::error::Error;

/// The most that is read as code. Data belongs into files or mounts.
pub const LARGEST_CODE: Bytes = Bytes::from_mib(64);
/// The most that is read as a policy.
const LARGEST_POLICY: Bytes = Bytes::from_mib(1);

/// The policy of that name, or in the file of that name.
///
/// ```
/// # fn main() -> Result<(), belljar::Error> {
/// let policy = belljar::load::policy("standard")?;
/// assert_eq!(policy.limits.memory(), belljar::Bytes::from_mib(256));
/// # Ok(())
/// # }
/// ```
pub fn policy(name_or_file: &str) -> Result<Policy, Error> {
    if let Some(policy) = Policy::builtin(name_or_file) {
        return Ok(policy);
    }
    let path = Path::new(name_or_file);
    let means_file = name_or_file.contains('/') || name_or_file.ends_with(".toml") || path.is_file();
    if means_file {
        policy_file(path)
    } else {
        Err(Error::UnknownPolicy {
            name: name_or_file.to_owned(),
        })
    }
}

/// The policy in a TOML file.
pub fn policy_file(path: &Path) -> Result<Policy, Error> {
    let text = String::from_utf8(file(path, LARGEST_POLICY)?).map_err(|_| Error::NotText {
        path: path.to_owned(),
    })?;
    Ok(Policy::from_toml(&text, &path.display().to_string())?)
}

/// The code in a file.
pub fn code_file(path: &Path) -> Result<Vec<u8>, Error> {
    file(path, LARGEST_CODE)
}

/// The language of the code in a file: by its ending, else by its first line.
pub fn language_of(path: &Path, code: &[u8]) -> Result<Language, Error> {
    path.file_name()
        .and_then(|name| Language::from_file_name(&name.to_string_lossy()))
        .or_else(|| Language::from_shebang(code))
        .ok_or_else(|| Error::UnknownLanguage {
            what: format!("`{}`", path.display()),
        })
}

/// All of `reader`, unless it is more than `limit`.
pub fn bounded(reader: impl Read, path: &Path, limit: Bytes) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    reader
        .take(limit.get().saturating_add(1))
        .read_to_end(&mut bytes)
        .map_err(|source| unreadable(path, source))?;
    if bytes.len() as u64 > limit.get() {
        return Err(Error::TooLarge {
            path: path.to_owned(),
            limit,
        });
    }
    Ok(bytes)
}

fn file(path: &Path, limit: Bytes) -> Result<Vec<u8>, Error> {
    let file = File::open(path).map_err(|source| unreadable(path, source))?;
    bounded(file, path, limit)
}

fn unreadable(path: &Path, source: io::Error) -> Error {
    Error::Read {
        path: path.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use belljar_core::ErrorKind;

    #[test]
    fn a_policy_is_a_builtin_name_or_a_file() {
        assert_eq!(policy("restricted").unwrap().policy_id, "restricted");
        let unknown = policy("strict").unwrap_err();
        assert_eq!(
            unknown.to_string(),
            "there is no policy `strict`; the built-in ones are standard, restricted, permissive, high_security"
        );
        for (name, shown) in [
            ("./absent", "cannot read ./absent"),
            ("absent.toml", "cannot read absent.toml"),
        ] {
            let error = policy(name).unwrap_err();
            assert!(error.to_string().starts_with(shown), "{error}");
            assert_eq!(error.kind(), ErrorKind::Usage);
        }
    }

    #[test]
    fn an_endless_file_is_not_read_to_its_end() {
        let error = bounded(io::repeat(b'x'), Path::new("endless"), Bytes::new(10)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "endless is larger than 10 B, the most that is read of such a file"
        );
        assert_eq!(
            bounded(&b"0123456789"[..], Path::new("x"), Bytes::new(10))
                .unwrap()
                .len(),
            10
        );
    }

    #[test]
    fn the_ending_decides_before_the_first_line() {
        let language = |name: &str, code: &str| language_of(Path::new(name), code.as_bytes());
        assert_eq!(language("a.py", "#!/bin/sh").unwrap(), Language::Python);
        assert_eq!(language("dir.py/a", "#!/bin/sh").unwrap(), Language::Shell);
        assert_eq!(
            language("a.txt", "#!/usr/bin/env node").unwrap(),
            Language::Javascript
        );
        assert!(matches!(
            language("a.txt", "hello"),
            Err(Error::UnknownLanguage { .. })
        ));
    }
}
