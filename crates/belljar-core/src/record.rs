//! The audit row of one execution or denial (R14). It never holds the code itself.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::denial::Denial;
use crate::egress::Log;
use crate::outcome::{Outcome, ToolCall, Usage};
use crate::plan::Plan;
use crate::policy::{Policy, hex};
use crate::request::Request;
use crate::status::SandboxStatus;

/// Document 000's fourteen fields, which policy it was exactly, what was used, and the host tools that were called.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    pub record_id: String,
    pub sandbox_id: String,
    pub tenant_id: Option<String>,
    pub user_id: Option<String>,
    pub run_id: Option<String>,
    /// The language, or `command`.
    pub language: String,
    pub code_hash: String,
    pub policy_id: String,
    pub status: SandboxStatus,
    pub exit_code: Option<i32>,
    pub wall_time_seconds: Option<f64>,
    /// Seconds since the epoch.
    pub created_at: f64,
    pub completed_at: Option<f64>,
    pub error_message: Option<String>,
    /// Which version of the policy.
    pub policy_hash: String,
    /// What it used, where it ran.
    pub usage: Option<Usage>,
    /// R45: each call with its duration and size.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
    /// Every lookup and connection, allowed or refused.
    #[serde(default, skip_serializing_if = "Log::is_empty")]
    pub network: Log,
}

/// The SHA-256 of `code`, in hexadecimal.
pub fn code_hash(code: &[u8]) -> String {
    hex(&Sha256::digest(code))
}

impl Record {
    /// The row of an execution that ran.
    pub fn of_outcome(record_id: String, plan: &Plan, outcome: &Outcome) -> Self {
        Self {
            sandbox_id: outcome.sandbox_id.clone(),
            exit_code: outcome.exit_code,
            wall_time_seconds: Some(outcome.duration.get()),
            completed_at: Some(outcome.completed_at),
            error_message: outcome.error.as_ref().map(|failure| failure.message.clone()),
            usage: Some(outcome.usage),
            tool_calls: outcome.tool_calls.clone(),
            network: outcome.network.clone(),
            ..Self::of_plan(record_id, plan, outcome.status, outcome.started_at)
        }
    }

    /// The row of a plan of which nothing has come yet.
    pub fn of_plan(record_id: String, plan: &Plan, status: SandboxStatus, now: f64) -> Self {
        Self {
            record_id,
            sandbox_id: String::new(),
            tenant_id: plan.caller().tenant_id.clone(),
            user_id: plan.caller().user_id.clone(),
            run_id: plan.caller().run_id.clone(),
            language: plan
                .language()
                .map_or("command", |language| language.word())
                .to_owned(),
            code_hash: plan.code_hash().to_owned(),
            policy_id: plan.policy_id().to_owned(),
            status,
            exit_code: None,
            wall_time_seconds: None,
            created_at: now,
            completed_at: None,
            error_message: None,
            policy_hash: plan.policy_hash().to_owned(),
            usage: None,
            tool_calls: Vec::new(),
            network: Log::default(),
        }
    }

    /// The row of a request of which nothing has come yet.
    pub fn of_request(
        record_id: String,
        policy: &Policy,
        request: &Request,
        status: SandboxStatus,
        now: f64,
    ) -> Self {
        Self {
            record_id,
            sandbox_id: String::new(),
            tenant_id: request.caller.tenant_id.clone(),
            user_id: request.caller.user_id.clone(),
            run_id: request.caller.run_id.clone(),
            language: request
                .language()
                .map_or("command", |language| language.word())
                .to_owned(),
            code_hash: code_hash(&request.code_bytes()),
            policy_id: policy.policy_id.clone(),
            status,
            exit_code: None,
            wall_time_seconds: None,
            created_at: now,
            completed_at: None,
            error_message: None,
            policy_hash: policy.hash(),
            usage: None,
            tool_calls: Vec::new(),
            network: Log::default(),
        }
    }

    /// The row of a request that was refused: nothing ran.
    pub fn of_denial(
        record_id: String,
        policy: &Policy,
        request: &Request,
        denial: &Denial,
        now: f64,
    ) -> Self {
        Self {
            completed_at: Some(now),
            error_message: Some(format!("PolicyViolation: {denial}")),
            ..Self::of_request(record_id, policy, request, SandboxStatus::Failed, now)
        }
    }
}
