//! What the machine lacks, and what may not run at all.

use super::super::{present, strings, toolchain};
use super::{Mend, Row};
use crate::capabilities::Support;
use crate::control::{Control, Demand};
use crate::denial::DenialCode;
use crate::environment::EnvironmentName;
use crate::language::Language;
use crate::request::{Request, Source};
use crate::status::{IsolationLevel, ProviderName};

pub(super) fn wall_rows() -> Vec<Row> {
    vec![
        Row {
            name: "R36: a container policy is not served by a process wall",
            spoil: |world| world.policy.isolation_level = IsolationLevel::Container,
            code: DenialCode::IsolationUnavailable,
            rule: "isolation_level",
            value: "container",
            fix: "install one; or install one; or set isolation_level = \"process\" in the policy",
            mend: Mend::AsWritten,
        },
        Row {
            name: "R35: a provider that the policy names and that is not there",
            spoil: |world| world.policy.providers = vec![ProviderName::Docker],
            code: DenialCode::IsolationUnavailable,
            rule: "providers",
            value: "docker",
            fix: "install one",
            mend: Mend::By(|world| world.policy.providers.push(ProviderName::Native)),
        },
        Row {
            name: "a level that nothing gives",
            spoil: |world| world.policy.isolation_level = IsolationLevel::Vm,
            code: DenialCode::IsolationUnavailable,
            rule: "isolation_level",
            value: "vm",
            fix: "set isolation_level = \"container\" in the policy",
            mend: Mend::By(|world| world.policy.isolation_level = IsolationLevel::Process),
        },
        Row {
            name: "a provider that the policy does not name",
            spoil: |world| {
                world.policy.providers = vec![ProviderName::Gvisor, ProviderName::Docker];
                world.request.provider = Some(ProviderName::Native);
            },
            code: DenialCode::ProviderNotAllowed,
            rule: "providers",
            value: "native",
            fix: "add \"native\" to providers in the policy",
            mend: Mend::AsWritten,
        },
        Row {
            name: "R36: a provider below the policy's level",
            spoil: |world| {
                world.policy.isolation_level = IsolationLevel::Container;
                world.request.provider = Some(ProviderName::Native);
            },
            code: DenialCode::ProviderNotAllowed,
            rule: "isolation_level",
            value: "native",
            fix: "set isolation_level = \"process\" in the policy",
            mend: Mend::AsWritten,
        },
        Row {
            name: "no wall at all has to be named",
            spoil: |world| {
                world.capabilities.provider = ProviderName::Venv;
                world.capabilities.isolation = IsolationLevel::None;
                world.request.provider = Some(ProviderName::Venv);
                world.request.approved = true;
            },
            code: DenialCode::ProviderNotAllowed,
            rule: "isolation_level",
            value: "venv",
            fix: "set isolation_level = \"none\" and providers = [\"venv\"] in the policy",
            mend: Mend::AsWritten,
        },
        Row {
            name: "R37: what has no wall runs only where somebody said yes",
            spoil: |world| {
                world.capabilities.provider = ProviderName::Venv;
                world.capabilities.isolation = IsolationLevel::None;
                world.policy.isolation_level = IsolationLevel::None;
                world.policy.providers = vec![ProviderName::Venv];
            },
            code: DenialCode::ApprovalRequired,
            rule: "providers",
            value: "venv",
            fix: "have it approved, or take \"venv\" out of providers in the policy",
            mend: Mend::By(|world| world.request.approved = true),
        },
        Row {
            name: "an image that the policy does not allow",
            spoil: |world| {
                world.capabilities.provider = ProviderName::Docker;
                world.capabilities.isolation = IsolationLevel::Container;
                world.policy.providers = vec![ProviderName::Docker];
                world.policy.allowed_images = strings(["python:*", "node:20"]);
                world.request.image = Some("alpine:3".to_owned());
            },
            code: DenialCode::ImageNotAllowed,
            rule: "allowed_images",
            value: "alpine:3",
            fix: "add \"alpine:3\" to allowed_images in the policy",
            mend: Mend::AsWritten,
        },
        Row {
            name: "an image for a provider that has none",
            spoil: |world| {
                world.request.provider = Some(ProviderName::Native);
                world.request.image = Some("alpine:3".to_owned());
            },
            code: DenialCode::ProviderNotAllowed,
            rule: "image",
            value: "alpine:3",
            fix: "leave the image out, or ask for provider docker",
            mend: Mend::By(|world| world.request.image = None),
        },
        Row {
            name: "what is no image's name",
            spoil: |world| world.request.image = Some("a b".to_owned()),
            code: DenialCode::ImageNotAllowed,
            rule: "image",
            value: "a b",
            fix: "write NAME, NAME:TAG or NAME@DIGEST",
            mend: Mend::By(|world| world.request.image = None),
        },
        Row {
            name: "an image that was made of an environment",
            spoil: |world| {
                world.request.image = Some("docker.io/library/belljar-environment:0123".to_owned())
            },
            code: DenialCode::ImageNotAllowed,
            rule: "image",
            value: "docker.io/library/belljar-environment:0123",
            fix: "name the image or the environment that it was made of; or add \"docker.io/library/belljar-environment:0123\" to allowed_images in the policy",
            mend: Mend::By(|world| world.request.image = None),
        },
        Row {
            name: "an image by a number",
            spoil: |world| world.request.image = Some("0123456789ab".to_owned()),
            code: DenialCode::ImageNotAllowed,
            rule: "image",
            value: "0123456789ab",
            fix: "name the image or the environment that it was made of; or add \"0123456789ab\" to allowed_images in the policy",
            mend: Mend::By(|world| world.request.image = None),
        },
        Row {
            name: "an image and an environment",
            spoil: |world| {
                world.request.image = Some("alpine:3".to_owned());
                world.request.environment = EnvironmentName::new("data").ok();
            },
            code: DenialCode::ImageNotAllowed,
            rule: "image",
            value: "alpine:3",
            fix: "leave out the image or the environment",
            mend: Mend::By(|world| {
                world.request.image = None;
                world.request.environment = None;
            }),
        },
        Row {
            name: "a control that the policy requires",
            spoil: |world| {
                world.policy.controls.insert(Control::Landlock, Demand::Require);
                world.capabilities.controls.insert(Control::Landlock, absent());
            },
            code: DenialCode::ControlUnavailable,
            rule: "controls.landlock",
            value: "landlock",
            fix: "boot a newer kernel; or set landlock = \"prefer\" in the policy's [controls]",
            mend: Mend::AsWritten,
        },
        Row {
            name: "a control that the request requires",
            spoil: |world| {
                world
                    .request
                    .controls
                    .insert(Control::MemoryCgroup, Demand::Require);
                world
                    .capabilities
                    .controls
                    .insert(Control::MemoryCgroup, absent());
            },
            code: DenialCode::ControlUnavailable,
            rule: "require memory-cgroup",
            value: "memory-cgroup",
            fix: "boot a newer kernel; or do not require memory-cgroup in the request",
            mend: Mend::By(|world| {
                world.request.controls.remove(&Control::MemoryCgroup);
            }),
        },
        Row {
            name: "a control that both require",
            spoil: |world| {
                world.policy.controls.insert(Control::FreshUid, Demand::Require);
                world.request.controls.insert(Control::FreshUid, Demand::Require);
                world.capabilities.controls.remove(&Control::FreshUid);
            },
            code: DenialCode::ControlUnavailable,
            rule: "require fresh-uid",
            value: "fresh-uid",
            fix: "pick another provider; or set fresh-uid = \"prefer\" in the policy's [controls] and do not \
                  require fresh-uid in the request",
            mend: Mend::By(|world| {
                world.policy.controls.insert(Control::FreshUid, Demand::Prefer);
                world.request.controls.clear();
            }),
        },
        Row {
            name: "an essential control cannot be talked away",
            spoil: |world| {
                world.policy.controls.insert(Control::Seccomp, Demand::Prefer);
                world.capabilities.controls.insert(Control::Seccomp, absent());
            },
            code: DenialCode::ControlUnavailable,
            rule: "controls.seccomp",
            value: "seccomp",
            fix: "boot a newer kernel",
            mend: Mend::By(|world| {
                world.capabilities.controls.insert(Control::Seccomp, present());
            }),
        },
        Row {
            name: "R12: approval",
            spoil: |world| world.policy.require_approval = true,
            code: DenialCode::ApprovalRequired,
            rule: "require_approval",
            value: "true",
            fix: "have it approved, or set require_approval = false in the policy",
            mend: Mend::AsWritten,
        },
    ]
}

pub(super) fn source_rows() -> Vec<Row> {
    let to_script = Mend::By(|world| {
        let Source::Command { argv } = &world.request.source else {
            panic!("a command");
        };
        world.request = Request::code(Language::Bash, argv.join(" ").into_bytes());
    });
    vec![
        Row {
            name: "R9: a language that the policy lacks",
            spoil: |world| world.request = Request::code(Language::C, *b"int main;"),
            code: DenialCode::LanguageNotAllowed,
            rule: "allowed_languages",
            value: "c",
            fix: "add \"c\" to allowed_languages in the policy",
            mend: Mend::AsWritten,
        },
        Row {
            name: "a language that the machine lacks",
            spoil: |world| world.request = Request::code(Language::Javascript, *b"1"),
            code: DenialCode::LanguageUnavailable,
            rule: "toolchain",
            value: "javascript",
            fix: "install nodejs; `belljar languages` lists what is there",
            mend: Mend::By(|world| {
                let node = toolchain(Language::Javascript);
                world.capabilities.languages.insert(Language::Javascript, node);
            }),
        },
        Row {
            name: "a session in a language without a runner",
            spoil: |world| {
                world.policy.allowed_languages.insert(Language::Bash);
                world.request = Request::interpreter(Language::Bash);
            },
            code: DenialCode::LanguageHasNoSessions,
            rule: "runner",
            value: "bash",
            fix: "open a session in python or javascript, or run the code once",
            mend: Mend::By(|world| world.request = Request::interpreter(Language::Python)),
        },
        Row {
            name: "no code",
            spoil: |world| world.request = Request::code(Language::Python, *b""),
            code: DenialCode::CodeEmpty,
            rule: "code",
            value: "",
            fix: "give some code",
            mend: Mend::By(|world| world.request = Request::code(Language::Python, *b"1")),
        },
        Row {
            name: "R57: a command that is not on the list",
            spoil: |world| {
                world.policy.allowed_commands = strings(["ls"]);
                world.request = Request::command(strings(["/bin/ls", "-l"]));
            },
            code: DenialCode::CommandNotAllowed,
            rule: "allowed_commands",
            value: "/bin/ls",
            fix: "add \"/bin/ls\" to allowed_commands in the policy",
            mend: Mend::AsWritten,
        },
        Row {
            name: "R57: a dangerous pattern",
            spoil: |world| world.request = Request::command(strings(["rm", "-rf", "/"])),
            code: DenialCode::CommandDangerous,
            rule: "dangerous patterns",
            value: "rm -rf /",
            fix: "run it as a script instead (belljar run --lang bash), where the walls alone decide",
            mend: to_script,
        },
        Row {
            name: "R57: a dangerous pattern that is split between command and arguments",
            spoil: |world| {
                world.request = Request::command(strings(["rm"]));
                world.request.args = strings(["-rf", "/"]);
            },
            code: DenialCode::CommandDangerous,
            rule: "dangerous patterns",
            value: "rm -rf /",
            fix: "run it as a script instead (belljar run --lang bash), where the walls alone decide",
            mend: Mend::By(|world| world.request = Request::code(Language::Bash, *b"rm -rf /")),
        },
        Row {
            name: "R56: a command without a program",
            spoil: |world| world.request = Request::command(Vec::new()),
            code: DenialCode::CommandMalformed,
            rule: "command",
            value: "",
            fix: "give a program and its arguments, for example: belljar exec -- ls -la",
            mend: Mend::By(|world| world.request = Request::command(strings(["ls", "-la"]))),
        },
        Row {
            name: "R56: a NUL in a command, shown escaped",
            spoil: |world| world.request = Request::command(strings(["l\0s"])),
            code: DenialCode::CommandMalformed,
            rule: "command",
            value: "l\\u{0}s",
            fix: "give a program and its arguments, for example: belljar exec -- ls -la",
            mend: Mend::By(|world| world.request = Request::command(strings(["ls"]))),
        },
    ]
}

fn absent() -> Support {
    Support::Absent {
        why: "kernel 5.4 is too old".to_owned(),
        fix: "boot a newer kernel".to_owned(),
    }
}
