//! What stands beside an environment's tree: what went in, and what came of it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use belljar_core::Language;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// The form of manifests and keys; raised when either changes its meaning.
pub(super) const FORMAT: u32 = 1;

/// All that is known of a built environment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    pub format: u32,
    /// The SHA-256 of everything below: what was made of what.
    pub digest: String,
    /// Where the tree must stand: paths within it say so.
    pub place: PathBuf,
    /// Seconds since the epoch.
    pub created_at: u64,
    pub interpreter: Interpreter,
    pub packages: Vec<Package>,
    pub preload: Vec<String>,
    pub variables: BTreeMap<String, String>,
    /// What put the packages in place.
    pub installer: String,
    pub tree: TreeSum,
    /// What runs each language, where the tree is a root file system: which of the language's recipes, and the programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root: Option<BTreeMap<Language, (usize, Vec<PathBuf>)>>,
}

/// The interpreter that an environment is based on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interpreter {
    pub version: String,
    pub program: PathBuf,
    /// Directories outside of the system's own that it needs to see.
    pub shows: Vec<PathBuf>,
}

/// One package of an environment.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Package {
    pub name: String,
    pub version: String,
    /// The wheel it came from, and that file's SHA-256.
    pub wheel: String,
    pub sha256: String,
}

/// A tree in three numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeSum {
    /// The SHA-256 over every name, kind, content and right to execute.
    pub sha256: String,
    pub files: u64,
    pub bytes: u64,
}

impl Manifest {
    /// The digest that these contents should have.
    pub(super) fn computed_digest(&self) -> String {
        #[derive(Serialize)]
        struct Content<'a> {
            format: u32,
            interpreter: &'a Interpreter,
            packages: &'a [Package],
            preload: &'a [String],
            variables: &'a BTreeMap<String, String>,
            tree: &'a TreeSum,
            #[serde(skip_serializing_if = "Option::is_none")]
            root: &'a Option<BTreeMap<Language, (usize, Vec<PathBuf>)>>,
        }
        sha256_of(&Content {
            format: self.format,
            interpreter: &self.interpreter,
            packages: &self.packages,
            preload: &self.preload,
            variables: &self.variables,
            tree: &self.tree,
            root: &self.root,
        })
    }
}

/// Under which name the content is found that these inputs give.
pub(super) fn key(interpreter: &Interpreter, packages: &[Package], preload: &[String]) -> String {
    #[derive(Serialize)]
    struct Inputs<'a> {
        format: u32,
        interpreter: &'a Interpreter,
        packages: &'a [Package],
        preload: &'a [String],
    }
    sha256_of(&Inputs {
        format: FORMAT,
        interpreter,
        packages,
        preload,
    })
}

fn sha256_of(value: &impl Serialize) -> String {
    // Serialising structs of plain fields cannot fail; an empty text would only change the hash.
    hex(&Sha256::digest(serde_json::to_vec(value).unwrap_or_default()))
}

/// Lower-case hexadecimal.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_that_goes_in_changes_the_key() {
        let interpreter = Interpreter {
            version: "3.11.7".to_owned(),
            program: "/usr/bin/python3".into(),
            shows: Vec::new(),
        };
        let package = Package {
            name: "a".to_owned(),
            version: "1".to_owned(),
            wheel: "a-1-py3-none-any.whl".to_owned(),
            sha256: "00".to_owned(),
        };
        let packages = [package.clone()];
        let base = key(&interpreter, &packages, &[]);
        assert_eq!(base, key(&interpreter, &packages, &[]));
        assert_eq!(base.len(), 64);
        let other = Interpreter {
            version: "3.11.8".to_owned(),
            ..interpreter.clone()
        };
        assert_ne!(base, key(&other, &packages, &[]));
        assert_ne!(base, key(&interpreter, &packages, &["a".to_owned()]));
        let rebuilt = Package {
            sha256: "01".to_owned(),
            ..package
        };
        assert_ne!(base, key(&interpreter, &[rebuilt], &[]));
    }
}
