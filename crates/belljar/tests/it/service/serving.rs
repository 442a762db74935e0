//! What `belljar serve` says and takes.

use serde_json::json;

use super::Serving;
use crate::harness::{TempDir, Who, everyone, output_of};

#[test]
fn it_shows_its_key_once_and_serves_until_it_is_told_to_end() {
    for who in everyone() {
        let home = TempDir::new();
        let server = Serving::start(who, &home, &[]);
        let key = server.key.clone().expect("a key");
        let (status, answer) = server
            .ask(
                "POST",
                "/v1/executions",
                Some(&key),
                r#"{"code": "print(6 * 7)"}"#,
            )
            .expect("an answer");
        assert_eq!((status, &answer["outcome"]["stdout"]), (200, &json!("42\n")));
        let (status, _) = server
            .ask("POST", "/v1/executions", None, "{}")
            .expect("an answer");
        assert_eq!(status, 401);
        let (text, code) = server.end();
        assert_eq!(code, Some(0), "{text}");
        assert!(text.contains("what runs gets its time"), "{text}");
        // S6: neither the log nor the messages have the key.
        let secret = key.rsplit('_').next().expect("a secret");
        assert!(!text.contains(secret), "{text}");
        let server = Serving::start(who, &home, &[]);
        assert_eq!(server.key, None);
        let (status, _) = server.ask("GET", "/v1/keys", Some(&key), "").expect("an answer");
        assert_eq!(status, 200);
        server.end();
    }
}

#[test]
fn without_keys_it_warns_and_listens_on_this_machine_alone() {
    let home = TempDir::new();
    let server = Serving::start(Who::User, &home, &["--dev"]);
    let said = server.said.join("");
    assert!(said.contains("WARNING: --dev"), "{said}");
    let (status, _) = server
        .ask("POST", "/v1/executions", None, r#"{"code": "1"}"#)
        .expect("an answer");
    assert_eq!(status, 200);
    server.end();
    let mut command = Serving::command(Who::User, &home, &["--dev", "--listen", "0.0.0.0:0"]);
    let output = output_of(&mut command);
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(text.contains("--dev lets in everybody who reaches"), "{text}");
}

/// Every value that cannot be used is one error with a hint, and nothing is started.
#[test]
fn what_cannot_be_used_is_said_before_anything_starts() {
    let home = TempDir::new();
    let busy = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let busy = busy.local_addr().expect("an address").to_string();
    let cases: [(&[&str], &str); 16] = [
        (&["--listen", "nowhere"], "listen (option): `nowhere`"),
        (&["--listen", &busy], "cannot listen on"),
        (
            &["--store", "mysql://u:s3cret@h/x"],
            "`mysql://…@h/x` is no place for a store",
        ),
        (&["--store", "/proc/x/y.db"], "cannot make /proc/x"),
        (&["--places", "0"], "places must be 1 or more"),
        (&["--places", "many"], "places (option): `many`"),
        (&["--max-body", "lots"], "max_body (option): `lots`"),
        (&["--drain=-1"], "drain (option): `-1`"),
        (
            &["--allowed-host", "http://x"],
            "allowed_host (option): `http://x`",
        ),
        (&["--allowed-host", ""], "allowed_host (option): ``"),
        (&["--allowed-host", "a,*.b"], "allowed_host (option): `*.b`"),
        (
            &["--allowed-host", "a", "--allowed-host", "b:0"],
            "allowed_host (option): `b:0`",
        ),
        (&["--log", "xml"], "log: `xml`"),
        (&["--policies", "/nowhere"], "cannot read /nowhere"),
        (&["--webhook", "http://127.0.0.1:1"], "a webhook needs a secret"),
        (&["--config", "/nowhere.toml"], "cannot read /nowhere.toml"),
    ];
    for (args, expected) in cases {
        let mut command = Serving::command(Who::User, &home, args);
        let output = output_of(&mut command);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(matches!(output.status.code(), Some(2 | 125)), "{args:?}: {text}");
        assert!(text.contains(expected), "{args:?}: {text}");
        assert!(
            text.contains("hint: ") || expected.starts_with("cannot make"),
            "{args:?}: {text}"
        );
        assert!(!text.contains("s3cret"), "{text}");
    }
}
