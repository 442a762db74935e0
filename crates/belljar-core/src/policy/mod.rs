//! What is permitted: the policy of document 000, its built-in four, and its TOML form.

mod builtin;
mod owner;
mod toml_file;

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use sha2::{Digest, Sha256};

pub use toml_file::PolicyFileError;

use crate::control::{Control, Demand};
use crate::egress::{EgressLimits, Rule, Secret};
use crate::environment::EnvironmentName;
use crate::language::Language;
use crate::limits::{LimitNumbers, Limits};
use crate::mount::Mount;
use crate::quota::Quotas;
use crate::session::SessionRules;
use crate::status::{IsolationLevel, NetworkPolicy, ProviderName};
use crate::units::{Bytes, Seconds};

/// What a run may do. Serialises to the fifteen fields of document 000 (R3) and ours after them.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    pub policy_id: String,
    pub name: String,
    pub isolation_level: IsolationLevel,
    /// Walls to try, first come first; empty: the weakest that is strong enough, and of its level the strongest.
    pub providers: Vec<ProviderName>,
    /// Images that may be named, a `*` at the end standing for anything; empty means any.
    pub allowed_images: Vec<String>,
    pub network: NetworkPolicy,
    /// Hosts that may be reached where the network is restricted.
    pub allowed_hosts: Vec<Rule>,
    /// What some of them are told, and no guest sees.
    pub secrets: Vec<Secret>,
    /// How much may be sent and received.
    pub egress: EgressLimits,
    pub limits: Limits,
    /// What sessions may do, their host tools and their imports.
    pub session: SessionRules,
    pub allowed_languages: BTreeSet<Language>,
    /// How much of it a tenant may have, where a service counts.
    pub quotas: Quotas,
    pub allow_network: bool,
    pub allow_file_write: bool,
    pub require_approval: bool,
    /// Whether a service keeps the code of its runs.
    pub keep_code: bool,
    /// Whether every run starts an interpreter of its own instead of a fork of a warm one.
    pub fresh_interpreter: bool,
    /// Programs that `exec` may start; empty means any.
    pub allowed_commands: Vec<String>,
    /// Host paths that may be mounted, each with the most access it may be given.
    pub allowed_mounts: Vec<Mount>,
    /// Environments that may be named; empty means any. `host` is not named, so it always may.
    pub allowed_environments: BTreeSet<EnvironmentName>,
    /// Controls beyond the essential ones, and how much this policy insists on them.
    pub controls: BTreeMap<Control, Demand>,
}

impl Policy {
    /// A policy with document 000's field defaults around `limits`.
    pub fn named(policy_id: &str, name: &str, limits: Limits) -> Self {
        Self {
            policy_id: policy_id.to_owned(),
            name: name.to_owned(),
            isolation_level: IsolationLevel::Process,
            providers: Vec::new(),
            allowed_images: Vec::new(),
            network: NetworkPolicy::None,
            allowed_hosts: Vec::new(),
            secrets: Vec::new(),
            egress: EgressLimits::default(),
            limits,
            session: SessionRules::default(),
            allowed_languages: [Language::Python, Language::Javascript, Language::Bash].into(),
            quotas: Quotas::default(),
            allow_network: false,
            allow_file_write: false,
            require_approval: false,
            keep_code: false,
            fresh_interpreter: false,
            allowed_commands: Vec::new(),
            allowed_mounts: Vec::new(),
            allowed_environments: BTreeSet::new(),
            controls: BTreeMap::new(),
        }
    }

    /// The network that both network fields permit together.
    pub const fn permitted_network(&self) -> NetworkPolicy {
        if self.allow_network {
            self.network
        } else {
            NetworkPolicy::None
        }
    }

    /// Whether somebody has to say yes to every run (R12, and R37 where there may be no wall).
    pub fn needs_approval(&self) -> bool {
        self.require_approval || self.providers.contains(&ProviderName::Venv)
    }

    /// How much this policy insists on `control`; a provider's essential ones are required anyway.
    pub fn demand(&self, control: Control) -> Demand {
        self.controls.get(&control).copied().unwrap_or(Demand::Prefer)
    }

    /// The SHA-256 of the policy's canonical form: which policy exactly a run was planned with.
    pub fn hash(&self) -> String {
        // Serialising a struct of plain fields cannot fail; an empty text would only change the hash.
        let text = serde_json::to_vec(self).unwrap_or_default();
        hex(&Sha256::digest(text))
    }
}

/// Lower-case hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes
        .iter()
        .fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
}

/// The wire form: document 000's names, flat.
#[derive(Serialize)]
struct Flat<'a> {
    policy_id: &'a str,
    name: &'a str,
    isolation_level: IsolationLevel,
    network_policy: NetworkPolicy,
    max_cpu_seconds: f64,
    max_memory_mb: i64,
    max_wall_time_seconds: f64,
    max_processes: i64,
    max_file_size_mb: i64,
    allowed_languages: &'a BTreeSet<Language>,
    max_executions_per_minute: u32,
    max_executions_per_hour: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_concurrent_executions: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_cpu_seconds_per_day: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_output_mb_per_day: Option<u64>,
    allow_network: bool,
    allow_file_write: bool,
    require_approval: bool,
    keep_code: bool,
    fresh_interpreter: bool,
    max_open_files: i64,
    max_disk_mb: i64,
    max_output_mb: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_cpu_percent: Option<i64>,
    max_tool_calls: u32,
    max_concurrent_tools: u32,
    max_idle_seconds: f64,
    max_age_seconds: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    allowed_imports: Option<&'a [String]>,
    forbidden_calls: &'a [String],
    approve_tools: &'a [String],
    allowed_commands: &'a [String],
    allowed_mounts: Vec<String>,
    allowed_environments: &'a BTreeSet<EnvironmentName>,
    allowed_hosts: &'a [Rule],
    max_connections: u32,
    max_receive_mb: u64,
    max_send_mb: u64,
    providers: &'a [ProviderName],
    allowed_images: &'a [String],
    controls: &'a BTreeMap<Control, Demand>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    secrets: &'a [Secret],
}

impl Serialize for Policy {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let LimitNumbers {
            max_memory_mb,
            max_cpu_seconds,
            max_wall_time_seconds,
            max_processes,
            max_open_files,
            max_file_size_mb,
            max_disk_mb,
            max_output_mb,
            max_cpu_percent,
        } = self.limits.numbers();
        Flat {
            policy_id: &self.policy_id,
            name: &self.name,
            isolation_level: self.isolation_level,
            network_policy: self.network,
            max_cpu_seconds,
            max_memory_mb,
            max_wall_time_seconds,
            max_processes,
            max_file_size_mb,
            allowed_languages: &self.allowed_languages,
            max_executions_per_minute: self.quotas.per_minute,
            max_executions_per_hour: self.quotas.per_hour,
            max_concurrent_executions: self.quotas.concurrent,
            max_cpu_seconds_per_day: self.quotas.cpu_per_day.map(Seconds::get),
            max_output_mb_per_day: self.quotas.output_per_day.map(Bytes::mib_ceil),
            allow_network: self.allow_network,
            allow_file_write: self.allow_file_write,
            require_approval: self.require_approval,
            keep_code: self.keep_code,
            fresh_interpreter: self.fresh_interpreter,
            max_open_files,
            max_disk_mb,
            max_output_mb,
            max_cpu_percent,
            max_tool_calls: self.session.max_tool_calls,
            max_concurrent_tools: self.session.max_concurrent_tools,
            max_idle_seconds: self.session.max_idle.get(),
            max_age_seconds: self.session.max_age.get(),
            allowed_imports: self.session.allowed_imports.as_deref(),
            forbidden_calls: &self.session.forbidden_calls,
            approve_tools: &self.session.approve_tools,
            allowed_commands: &self.allowed_commands,
            allowed_mounts: self.allowed_mounts.iter().map(Mount::to_string).collect(),
            allowed_environments: &self.allowed_environments,
            allowed_hosts: &self.allowed_hosts,
            max_connections: self.egress.connections,
            max_receive_mb: self.egress.incoming.mib_ceil(),
            max_send_mb: self.egress.outgoing.mib_ceil(),
            providers: &self.providers,
            allowed_images: &self.allowed_images,
            controls: &self.controls,
            secrets: &self.secrets,
        }
        .serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// R3: the fifteen fields of document 000, with their defaults.
    #[test]
    fn a_policy_has_the_documents_fifteen_fields() {
        let limits = Limits::new(&LimitNumbers::default()).unwrap();
        let value = serde_json::to_value(Policy::named("p", "P", limits)).unwrap();
        let expected = serde_json::json!({
            "policy_id": "p", "name": "P", "isolation_level": "process", "network_policy": "none",
            "max_cpu_seconds": 30.0, "max_memory_mb": 256, "max_wall_time_seconds": 60.0, "max_processes": 10,
            "max_file_size_mb": 10, "allowed_languages": ["python", "javascript", "bash"],
            "max_executions_per_minute": 10, "max_executions_per_hour": 100, "allow_network": false,
            "allow_file_write": false, "require_approval": false
        });
        for (field, expected) in expected.as_object().unwrap() {
            assert_eq!(&value[field], expected, "{field}");
        }
    }

    #[test]
    fn the_hash_names_the_exact_policy() {
        let standard = Policy::builtin("standard").unwrap();
        let mut changed = standard.clone();
        assert_eq!(standard.hash(), changed.hash());
        changed.allow_file_write = false;
        assert_ne!(standard.hash(), changed.hash());
        type Change = fn(&mut SessionRules);
        let changes: [Change; 7] = [
            |rules| rules.approve_tools.push("send".to_owned()),
            |rules| rules.max_tool_calls += 1,
            |rules| rules.max_concurrent_tools += 1,
            |rules| rules.allowed_imports = Some(Vec::new()),
            |rules| rules.forbidden_calls.push("eval".to_owned()),
            |rules| rules.max_idle = crate::Seconds::whole(1),
            |rules| rules.max_age = crate::Seconds::whole(1),
        ];
        for change in changes {
            let mut changed = standard.clone();
            change(&mut changed.session);
            assert_ne!(standard.hash(), changed.hash());
        }
        assert_eq!(standard.hash().len(), 64);
    }
}
