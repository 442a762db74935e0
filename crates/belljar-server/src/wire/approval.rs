//! What somebody is asked to approve, and their word.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::ExecutionRequest;

/// One question, with all that the approver needs to see.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Approval {
    pub approval_id: String,
    /// What waits for it.
    pub execution_id: String,
    pub tenant_id: String,
    pub user_id: Option<String>,
    pub run_id: Option<String>,
    /// `execution`, or `tool`: one call of a host tool.
    pub kind: String,
    /// `pending`, `granted`, `denied`, `expired` or `withdrawn`.
    pub state: String,
    /// Seconds since the epoch.
    pub created_at: f64,
    pub expires_at: f64,
    pub decided_at: Option<f64>,
    pub decided_by: Option<String>,
    pub reason: Option<String>,
    pub policy_id: String,
    pub policy_hash: String,
    pub code_hash: String,
    /// What it asks for beyond what everything has.
    pub asks: Vec<String>,
    /// What would run, with its code; only until the decision.
    pub request: Option<ExecutionRequest>,
    /// How the code differs from what was last approved for the same run id, where the policy keeps code.
    pub diff: Option<String>,
    /// The tool and its arguments, for a call of a tool; only until the decision.
    #[schema(value_type = Option<Object>)]
    pub tool: Option<serde_json::Value>,
}

/// A decision's reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Word {
    pub reason: Option<String>,
}
