//! What can go wrong with an environment.

use std::io;
use std::path::{Path, PathBuf};

use belljar_core::EnvironmentName;
use belljar_core::environment::EnvironmentNameError;
use belljar_core::mount::MountError;

use super::requirement::RequirementError;
use crate::execute::EngineError;

/// Why an environment could not be made, found, used or removed.
#[derive(Debug, thiserror::Error)]
pub enum EnvironmentError {
    #[error(transparent)]
    Name(#[from] EnvironmentNameError),
    #[error("there is no environment `{name}`; {}", list(known))]
    Unknown {
        name: EnvironmentName,
        known: Vec<EnvironmentName>,
    },
    #[error("there is an environment `{name}` already")]
    Exists { name: EnvironmentName },
    #[error("environment `{name}` is in use by a sandbox that runs")]
    InUse { name: EnvironmentName },
    #[error("environment `{name}` cannot be used: {why}")]
    Damaged { name: EnvironmentName, why: String },
    #[error("there is no place for environments: neither BELLJAR_HOME, XDG_DATA_HOME nor HOME is set")]
    NoPlace,
    #[error("environments cannot stand in {}: {source}", root.display())]
    Place { root: PathBuf, source: MountError },
    #[error(transparent)]
    Requirement(#[from] RequirementError),
    #[error("`{0}` is not the name of a module")]
    Module(String),
    #[error("`{0}` is neither a version of Python, such as 3.12, nor the path of one")]
    PythonWish(String),
    #[error("there is no {wanted} here")]
    NoPython { wanted: String },
    #[error("{} cannot be the base of an environment: {why}", program.display())]
    Python { program: PathBuf, why: String },
    /// A step of the build failed; `output` is the end of what it printed.
    #[error("cannot {step}: {why}")]
    Build {
        step: &'static str,
        why: String,
        output: Vec<String>,
    },
    /// What an archive comes to is beyond a limit.
    #[error("cannot import it: unpacked, the archive holds more than {limit}")]
    TooLarge { limit: String },
    #[error("the build was stopped")]
    Cancelled,
    #[error("cannot {operation} {}: {source}", object.display())]
    Io {
        operation: &'static str,
        object: PathBuf,
        source: io::Error,
    },
    /// A sandbox for the build could not be had.
    #[error("cannot build in a sandbox: {0}")]
    Engine(Box<EngineError>),
}

impl EnvironmentError {
    /// What to do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Name(EnvironmentNameError::Host) => {
                "it needs no making and cannot go; `belljar languages` shows what it has"
            }
            Self::Name(_) => "for example: data, py312 or team-1.2",
            Self::Unknown { .. } => {
                "`belljar env list` shows what is there, `belljar env create NAME --packages …` makes one"
            }
            Self::Exists { .. } => "take another name, or put the new one in its place with --replace",
            Self::InUse { .. } => "try again when what runs in it has ended",
            Self::Damaged { .. } => "build it again: belljar env create NAME … --replace",
            Self::NoPlace | Self::Place { .. } => "set BELLJAR_HOME to a directory of your own",
            Self::Requirement(error) => error.hint(),
            Self::Module(_) => "name modules as `import` does, separated by commas: numpy,matplotlib.pyplot",
            Self::PythonWish(_) => "write --python 3.12, or --python /usr/bin/python3",
            Self::NoPython { .. } => {
                "install it, or name another with --python; looked in PATH, pyenv's and uv's versions"
            }
            Self::Python { .. } => "name another with --python",
            Self::Build { step, .. } => build_hint(step),
            Self::TooLarge { .. } => {
                "nothing of it is left; if you trust the archive, raise --max-size or --max-entries"
            }
            Self::Cancelled => "nothing of it is left; start it again when you like",
            Self::Io { .. } => "check that the place is yours and has room, or set BELLJAR_HOME to another",
            Self::Engine(_) => "`belljar doctor` shows what this machine gives and how to get the rest",
        }
    }

    /// Whether it is about what the caller asked for, rather than about this machine.
    pub const fn is_usage(&self) -> bool {
        matches!(
            self,
            Self::Name(_)
                | Self::Unknown { .. }
                | Self::Exists { .. }
                | Self::Requirement(_)
                | Self::Module(_)
                | Self::PythonWish(_)
                | Self::NoPython { .. }
                | Self::Python { .. }
                | Self::NoPlace
                | Self::Place { .. }
                | Self::TooLarge { .. }
        )
    }

    pub(super) fn io(operation: &'static str, object: &Path, source: impl Into<io::Error>) -> Self {
        Self::Io {
            operation,
            object: object.to_owned(),
            source: source.into(),
        }
    }
}

/// The steps of a build, as its errors name them.
pub(super) mod step {
    pub(crate) const FETCH: &str = "fetch the packages";
    pub(crate) const BUILD: &str = "build the packages from their sources";
    pub(crate) const INSTALL: &str = "install the packages";
    pub(crate) const COMPILE: &str = "compile the packages";
    pub(crate) const FONTS: &str = "make the list of fonts";
    pub(crate) const CHECK: &str = "import the modules to preload";
    pub(crate) const SEAL: &str = "seal the environment";
}

fn build_hint(step: &str) -> &'static str {
    match step {
        step::FETCH => {
            "only wheels are taken, since nothing may be built outside of a sandbox; check names, versions and the index, or give files: --wheels DIR, or a source archive with --allow-build"
        }
        step::BUILD => {
            "a build has no network: what it needs has to come as wheels, by way of its pyproject.toml or with --wheels DIR"
        }
        step::CHECK => "leave the module out of --preload, or add the package that it needs to --packages",
        _ => "nothing of it is left; -v shows all that the build printed",
    }
}

fn list(known: &[EnvironmentName]) -> String {
    if known.is_empty() {
        return "there are none but host".to_owned();
    }
    let names: Vec<_> = known.iter().map(EnvironmentName::as_str).collect();
    format!("there are host, {}", names.join(", "))
}
