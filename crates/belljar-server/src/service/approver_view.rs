//! What an approver sees: what is asked for beyond the ordinary, and how it differs from what was approved before.

use std::time::Duration;

use belljar_core::{Policy, ProviderName};
use serde_json::Value;
use similar::TextDiff;

use super::Service;
use super::error::ServiceError;
use crate::store::{Approval, ApprovalKind, RecordFilter};
use crate::wire::{self, CommandWish, ExecutionRequest};

/// How many records of a run id are looked through for code that was approved.
const LOOKED_THROUGH: usize = 100;
/// The most text that is compared, and how long that may take before it gets coarser.
const LARGEST_DIFF: usize = 1 << 20;
const COMPARING: Duration = Duration::from_millis(300);

impl Service {
    /// What an approver sees; `compared` with what was approved before.
    pub(super) async fn shown(
        &self,
        approval: Approval,
        compared: bool,
    ) -> Result<wire::Approval, ServiceError> {
        let summary = &approval.summary;
        let text = |name: &str| summary[name].as_str().map(str::to_owned);
        let is_tool = approval.kind == ApprovalKind::Tool.word();
        let held = approval.held.clone();
        let request: Option<ExecutionRequest> = match (&held, is_tool) {
            (Some(held), false) => serde_json::from_value(held.clone()).ok(),
            _ => None,
        };
        let code = request.as_ref().and_then(|request| request.code.as_deref());
        let diff = match code.filter(|_| compared) {
            Some(code) => self.diff(&approval, code).await?,
            None => None,
        };
        Ok(wire::Approval {
            user_id: text("user_id"),
            run_id: text("run_id"),
            policy_id: text("policy_id").unwrap_or_default(),
            policy_hash: text("policy_hash").unwrap_or_default(),
            code_hash: text("code_hash").unwrap_or_default(),
            asks: serde_json::from_value(summary["asks"].clone()).unwrap_or_default(),
            request,
            diff,
            tool: held.filter(|_| is_tool),
            approval_id: approval.approval_id,
            execution_id: approval.execution_id,
            tenant_id: approval.tenant_id,
            kind: approval.kind,
            state: approval.state.word().to_owned(),
            created_at: approval.created_at,
            expires_at: approval.expires_at,
            decided_at: approval.decided_at,
            decided_by: approval.decided_by,
            reason: approval.reason,
        })
    }

    /// How the code differs from what was last approved for the same run id, where that was kept.
    async fn diff(&self, approval: &Approval, code: &str) -> Result<Option<String>, ServiceError> {
        let Some(run_id) = approval.summary["run_id"].as_str() else {
            return Ok(None);
        };
        let filter = RecordFilter {
            tenant_id: Some(approval.tenant_id.clone()),
            run_id: Some(run_id.to_owned()),
            policy_id: approval.summary["policy_id"].as_str().map(str::to_owned),
            ..RecordFilter::default()
        };
        let page = self.store.records(&filter, LOOKED_THROUGH).await?;
        let mut approved = page.records.iter().filter(|(_, record)| was_approved(record));
        let Some(before) = approved.find_map(|(_, record)| record["code"].as_str()) else {
            return Ok(None);
        };
        if before.len() + code.len() > LARGEST_DIFF {
            let told = "what was approved before and what is asked for now are too long to be compared here";
            return Ok(Some(told.to_owned()));
        }
        let (before, code) = (before.to_owned(), code.to_owned());
        let comparing = tokio::task::spawn_blocking(move || {
            TextDiff::configure()
                .timeout(COMPARING)
                .diff_lines(&before, &code)
                .unified_diff()
                .header("approved", "asked for")
                .to_string()
        });
        let failed = |_| ServiceError::Engine("the comparison broke off".to_owned());
        Ok(Some(comparing.await.map_err(failed)?))
    }
}

/// Whether somebody said yes to it: it has an approval and ran.
fn was_approved(record: &Value) -> bool {
    record["approval_id"].is_string() && record["denial"].is_null() && record["usage"].is_object()
}

/// What a request asks for beyond what everything has.
pub(super) fn asks(wish: &ExecutionRequest, policy: &Policy) -> Vec<String> {
    let mut asks = Vec::new();
    if wish.is_escalated().unwrap_or(false) {
        asks.push("to be let out of the ordinary: sandbox_permissions = require_escalated".to_owned());
    }
    let wall = wish.provider.as_deref();
    let venv = ProviderName::Venv.word();
    if wall == Some(venv) || (wall.is_none() && policy.providers.contains(&ProviderName::Venv)) {
        asks.push("to run without a wall: provider venv".to_owned());
    } else if let Some(wall) = wall {
        asks.push(format!("provider: {wall}"));
    }
    if let Some(image) = &wish.image {
        asks.push(format!("image: {image}"));
    }
    let network = match &wish.network {
        Some(network) => network.clone(),
        None => policy.permitted_network().word().to_owned(),
    };
    if network != "none" {
        asks.push(format!("network: {network}"));
    }
    if let Some(command) = &wish.command {
        asks.push(format!(
            "a command: {}",
            match command {
                CommandWish::Words(words) => words.join(" "),
                CommandWish::Line(line) => line.clone(),
            }
        ));
    }
    if let Some(environment) = wish.environment.as_ref().filter(|name| *name != "host") {
        asks.push(format!("environment: {environment}"));
    }
    asks.extend(wish.mounts.iter().map(|mount| format!("mount: {mount}")));
    let listed = |what: &str, names: Vec<&String>| -> Option<String> {
        let names: Vec<_> = names.into_iter().map(String::as_str).collect();
        (!names.is_empty()).then(|| format!("{what}: {}", names.join(", ")))
    };
    if !wish.args.is_empty() {
        asks.push(format!("arguments: {}", wish.args.join(" ")));
    }
    if let Some(input) = wish.stdin.as_ref().or(wish.stdin_base64.as_ref()) {
        asks.push(format!("standard input: {} bytes", input.len()));
    }
    asks.extend(listed("variables", wish.env.keys().collect()));
    asks.extend(listed("files in", wish.files.keys().collect()));
    asks.extend(listed("files out", wish.outputs.iter().collect()));
    asks
}
