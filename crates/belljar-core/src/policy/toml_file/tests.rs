//! What files mean, and what is said of those that mean nothing.

use super::*;
use proptest::prelude::*;

fn error(text: &str) -> PolicyFileError {
    Policy::from_toml(text, "p.toml").unwrap_err()
}

#[test]
fn an_empty_file_is_the_documents_defaults() {
    let policy = Policy::from_toml("", "dir/team one.toml").unwrap();
    assert_eq!(policy.policy_id, "team-one");
    for (file, id) in [
        ("...toml", "policy"),
        (".hidden.toml", "hidden"),
        ("-.toml", "policy"),
        ("é.toml", "policy"),
    ] {
        assert_eq!(Policy::from_toml("", file).unwrap().policy_id, id, "{file}");
    }
    assert!(!policy.allow_file_write);
    assert_eq!(policy.limits, Limits::new(&LimitNumbers::default()).unwrap());
}

#[test]
fn fields_are_read_and_the_rest_is_inherited() {
    let text = r#"
        policy_id = "ci"
        extends = "permissive"
        max_memory_mb = 1024
        max_cpu_seconds = 2.5
        allowed_languages = ["py", "rust"]
        allowed_mounts = ["/data:/data:rw"]
        allowed_environments = ["data"]
        [controls]
        landlock = "require"
    "#;
    let policy = Policy::from_toml(text, "p.toml").unwrap();
    assert_eq!(policy.limits.memory(), crate::Bytes::from_mib(1024));
    assert_eq!(policy.limits.cpu_time().get(), 2.5);
    assert_eq!(policy.allowed_environments.len(), 1);
    assert_eq!(policy.limits.processes(), 20);
    assert_eq!(policy.permitted_network(), NetworkPolicy::Local);
    assert_eq!(policy.demand(Control::Landlock), Demand::Require);
    assert_eq!(policy.demand(Control::MemoryCgroup), Demand::Prefer);
}

#[test]
fn errors_name_file_line_and_field() {
    for (text, shown) in [
        (
            "\nmax_memory_mb = -5",
            "p.toml:2: max_memory_mb: must be from 8 to 16777216, not -5",
        ),
        (
            "max_cpu_seconds = nan",
            "p.toml:1: max_cpu_seconds: must be a number of seconds above 0, not NaN",
        ),
        ("a = 1", "p.toml:1: a: unknown field `a`"),
        (
            "\n\nisolation_level = \"jail\"",
            "p.toml:3: isolation_level: `jail` is not known",
        ),
        (
            "max_processes = \"ten\"",
            "p.toml:1: max_processes: invalid type: string \"ten\", expected i64",
        ),
        (
            "allowed_languages = [\"python\",\n\"cobol\"]",
            "p.toml:2: allowed_languages: `cobol` is not known",
        ),
        (
            "[controls]\nlandlok = \"require\"",
            "p.toml:2: controls: `landlok` is not known",
        ),
        (
            "[controls]\nlandlock = \"maybe\"",
            "p.toml:2: landlock: `maybe` is not known",
        ),
        (
            "extends = \"strict\"",
            "p.toml:1: extends: `strict` is not a built-in policy",
        ),
        ("policy_id = \"../x\"", "p.toml:1: policy_id: must be letters"),
        ("policy_id = \"..\"", "p.toml:1: policy_id: must be letters"),
        ("policy_id = \".\"", "p.toml:1: policy_id: must be letters"),
        ("policy_id = \"-x\"", "p.toml:1: policy_id: must be letters"),
        ("policy_id = \"a\\u001b\"", "p.toml:1: policy_id: must be letters"),
        ("policy_id = \"\"", "p.toml:1: policy_id: must not be empty"),
        (
            "allowed_environments = [\"host\"]",
            "p.toml:1: allowed_environments: `host` is the environment that is always there",
        ),
        (
            "allowed_mounts = [\"/a\"]",
            "p.toml:1: allowed_mounts: `/a` is not a mount",
        ),
        (
            "max_executions_per_hour = -1",
            "p.toml:1: max_executions_per_hour: must be 0 or more, not -1",
        ),
        (
            "\nmax_concurrent_executions = 5000000000",
            "p.toml:2: max_concurrent_executions: must be at most 4294967295, not 5000000000",
        ),
        (
            "max_cpu_seconds_per_day = -0.5",
            "p.toml:1: max_cpu_seconds_per_day: must be a number of seconds, 0 or more, not -0.5",
        ),
        (
            "max_output_mb_per_day = -1",
            "p.toml:1: max_output_mb_per_day: must be 0 or more, not -1",
        ),
        (
            "max_tool_calls = -1",
            "p.toml:1: max_tool_calls: must be from 0 to 1000000, not -1",
        ),
        (
            "max_concurrent_tools = 0",
            "p.toml:1: max_concurrent_tools: must be from 1 to 1000, not 0",
        ),
        (
            "\nmax_idle_seconds = 0",
            "p.toml:2: max_idle_seconds: must be a number of seconds above 0, not 0",
        ),
        (
            "allowed_imports = [\"json\",\n\"a b\"]",
            "p.toml:2: allowed_imports: `a b` is not a name",
        ),
        (
            "approve_tools = [\"send mail\"]",
            "p.toml:1: approve_tools: `send mail` is not a name",
        ),
        ("name = \"x", "p.toml:1: name: "),
        (
            "allow_network = \"yes\"",
            "p.toml:1: allow_network: invalid type: string \"yes\"",
        ),
    ] {
        let found = error(text).to_string();
        assert!(found.starts_with(shown), "{text}\n  {found}\n  {shown}");
    }
}

/// R17's round trip, for files.
#[test]
fn every_builtin_policy_round_trips_through_toml() {
    for name in Policy::BUILTIN {
        let policy = Policy::builtin(name).unwrap();
        assert_eq!(Policy::from_toml(&policy.to_toml(), "x"), Ok(policy.clone()));
        let mut policy = policy;
        policy.quotas = Quotas {
            per_minute: 0,
            per_hour: 7,
            concurrent: Some(3),
            cpu_per_day: Some(Seconds::new(1.5).unwrap()),
            output_per_day: Some(Bytes::from_mib(9)),
        };
        policy.keep_code = true;
        policy.session = SessionRules {
            max_tool_calls: 0,
            max_concurrent_tools: 1000,
            allowed_imports: Some(vec!["os.path".to_owned()]),
            forbidden_calls: vec!["eval".to_owned()],
            approve_tools: vec!["send".to_owned()],
            max_idle: Seconds::whole(1),
            max_age: Seconds::new(2.5).unwrap(),
        };
        assert_eq!(Policy::from_toml(&policy.to_toml(), "x"), Ok(policy));
    }
}

proptest! {
    #[test]
    fn any_text_is_a_policy_or_an_error(text in ".{0,120}") {
        let _ = Policy::from_toml(&text, "p.toml");
    }

    #[test]
    fn any_number_is_taken_or_refused_by_name(value in any::<i64>()) {
        for field in ["max_memory_mb", "max_processes", "max_open_files", "max_disk_mb"] {
            if let Err(error) = Policy::from_toml(&format!("{field} = {value}"), "p.toml") {
                prop_assert_eq!(error.field.as_deref(), Some(field));
            }
        }
    }
}
