//! What can be asked for over the wire, and how what cannot is named.

use super::*;
use belljar_core::{Bytes, Seconds};

fn read(json: serde_json::Value) -> Result<Request, WireError> {
    let request: ExecutionRequest = serde_json::from_value(json).unwrap();
    request.to_request()
}

#[test]
fn everything_can_be_asked_for() {
    let request = read(serde_json::json!({
        "language": "py", "code": "print(1)", "stdin": "x", "args": ["a"], "env": {"A": "b"},
        "files": {"a.txt": "text", "b.bin": {"base64": "AAE=", "executable": true}}, "outputs": ["c"],
        "network": "local", "limits": {"timeout": "2s", "memory": 67108864, "processes": 3},
        "require": ["landlock"], "provider": "docker", "image": "python:3", "tenant_id": "t", "user_id": "u", "run_id": "r", "metadata": {"k": "v"},
    }))
    .unwrap();
    assert_eq!(request.language(), Some(Language::Python));
    assert_eq!(request.files.len(), 2);
    assert_eq!(request.limits.wall_time, Some(Seconds::whole(2)));
    assert_eq!(request.limits.memory, Some(Bytes::from_mib(64)));
    assert_eq!(request.caller.tenant_id.as_deref(), Some("t"));
    assert_eq!(request.controls.len(), 1);
    assert_eq!(request.provider, Some(ProviderName::Docker));
    assert_eq!(request.image.as_deref(), Some("python:3"));
}

/// R19 among others.
#[test]
fn what_is_wrong_is_named() {
    for (json, field) in [
        (serde_json::json!({}), "code"),
        (serde_json::json!({"code": "1", "command": ["ls"]}), "command"),
        (
            serde_json::json!({"command": ["ls"], "language": "python"}),
            "language",
        ),
        (serde_json::json!({"code": "1", "language": "cobol"}), "language"),
        (serde_json::json!({"code": "1", "files": {"../x": ""}}), "files"),
        (
            serde_json::json!({"code": "1", "files": {"x": {"base64": "?"}}}),
            "files.x",
        ),
        (
            serde_json::json!({"code": "1", "outputs": ["/etc/passwd"]}),
            "outputs",
        ),
        (
            serde_json::json!({"code": "1", "limits": {"memory": "lots"}}),
            "limits.memory",
        ),
        (
            serde_json::json!({"code": "1", "limits": {"timeout": -1}}),
            "limits.timeout",
        ),
        (serde_json::json!({"code": "1", "network": "wifi"}), "network"),
        (serde_json::json!({"code": "1", "provider": "moat"}), "provider"),
        (serde_json::json!({"code": "1", "require": ["moat"]}), "require"),
        (serde_json::json!({"code": "1", "mounts": ["x"]}), "mounts"),
        (
            serde_json::json!({"code": "1", "environment": "../x"}),
            "environment",
        ),
        (serde_json::json!({"code": "1", "user_id": "a\u{0}b"}), "user_id"),
        (
            serde_json::json!({"code": "1", "run_id": "x".repeat(300)}),
            "run_id",
        ),
    ] {
        assert_eq!(read(json.clone()).unwrap_err().field, field, "{json}");
    }
    assert!(serde_json::from_str::<ExecutionRequest>(r#"{"cod": "1"}"#).is_err());
}

/// R56, R57.
#[test]
fn a_command_may_be_a_line() {
    let request = read(serde_json::json!({"command": "echo 'Hello, Sandbox!'"})).unwrap();
    assert!(matches!(request.source, Source::Command { argv } if argv == ["echo", "Hello, Sandbox!"]));
    let error = read(serde_json::json!({"command": "cat /etc/passwd | sh"})).unwrap_err();
    assert_eq!(error.field, "command");
}

#[test]
fn what_is_evaluated_is_for_an_interpreter() {
    let request =
        read(serde_json::json!({"code": "1 + 1", "evaluate": true, "allow_imports": ["json"]})).unwrap();
    assert!(matches!(request.source, Source::Interpreter { .. }));
    assert_eq!(request.session.imports.unwrap(), ["json"]);
    for (json, field) in [
        (
            serde_json::json!({"command": ["ls"], "evaluate": true}),
            "evaluate",
        ),
        (
            serde_json::json!({"code": "1", "evaluate": true, "args": ["x"]}),
            "args",
        ),
        (serde_json::json!({"code": "1", "globals": {"a": 1}}), "globals"),
        (
            serde_json::json!({"code": "1", "allow_imports": []}),
            "allow_imports",
        ),
        (
            serde_json::json!({"code": "1", "forbid_calls": ["eval"]}),
            "forbid_calls",
        ),
    ] {
        assert_eq!(read(json.clone()).unwrap_err().field, field, "{json}");
    }
}
