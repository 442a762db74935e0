//! What a provider on this machine can do, as found by its probe.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde::Serialize;

use crate::control::Control;
use crate::environment::{Environment, EnvironmentName};
use crate::language::{Language, Recipe};
use crate::status::{IsolationLevel, NetworkPolicy, ProviderName};

/// What a provider offers. The guard plans with this and nothing else.
#[derive(Clone, Debug, Serialize)]
pub struct Capabilities {
    pub provider: ProviderName,
    pub isolation: IsolationLevel,
    pub controls: BTreeMap<Control, Support>,
    /// Those without which its wall is none: always required.
    pub essential: BTreeSet<Control>,
    pub networks: BTreeSet<NetworkPolicy>,
    /// Languages that were looked for, and what was found.
    pub languages: BTreeMap<Language, Toolchain>,
    /// Environments that were looked up. The engine adds them; a provider knows none.
    pub environments: BTreeMap<EnvironmentName, Environment>,
}

/// Whether the machine has a control.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum Support {
    /// It is there; `detail` says which version or form.
    Present { detail: String },
    /// It is not; `why` says what was seen and `fix` what to do about it.
    Absent { why: String, fix: String },
}

impl Support {
    pub const fn is_present(&self) -> bool {
        matches!(self, Self::Present { .. })
    }
}

/// The programs of one language on this machine.
#[derive(Clone, Debug, Serialize)]
pub struct Toolchain {
    #[serde(skip)]
    pub recipe: &'static Recipe,
    /// One absolute path for each of the recipe's programs.
    pub programs: Vec<PathBuf>,
    /// What the first program says of its version; empty where it was not asked.
    pub version: String,
    /// Directories beyond the system's own that must be visible for it to work.
    pub shows: Vec<PathBuf>,
    /// Variables it needs.
    pub env: BTreeMap<String, String>,
}
