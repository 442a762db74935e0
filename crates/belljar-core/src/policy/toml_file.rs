//! Policies from TOML, with errors that name file, line and field.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Spanned;

use super::Policy;
use crate::control::{Control, Demand};
use crate::egress::{Egress, MOST_CONNECTIONS, Rule, RuleText, Secret, SecretFields};
use crate::environment::EnvironmentName;
use crate::identifier::check_identifier;
use crate::language::Language;
use crate::limits::{LimitNumbers, Limits};
use crate::mount::Mount;
use crate::quota::Quotas;
use crate::session::{self, MOST_CONCURRENT_TOOLS, MOST_TOOL_CALLS, SessionRules};
use crate::status::{IsolationLevel, NetworkPolicy, ProviderName};
use crate::units::{Bytes, Seconds};

/// The longest id of a policy.
const MAX_ID_LEN: usize = 256;

/// What is wrong with a policy file, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {}{message}", field.as_ref().map(|field| format!("{field}: ")).unwrap_or_default())]
pub struct PolicyFileError {
    pub file: String,
    pub line: usize,
    pub field: Option<String>,
    pub message: String,
}

/// The file's shape. Numbers are read wide and checked by name afterwards.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PolicyFile {
    policy_id: Option<Spanned<String>>,
    name: Option<String>,
    /// A built-in policy to start from.
    extends: Option<Spanned<String>>,
    isolation_level: Option<Spanned<String>>,
    network_policy: Option<Spanned<String>>,
    max_cpu_seconds: Option<Spanned<Number>>,
    max_memory_mb: Option<Spanned<i64>>,
    max_wall_time_seconds: Option<Spanned<Number>>,
    max_processes: Option<Spanned<i64>>,
    max_file_size_mb: Option<Spanned<i64>>,
    allowed_languages: Option<Vec<Spanned<String>>>,
    max_executions_per_minute: Option<Spanned<i64>>,
    max_executions_per_hour: Option<Spanned<i64>>,
    max_concurrent_executions: Option<Spanned<i64>>,
    max_cpu_seconds_per_day: Option<Spanned<Number>>,
    max_output_mb_per_day: Option<Spanned<i64>>,
    allow_network: Option<bool>,
    allow_file_write: Option<bool>,
    require_approval: Option<bool>,
    keep_code: Option<bool>,
    fresh_interpreter: Option<bool>,
    max_open_files: Option<Spanned<i64>>,
    max_disk_mb: Option<Spanned<i64>>,
    max_output_mb: Option<Spanned<i64>>,
    max_cpu_percent: Option<Spanned<i64>>,
    max_tool_calls: Option<Spanned<i64>>,
    max_concurrent_tools: Option<Spanned<i64>>,
    max_idle_seconds: Option<Spanned<Number>>,
    max_age_seconds: Option<Spanned<Number>>,
    allowed_imports: Option<Vec<Spanned<String>>>,
    forbidden_calls: Option<Vec<Spanned<String>>>,
    approve_tools: Option<Vec<Spanned<String>>>,
    allowed_commands: Option<Vec<String>>,
    allowed_mounts: Option<Vec<Spanned<String>>>,
    allowed_environments: Option<Vec<Spanned<String>>>,
    allowed_hosts: Option<Vec<Spanned<RuleText>>>,
    max_connections: Option<Spanned<i64>>,
    max_receive_mb: Option<Spanned<i64>>,
    max_send_mb: Option<Spanned<i64>>,
    providers: Option<Vec<Spanned<String>>>,
    allowed_images: Option<Vec<Spanned<String>>>,
    controls: Option<BTreeMap<Spanned<String>, Spanned<String>>>,
    secrets: Option<Vec<Spanned<SecretFields>>>,
}

/// `30` and `30.5` alike.
#[derive(Deserialize, Clone, Copy)]
#[serde(untagged, expecting = "expected a number")]
enum Number {
    Whole(i64),
    Real(f64),
}

impl Number {
    fn get(self) -> f64 {
        match self {
            Self::Whole(value) => value as f64,
            Self::Real(value) => value,
        }
    }
}

impl Policy {
    /// Reads a policy from TOML text; `file` is only for the error.
    ///
    /// Fields that are absent come from `extends` where it is given, else from document 000's
    /// defaults.
    pub fn from_toml(text: &str, file: &str) -> Result<Self, PolicyFileError> {
        let place = Place { text, file };
        let read: PolicyFile = toml::from_str(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            place.error(at, place.key_of_line(at), error.message().to_owned())
        })?;
        build(read, &place)
    }

    /// The policy as TOML that [`Policy::from_toml`] reads back to the same policy.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).unwrap_or_default()
    }
}

fn build(read: PolicyFile, place: &Place<'_>) -> Result<Policy, PolicyFileError> {
    let base = match &read.extends {
        None => None,
        Some(name) => Some(Policy::builtin(name.get_ref()).ok_or_else(|| {
            let known = Policy::BUILTIN.join(", ");
            place.field(
                name,
                "extends",
                format!(
                    "`{}` is not a built-in policy; use one of {known}",
                    name.get_ref()
                ),
            )
        })?),
    };
    let id = match &read.policy_id {
        Some(id) => {
            check_identifier(id.get_ref(), MAX_ID_LEN)
                .map_err(|error| place.field(id, "policy_id", error.to_string()))?;
            id.get_ref().clone()
        }
        None => place.file_stem(),
    };
    let limits = read_limits(&read, base.as_ref(), place)?;
    let mut policy = base.unwrap_or_else(|| Policy::named(&id, &id, limits.clone()));
    policy.limits = limits;
    policy.name = read.name.clone().unwrap_or_else(|| id.clone());
    policy.policy_id = id;
    if let Some(level) = &read.isolation_level {
        policy.isolation_level = place.word::<IsolationLevel>(level, "isolation_level")?;
    }
    if let Some(network) = &read.network_policy {
        policy.network = place.word::<NetworkPolicy>(network, "network_policy")?;
    }
    if let Some(languages) = &read.allowed_languages {
        policy.allowed_languages = languages
            .iter()
            .map(|name| match Language::from_name(name.get_ref()) {
                Some(language) => Ok(language),
                None => place.word::<Language>(name, "allowed_languages"),
            })
            .collect::<Result<_, _>>()?;
    }
    read_providers(&read, &mut policy, place)?;
    read_network(&read, &mut policy, place)?;
    read_quotas(&read, &mut policy.quotas, place)?;
    read_session(&read, &mut policy.session, place)?;
    policy.allow_network = read.allow_network.unwrap_or(policy.allow_network);
    policy.allow_file_write = read.allow_file_write.unwrap_or(policy.allow_file_write);
    policy.require_approval = read.require_approval.unwrap_or(policy.require_approval);
    policy.keep_code = read.keep_code.unwrap_or(policy.keep_code);
    policy.fresh_interpreter = read.fresh_interpreter.unwrap_or(policy.fresh_interpreter);
    policy.allowed_commands = read.allowed_commands.unwrap_or(policy.allowed_commands);
    if let Some(mounts) = &read.allowed_mounts {
        policy.allowed_mounts = mounts
            .iter()
            .map(|mount| {
                mount
                    .get_ref()
                    .parse()
                    .map_err(|error: crate::mount::MountError| {
                        place.field(mount, "allowed_mounts", error.to_string())
                    })
            })
            .collect::<Result<Vec<Mount>, _>>()?;
    }
    if let Some(names) = &read.allowed_environments {
        policy.allowed_environments = names
            .iter()
            .map(|name| {
                EnvironmentName::new(name.get_ref())
                    .map_err(|error| place.field(name, "allowed_environments", error.to_string()))
            })
            .collect::<Result<_, _>>()?;
    }
    for (control, demand) in read.controls.iter().flatten() {
        let control = place.word::<Control>(control, "controls")?;
        policy
            .controls
            .insert(control, place.word::<Demand>(demand, control.word())?);
    }
    Ok(policy)
}

fn read_providers(read: &PolicyFile, policy: &mut Policy, place: &Place<'_>) -> Result<(), PolicyFileError> {
    if let Some(names) = &read.providers {
        policy.providers = names
            .iter()
            .map(|name| place.word::<ProviderName>(name, "providers"))
            .collect::<Result<_, _>>()?;
        let too_weak = names.iter().zip(&policy.providers);
        for (name, provider) in too_weak {
            if provider.isolation() < policy.isolation_level {
                let message = format!(
                    "`{provider}` gives {} isolation, which is less than isolation_level = \"{}\"",
                    provider.isolation(),
                    policy.isolation_level
                );
                return Err(place.field(name, "providers", message));
            }
        }
    }
    if let Some(images) = &read.allowed_images {
        for image in images {
            let plain = |c: char| c.is_ascii_graphic();
            let star = image.get_ref().find('*');
            if image.get_ref().is_empty()
                || !image.get_ref().chars().all(plain)
                || star.is_some_and(|at| at + 1 != image.get_ref().len())
            {
                let message = format!(
                    "`{}` is no image's name; a `*` may only stand at the end",
                    image.get_ref().escape_default()
                );
                return Err(place.field(image, "allowed_images", message));
            }
        }
        policy.allowed_images = images.iter().map(|image| image.get_ref().clone()).collect();
    }
    Ok(())
}

fn read_network(read: &PolicyFile, policy: &mut Policy, place: &Place<'_>) -> Result<(), PolicyFileError> {
    if let Some(hosts) = &read.allowed_hosts {
        policy.allowed_hosts = hosts
            .iter()
            .map(|host| {
                Rule::try_from(host.get_ref().clone())
                    .map_err(|error| place.field(host, "allowed_hosts", error.to_string()))
            })
            .collect::<Result<_, _>>()?;
        if let (Some(why), Some(last)) = (Egress::too_much(&policy.allowed_hosts), hosts.last()) {
            return Err(place.field(last, "allowed_hosts", why));
        }
    }
    if let Some(value) = &read.max_connections {
        let connections = not_negative(value, "max_connections", place)?;
        if connections > MOST_CONNECTIONS {
            let message = format!("must be at most {MOST_CONNECTIONS}, not {connections}");
            return Err(place.field(value, "max_connections", message));
        }
        policy.egress.connections = connections;
    }
    if let Some(secrets) = &read.secrets {
        policy.secrets = secrets
            .iter()
            .map(|secret| {
                Secret::try_from(secret.get_ref().clone())
                    .map_err(|error| place.field(secret, "secrets", error.to_string()))
            })
            .collect::<Result<_, _>>()?;
        let everyone = policy.network == NetworkPolicy::Full;
        if let Err((at, error)) = Secret::check(&policy.secrets, &policy.allowed_hosts, everyone) {
            return Err(place.field(&secrets[at], "secrets", error.to_string()));
        }
    }
    for (field, value, target) in [
        (
            "max_receive_mb",
            &read.max_receive_mb,
            &mut policy.egress.incoming,
        ),
        ("max_send_mb", &read.max_send_mb, &mut policy.egress.outgoing),
    ] {
        if let Some(value) = value {
            *target = Bytes::from_mib(not_negative(value, field, place)?.into());
        }
    }
    Ok(())
}

fn read_quotas(read: &PolicyFile, quotas: &mut Quotas, place: &Place<'_>) -> Result<(), PolicyFileError> {
    let rates = [
        (
            "max_executions_per_minute",
            &read.max_executions_per_minute,
            &mut quotas.per_minute,
        ),
        (
            "max_executions_per_hour",
            &read.max_executions_per_hour,
            &mut quotas.per_hour,
        ),
    ];
    for (field, value, target) in rates {
        if let Some(value) = value {
            *target = not_negative(value, field, place)?;
        }
    }
    if let Some(value) = &read.max_concurrent_executions {
        quotas.concurrent = Some(not_negative(value, "max_concurrent_executions", place)?);
    }
    if let Some(value) = &read.max_cpu_seconds_per_day {
        let seconds = value.get_ref().get();
        quotas.cpu_per_day = Some(Seconds::new(seconds).map_err(|_| {
            let message = format!("must be a number of seconds, 0 or more, not {seconds}");
            place.field(value, "max_cpu_seconds_per_day", message)
        })?);
    }
    if let Some(value) = &read.max_output_mb_per_day {
        let mib: u32 = not_negative(value, "max_output_mb_per_day", place)?;
        quotas.output_per_day = Some(Bytes::from_mib(mib.into()));
    }
    Ok(())
}

fn not_negative(value: &Spanned<i64>, field: &str, place: &Place<'_>) -> Result<u32, PolicyFileError> {
    u32::try_from(*value.get_ref()).map_err(|_| {
        let message = match *value.get_ref() {
            negative @ ..0 => format!("must be 0 or more, not {negative}"),
            large => format!("must be at most {}, not {large}", u32::MAX),
        };
        place.field(value, field, message)
    })
}

fn read_session(
    read: &PolicyFile,
    rules: &mut SessionRules,
    place: &Place<'_>,
) -> Result<(), PolicyFileError> {
    let counts = [
        (
            "max_tool_calls",
            &read.max_tool_calls,
            (0, MOST_TOOL_CALLS),
            &mut rules.max_tool_calls,
        ),
        (
            "max_concurrent_tools",
            &read.max_concurrent_tools,
            (1, MOST_CONCURRENT_TOOLS),
            &mut rules.max_concurrent_tools,
        ),
    ];
    for (field, value, (least, most), target) in counts {
        if let Some(value) = value {
            *target = session::count(field, *value.get_ref(), least, most).map_err(|error| {
                let message = format!("must be {}, not {}", error.expected, error.value);
                place.field(value, field, message)
            })?;
        }
    }
    let times = [
        ("max_idle_seconds", &read.max_idle_seconds, &mut rules.max_idle),
        ("max_age_seconds", &read.max_age_seconds, &mut rules.max_age),
    ];
    for (field, value, target) in times {
        if let Some(value) = value {
            let seconds = value.get_ref().get();
            *target = Seconds::new(seconds)
                .ok()
                .filter(|seconds| seconds.get() > 0.0)
                .ok_or_else(|| {
                    let message = format!("must be a number of seconds above 0, not {seconds}");
                    place.field(value, field, message)
                })?;
        }
    }
    if let Some(modules) = &read.allowed_imports {
        rules.allowed_imports = Some(read_names(modules, "allowed_imports", place)?);
    }
    if let Some(calls) = &read.forbidden_calls {
        rules.forbidden_calls = read_names(calls, "forbidden_calls", place)?;
    }
    if let Some(tools) = &read.approve_tools {
        rules.approve_tools = read_names(tools, "approve_tools", place)?;
    }
    Ok(())
}

fn read_names(
    names: &[Spanned<String>],
    field: &str,
    place: &Place<'_>,
) -> Result<Vec<String>, PolicyFileError> {
    names
        .iter()
        .map(|name| {
            if session::is_dotted_name(name.get_ref()) {
                return Ok(name.get_ref().clone());
            }
            let message = format!(
                "`{}` is not a name; write it as code would, such as os.path",
                name.get_ref().escape_debug()
            );
            Err(place.field(name, field, message))
        })
        .collect()
}

fn read_limits(
    read: &PolicyFile,
    base: Option<&Policy>,
    place: &Place<'_>,
) -> Result<Limits, PolicyFileError> {
    let mut numbers = base.map_or_else(LimitNumbers::default, |policy| policy.limits.numbers());
    let mut spans = BTreeMap::new();
    let whole = [
        ("max_memory_mb", &read.max_memory_mb, &mut numbers.max_memory_mb),
        ("max_processes", &read.max_processes, &mut numbers.max_processes),
        (
            "max_file_size_mb",
            &read.max_file_size_mb,
            &mut numbers.max_file_size_mb,
        ),
        (
            "max_open_files",
            &read.max_open_files,
            &mut numbers.max_open_files,
        ),
        ("max_disk_mb", &read.max_disk_mb, &mut numbers.max_disk_mb),
        ("max_output_mb", &read.max_output_mb, &mut numbers.max_output_mb),
    ];
    for (field, value, target) in whole {
        if let Some(value) = value {
            *target = *value.get_ref();
            spans.insert(field, value.span().start);
        }
    }
    let real = [
        (
            "max_cpu_seconds",
            &read.max_cpu_seconds,
            &mut numbers.max_cpu_seconds,
        ),
        (
            "max_wall_time_seconds",
            &read.max_wall_time_seconds,
            &mut numbers.max_wall_time_seconds,
        ),
    ];
    for (field, value, target) in real {
        if let Some(value) = value {
            *target = value.get_ref().get();
            spans.insert(field, value.span().start);
        }
    }
    if let Some(value) = &read.max_cpu_percent {
        numbers.max_cpu_percent = Some(*value.get_ref());
        spans.insert("max_cpu_percent", value.span().start);
    }
    Limits::new(&numbers).map_err(|error| {
        let at = spans.get(error.field).copied().unwrap_or(0);
        let message = format!("must be {}, not {}", error.expected, error.value);
        place.error(at, Some(error.field.to_owned()), message)
    })
}

/// Where in the file something stands.
struct Place<'a> {
    text: &'a str,
    file: &'a str,
}

impl Place<'_> {
    fn error(&self, at: usize, field: Option<String>, message: String) -> PolicyFileError {
        let before = self.text.as_bytes().get(..at).unwrap_or_default();
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        PolicyFileError {
            file: self.file.to_owned(),
            line,
            field,
            message,
        }
    }

    fn field<T>(&self, value: &Spanned<T>, field: &str, message: String) -> PolicyFileError {
        self.error(value.span().start, Some(field.to_owned()), message)
    }

    fn word<T>(&self, value: &Spanned<String>, field: &str) -> Result<T, PolicyFileError>
    where
        T: std::str::FromStr<Err = crate::status::UnknownWord>,
    {
        value
            .get_ref()
            .parse()
            .map_err(|error: crate::status::UnknownWord| self.field(value, field, error.to_string()))
    }

    /// The key before `=` on the line at `at`: serde's own errors do not name it.
    fn key_of_line(&self, at: usize) -> Option<String> {
        let start = self.text.get(..at)?.rfind('\n').map_or(0, |newline| newline + 1);
        let line = self.text.get(start..)?.lines().next()?;
        let key = line.split_once('=')?.0.trim();
        (!key.is_empty()).then(|| key.to_owned())
    }

    fn file_stem(&self) -> String {
        let name = self.file.rsplit('/').next().unwrap_or(self.file);
        let stem = name.strip_suffix(".toml").unwrap_or(name);
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        let id: String = stem.chars().map(|c| if plain(c) { c } else { '-' }).collect();
        let id = id.trim_start_matches(['.', '-']);
        match check_identifier(id, MAX_ID_LEN) {
            Ok(()) => id.to_owned(),
            Err(_) => "policy".to_owned(),
        }
    }
}
