//! The guard: `(Policy, Capabilities, Request) -> Plan or Denial`.
//!
//! A pure function. Every check that needs no I/O lives here, and nothing but this makes a
//! [`Plan`]. The order of the checks is the order in which a person would want to hear of them:
//! first what the machine cannot give, then what the policy forbids, then what is malformed, and
//! last whether somebody has to approve it.

mod choice;
mod limits;
mod network;
mod session;
mod stages;
#[cfg(test)]
mod tests;
mod warm;

use std::collections::BTreeSet;

use crate::capabilities::{Capabilities, Support};
use crate::command::{self, CommandError};
use crate::control::{Control, Demand};
use crate::denial::{Denial, DenialCode};
use crate::environment::{Environment, EnvironmentUsed, HOST};
use crate::limits::{LimitOverrides, Limits};
use crate::mount::{Access, Mount};
use crate::path::{GuestPath, check_argument};
use crate::plan::Plan;
use crate::policy::Policy;
use crate::record::code_hash;
use crate::request::{Content, Request, Source};
use crate::variables::startup_variable;

/// The most arguments, variables, files, mounts or outputs a request may have.
const MOST_ITEMS: usize = 10_000;
/// The longest single argument or variable the kernel takes (`MAX_ARG_STRLEN`, less its end).
const LONGEST_ARGUMENT: usize = 128 * 1024 - 1;

pub use choice::{Missing, candidates, may_fetch, none_present};

/// Checks `request` against `policy` on a machine with `capabilities`.
pub fn check(policy: &Policy, capabilities: &Capabilities, request: &Request) -> Result<Plan, Denial> {
    check_isolation(policy, capabilities)?;
    let required = check_controls(policy, capabilities, request)?;
    check_source(policy, request)?;
    check_arguments(request)?;
    check_variables(policy, request)?;
    let environment = check_environment(policy, capabilities, request)?;
    limits::check(policy, &request.limits)?;
    let session = session::check(policy, request)?;
    let network = network::check(policy, capabilities, request)?;
    let egress = network::check_hosts(policy, capabilities, network, request)?;
    check_mounts(policy, request)?;
    let limits = policy.limits.lowered(&request.limits);
    check_files(policy, &limits, request)?;

    let toolchain = match request.language() {
        Some(language) => Some(stages::toolchain(
            capabilities,
            environment,
            request.image.as_deref(),
            language,
        )?),
        None => None,
    };
    if let (Source::Interpreter { language }, Some(toolchain)) = (&request.source, &toolchain) {
        stages::check_runner(*language, toolchain)?;
    }
    check_approval(policy, request)?;
    let told = egress.as_ref().map_or(&[][..], |egress| &egress.secrets);
    let (stages, files) = stages::build(policy, request, toolchain.as_deref(), environment, told, &limits);
    let shows = stages::shows(toolchain.as_deref(), environment);
    Ok(Plan {
        policy_id: policy.policy_id.clone(),
        policy_hash: policy.hash(),
        provider: capabilities.provider,
        image: request.image.clone(),
        fetch_image: may_fetch(policy, request),
        isolation: capabilities.isolation,
        language: request.language(),
        code_hash: code_hash(&request.code_bytes()),
        limits: stages::widest(&limits, &stages),
        stages,
        stdin: request.stdin.clone(),
        files,
        outputs: request.outputs.clone(),
        mounts: request.mounts.clone(),
        workspace: request.workspace.clone(),
        shows,
        root: environment.and_then(|found| Some(found.root.as_ref()?.path.clone())),
        environment: environment.map(|environment| EnvironmentUsed {
            name: environment.name.clone(),
            digest: environment.digest.clone(),
        }),
        network,
        egress,
        trust: None,
        session,
        required,
        caller: request.caller.clone(),
    })
}

/// Checks what one execution of a session asks for: it may only lower.
pub fn check_limits(policy: &Policy, asked: &LimitOverrides) -> Result<(), Denial> {
    limits::check(policy, asked)
}

/// Checks a command that one execution of a session asks for.
pub fn check_command(policy: &Policy, argv: &[String]) -> Result<(), Denial> {
    let request = Request::command(argv.to_vec());
    check_source(policy, &request)?;
    check_arguments(&request)
}

/// R12. It comes last: nobody is asked to approve what could not run anyway.
fn check_approval(policy: &Policy, request: &Request) -> Result<(), Denial> {
    if !policy.needs_approval() || request.approved {
        return Ok(());
    }
    if !policy.require_approval {
        return Err(Denial::new(
            DenialCode::ApprovalRequired,
            "providers",
            "venv",
            format!(
                "policy `{}` lets code run without any wall, and nobody has said yes to this code",
                policy.policy_id
            ),
            "have it approved, or take \"venv\" out of providers in the policy",
        ));
    }
    Err(Denial::new(
        DenialCode::ApprovalRequired,
        "require_approval",
        "true",
        format!(
            "policy `{}` lets nothing run before somebody approves it",
            policy.policy_id
        ),
        "have it approved, or set require_approval = false in the policy",
    ))
}

/// R36: a policy that wants a stronger wall is never served by a weaker one.
fn check_isolation(policy: &Policy, capabilities: &Capabilities) -> Result<(), Denial> {
    if policy.isolation_level <= capabilities.isolation {
        return Ok(());
    }
    Err(Denial::new(
        DenialCode::IsolationUnavailable,
        "isolation_level",
        policy.isolation_level.word(),
        format!(
            "policy `{}` requires {} isolation; the {} provider gives {}",
            policy.policy_id, policy.isolation_level, capabilities.provider, capabilities.isolation
        ),
        format!(
            "set isolation_level = \"{}\" in the policy, or pick another policy (belljar policy list)",
            capabilities.isolation
        ),
    ))
}

/// Invariant: a control that is required and missing is a denial, never a silent downgrade.
fn check_controls(
    policy: &Policy,
    capabilities: &Capabilities,
    request: &Request,
) -> Result<BTreeSet<Control>, Denial> {
    let mut required = BTreeSet::new();
    for control in Control::ALL {
        let asked = request.controls.get(control) == Some(&Demand::Require);
        let essential = capabilities.essential.contains(control);
        if !asked && !essential && policy.demand(*control) == Demand::Prefer {
            continue;
        }
        required.insert(*control);
        let (why, fix) = match capabilities.controls.get(control) {
            Some(Support::Present { .. }) => continue,
            Some(Support::Absent { why, fix }) => (why.clone(), fix.clone()),
            None => (
                "the provider does not have it".to_owned(),
                "pick another provider".to_owned(),
            ),
        };
        // Who insists decides where the demand can be taken back.
        let in_policy = format!("set {control} = \"prefer\" in the policy's [controls]");
        let in_request = format!("do not require {control} in the request");
        let fix = match (asked, policy.demand(*control)) {
            _ if essential => fix,
            (false, _) => format!("{fix}; or {in_policy}"),
            (true, Demand::Prefer) => format!("{fix}; or {in_request}"),
            (true, Demand::Require) => format!("{fix}; or {in_policy} and {in_request}"),
        };
        return Err(Denial::new(
            DenialCode::ControlUnavailable,
            if asked {
                format!("require {control}")
            } else {
                format!("controls.{control}")
            },
            control.word(),
            format!("{control} is required and this machine lacks it: {why}"),
            fix,
        ));
    }
    Ok(required)
}

/// R9, R56, R57: the language or command must be one the policy has.
fn check_source(policy: &Policy, request: &Request) -> Result<(), Denial> {
    match &request.source {
        Source::Code { language, .. } | Source::Interpreter { language } => {
            if !policy.allowed_languages.contains(language) {
                let allowed: Vec<_> = policy
                    .allowed_languages
                    .iter()
                    .map(|language| language.word())
                    .collect();
                return Err(Denial::new(
                    DenialCode::LanguageNotAllowed,
                    "allowed_languages",
                    language.word(),
                    format!(
                        "policy `{}` does not allow {language}, only {}",
                        policy.policy_id,
                        allowed.join(", ")
                    ),
                    format!("add \"{language}\" to allowed_languages in the policy"),
                ));
            }
            if matches!(&request.source, Source::Code { code, .. } if code.is_empty()) {
                return Err(Denial::new(
                    DenialCode::CodeEmpty,
                    "code",
                    "",
                    "there is no code to run",
                    "give some code",
                ));
            }
            Ok(())
        }
        Source::Command { argv } => {
            // What runs is the command and the request's arguments together, so that is checked.
            let words: Vec<String> = argv.iter().chain(&request.args).cloned().collect();
            command::check(&words, &policy.allowed_commands).map_err(|error| match &error {
                CommandError::NotAllowed(program) => Denial::new(
                    DenialCode::CommandNotAllowed,
                    "allowed_commands",
                    program,
                    format!("{error}: {}", policy.allowed_commands.join(", ")),
                    format!("add \"{program}\" to allowed_commands in the policy"),
                ),
                CommandError::Dangerous(pattern) => Denial::new(
                    DenialCode::CommandDangerous,
                    "dangerous patterns",
                    *pattern,
                    error.to_string(),
                    "run it as a script instead (belljar run --lang bash), where the walls alone decide",
                ),
                _ => Denial::new(
                    DenialCode::CommandMalformed,
                    "command",
                    argv.first().map_or("", String::as_str),
                    error.to_string(),
                    "give a program and its arguments, for example: belljar exec -- ls -la",
                ),
            })
        }
    }
}

fn check_arguments(request: &Request) -> Result<(), Denial> {
    let command = match &request.source {
        Source::Command { argv } => argv.get(1..).unwrap_or_default(),
        Source::Code { .. } | Source::Interpreter { .. } => &[],
    };
    let all = || command.iter().chain(&request.args);
    for (what, count) in [
        ("arguments", all().count()),
        ("variables", request.env.len()),
        ("files", request.files.len()),
        ("mounts", request.mounts.len()),
        ("outputs", request.outputs.len()),
    ] {
        if count > MOST_ITEMS {
            return Err(Denial::new(
                DenialCode::ArgumentInvalid,
                what,
                count.to_string(),
                format!("{count} {what} are more than the {MOST_ITEMS} a request may have"),
                "ask for fewer",
            ));
        }
    }
    for argument in all() {
        if argument.contains('\0') || argument.len() > LONGEST_ARGUMENT {
            return Err(Denial::new(
                DenialCode::ArgumentInvalid,
                "arguments",
                argument
                    .chars()
                    .take(40)
                    .collect::<String>()
                    .escape_default()
                    .to_string(),
                format!("an argument holds a NUL byte or is longer than {LONGEST_ARGUMENT} bytes"),
                "pass large or binary data as a file or on standard input",
            ));
        }
        if request.check_paths
            && let Err(error) = check_argument(argument)
        {
            return Err(Denial::new(
                DenialCode::PathNotAllowed,
                "path check",
                argument,
                error.to_string(),
                "name files relative to the work directory, or switch the path check off",
            ));
        }
    }
    Ok(())
}

fn check_variables(policy: &Policy, request: &Request) -> Result<(), Denial> {
    // P65: it starts before anybody has approved what it executes.
    let starts_early = policy.needs_approval() && matches!(request.source, Source::Interpreter { .. });
    for (name, value) in &request.env {
        let plain = !name.is_empty()
            && !name.contains(['=', '\0'])
            && !value.contains('\0')
            && name.len() + value.len() < LONGEST_ARGUMENT;
        if !plain {
            return Err(Denial::new(
                DenialCode::EnvironmentInvalid,
                "env",
                name.escape_default().to_string(),
                "a variable needs a name without `=` and NUL, and a value without NUL and below 128 KiB",
                "write --env NAME=VALUE",
            ));
        }
        if starts_early && let Some(row) = startup_variable(name) {
            return Err(Denial::new(
                DenialCode::EnvironmentInvalid,
                "env",
                name,
                format!(
                    "policy `{}` lets nothing run before somebody approves it, and `{name}` can run something when a program starts: {}",
                    policy.policy_id, row.why
                ),
                format!("leave {name} out, and set it in the code that is to be approved"),
            ));
        }
    }
    Ok(())
}

/// The environment that the request names, looked up by the engine; none is `host`.
fn check_environment<'a>(
    policy: &Policy,
    capabilities: &'a Capabilities,
    request: &Request,
) -> Result<Option<&'a Environment>, Denial> {
    let Some(name) = &request.environment else {
        return Ok(None);
    };
    if !policy.allowed_environments.is_empty() && !policy.allowed_environments.contains(name) {
        let allowed: Vec<_> = policy
            .allowed_environments
            .iter()
            .map(|name| name.as_str())
            .collect();
        return Err(Denial::new(
            DenialCode::EnvironmentNotAllowed,
            "allowed_environments",
            name.as_str(),
            format!(
                "policy `{}` does not allow the environment `{name}`, only {HOST}, {}",
                policy.policy_id,
                allowed.join(", ")
            ),
            format!("add \"{name}\" to allowed_environments in the policy"),
        ));
    }
    let found = capabilities.environments.get(name);
    found.map(Some).ok_or_else(|| {
        Denial::new(
            DenialCode::EnvironmentUnavailable,
            "environment",
            name.as_str(),
            format!("there is no environment `{name}` here"),
            format!("make it with `belljar env create {name}`; `belljar env list` shows what is there"),
        )
    })
}

fn check_mounts(policy: &Policy, request: &Request) -> Result<(), Denial> {
    for mount in &request.mounts {
        let permits =
            |allowed: &Mount| mount.host().starts_with(allowed.host()) && mount.access() <= allowed.access();
        if !policy.allowed_mounts.iter().any(permits) {
            return Err(Denial::new(
                DenialCode::MountNotAllowed,
                "allowed_mounts",
                mount.to_string(),
                format!("policy `{}` does not allow mounting {mount}", policy.policy_id),
                format!("add \"{mount}\" to allowed_mounts in the policy"),
            ));
        }
        if mount.access() == Access::ReadWrite && !policy.allow_file_write {
            return Err(Denial::new(
                DenialCode::FileWriteNotAllowed,
                "allow_file_write",
                mount.to_string(),
                format!(
                    "policy `{}` lets nothing be written, so {mount} cannot be writable",
                    policy.policy_id
                ),
                "mount it :ro, or set allow_file_write = true in the policy",
            ));
        }
    }
    Ok(())
}

fn check_files(policy: &Policy, limits: &Limits, request: &Request) -> Result<(), Denial> {
    let inline = |content: &Content| match content {
        Content::Inline(bytes) => bytes.len() as u64,
        Content::HostFile(_) => 0,
    };
    let code = match &request.source {
        Source::Code { code, .. } => code.len() as u64,
        Source::Interpreter { .. } | Source::Command { .. } => 0,
    };
    let total = request
        .files
        .values()
        .map(|file| inline(&file.content))
        .sum::<u64>()
        + code;
    if total > limits.disk().get() {
        let total = crate::Bytes::new(total);
        // The request's own wish may be the tighter of the two.
        let (rule, fix) = if total > policy.limits.disk() {
            (
                "max_disk_mb",
                format!("set max_disk_mb = {} in the policy", total.mib_ceil()),
            )
        } else {
            ("disk", format!("ask for a disk of {} MiB", total.mib_ceil()))
        };
        return Err(Denial::new(
            DenialCode::FilesTooLarge,
            rule,
            total.get().to_string(),
            format!("the files hold {total}, the sandbox's disk {}", limits.disk()),
            format!("{fix}, or mount the files"),
        ));
    }
    check_file_names(request)
}

/// One name cannot be a file and a directory at once.
fn check_file_names(request: &Request) -> Result<(), Denial> {
    let code = request.language().map(|language| language.spec().file);
    let names: BTreeSet<&str> = request.files.keys().map(GuestPath::as_str).chain(code).collect();
    let below_file = |name: &&str| {
        name.match_indices('/')
            .any(|(end, _)| names.contains(&name[..end]))
    };
    let clash = names.iter().copied().find(below_file);
    match clash {
        None => Ok(()),
        Some(name) => Err(Denial::new(
            DenialCode::ArgumentInvalid,
            "files",
            name,
            format!("`{name}` lies below a name that is a file"),
            "give the file another name",
        )),
    }
}
