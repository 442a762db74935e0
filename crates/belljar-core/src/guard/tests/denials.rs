//! One table of everything the guard refuses. Each row spoils a good world, and the advice in the
//! denial is then followed to the letter: the request must pass.

use std::collections::BTreeSet;
use std::path::Path;

use super::{World, present, strings, toolchain};
use crate::capabilities::Support;
use crate::control::{Control, Demand};
use crate::denial::DenialCode;
use crate::language::Language;
use crate::mount::Mount;
use crate::path::GuestPath;
use crate::policy::Policy;
use crate::request::{FileIn, Request, Source};
use crate::status::{IsolationLevel, NetworkPolicy};
use crate::units::{Bytes, Seconds};

struct Row {
    name: &'static str,
    spoil: fn(&mut World),
    code: DenialCode,
    rule: &'static str,
    value: &'static str,
    fix: &'static str,
    mend: Mend,
}

/// How the advice is followed.
enum Mend {
    /// The `fix` text itself is read and carried out on the policy's TOML, so that a text which
    /// names a wrong field or value fails the test.
    AsWritten,
    /// The advice is not about the policy: a change of the machine or of the request.
    By(fn(&mut World)),
}

#[test]
fn every_denial_explains_itself_and_its_fix_works() {
    assert!(World::good().check().is_ok());
    for row in rows() {
        let mut world = World::good();
        (row.spoil)(&mut world);
        let denial = world.check().expect_err(row.name);
        assert_eq!(
            (
                denial.code,
                denial.rule.as_str(),
                denial.value.as_str(),
                denial.fix.as_str()
            ),
            (row.code, row.rule, row.value, row.fix),
            "{}: {denial}",
            row.name
        );
        assert!(!denial.message.is_empty(), "{}", row.name);
        match row.mend {
            Mend::AsWritten => world.policy = carry_out(&denial.fix, &world.policy),
            Mend::By(mend) => mend(&mut world),
        }
        if let Err(denial) = world.check() {
            panic!("{}: the fix did not help: {denial}", row.name);
        }
    }
}

#[test]
fn every_code_has_a_row() {
    // Codes that the guard cannot produce would be listed here with the reason. There are none.
    let exceptions: [(DenialCode, &str); 0] = [];
    let covered: BTreeSet<_> = rows()
        .iter()
        .map(|row| row.code)
        .chain(exceptions.map(|(code, _)| code))
        .collect();
    let missing: Vec<_> = DenialCode::ALL
        .iter()
        .filter(|code| !covered.contains(code))
        .collect();
    assert!(missing.is_empty(), "no row for {missing:?}");
}

/// Carries out `set K = V [and K = V] in the policy`, `set K = V in the policy's [controls]` and
/// `add "X" to K in the policy` on the TOML form of `policy`.
fn carry_out(fix: &str, policy: &Policy) -> Policy {
    let mut table: toml::Table = toml::from_str(&policy.to_toml()).unwrap();
    if let Some((_, rest)) = fix.split_once("add ") {
        let (value, rest) = rest.split_once(" to ").unwrap();
        let (field, _) = rest.split_once(" in the policy").unwrap();
        let list = table.get_mut(field).unwrap().as_array_mut().unwrap();
        list.push(value.parse().unwrap());
    } else {
        let (_, rest) = fix.split_once("set ").unwrap();
        let (assignments, rest) = rest.split_once(" in the policy").unwrap();
        for assignment in assignments.split(" and ") {
            let line: toml::Table = toml::from_str(assignment).unwrap();
            if rest.starts_with("'s [controls]") {
                table["controls"].as_table_mut().unwrap().extend(line);
            } else {
                table.extend(line);
            }
        }
    }
    Policy::from_toml(&toml::to_string(&table).unwrap(), "fixed.toml").unwrap()
}

fn mount(text: &str) -> Mount {
    text.parse().unwrap()
}

fn file(world: &mut World, name: &str, size: usize) {
    world
        .request
        .files
        .insert(GuestPath::new(name).unwrap(), FileIn::inline(vec![0; size]));
}

fn absent() -> Support {
    Support::Absent {
        why: "kernel 5.4 is too old".to_owned(),
        fix: "boot a newer kernel".to_owned(),
    }
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

fn too_small(rule: &'static str, value: &'static str, spoil: fn(&mut World)) -> Row {
    Row {
        name: rule,
        spoil,
        code: DenialCode::ArgumentInvalid,
        rule,
        value,
        fix: "ask for at least 8 MiB of memory, 8 open files, and more than nothing of the rest",
        mend: Mend::By(|world| {
            let limits = &mut world.request.limits;
            limits.memory = limits.memory.and(Some(Bytes::from_mib(8)));
            limits.cpu_time = limits.cpu_time.and(Seconds::new(0.1).ok());
            limits.wall_time = limits.wall_time.and(Seconds::new(0.1).ok());
            limits.processes = limits.processes.and(Some(1));
            limits.open_files = limits.open_files.and(Some(8));
            limits.disk = limits.disk.and(Some(Bytes::from_mib(1)));
            limits.cpu_percent = limits.cpu_percent.and(Some(1));
        }),
    }
}

fn outside_path(name: &'static str, argument: &'static str, spoil: fn(&mut World)) -> Row {
    Row {
        name,
        spoil,
        code: DenialCode::PathNotAllowed,
        rule: "path check",
        value: argument,
        fix: "name files relative to the work directory, or switch the path check off",
        mend: Mend::By(|world| world.request.check_paths = false),
    }
}

fn bad_variable(name: &'static str, value: &'static str, spoil: fn(&mut World)) -> Row {
    Row {
        name,
        spoil,
        code: DenialCode::EnvironmentInvalid,
        rule: "env",
        value,
        fix: "write --env NAME=VALUE",
        mend: Mend::By(|world| {
            world.request.env = [("NAME".to_owned(), "VALUE".to_owned())].into();
        }),
    }
}

fn rows() -> Vec<Row> {
    let mut rows = wall_rows();
    rows.extend(source_rows());
    rows.extend(argument_rows());
    rows.extend(limit_rows());
    rows.extend(network_rows());
    rows.extend(file_rows());
    rows
}

fn wall_rows() -> Vec<Row> {
    vec![
        Row {
            name: "R36: a container policy is not served by a process wall",
            spoil: |world| world.policy.isolation_level = IsolationLevel::Container,
            code: DenialCode::IsolationUnavailable,
            rule: "isolation_level",
            value: "container",
            fix: "set isolation_level = \"process\" in the policy, or pick another policy (belljar policy list)",
            mend: Mend::AsWritten,
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

fn source_rows() -> Vec<Row> {
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

fn argument_rows() -> Vec<Row> {
    let binary = "pass large or binary data as a file or on standard input";
    vec![
        Row {
            name: "a NUL in an argument",
            spoil: |world| world.request.args = strings(["a\0b"]),
            code: DenialCode::ArgumentInvalid,
            rule: "arguments",
            value: "a\\u{0}b",
            fix: binary,
            mend: Mend::By(|world| world.request.args.clear()),
        },
        Row {
            name: "an argument longer than the kernel takes",
            spoil: |world| world.request.args = vec!["x".repeat(128 * 1024)],
            code: DenialCode::ArgumentInvalid,
            rule: "arguments",
            value: "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
            fix: binary,
            mend: Mend::By(|world| world.request.args = vec!["x".repeat(128 * 1024 - 1)]),
        },
        Row {
            name: "too many arguments",
            spoil: |world| world.request.args = vec![String::new(); 10_001],
            code: DenialCode::ArgumentInvalid,
            rule: "arguments",
            value: "10001",
            fix: "ask for fewer",
            mend: Mend::By(|world| world.request.args.truncate(10_000)),
        },
        Row {
            name: "too many outputs",
            spoil: |world| world.request.outputs = vec![GuestPath::new("a").unwrap(); 10_001],
            code: DenialCode::ArgumentInvalid,
            rule: "outputs",
            value: "10001",
            fix: "ask for fewer",
            mend: Mend::By(|world| world.request.outputs.truncate(10_000)),
        },
        outside_path("R47: `..`", "a/../b", |world| {
            world.request.args = strings(["a/../b"]);
            world.request.check_paths = true;
        }),
        outside_path("R47: an absolute path", "/etc/passwd", |world| {
            world.request.args = strings(["ok", "/etc/passwd"]);
            world.request.check_paths = true;
        }),
        outside_path("R47: `~` among the words of a command", "~/x", |world| {
            world.request = Request::command(strings(["/bin/cat", "~/x"]));
            world.request.check_paths = true;
        }),
        bad_variable("a variable without a name", "", |world| {
            world.request.env.insert(String::new(), "x".to_owned());
        }),
        bad_variable("a variable with `=` in its name", "A=B", |world| {
            world.request.env.insert("A=B".to_owned(), "x".to_owned());
        }),
        bad_variable("a NUL in a variable's name", "A\\u{0}", |world| {
            world.request.env.insert("A\0".to_owned(), "x".to_owned());
        }),
        bad_variable("a NUL in a variable's value", "A", |world| {
            world.request.env.insert("A".to_owned(), "\0".to_owned());
        }),
        bad_variable("a variable longer than the kernel takes", "A", |world| {
            world
                .request
                .env
                .insert("A".to_owned(), "x".repeat(128 * 1024 - 2));
        }),
    ]
}

/// R18: each limit may be lowered and none may be raised.
fn limit_rows() -> Vec<Row> {
    vec![
        limit(
            "max_memory_mb",
            "257",
            "set max_memory_mb = 257 in the policy, or ask for less",
            |world| world.request.limits.memory = Some(Bytes::new((256 << 20) + 1)),
        ),
        limit(
            "max_cpu_seconds",
            "30.5",
            "set max_cpu_seconds = 30.5 in the policy, or ask for less",
            |world| world.request.limits.cpu_time = Seconds::new(30.5).ok(),
        ),
        limit(
            "max_wall_time_seconds",
            "61",
            "set max_wall_time_seconds = 61 in the policy, or ask for less",
            |world| world.request.limits.wall_time = Some(Seconds::whole(61)),
        ),
        limit(
            "max_processes",
            "11",
            "set max_processes = 11 in the policy, or ask for less",
            |world| world.request.limits.processes = Some(11),
        ),
        limit(
            "max_open_files",
            "257",
            "set max_open_files = 257 in the policy, or ask for less",
            |world| world.request.limits.open_files = Some(257),
        ),
        limit(
            "max_file_size_mb",
            "11",
            "set max_file_size_mb = 11 in the policy, or ask for less",
            |world| world.request.limits.file_size = Some(Bytes::from_mib(11)),
        ),
        limit(
            "max_disk_mb",
            "65",
            "set max_disk_mb = 65 in the policy, or ask for less",
            |world| world.request.limits.disk = Some(Bytes::from_mib(65)),
        ),
        limit(
            "max_output_mb",
            "17",
            "set max_output_mb = 17 in the policy, or ask for less",
            |world| world.request.limits.output = Some(Bytes::from_mib(17)),
        ),
        limit(
            "max_cpu_percent",
            "51",
            "set max_cpu_percent = 51 in the policy, or ask for less",
            |world| {
                world.policy = carry_out("set max_cpu_percent = 50 in the policy", &world.policy);
                world.request.limits.cpu_percent = Some(51);
            },
        ),
        too_small("memory", "7.9 MiB", |world| {
            world.request.limits.memory = Some(Bytes::new((8 << 20) - 1));
        }),
        too_small("cpu_time", "0 s", |world| {
            world.request.limits.cpu_time = Some(Seconds::ZERO);
        }),
        too_small("wall_time", "0 s", |world| {
            world.request.limits.wall_time = Some(Seconds::ZERO);
        }),
        too_small("processes", "0", |world| world.request.limits.processes = Some(0)),
        too_small("open_files", "7", |world| {
            world.request.limits.open_files = Some(7)
        }),
        too_small("disk", "0 B", |world| {
            world.request.limits.disk = Some(Bytes::ZERO)
        }),
        too_small("cpu_percent", "0", |world| {
            world.request.limits.cpu_percent = Some(0);
        }),
    ]
}

fn network_rows() -> Vec<Row> {
    vec![
        Row {
            name: "neither network field permits it",
            spoil: |world| world.request.network = Some(NetworkPolicy::Local),
            code: DenialCode::NetworkNotAllowed,
            rule: "network_policy",
            value: "local",
            fix: "set network_policy = \"local\" and allow_network = true in the policy",
            mend: Mend::AsWritten,
        },
        Row {
            name: "only allow_network is missing",
            spoil: |world| {
                world.policy.network = NetworkPolicy::Restricted;
                world.request.network = Some(NetworkPolicy::Local);
            },
            code: DenialCode::NetworkNotAllowed,
            rule: "allow_network",
            value: "local",
            fix: "set allow_network = true in the policy",
            mend: Mend::AsWritten,
        },
        Row {
            name: "only the network policy is too narrow",
            spoil: |world| {
                world.policy.allow_network = true;
                world.request.network = Some(NetworkPolicy::Local);
            },
            code: DenialCode::NetworkNotAllowed,
            rule: "network_policy",
            value: "local",
            fix: "set network_policy = \"local\" in the policy",
            mend: Mend::AsWritten,
        },
        Row {
            name: "a network that the provider lacks; one that the policy forbids is no advice",
            spoil: |world| {
                world.policy.network = NetworkPolicy::Restricted;
                world.policy.allow_network = true;
                world.capabilities.networks.insert(NetworkPolicy::Full);
            },
            code: DenialCode::NetworkUnavailable,
            rule: "network_policy",
            value: "restricted",
            fix: "ask for network none or local",
            mend: Mend::By(|world| world.request.network = Some(NetworkPolicy::Local)),
        },
        Row {
            name: "no network at all is not what every provider has",
            spoil: |world| world.capabilities.networks = [NetworkPolicy::Full].into(),
            code: DenialCode::NetworkUnavailable,
            rule: "network_policy",
            value: "none",
            fix: "pick another provider",
            mend: Mend::By(|world| {
                world.capabilities.networks.insert(NetworkPolicy::None);
            }),
        },
    ]
}

fn file_rows() -> Vec<Row> {
    vec![
        Row {
            name: "R28: a mount that the policy lacks",
            spoil: |world| world.request.mounts = vec![mount("/data:/data")],
            code: DenialCode::MountNotAllowed,
            rule: "allowed_mounts",
            value: "/data:/data:ro",
            fix: "add \"/data:/data:ro\" to allowed_mounts in the policy",
            mend: Mend::AsWritten,
        },
        Row {
            name: "R28: `/data-2` is not below `/data`",
            spoil: |world| {
                world.policy.allowed_mounts = vec![mount("/data:/data:rw")];
                world.request.mounts = vec![mount("/data-2/x:/data")];
            },
            code: DenialCode::MountNotAllowed,
            rule: "allowed_mounts",
            value: "/data-2/x:/data:ro",
            fix: "add \"/data-2/x:/data:ro\" to allowed_mounts in the policy",
            mend: Mend::AsWritten,
        },
        Row {
            name: "R28: read-only does not permit read-write",
            spoil: |world| {
                world.policy.allowed_mounts = vec![mount("/data:/data:ro")];
                world.request.mounts = vec![mount("/data/x:/data:ro"), mount("/data:/data:rw")];
            },
            code: DenialCode::MountNotAllowed,
            rule: "allowed_mounts",
            value: "/data:/data:rw",
            fix: "add \"/data:/data:rw\" to allowed_mounts in the policy",
            mend: Mend::AsWritten,
        },
        Row {
            name: "R13: a writable mount where nothing may be written",
            spoil: |world| {
                world.policy.allow_file_write = false;
                world.policy.allowed_mounts = vec![mount("/data:/data:rw")];
                world.request.mounts = vec![mount("/data:/data:rw")];
            },
            code: DenialCode::FileWriteNotAllowed,
            rule: "allow_file_write",
            value: "/data:/data:rw",
            fix: "mount it :ro, or set allow_file_write = true in the policy",
            mend: Mend::AsWritten,
        },
        Row {
            name: "files larger than the policy's disk",
            spoil: |world| {
                world.policy = carry_out("set max_disk_mb = 1 in the policy", &world.policy);
                file(world, "a", 1 << 20);
            },
            code: DenialCode::FilesTooLarge,
            rule: "max_disk_mb",
            value: "1048584",
            fix: "set max_disk_mb = 2 in the policy, or mount the files",
            mend: Mend::AsWritten,
        },
        Row {
            name: "files larger than the disk that the request itself asks for",
            spoil: |world| {
                world.request.limits.disk = Some(Bytes::from_mib(1));
                file(world, "a", 1 << 20);
            },
            code: DenialCode::FilesTooLarge,
            rule: "disk",
            value: "1048584",
            fix: "ask for a disk of 2 MiB, or mount the files",
            mend: Mend::By(|world| world.request.limits.disk = Some(Bytes::from_mib(2))),
        },
        Row {
            name: "a file where a directory is needed",
            spoil: |world| {
                file(world, "a", 1);
                file(world, "a-b", 1);
                file(world, "a/b", 1);
            },
            code: DenialCode::ArgumentInvalid,
            rule: "files",
            value: "a/b",
            fix: "give the file another name",
            mend: Mend::By(|world| {
                world.request.files.remove(&GuestPath::new("a/b").unwrap());
            }),
        },
        Row {
            name: "a file below the code's own",
            spoil: |world| file(world, "main.py/x", 1),
            code: DenialCode::ArgumentInvalid,
            rule: "files",
            value: "main.py/x",
            fix: "give the file another name",
            mend: Mend::By(|world| world.request.files.clear()),
        },
    ]
}

/// What a policy forbids is not reached around with `..`: such a mount cannot be built.
#[test]
fn a_mount_cannot_climb_out_of_what_is_allowed() {
    for text in [
        "/data/../etc:/data",
        "/data/..:/data",
        "data/../../etc:/data",
        "/data:/data/../../usr",
    ] {
        assert!(Mount::parse(text, Path::new("/")).is_err(), "{text}");
    }
    let mut world = World::good();
    world.policy.allowed_mounts = vec![mount("/data:/data:ro")];
    for (host, allowed) in [
        ("/data", true),
        ("/data/./x", true),
        ("/data//x/y", true),
        ("/dat", false),
        ("/data2", false),
        ("/", false),
        ("/x/data", false),
    ] {
        world.request.mounts = vec![mount(&format!("{host}:/m"))];
        assert_eq!(world.check().is_ok(), allowed, "{host}");
    }
}
