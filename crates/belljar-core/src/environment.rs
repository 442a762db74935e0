//! Environments: a language's interpreter with packages, by name. `host` is the built-in one and
//! means what the machine itself has; a request that names none gets it.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::identifier::{IdentifierError, check_identifier};
use crate::language::Language;

/// The environment that is always there. It has no value of its own: it is the absence of one.
pub const HOST: &str = "host";

/// The longest name.
const LONGEST_NAME: usize = 64;

/// The name of an environment: letters, digits, `-`, `_` and `.`, so that it can be a file's name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct EnvironmentName(String);

/// Why a text cannot be an environment's name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EnvironmentNameError {
    #[error("an environment needs a name")]
    Empty,
    #[error("an environment's name has at most {LONGEST_NAME} characters, not {0}")]
    TooLong(usize),
    #[error(
        "`{0}` cannot be an environment's name: letters, digits, `-`, `_` and `.` can, with a letter or digit first"
    )]
    Characters(String),
    #[error("`{HOST}` is the environment that is always there")]
    Host,
}

impl TryFrom<String> for EnvironmentName {
    type Error = EnvironmentNameError;

    fn try_from(text: String) -> Result<Self, EnvironmentNameError> {
        Self::new(&text)
    }
}

impl EnvironmentName {
    pub fn new(text: &str) -> Result<Self, EnvironmentNameError> {
        let characters = || EnvironmentNameError::Characters(text.escape_default().to_string());
        check_identifier(text, LONGEST_NAME).map_err(|error| match error {
            IdentifierError::Empty => EnvironmentNameError::Empty,
            IdentifierError::TooLong { len, .. } => EnvironmentNameError::TooLong(len),
            IdentifierError::Characters => characters(),
        })?;
        if text.starts_with('_') {
            Err(characters())
        } else if text == HOST {
            Err(EnvironmentNameError::Host)
        } else {
            Ok(Self(text.to_owned()))
        }
    }

    /// A name as a request gives it, where `host` means none.
    pub fn unless_host(text: &str) -> Result<Option<Self>, EnvironmentNameError> {
        match Self::new(text) {
            Ok(name) => Ok(Some(name)),
            Err(EnvironmentNameError::Host) => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for EnvironmentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for EnvironmentName {
    type Err = EnvironmentNameError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::new(text)
    }
}

/// An environment that was looked up: all that a plan needs of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Environment {
    pub name: EnvironmentName,
    /// The SHA-256 of what it was made of and what came of it.
    pub digest: String,
    /// The language whose code it runs.
    pub language: Language,
    /// The interpreter.
    pub program: PathBuf,
    /// Its own tree and its interpreter's installation, shown read-only where they stand.
    pub shows: Vec<PathBuf>,
    /// Variables that every program in it gets.
    pub variables: BTreeMap<String, String>,
    /// Modules that its interpreter may import ahead of time.
    pub preload: Vec<String>,
    /// A root file system of its own; none: it stands in the host's.
    pub root: Option<Root>,
}

/// A root file system that is an environment's own: nothing of the host's is shown beside it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Root {
    /// Where it stands on the host.
    pub path: PathBuf,
    /// What runs each language there: which of the language's recipes, and the programs, as seen from inside.
    pub programs: BTreeMap<Language, (usize, Vec<PathBuf>)>,
}

/// An environment as receipts name it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnvironmentUsed {
    pub name: EnvironmentName,
    pub digest: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_can_be_a_files_name_and_nothing_else() {
        for good in ["data", "data-2.1_x", "3d", "a"] {
            assert_eq!(EnvironmentName::new(good).unwrap().as_str(), good);
        }
        for bad in [
            "", ".", "..", ".hidden", "-x", "_x", "a/b", "../a", "a b", "a\0", "é", "a\n", "host",
        ] {
            assert!(EnvironmentName::new(bad).is_err(), "{bad:?}");
        }
        assert!(EnvironmentName::new(&"a".repeat(64)).is_ok());
        assert!(EnvironmentName::new(&"a".repeat(65)).is_err());
    }

    #[test]
    fn host_is_no_name_of_ones_own() {
        assert_eq!(EnvironmentName::unless_host("host"), Ok(None));
        assert!(EnvironmentName::unless_host("data").unwrap().is_some());
        assert!(EnvironmentName::unless_host("").is_err());
    }
}
