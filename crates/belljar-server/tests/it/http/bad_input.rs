//! S5: whatever is sent, the answer is a 4xx problem document, and others are served.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{Server, run};
use crate::databases::on_each;

/// Sends bytes as they are, and gives the status and the body of the answer.
pub(super) async fn raw(server: &Server, bytes: &[u8]) -> (u16, String) {
    let mut socket = TcpStream::connect(server.url.trim_start_matches("http://"))
        .await
        .unwrap();
    // It may hang up before it has heard everything.
    let _ = socket.write_all(bytes).await;
    let mut answer = Vec::new();
    let reading = socket.read_to_end(&mut answer);
    let _ = tokio::time::timeout(Duration::from_secs(20), reading)
        .await
        .expect("an answer in time");
    let text = String::from_utf8_lossy(&answer).into_owned();
    let status = text
        .split(' ')
        .nth(1)
        .and_then(|word| word.parse().ok())
        .unwrap_or(0);
    let body = text
        .split_once("\r\n\r\n")
        .map_or("", |(_, body)| body)
        .to_owned();
    (status, body)
}

fn post(server: &Server, path: &str, body: &[u8]) -> Vec<u8> {
    let mut bytes = format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer {}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        server.key,
        body.len()
    )
    .into_bytes();
    bytes.extend_from_slice(body);
    bytes
}

#[test]
fn bodies_that_cannot_be_understood_are_problems() {
    on_each(|database| async move {
        let server = Server::start(&database).await;
        let deep = format!(
            "{{\"metadata\": {}1{}}}",
            "[".repeat(100_000),
            "]".repeat(100_000)
        );
        let large = format!("{{\"code\": \"{}\"}}", "x".repeat(2 << 20));
        let bodies: [(&[u8], u16); 18] = [
            (b"", 400),
            (b"{", 400),
            (b"null", 400),
            (b"[]", 400),
            (b"1", 400),
            (b"\"code\"", 400),
            (b"{\"code\": 1}", 400),
            (b"{\"code\": null}", 400),
            (b"{\"code\": \"1\"} x", 400),
            (b"{\"code\": \"1\", \"code\": \"2\"}", 400),
            (b"{\"code\": \"1\", \"nope\": 1}", 400),
            (b"{\"code\": \"\xff\"}", 400),
            (b"{\"code\": \"1\", \"limits\": {\"memory\": true}}", 400),
            (b"{\"code\": \"1\", \"limits\": {\"processes\": 1e99}}", 400),
            (b"{\"code\": \"1\", \"files\": {\"../../etc/passwd\": \"\"}}", 400),
            (b"{\"code\": \"1\", \"user_id\": \"\\u0000\"}", 400),
            (deep.as_bytes(), 400),
            (large.as_bytes(), 413),
        ];
        for (body, status) in bodies {
            let (found, answer) = raw(&server, &post(&server, "/v1/executions", body)).await;
            let start = String::from_utf8_lossy(&body[..body.len().min(60)]).into_owned();
            assert_eq!(found, status, "{start}: {answer}");
            let problem: Value = serde_json::from_str(&answer).unwrap();
            assert!(
                problem["detail"].is_string() && problem["request_id"].is_string(),
                "{answer}"
            );
        }
        assert!(run(&server.admin, json!({"code": "1"})).await.is_ok());
        server.stop().await;
    });
}

#[test]
fn addresses_that_lead_nowhere_are_problems() {
    on_each(|database| async move {
        let server = Server::start(&database).await;
        for path in [
            "/v1/records/../../etc/passwd",
            "/v1/records/..%2f..%2fetc%2fpasswd",
            "/v1/records/%00",
            "/v1/records/%ff",
            "/v1/executions/%2e%2e/cancel",
            "/v1/policies/%0d%0aSet-Cookie:x",
            "/v1/keys/",
            "/v1/nope",
            "//v1/records",
        ] {
            let request = format!(
                "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer {}\r\n\r\n",
                server.key
            );
            let (status, answer) = raw(&server, request.as_bytes()).await;
            assert!((400..500).contains(&status), "{path}: {status} {answer}");
            assert!(serde_json::from_str::<Value>(&answer).is_ok(), "{path}: {answer}");
        }
        let long = format!("/v1/records/{}", "x".repeat(5000));
        let request = format!(
            "GET {long} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer {}\r\n\r\n",
            server.key
        );
        assert_eq!(raw(&server, request.as_bytes()).await.0, 404);
        server.stop().await;
    });
}

#[test]
fn heads_that_are_too_much_are_refused_and_slow_ones_hang_nobody_up() {
    on_each(|database| async move {
        let server = Server::start(&database).await;
        let many: String = (0..500).map(|turn| format!("X-{turn}: 1\r\n")).collect();
        let request = format!("GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{many}\r\n");
        assert_eq!(raw(&server, request.as_bytes()).await.0, 431);
        let huge = format!(
            "GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n",
            "x".repeat(1 << 20)
        );
        assert_eq!(raw(&server, huge.as_bytes()).await.0, 431);
        assert_eq!(raw(&server, b"\x16\x03\x01\x02\x00").await.0, 400);
        // Those who begin and never end are let go, and meanwhile others are served.
        let mut slow = Vec::new();
        for _ in 0..300 {
            let mut socket = TcpStream::connect(server.url.trim_start_matches("http://"))
                .await
                .unwrap();
            socket.write_all(b"GET /healthz HTTP/1.1\r\nHo").await.unwrap();
            slow.push(socket);
        }
        assert!(run(&server.admin, json!({"code": "1"})).await.is_ok());
        for mut socket in slow {
            let mut answer = Vec::new();
            let reading = socket.read_to_end(&mut answer);
            let _ = tokio::time::timeout(Duration::from_secs(10), reading)
                .await
                .expect("it is let go");
        }
        server.stop().await;
    });
}

/// The smallest limits that are taken leave something to run with, and smaller ones are refused by name.
#[test]
fn limits_that_are_taken_can_be_had() {
    on_each(|database| async move {
        let server = Server::start(&database).await;
        server.open_policy().await;
        for fresh in [false, true] {
            let wish = |files: u32| {
                json!({
                    "code": "print(1)", "policy_id": "open", "limits": {"open_files": files},
                    "fresh_interpreter": fresh,
                })
            };
            for files in [0, 1, 8, 15] {
                let refused = super::problem(run(&server.admin, wish(files)).await);
                let code = json!(refused.denial)["code"].clone();
                assert_eq!(
                    (refused.status, code),
                    (403, json!("argument_invalid")),
                    "{files}"
                );
            }
            let ran = run(&server.admin, wish(16)).await.unwrap();
            assert_eq!(ran.outcome.unwrap().stdout, "1\n");
        }
        server.stop().await;
    });
}

/// Who shows no key and no signature has nothing read that they send.
#[test]
fn a_word_without_a_signature_is_not_waited_for() {
    on_each(|database| async move {
        let server = Server::start(&database).await;
        let head = "POST /v1/approvals/apr-1/webhook HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
            Content-Type: application/json\r\nContent-Length: 900000\r\n\r\n";
        // Nothing of the body ever comes.
        let (status, body) = raw(&server, head.as_bytes()).await;
        assert_eq!(status, 401, "{body}");
        server.stop().await;
    });
}
