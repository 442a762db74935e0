//! What someone wants built.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use belljar_core::EnvironmentName;

use super::error::EnvironmentError;
use super::requirement::{Requirement, RequirementError};

/// A wish for an environment.
#[derive(Clone, Debug)]
pub struct Specification {
    pub name: EnvironmentName,
    /// Unset: the Python that `host` has.
    pub python: Option<PythonWish>,
    pub packages: Vec<Requirement>,
    /// Take packages from the wheels in this directory and from nowhere else.
    pub wheels: Option<PathBuf>,
    pub preload: Vec<Module>,
    /// Whether source archives may be built, which runs their code, in a sandbox.
    pub allow_build: bool,
    /// Whether the name may mean something already.
    pub replace: bool,
}

impl Specification {
    /// An environment without packages.
    pub const fn named(name: EnvironmentName) -> Self {
        Self {
            name,
            python: None,
            packages: Vec::new(),
            wheels: None,
            preload: Vec::new(),
            allow_build: false,
            replace: false,
        }
    }

    /// Refuses what would have to be built, unless that is allowed.
    pub(super) fn check_sources(&self) -> Result<(), RequirementError> {
        let source = self.packages.iter().find_map(|wanted| match wanted {
            Requirement::Source(path) if !self.allow_build => Some(path),
            _ => None,
        });
        match source {
            Some(path) => Err(RequirementError::Build(
                path.display().to_string().escape_debug().to_string(),
            )),
            None => Ok(()),
        }
    }

    /// Whether all that it needs is on this machine, so that nothing is fetched from an index.
    pub(super) fn is_local(&self) -> bool {
        self.wheels.is_some()
            || self
                .packages
                .iter()
                .all(|wanted| matches!(wanted, Requirement::Wheel(_)))
    }
}

/// Which Python.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PythonWish {
    /// `3`, `3.12` or `3.12.1`.
    Version(String),
    Program(PathBuf),
}

impl FromStr for PythonWish {
    type Err = EnvironmentError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts: Vec<&str> = text.split('.').collect();
        let number =
            |part: &&str| (1..=3).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit());
        if parts.len() <= 3 && parts.iter().all(number) {
            Ok(Self::Version(text.to_owned()))
        } else if text.contains('/') && !text.contains('\0') {
            Ok(Self::Program(PathBuf::from(text)))
        } else {
            Err(EnvironmentError::PythonWish(text.escape_debug().to_string()))
        }
    }
}

impl fmt::Display for PythonWish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version(version) => write!(f, "Python {version}"),
            Self::Program(path) => write!(f, "{}", path.display()),
        }
    }
}

/// The name of a module, as `import` takes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module(String);

impl Module {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Module {
    type Err = EnvironmentError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_name = |part: &str| {
            let mut characters = part.chars();
            characters.next().is_some_and(|c| c.is_alphabetic() || c == '_')
                && characters.all(|c| c.is_alphanumeric() || c == '_')
        };
        if text.len() <= 200 && text.split('.').all(is_name) {
            Ok(Self(text.to_owned()))
        } else {
            Err(EnvironmentError::Module(
                text.chars()
                    .take(80)
                    .collect::<String>()
                    .escape_debug()
                    .to_string(),
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_python_is_a_version_or_a_path() {
        for version in ["3", "3.12", "3.12.1"] {
            assert_eq!(
                version.parse::<PythonWish>().unwrap(),
                PythonWish::Version(version.to_owned())
            );
        }
        assert!(matches!("./venv/bin/python".parse(), Ok(PythonWish::Program(_))));
        for bad in [
            "", "three", "3.", "3.x", "3.1.2.3", "-c", "python3", "3.12;", "/a\0",
        ] {
            assert!(bad.parse::<PythonWish>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_module_is_a_dotted_name() {
        for good in ["numpy", "matplotlib.pyplot", "_x1"] {
            assert_eq!(good.parse::<Module>().unwrap().as_str(), good);
        }
        for bad in ["", "a.", ".a", "a-b", "os;print(1)", "a b", "1a", "a\n"] {
            assert!(bad.parse::<Module>().is_err(), "{bad:?}");
        }
    }
}
