//! Whole plans as data, and the limits of their stages.

use std::path::PathBuf;

use proptest::prelude::*;
use serde_json::json;

use super::{World, environment, strings};
use crate::environment::Environment;
use crate::language::{Language, TABLE};
use crate::limits::{LimitOverrides, Limits};
use crate::plan::{Plan, StageKind};
use crate::policy::Policy;
use crate::request::{Request, Source};
use crate::status::NetworkPolicy;
use crate::units::{Bytes, Seconds};

const MIB: u64 = 1 << 20;

#[test]
fn the_plan_of_a_python_request() {
    let mut world = World::good();
    world.request.args = strings(["x", "/y"]);
    world.request.env.insert("LANG".to_owned(), "de".to_owned());
    world.request.limits.memory = Some(Bytes::from_mib(64));
    let plan = world.check().unwrap();
    let limits = json!({
        "memory": 64 * MIB, "cpu_time": 30.0, "wall_time": 60.0, "processes": 10, "open_files": 256,
        "file_size": 10 * MIB, "disk": 64 * MIB, "output": 16 * MIB, "cpu_percent": null
    });
    assert_eq!(
        serde_json::to_value(&plan).unwrap(),
        json!({
            "policy_id": "standard",
            "policy_hash": world.policy.hash(),
            "provider": "native", "image": null, "isolation": "process",
            "language": "python",
            "code_hash": "d287bb7f9d15abdc5b6e98536263815744b6ef21c8f3c839fc434ca70d8efe99",
            "stages": [{
                "kind": "run",
                "argv": ["/usr/bin/python3", "main.py", "x", "/y"],
                "env": {
                    "FROM_TOOLCHAIN": "1", "HOME": "/workspace", "LANG": "de", "LOGNAME": "guest",
                    "PATH": "/usr/local/bin:/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1",
                    "PYTHONUNBUFFERED": "1", "TMPDIR": "/tmp", "USER": "guest"
                },
                "limits": limits,
                "file_write": true,
                "data_limit": true
            }],
            "outputs": [],
            "mounts": [],
            "shows": [],
            "environment": null,
            "network": "none", "session": session(),
            "limits": limits,
            "required": essential()
        })
    );
    let files: Vec<_> = plan.files().keys().map(|path| path.as_str()).collect();
    assert_eq!(files, ["main.py"]);
}

#[test]
fn the_plan_of_a_c_request() {
    let mut world = c_world();
    world.request.network = Some(NetworkPolicy::None);
    world.request.mounts = vec!["/data/x:/mnt/x:ro".parse().unwrap()];
    world.policy.allowed_mounts = vec!["/data:/data:ro".parse().unwrap()];
    world.policy.allow_file_write = false;
    let plan = world.check().unwrap();
    let env = json!({
        "FROM_TOOLCHAIN": "1", "HOME": "/workspace", "LANG": "C.UTF-8", "LOGNAME": "guest",
        "PATH": "/usr/local/bin:/usr/bin:/bin", "TMPDIR": "/tmp", "USER": "guest"
    });
    assert_eq!(
        serde_json::to_value(&plan).unwrap(),
        json!({
            "policy_id": "standard",
            "policy_hash": world.policy.hash(),
            "provider": "native", "image": null, "isolation": "process",
            "language": "c",
            "code_hash": "85d5d0c9e29f65e3fe6fbf25b7939530fb5b397ec258df70e9cf0068a673a45b",
            "stages": [
                {
                    "kind": "compile",
                    "argv": [
                        "/usr/bin/gcc", "-O2", "-o", "/workspace/.build", "main.c", "-lm", "-pthread"
                    ],
                    "env": env,
                    "limits": {
                        "memory": 256 * MIB, "cpu_time": 30.0, "wall_time": 30.0, "processes": 10,
                        "open_files": 256, "file_size": 64 * MIB, "disk": 256 * MIB,
                        "output": 16 * MIB, "cpu_percent": null
                    },
                    // A compiler must write its result, whatever the program may do.
                    "file_write": true,
                    "data_limit": false
                },
                {
                    "kind": "run",
                    "argv": ["/workspace/.build"],
                    "env": env,
                    "limits": {
                        "memory": 256 * MIB, "cpu_time": 30.0, "wall_time": 60.0, "processes": 10,
                        "open_files": 256, "file_size": 10 * MIB, "disk": 64 * MIB,
                        "output": 16 * MIB, "cpu_percent": null
                    },
                    "file_write": false,
                    "data_limit": false
                }
            ],
            "outputs": [],
            "mounts": [{"host": "/data/x", "guest": "/mnt/x", "access": "read-only"}],
            "shows": [],
            "environment": null,
            "network": "none", "session": session(),
            "limits": {
                "memory": 256 * MIB, "cpu_time": 30.0, "wall_time": 60.0, "processes": 10,
                "open_files": 256, "file_size": 64 * MIB, "disk": 256 * MIB, "output": 16 * MIB,
                "cpu_percent": null
            },
            "required": essential()
        })
    );
}

/// A compiler gets what it needs and no more; the program keeps what the policy gives.
#[test]
fn only_the_compiler_is_raised_and_only_to_its_floor() {
    let recipe = &Language::C.spec().recipes[0];
    let step = recipe.compile.as_ref().unwrap();
    let mut world = c_world();
    world.policy.limits = Policy::builtin("high_security").unwrap().limits;
    let plan = world.check().unwrap();
    let compile = stage_limits(&plan, StageKind::Compile);
    assert_eq!(compile.memory(), step.floor.memory);
    assert_eq!(compile.processes(), step.floor.processes);
    assert_eq!(compile.file_size(), step.floor.file_size);
    assert_eq!(compile.disk(), step.floor.disk);
    assert_eq!(
        (compile.wall_time(), compile.cpu_time()),
        (Seconds::whole(15), Seconds::whole(5))
    );
    assert_eq!(compile.output(), world.policy.limits.output());
    assert_eq!(stage_limits(&plan, StageKind::Run), &world.policy.limits);

    // Where the policy gives more than the floor, the compiler keeps that, on its own clock.
    let mut numbers = world.policy.limits.numbers();
    numbers.max_memory_mb = 4096;
    numbers.max_wall_time_seconds = 600.0;
    world.policy.limits = Limits::new(&numbers).unwrap();
    let plan = world.check().unwrap();
    let compile = stage_limits(&plan, StageKind::Compile);
    assert_eq!(compile.memory(), Bytes::from_mib(4096));
    assert_eq!(compile.wall_time(), step.wall_time);
    assert_eq!(stage_limits(&plan, StageKind::Run), &world.policy.limits);
}

/// Every language of the table makes a plan whose words are filled in.
#[test]
fn every_language_can_be_planned() {
    for spec in TABLE {
        let mut world = World::good();
        world.policy.allowed_languages = Language::ALL.iter().copied().collect();
        world
            .capabilities
            .languages
            .insert(spec.language, super::toolchain(spec.language));
        world.request = Request::code(spec.language, *b"x");
        let plan = world.check().unwrap();
        assert!(plan.files().keys().any(|path| path.as_str() == spec.file));
        for word in plan.stages().iter().flat_map(|stage| stage.argv()) {
            assert!(!word.contains(['{', '}']), "{}: {word}", spec.language);
        }
    }
}

fn c_world() -> World {
    let mut world = World::good();
    world.policy.allowed_languages.insert(Language::C);
    world.request = Request::code(Language::C, *b"int main(){return 0;}");
    world
}

fn stage_limits(plan: &Plan, kind: StageKind) -> &Limits {
    plan.stages()
        .iter()
        .find(|stage| stage.kind() == kind)
        .unwrap()
        .limits()
}

/// The controls that every plan requires.
fn essential() -> serde_json::Value {
    json!([
        "user-namespace",
        "mount-namespace",
        "pid-namespace",
        "network-namespace",
        "ipc-namespace",
        "uts-namespace",
        "private-root",
        "no-capabilities",
        "no-new-privileges",
        "seccomp",
        "rlimits"
    ])
}

fn bytes() -> impl Strategy<Value = Option<Bytes>> {
    proptest::option::of(prop_oneof![0..MIB * 600, any::<u64>()].prop_map(Bytes::new))
}

fn seconds() -> impl Strategy<Value = Option<Seconds>> {
    proptest::option::of((0.0..120.0).prop_map(|value| Seconds::new(value).unwrap()))
}

fn number() -> impl Strategy<Value = Option<u32>> {
    proptest::option::of(prop_oneof![0u32..600, any::<u32>()])
}

prop_compose! {
    fn overrides()(
        memory in bytes(), file_size in bytes(), disk in bytes(), output in bytes(),
        cpu_time in seconds(), wall_time in seconds(),
        processes in number(), open_files in number(), cpu_percent in number(),
    ) -> LimitOverrides {
        LimitOverrides {
            memory, cpu_time, wall_time, processes, open_files, file_size, disk, output, cpu_percent,
        }
    }
}

/// Whether every limit of `limits` is at most that of `policy`.
fn within(limits: &Limits, policy: &Limits) -> bool {
    limits.memory() <= policy.memory()
        && limits.cpu_time() <= policy.cpu_time()
        && limits.wall_time() <= policy.wall_time()
        && limits.processes() <= policy.processes()
        && limits.open_files() <= policy.open_files()
        && limits.file_size() <= policy.file_size()
        && limits.disk() <= policy.disk()
        && limits.output() <= policy.output()
        && limits.cpu_percent().unwrap_or(u32::MAX) <= policy.cpu_percent().unwrap_or(u32::MAX)
}

proptest! {
    /// R18: whatever a request asks for, it runs within its policy or not at all.
    #[test]
    fn overrides_never_raise(asked in overrides(), percent in proptest::option::of(1i64..200), c: bool) {
        let mut world = if c { c_world() } else { World::good() };
        let mut numbers = world.policy.limits.numbers();
        numbers.max_cpu_percent = percent;
        world.policy.limits = Limits::new(&numbers).unwrap();
        world.request.limits = asked.clone();
        if let Ok(plan) = world.check() {
            let run = stage_limits(&plan, StageKind::Run);
            prop_assert!(within(run, &world.policy.limits), "{run:?}");
            prop_assert_eq!(run.memory(), asked.memory.unwrap_or(world.policy.limits.memory()));
        }
    }

    /// Overrides within the policy are granted exactly.
    #[test]
    fn lower_wishes_are_granted(memory in 8u64..=256, wall in 0.01f64..60.0, processes in 1u32..=10) {
        let mut world = World::good();
        world.request.limits.memory = Some(Bytes::from_mib(memory));
        world.request.limits.wall_time = Seconds::new(wall).ok();
        world.request.limits.processes = Some(processes);
        let plan = world.check().unwrap();
        let run = stage_limits(&plan, StageKind::Run);
        prop_assert_eq!(run.memory(), Bytes::from_mib(memory));
        prop_assert_eq!(run.wall_time().get(), wall);
        prop_assert_eq!(run.processes(), processes);
    }
}

/// What every policy says about sessions unless it says otherwise.
fn session() -> serde_json::Value {
    serde_json::json!({
        "max_tool_calls": 100, "max_concurrent_tools": 5, "allowed_imports": null, "forbidden_calls": [], "approve_tools": [],
        "max_idle": 1800.0, "max_age": 86400.0
    })
}

/// An environment brings its own interpreter, shows and variables; what the request says comes last.
#[test]
fn an_environment_takes_the_hosts_place() {
    let mut world = World::good();
    let made = environment("data");
    world.request.environment = Some(made.name.clone());
    world.capabilities.environments.insert(made.name.clone(), made);
    // The machine's own Python is not needed.
    world.capabilities.languages.remove(&Language::Python);
    let plan = world.check().unwrap();
    assert_eq!(plan.stages()[0].argv(), ["/env/bin/python", "main.py"]);
    assert_eq!(plan.stages()[0].env()["PATH"], "/env/bin:/bin");
    assert_eq!(plan.stages()[0].env()["PYTHONUNBUFFERED"], "1");
    assert_eq!(
        plan.shows(),
        [PathBuf::from("/env"), PathBuf::from("/opt/python")]
    );
    assert_eq!(plan.environment().unwrap().digest, "d1");

    world.request.env.insert("PATH".to_owned(), "/mine".to_owned());
    assert_eq!(world.check().unwrap().stages()[0].env()["PATH"], "/mine");

    world.request.env.clear();
    for (source, first) in [
        (Request::command(strings(["python", "-V"])).source, "python"),
        (
            Request::code(Language::Bash, *b"python -V").source,
            "/usr/bin/bash",
        ),
    ] {
        world.request.source = source;
        let plan = world.check().unwrap();
        assert_eq!(plan.stages()[0].argv()[0], first);
        assert_eq!(plan.stages()[0].env()["PATH"], "/env/bin:/bin");
        assert_eq!(plan.shows().len(), 2);
    }
}

/// A warm interpreter of an environment has all that is the environment's, and nothing of the request's.
#[test]
fn an_environments_warm_interpreter_is_its_own() {
    let mut world = World::good();
    let made = Environment {
        preload: strings(["numpy"]),
        ..environment("data")
    };
    world.request.environment = Some(made.name.clone());
    world.capabilities.environments.insert(made.name.clone(), made);
    world.capabilities.languages.remove(&Language::Python);
    world.request.env.insert("SECRET".to_owned(), "1".to_owned());
    let interpreter = Source::Interpreter {
        language: Language::Python,
    };
    for source in [world.request.source.clone(), interpreter] {
        world.request.source = source;
        let plan = world.check().unwrap();
        let stage = plan.stages().last().unwrap();
        let warm = stage.warm().unwrap();
        assert_eq!(warm.runner()[0], "/env/bin/python");
        assert_eq!(warm.preload(), ["numpy"]);
        assert_eq!(warm.env()["PATH"], "/env/bin:/bin");
        assert_eq!(warm.env().get("SECRET"), None);
        assert_eq!(stage.env()["PATH"], "/env/bin:/bin");
        assert_eq!(stage.env()["SECRET"], "1");
        assert_eq!(plan.environment().unwrap().digest, "d1");
        assert_eq!(plan.shows().len(), 2);
    }
}

/// P65: where code needs approval an interpreter starts without the request's variables, known as harmful or not, and its code sees
/// them all the same.
#[test]
fn p65_an_interpreter_that_needs_approval_starts_without_the_requests_variables() {
    for needs_approval in [true, false] {
        let mut world = World::good();
        world.policy.require_approval = needs_approval;
        world.request.approved = true;
        world.request.source = Source::Interpreter {
            language: Language::Python,
        };
        world
            .request
            .env
            .insert("SOMETHING_NEW".to_owned(), "x".to_owned());
        let plan = world.check().unwrap();
        let stage = &plan.stages()[0];
        assert_eq!(stage.env().contains_key("SOMETHING_NEW"), !needs_approval);
        assert!(stage.env().contains_key("PATH") && stage.session_env().contains_key("PATH"));
        assert_eq!(stage.session_env()["SOMETHING_NEW"], "x");
    }
}
