//! The `SandboxConfig` of document 004 (R2).

use crate::limits::{LimitError, LimitNumbers, Limits};
use crate::policy::Policy;
use crate::status::NetworkPolicy;

/// A flat configuration with document 004's names and defaults. [`SandboxConfig::policy`] turns it
/// into the policy it means.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SandboxConfig {
    pub max_memory_mb: i64,
    pub max_cpu_seconds: f64,
    pub max_file_size_mb: i64,
    pub max_process_count: i64,
    pub max_open_files: i64,
    pub allow_network: bool,
    pub allowed_hosts: Vec<String>,
    pub timeout_seconds: f64,
    pub allowed_commands: Vec<String>,
}

impl Default for SandboxConfig {
    fn default() -> Self {
        Self {
            max_memory_mb: 512,
            max_cpu_seconds: 30.0,
            max_file_size_mb: 100,
            max_process_count: 10,
            max_open_files: 100,
            allow_network: false,
            allowed_hosts: Vec::new(),
            timeout_seconds: 60.0,
            allowed_commands: Vec::new(),
        }
    }
}

impl SandboxConfig {
    /// The policy that this configuration means; refuses a bad limit by its name here.
    pub fn policy(&self) -> Result<Policy, LimitError> {
        let limits = Limits::new(&LimitNumbers {
            max_memory_mb: self.max_memory_mb,
            max_cpu_seconds: self.max_cpu_seconds,
            max_wall_time_seconds: self.timeout_seconds,
            max_processes: self.max_process_count,
            max_open_files: self.max_open_files,
            max_file_size_mb: self.max_file_size_mb,
            max_disk_mb: self.max_file_size_mb.max(LimitNumbers::default().max_disk_mb),
            ..LimitNumbers::default()
        })
        .map_err(|error| LimitError {
            field: match error.field {
                "max_processes" => "max_process_count",
                "max_wall_time_seconds" => "timeout_seconds",
                field => field,
            },
            ..error
        })?;
        let network = match (self.allow_network, self.allowed_hosts.is_empty()) {
            (false, _) => NetworkPolicy::None,
            (true, false) => NetworkPolicy::Restricted,
            (true, true) => NetworkPolicy::Full,
        };
        let mut allowed_hosts = Vec::with_capacity(self.allowed_hosts.len());
        for host in &self.allowed_hosts {
            allowed_hosts.push(host.parse().map_err(|_| LimitError {
                field: "allowed_hosts",
                expected: "names of hosts, such as example.com or example.com:443",
                value: host.clone(),
            })?);
        }
        let mut policy = Policy::named("config", "SandboxConfig", limits);
        policy.network = network;
        policy.allow_network = self.allow_network;
        policy.allowed_hosts = allowed_hosts;
        policy.allow_file_write = true;
        policy.allowed_languages = crate::Language::ALL.iter().copied().collect();
        policy.allowed_commands.clone_from(&self.allowed_commands);
        Ok(policy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// R2: the defaults are document 004's table.
    #[test]
    fn defaults_are_the_documents() {
        let config = serde_json::to_value(SandboxConfig::default()).unwrap();
        assert_eq!(
            config,
            serde_json::json!({
                "max_memory_mb": 512, "max_cpu_seconds": 30.0, "max_file_size_mb": 100, "max_process_count": 10,
                "max_open_files": 100, "allow_network": false, "allowed_hosts": [], "timeout_seconds": 60.0,
                "allowed_commands": []
            })
        );
    }

    /// R6: bad limits are refused with the configuration's own field name.
    #[test]
    fn bad_limits_are_named_as_the_document_names_them() {
        let field = |config: SandboxConfig| config.policy().unwrap_err().field;
        assert_eq!(
            field(SandboxConfig {
                max_memory_mb: -1,
                ..Default::default()
            }),
            "max_memory_mb"
        );
        assert_eq!(
            field(SandboxConfig {
                timeout_seconds: 0.0,
                ..Default::default()
            }),
            "timeout_seconds"
        );
        assert_eq!(
            field(SandboxConfig {
                max_process_count: 0,
                ..Default::default()
            }),
            "max_process_count"
        );
        assert_eq!(
            field(SandboxConfig {
                max_cpu_seconds: f64::NAN,
                ..Default::default()
            }),
            "max_cpu_seconds"
        );
        assert_eq!(
            field(SandboxConfig {
                max_open_files: -1,
                ..Default::default()
            }),
            "max_open_files"
        );
    }

    #[test]
    fn network_follows_from_both_fields() {
        let network = |allow_network, hosts: &[&str]| {
            let allowed_hosts = hosts.iter().map(|host| (*host).to_owned()).collect();
            SandboxConfig {
                allow_network,
                allowed_hosts,
                ..Default::default()
            }
            .policy()
            .unwrap()
            .network
        };
        assert_eq!(network(false, &[]), NetworkPolicy::None);
        assert_eq!(network(false, &["a"]), NetworkPolicy::None);
        assert_eq!(network(true, &["a"]), NetworkPolicy::Restricted);
        assert_eq!(network(true, &[]), NetworkPolicy::Full);
    }
}
