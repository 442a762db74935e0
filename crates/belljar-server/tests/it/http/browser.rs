//! S9: what a web page of another origin can have a browser send is rejected, with and without keys.
//!
//! Every test here was seen failing without the layer `browser::check`. `belljar/tests/it/service/browser.rs` shows the same with
//! a real browser.

use belljar_server::service::{Callers, Settings};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::{Error, http::HeaderValue};

use super::bad_input::raw;
use super::sessions::open;
use super::{Network, Server, get, problem, settings};
use crate::databases::{Database, on_each};

const JSON: &str = "Content-Type: application/json";
const POLICY: &str = r#"{"policy_id": "planted", "extends": "permissive"}"#;

/// A service that everybody may use, and one with keys.
async fn both(dev: &Database, keyed: &Database) -> [Server; 2] {
    let dev = Settings {
        callers: Callers::Anyone,
        ..settings(dev)
    };
    [Server::with(dev).await, Server::start(keyed).await]
}

/// Sends a request with these lines in its head, beside a valid `Host` unless they have one, and a key where there is one.
async fn send(server: &Server, line: &str, headers: &[&str], body: &str) -> (u16, Value) {
    let mut head = format!(
        "{line} HTTP/1.1\r\nConnection: close\r\nContent-Length: {}\r\n",
        body.len()
    );
    if !headers.iter().any(|header| header.starts_with("Host")) {
        head += &format!("Host: {}\r\n", server.url.trim_start_matches("http://"));
    }
    if !server.key.is_empty() {
        head += &format!("Authorization: Bearer {}\r\n", server.key);
    }
    for header in headers {
        head += &format!("{header}\r\n");
    }
    let (status, answer) = raw(server, format!("{head}\r\n{body}").as_bytes()).await;
    (status, serde_json::from_str(&answer).unwrap_or_default())
}

#[track_caller]
fn assert_rejected((status, problem): (u16, Value), expected: u16, part: &str) {
    assert_eq!(status, expected, "{part}: {problem}");
    assert!(
        problem["detail"].as_str().unwrap().contains(part),
        "{part}: {problem}"
    );
    assert!(
        problem["hint"].is_string() && problem["request_id"].is_string(),
        "{problem}"
    );
}

async fn assert_nothing_planted(server: &Server) {
    let found = problem(get(&server.admin, "/v1/policies/planted").await);
    assert_eq!(found.status, 404);
}

#[test]
fn s9_foreign_hosts_are_rejected() {
    on_each(|database| async move {
        let other = Database::sqlite();
        for server in both(&other, &database).await {
            let port = server.url.rsplit(':').next().unwrap().to_owned();
            let hosts = [
                format!("Host: rebind.example:{port}"),
                "Host: rebind.example".to_owned(),
                format!("Host: localhost.rebind.example:{port}"),
                format!("Host: 10.0.0.1:{port}"),
                format!("Host: 0.0.0.0:{port}"),
                format!("Host: localhost.:{port}"),
            ];
            for host in &hosts {
                for line in ["GET /v1/policies", "GET /docs", "GET /healthz", "GET /nowhere"] {
                    assert_rejected(send(&server, line, &[host], "").await, 403, "is not a name");
                }
                let posted = send(&server, "POST /v1/policies", &[host, JSON], POLICY).await;
                assert_rejected(posted, 403, "is not a name");
            }
            for (headers, part) in [
                (&["Host: localhost", "Host: localhost"][..], "more than one Host"),
                (&["Host: localhost", "Host: rebind.example"], "more than one Host"),
                (&["Host: "], "is not one"),
                (&["Host: a b"], "is not one"),
                (&["Host: \u{7f}"], "is not one"),
            ] {
                let (status, answer) = send(&server, "GET /v1/policies", headers, "").await;
                // Some of them do not get past the parser.
                assert_eq!(status, 400, "{headers:?}: {answer}");
                if !answer.is_null() {
                    assert!(answer["detail"].as_str().unwrap().contains(part), "{answer}");
                }
            }
            let (status, _) = raw(&server, b"GET /healthz HTTP/1.1\r\nConnection: close\r\n\r\n").await;
            assert_eq!(status, 400, "a request without Host");
            let target = format!("GET http://rebind.example:{port}/v1/policies");
            assert_rejected(
                send(&server, &target, &[], "").await,
                400,
                "another host than Host",
            );
            for host in [
                "localhost",
                "LOCALHOST:1",
                "127.0.0.1",
                "127.1.2.3:80",
                "[::1]:8377",
            ] {
                let found = send(&server, "GET /v1/policies", &[&format!("Host: {host}")], "").await;
                assert_eq!(found.0, 200, "{host}: {}", found.1);
            }
            assert_nothing_planted(&server).await;
            server.stop().await;
        }
    });
}

#[test]
fn s9_foreign_origins_are_rejected_and_the_own_is_served() {
    on_each(|database| async move {
        let other = Database::sqlite();
        for server in both(&other, &database).await {
            let own = format!("Origin: {}", server.url);
            let foreign = [
                "Origin: http://evil.example",
                "Origin: null",
                "Origin: http://127.0.0.1:1",
                "Origin: http://localhost",
                "Origin: file://",
                "Origin: chrome-extension://abcdefgh",
                "Origin: ",
            ];
            for origin in foreign {
                for headers in [&[origin, JSON][..], &[&own, origin, JSON], &[origin, &own, JSON]] {
                    let posted = send(&server, "POST /v1/policies", headers, POLICY).await;
                    assert_rejected(posted, 403, "is not the origin of this service");
                }
                for line in [
                    "GET /v1/policies",
                    "OPTIONS /v1/policies",
                    "DELETE /v1/policies/x",
                    "GET /docs",
                ] {
                    let found = send(&server, line, &[origin], "").await;
                    assert_rejected(found, 403, "is not the origin of this service");
                }
                // Without a body there is no type to check.
                let posted = send(&server, "POST /v1/sessions/x/interrupt", &[origin], "").await;
                assert_rejected(posted, 403, "is not the origin of this service");
            }
            for site in [
                "cross-site",
                "same-site",
                "",
                "Same-Origin",
                "same-origin, cross-site",
            ] {
                let site = format!("Sec-Fetch-Site: {site}");
                for headers in [&[&*site, JSON][..], &["Sec-Fetch-Site: none", &site, JSON]] {
                    let posted = send(&server, "POST /v1/policies", headers, POLICY).await;
                    assert_rejected(posted, 403, "a page of another origin");
                    let found = send(&server, "GET /v1/policies", headers, "").await;
                    assert_rejected(found, 403, "a page of another origin");
                }
            }
            assert_nothing_planted(&server).await;
            for headers in [
                &[&*own, "Sec-Fetch-Site: same-origin", JSON][..],
                &["Sec-Fetch-Site: none", JSON],
                &[JSON],
            ] {
                let (status, answer) = send(&server, "POST /v1/policies", headers, POLICY).await;
                assert_eq!(status, 200, "{headers:?}: {answer}");
            }
            server.stop().await;
        }
    });
}

#[test]
fn s9_bodies_need_a_media_type_that_no_form_can_have() {
    on_each(|database| async move {
        let other = Database::sqlite();
        for server in both(&other, &database).await {
            let simple = [
                "Content-Type: text/plain",
                "Content-Type: text/plain; a=application/json",
                "Content-Type: application/x-www-form-urlencoded",
                "Content-Type: multipart/form-data; boundary=x",
                "Content-Type: application/jsonx",
                "Content-Type: ",
                "Content-Type: \u{e9}",
                "X: no type",
            ];
            for kind in simple {
                for line in [
                    "POST /v1/policies",
                    "PUT /v1/policies/planted",
                    "POST /v1/executions",
                    "POST /v1/sessions",
                    "POST /v1/keys",
                    "POST /v1/batches",
                    "POST /v1/approvals/x/webhook",
                ] {
                    let (status, answer) = send(&server, line, &[kind], POLICY).await;
                    assert_eq!(status, 415, "{line} {kind}: {answer}");
                    let hint = answer["hint"].as_str().unwrap();
                    assert!(hint.starts_with("send `Content-Type: application/"), "{hint}");
                }
            }
            let twice = send(
                &server,
                "POST /v1/policies",
                &[JSON, "Content-Type: text/plain"],
                POLICY,
            )
            .await;
            assert_rejected(twice, 415, "more than one Content-Type");
            // S12: nothing is decompressed, so there is nothing that could expand.
            for encoding in ["gzip", "br", "identity, gzip", ""] {
                let encoding = format!("Content-Encoding: {encoding}");
                let posted = send(&server, "POST /v1/policies", &[JSON, &encoding], POLICY).await;
                assert_rejected(posted, 415, "Content-Encoding");
            }
            assert_nothing_planted(&server).await;
            for kind in [
                "Content-Type: application/json",
                "content-type: Application/JSON; charset=utf-8",
            ] {
                let headers = [kind, "Content-Encoding: identity"];
                let (status, answer) = send(&server, "POST /v1/policies", &headers, POLICY).await;
                assert_eq!(status, 200, "{kind}: {answer}");
            }
            let session = open(&server.admin, json!({})).await.unwrap();
            let file = format!("PUT /v1/sessions/{session}/file?path=a");
            for (headers, expected) in [
                (&["Content-Type: application/octet-stream"][..], 204),
                (&["Content-Type: application/json"], 204),
                (&[], 204),
                (&["Content-Type: "], 415),
                (&["Content-Type: text/plain"], 415),
                (&["Content-Type: multipart/form-data; boundary=x"], 415),
            ] {
                let (status, answer) = send(&server, &file, headers, "x").await;
                assert_eq!(status, expected, "{headers:?}: {answer}");
            }
            server.stop().await;
        }
    });
}

#[test]
fn s9_websockets_of_foreign_pages_are_rejected() {
    on_each(|database| async move {
        let other = Database::sqlite();
        for server in both(&other, &database).await {
            let session = open(&server.admin, json!({})).await.unwrap();
            let url = format!(
                "{}/v1/sessions/{session}/socket",
                server.url.replace("http", "ws")
            );
            let connect = async |name: &'static str, value: &str| {
                let mut request = url.as_str().into_client_request().unwrap();
                request.headers_mut().insert(name, value.parse().unwrap());
                if !server.key.is_empty() {
                    let key = HeaderValue::from_str(&format!("Bearer {}", server.key)).unwrap();
                    request.headers_mut().insert("authorization", key);
                }
                match tokio_tungstenite::connect_async(request).await {
                    Ok((_, answer)) => {
                        // S12: no compression is agreed upon, so no message can expand.
                        assert_eq!(answer.headers().get("sec-websocket-extensions"), None);
                        101
                    }
                    Err(Error::Http(answer)) => answer.status().as_u16(),
                    Err(error) => panic!("{error}"),
                }
            };
            let port = server.url.rsplit(':').next().unwrap();
            for (name, value) in [
                ("origin", "http://evil.example"),
                ("origin", "null"),
                ("sec-fetch-site", "cross-site"),
                ("sec-fetch-site", "same-site"),
                ("host", &format!("rebind.example:{port}")),
            ] {
                assert_eq!(connect(name, value).await, 403, "{name}: {value}");
            }
            assert_eq!(connect("origin", &server.url).await, 101);
            assert_eq!(
                connect("sec-websocket-extensions", "permessage-deflate").await,
                101
            );
            server.stop().await;
        }
    });
}

#[test]
fn s9_a_configured_name_is_accepted_and_its_origin_is_own() {
    on_each(|database| async move {
        let network = Network {
            allowed_hosts: vec!["api.example".parse().unwrap()],
            ..Network::default()
        };
        let server = Server::with_network(settings(&database), network).await;
        for (headers, expected) in [
            (&["Host: api.example"][..], 200),
            (&["Host: api.example", "Origin: https://api.example"], 200),
            // A proxy that changes Host.
            (&["Origin: https://api.example"], 200),
            (&["Host: api.example", "Origin: https://api.example:3000"], 403),
            (&["Host: api.example", "Origin: https://evil.example"], 403),
            (&["Host: other.example"], 403),
        ] {
            let (status, answer) = send(&server, "GET /v1/policies", headers, "").await;
            assert_eq!(status, expected, "{headers:?}: {answer}");
        }
        server.stop().await;
    });
}

/// Nobody knows by which names a service on another address is called, until they are configured.
#[test]
fn s9_a_service_with_keys_on_another_address_accepts_every_host() {
    on_each(|database| async move {
        let network = Network {
            listen: "0.0.0.0:0",
            ..Network::default()
        };
        let server = Server::with_network(settings(&database), network).await;
        let (status, _) = send(&server, "GET /v1/policies", &["Host: belljar.internal:80"], "").await;
        assert_eq!(status, 200);
        let foreign = ["Host: belljar.internal", "Origin: http://evil.example"];
        let found = send(&server, "GET /v1/policies", &foreign, "").await;
        assert_rejected(found, 403, "is not the origin of this service");
        server.stop().await;
    });
}
