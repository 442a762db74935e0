//! `belljar policy`: the built-in policies, and files checked.

use axum::http::Method;
use belljar::{Policy, load};
use serde::Serialize;
use serde_json::Value;

use super::super::args::{PolicyArgs, PolicyCommand};
use super::super::ask::{escaped, with_service};
use super::super::messages;
use super::super::problem::Problem;
use super::super::stdout;
use super::super::table::Table;

pub(crate) fn policy(args: &PolicyArgs) -> Result<u8, Problem> {
    match &args.command {
        PolicyCommand::List { json } => list(*json)?,
        PolicyCommand::Show { policy, json } => {
            let policy = load::policy(policy)?;
            if *json {
                stdout::json(&policy)?;
            } else {
                stdout::print(&policy.to_toml())?;
            }
        }
        PolicyCommand::Check { file, json } => {
            let policy = load::policy_file(file)?;
            if *json {
                stdout::json(&Checked {
                    valid: true,
                    hash: policy.hash(),
                    policy: &policy,
                })?;
            } else {
                stdout::print(&format!(
                    "{}: policy `{}` is valid (sha256 {})\n",
                    super::super::messages::visible(&file.display().to_string()),
                    policy.policy_id,
                    policy.hash()
                ))?;
            }
        }
        PolicyCommand::Define { file, service } => {
            let policy = load::policy_file(file)?;
            let path = format!("/v1/policies/{}", escaped(&policy.policy_id));
            let made: Value = with_service(service, async |client| {
                Ok(client.call(Method::PUT, &path, Some(&policy)).await?)
            })?;
            if service.json {
                stdout::json(&made)?;
            } else {
                let hash = made["hash"].as_str().unwrap_or_default();
                let told = format!(
                    "policy `{}` has version {} (sha256 {hash})",
                    policy.policy_id, made["version"]
                );
                messages::tell(&told);
            }
        }
        PolicyCommand::Delete { policy, service } => {
            let path = format!("/v1/policies/{}", escaped(policy));
            let _: Value = with_service(service, async |client| {
                Ok(client.call(Method::DELETE, &path, None::<&Value>).await?)
            })?;
            match service.json {
                true => stdout::json(&serde_json::json!({ "deleted": policy }))?,
                false => messages::tell(&format!("policy `{policy}` is deleted")),
            }
        }
    }
    Ok(0)
}

#[derive(Serialize)]
struct Checked<'a> {
    valid: bool,
    hash: String,
    policy: &'a Policy,
}

fn list(json: bool) -> Result<(), Problem> {
    let policies: Vec<Policy> = Policy::BUILTIN
        .iter()
        .filter_map(|name| Policy::builtin(name))
        .collect();
    if json {
        return stdout::json(&policies);
    }
    stdout::print(&table(&policies))
}

fn table(policies: &[Policy]) -> String {
    let mut table = Table::default();
    table.row([
        "NAME",
        "ISOLATION",
        "NETWORK",
        "MEMORY",
        "CPU",
        "TIME",
        "PROCESSES",
        "WRITES",
        "APPROVAL",
        "LANGUAGES",
    ]);
    for policy in policies {
        let limits = &policy.limits;
        let languages: Vec<_> = policy
            .allowed_languages
            .iter()
            .map(|language| language.word())
            .collect();
        let yes = |value: bool| if value { "yes" } else { "no" }.to_owned();
        table.row([
            policy.policy_id.clone(),
            policy.isolation_level.to_string(),
            policy.permitted_network().to_string(),
            limits.memory().to_string(),
            limits.cpu_time().to_string(),
            limits.wall_time().to_string(),
            limits.processes().to_string(),
            yes(policy.allow_file_write),
            yes(policy.require_approval),
            languages.join(", "),
        ]);
    }
    table.render()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_policy_has_a_line() {
        let text = table(&[Policy::builtin("standard").unwrap()]);
        let line = text.lines().nth(1).unwrap();
        assert!(
            line.starts_with("standard  process    none     256 MiB"),
            "{line}"
        );
        assert!(line.ends_with("python, javascript, bash"), "{line}");
    }
}
