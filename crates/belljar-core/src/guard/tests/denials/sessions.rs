//! Sessions: their budgets, their time, and what their code may import.

use super::super::World;
use super::{Mend, Row};
use crate::denial::DenialCode;
use crate::language::Language;
use crate::request::Source;
use crate::units::Seconds;

pub(super) fn session_rows() -> Vec<Row> {
    vec![
        limit(
            "max_tool_calls",
            "101",
            "set max_tool_calls = 101 in the policy, or ask for less",
            |world| world.request.session.tool_calls = Some(101),
        ),
        limit(
            "max_concurrent_tools",
            "6",
            "set max_concurrent_tools = 6 in the policy, or ask for less",
            |world| world.request.session.concurrent_tools = Some(6),
        ),
        limit(
            "max_idle_seconds",
            "1801",
            "set max_idle_seconds = 1801 in the policy, or ask for less",
            |world| world.request.session.idle = Some(Seconds::whole(1801)),
        ),
        limit(
            "max_age_seconds",
            "86400.5",
            "set max_age_seconds = 86400.5 in the policy, or ask for less",
            |world| world.request.session.age = Seconds::new(86_400.5).ok(),
        ),
        Row {
            name: "a module that the policy does not list",
            spoil: |world| {
                world.policy.session.allowed_imports = Some(vec!["json".to_owned()]);
                world.request.session.imports = Some(vec!["json".to_owned(), "os".to_owned()]);
            },
            code: DenialCode::ImportNotAllowed,
            rule: "allowed_imports",
            value: "os",
            fix: "add \"os\" to allowed_imports in the policy",
            mend: Mend::AsWritten,
        },
        nothing("concurrent_tools", |world| {
            world.request.session.concurrent_tools = Some(0);
        }),
        nothing("idle", |world| world.request.session.idle = Some(Seconds::ZERO)),
        nothing("age", |world| world.request.session.age = Some(Seconds::ZERO)),
        Row {
            name: "a call that is no name",
            spoil: |world| world.request.session.forbidden_calls = vec!["eval()".to_owned()],
            code: DenialCode::ArgumentInvalid,
            rule: "names",
            value: "eval()",
            fix: "write it as code would, such as os.path",
            mend: Mend::By(|world| world.request.session.forbidden_calls = vec!["eval".to_owned()]),
        },
        // P65.
        Row {
            name: "a variable that runs something before it is approved",
            spoil: |world| {
                world.policy.require_approval = true;
                world.request.approved = true;
                world.request.source = Source::Interpreter {
                    language: Language::Python,
                };
                world
                    .request
                    .env
                    .insert("OPENSSL_CONF".to_owned(), "x".to_owned());
            },
            code: DenialCode::EnvironmentInvalid,
            rule: "env",
            value: "OPENSSL_CONF",
            fix: "leave OPENSSL_CONF out, and set it in the code that is to be approved",
            mend: Mend::By(|world| world.request.env.clear()),
        },
    ]
}

fn limit(field: &'static str, value: &'static str, fix: &'static str, spoil: fn(&mut World)) -> Row {
    Row {
        name: field,
        spoil,
        code: DenialCode::LimitExceedsPolicy,
        rule: field,
        value,
        fix,
        mend: Mend::AsWritten,
    }
}

fn nothing(rule: &'static str, spoil: fn(&mut World)) -> Row {
    Row {
        name: rule,
        spoil,
        code: DenialCode::ArgumentInvalid,
        rule,
        value: "0",
        fix: "ask for more than nothing",
        mend: Mend::By(|world| {
            let wishes = &mut world.request.session;
            wishes.concurrent_tools = wishes.concurrent_tools.and(Some(1));
            wishes.idle = wishes.idle.and(Some(Seconds::whole(1)));
            wishes.age = wishes.age.and(Some(Seconds::whole(1)));
        }),
    }
}
