//! P52 for the log of a service: what callers and other servers send forges no line of it and acts on no terminal.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;
use std::time::Duration;

use serde_json::{Value, json};

use super::{Serving, ask};
use crate::harness::{TempDir, Who};

const FORGED: &str = "2026-01-01T00:00:00.000000Z  INFO forged\u{1b}[31m\r\n\u{9b}31m\u{202e}";

/// A webhook that answers every message with a problem document, and tells of each.
fn hostile_webhook() -> (String, mpsc::Receiver<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let (sender, receiver) = mpsc::channel();
    let problem = json!({
        "type": "x", "title": "x", "status": 500, "kind": "engine", "detail": format!("no\n{FORGED}\n{FORGED}"),
    })
    .to_string();
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            let Ok(mut socket) = socket else { return };
            let mut asked = [0; 16384];
            let _ = socket.read(&mut asked);
            let _ = write!(
                socket,
                "HTTP/1.1 500 No\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{problem}",
                problem.len()
            );
            if sender.send(()).is_err() {
                return;
            }
        }
    });
    (url, receiver)
}

/// What a service says while callers and its webhook try to write its log.
fn log_of(form: &str) -> String {
    let (webhook, told) = hostile_webhook();
    let home = TempDir::new();
    let config = home.path().join("belljar.toml");
    let settings = format!("webhook = \"{webhook}\"\nwebhook_secret = \"s\"\nlog = \"{form}\"\n");
    std::fs::write(&config, settings).expect("a configuration");
    let server = Serving::start(
        Who::User,
        &home,
        &["--dev", "--config", &config.to_string_lossy()],
    );
    let policy = json!({"policy_id": "asks", "extends": "standard", "require_approval": true}).to_string();
    let (status, _) = server
        .ask("POST", "/v1/policies", None, &policy)
        .expect("an answer");
    assert_eq!(status, 200);
    let request = json!({"code": "1", "policy_id": "asks", "user_id": "ada"}).to_string();
    let (status, _) = server
        .ask("POST", "/v1/executions?mode=background", None, &request)
        .expect("an answer");
    assert_eq!(status, 202);
    // The second message comes only after the answer to the first was logged.
    for _ in 0..2 {
        told.recv_timeout(Duration::from_secs(60)).expect("a message");
    }
    let hostile = FORGED.replace("\r\n", "");
    let encoded: String = FORGED.bytes().map(|byte| format!("%{byte:02x}")).collect();
    for head in [
        format!("GET /v1/policies HTTP/1.1\r\nX-Request-Id: {hostile}\r\n"),
        format!("GET /v1/records/{encoded} HTTP/1.1\r\n"),
        format!("GET /v1/records?user_id={encoded} HTTP/1.1\r\n"),
        format!("GET /{encoded} HTTP/1.1\r\ntraceparent: {hostile}\r\n"),
        format!("FORGED{encoded} /healthz HTTP/1.1\r\n"),
        format!("GET /healthz HTTP/1.1\r\nOrigin: {hostile}\r\n"),
    ] {
        let mut socket = TcpStream::connect(&server.address).expect("a connection");
        let request = format!("{head}Host: localhost\r\nConnection: close\r\n\r\n");
        let _ = socket.write_all(request.as_bytes());
        let _ = socket.read_to_end(&mut Vec::new());
    }
    for body in [
        json!({"code": "1", "policy_id": FORGED}),
        json!({"code": "1", "environment": FORGED}),
    ] {
        let asked = ask(&server.address, "POST", "/v1/executions", None, &body.to_string());
        assert!(asked.is_some_and(|(status, _)| status < 500));
    }
    let pending = server
        .ask("GET", "/v1/approvals?state=pending", None, "")
        .expect("an answer")
        .1;
    let id = pending["approvals"][0]["approval_id"]
        .as_str()
        .expect("an approval")
        .to_owned();
    let denial = json!({"reason": FORGED.replace(char::is_control, "")}).to_string();
    server
        .ask("POST", &format!("/v1/approvals/{id}/deny"), None, &denial)
        .expect("an answer");
    let (log, code) = server.end();
    assert_eq!(code, Some(0), "{log}");
    log
}

/// Seen failing with the fields written as `tracing-subscriber` writes them, which leaves line feeds as they are.
#[test]
fn p52_nobody_forges_a_line_of_the_log() {
    let log = log_of("text");
    // The webhook's answer is there, on one line.
    let told = log.lines().find(|line| line.contains("the webhook was not told"));
    assert!(
        told.is_some_and(|line| line.contains("\\nno\\n") || line.contains("forged")),
        "{log}"
    );
    for line in log.split('\n').filter(|line| !line.is_empty()) {
        let is_ours =
            line.starts_with("belljar: ") || (line.starts_with("20") && !line.starts_with("2026-01-01"));
        assert!(is_ours, "{line:?} in {log}");
    }
    let acts = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
    assert!(!log.contains(acts), "{log:?}");
}

#[test]
fn p52_every_line_of_the_log_is_json_where_that_is_its_form() {
    let log = log_of("json");
    let lines = log.lines().filter(|line| !line.starts_with("belljar: "));
    let lines: Vec<Value> = lines
        .map(|line| serde_json::from_str(line).expect(line))
        .collect();
    let fields = lines.iter().map(|line| &line["fields"]);
    let mut told = fields.filter(|fields| fields["message"] == "the webhook was not told");
    assert!(
        told.any(|fields| fields["error"]
            .as_str()
            .is_some_and(|error| error.contains("forged"))),
        "{log}"
    );
    assert!(
        lines
            .iter()
            .all(|line| line["timestamp"] != "2026-01-01T00:00:00.000000Z")
    );
    // What JSON does not have to escape stands as it is: this form is for programs.
    assert!(!log.contains(|c: char| c < ' ' && c != '\n'), "{log:?}");
}
