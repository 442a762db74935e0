//! What really held: every control as observed, not as wished.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::control::Control;
use crate::environment::EnvironmentUsed;
use crate::limits::Limits;
use crate::status::{IsolationLevel, NetworkPolicy};

/// The list of controls that were in force during one execution.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Receipt {
    pub provider: String,
    pub isolation: IsolationLevel,
    pub policy_id: String,
    pub policy_hash: String,
    /// The environment it ran in; none is `host`.
    pub environment: Option<EnvironmentUsed>,
    pub controls: BTreeMap<Control, Observed>,
    pub network: NetworkPolicy,
    pub limits: Limits,
    /// What of the host the guest could see.
    pub shown: Vec<String>,
    /// How the sandbox came to be: made on demand, taken from a pool, forked from a warm interpreter.
    pub origin: String,
}

/// How one control was seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "lowercase")]
pub enum Observed {
    Enforced { detail: String },
    Absent { why: String },
}

impl Observed {
    pub fn enforced(detail: impl Into<String>) -> Self {
        Self::Enforced {
            detail: detail.into(),
        }
    }

    pub fn absent(why: impl Into<String>) -> Self {
        Self::Absent { why: why.into() }
    }

    pub const fn is_enforced(&self) -> bool {
        matches!(self, Self::Enforced { .. })
    }
}
