//! What a request wishes for a session, against what the policy permits.

use crate::denial::{Denial, DenialCode};
use crate::policy::Policy;
use crate::request::Request;
use crate::session::{SessionRules, is_dotted_name};
use crate::units::Seconds;

pub(super) fn check(policy: &Policy, request: &Request) -> Result<SessionRules, Denial> {
    let (rules, wishes) = (&policy.session, &request.session);
    for (field, asked, permitted) in [
        ("max_tool_calls", wishes.tool_calls, rules.max_tool_calls),
        (
            "max_concurrent_tools",
            wishes.concurrent_tools,
            rules.max_concurrent_tools,
        ),
    ] {
        if let Some(asked) = asked.filter(|asked| *asked > permitted) {
            return Err(exceeds(policy, field, &asked.to_string(), &permitted.to_string()));
        }
    }
    for (field, asked, permitted) in [
        ("max_idle_seconds", wishes.idle, rules.max_idle),
        ("max_age_seconds", wishes.age, rules.max_age),
    ] {
        if let Some(asked) = asked.filter(|asked| *asked > permitted) {
            let number = |seconds: Seconds| seconds.get().to_string();
            return Err(exceeds(policy, field, &number(asked), &number(permitted)));
        }
    }
    let too_small = [
        ("concurrent_tools", wishes.concurrent_tools == Some(0)),
        ("idle", wishes.idle.is_some_and(|idle| idle.get() <= 0.0)),
        ("age", wishes.age.is_some_and(|age| age.get() <= 0.0)),
    ];
    if let Some((field, _)) = too_small.into_iter().find(|(_, bad)| *bad) {
        return Err(Denial::new(
            DenialCode::ArgumentInvalid,
            field,
            "0",
            format!("a session with {field} 0 could do nothing"),
            "ask for more than nothing",
        ));
    }
    check_names(policy, request)?;
    Ok(rules.narrowed(wishes))
}

fn exceeds(policy: &Policy, field: &str, asked: &str, permitted: &str) -> Denial {
    Denial::new(
        DenialCode::LimitExceedsPolicy,
        field,
        asked,
        format!(
            "the request asks for {asked}, policy `{}` permits {permitted}",
            policy.policy_id
        ),
        format!("set {field} = {asked} in the policy, or ask for less"),
    )
}

fn check_names(policy: &Policy, request: &Request) -> Result<(), Denial> {
    let wishes = &request.session;
    let imports = wishes.imports.iter().flatten();
    for name in imports.clone().chain(&wishes.forbidden_calls) {
        if !is_dotted_name(name) {
            return Err(Denial::new(
                DenialCode::ArgumentInvalid,
                "names",
                name,
                "an import or a call is named by identifiers with dots between",
                "write it as code would, such as os.path",
            ));
        }
    }
    for module in imports {
        if !policy.session.permits_import(module) {
            return Err(Denial::new(
                DenialCode::ImportNotAllowed,
                "allowed_imports",
                module,
                format!("policy `{}` does not allow importing {module}", policy.policy_id),
                format!("add \"{module}\" to allowed_imports in the policy"),
            ));
        }
    }
    Ok(())
}
