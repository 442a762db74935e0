//! S11: where the service itself connects to. Only its operator names such targets, and none of them leads elsewhere.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::http::{Method, StatusCode, header};
use axum::routing::any;
use belljar_server::service::{Settings, Webhook};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::{NOTHING, Server, get, problem, settings, until};
use crate::databases::{Database, on_each};

/// A server that answers with each of these in turn, and counts.
async fn answering(statuses: &'static [StatusCode], location: &str) -> (String, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let (count, location) = (Arc::clone(&asked), location.to_owned());
    let answer = any(move || {
        let status = statuses[count.fetch_add(1, Ordering::SeqCst) % statuses.len()];
        let location = location.clone();
        async move { (status, [(header::LOCATION, location)]) }
    });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, Router::new().fallback(answer)).await });
    (url, asked)
}

/// A service of which three things wait for approval.
async fn with_webhook(database: &Database, url: String) -> Server {
    let secret = "s3cret".into();
    let server = Server::with(Settings {
        webhook: Some(Webhook { url, secret }),
        ..settings(database)
    })
    .await;
    server
        .define(json!({"policy_id": "asks", "extends": "standard", "require_approval": true}))
        .await;
    for _ in 0..3 {
        let request = json!({"code": "1", "policy_id": "asks"});
        let path = "/v1/executions?mode=background";
        let _: Value = server
            .admin
            .call(Method::POST, path, Some(&request))
            .await
            .unwrap();
    }
    server
}

/// Ends it at once: nothing waits any more.
async fn deny_all_and_stop(server: Server) {
    let pending = get(&server.admin, "/v1/approvals?state=pending").await.unwrap();
    for approval in pending["approvals"].as_array().unwrap() {
        let path = format!("/v1/approvals/{}/deny", approval["approval_id"].as_str().unwrap());
        let reason = json!({"reason": "the test is over"});
        let _: Value = server
            .admin
            .call(Method::POST, &path, Some(&reason))
            .await
            .unwrap();
    }
    server.stop().await;
}

const REDIRECTS: [StatusCode; 5] = [
    StatusCode::MOVED_PERMANENTLY,
    StatusCode::FOUND,
    StatusCode::SEE_OTHER,
    StatusCode::TEMPORARY_REDIRECT,
    StatusCode::PERMANENT_REDIRECT,
];

/// The webhook's server cannot send the service on to an address that only the service reaches.
#[test]
fn s11_a_webhook_does_not_redirect_the_service() {
    on_each(|database| async move {
        let (inside, reached) = answering(&[StatusCode::OK], "").await;
        let (hook, told) = answering(&REDIRECTS, &inside).await;
        let server = with_webhook(&database, hook).await;
        // Each of three messages is sent for the third time only when the second answer, the sixth of all, is dealt with.
        until("nine messages", async || told.load(Ordering::SeqCst) >= 9).await;
        assert_eq!(reached.load(Ordering::SeqCst), 0);
        deny_all_and_stop(server).await;
        // The control: the same address is reached where the operator names it.
        let other = Database::sqlite();
        let server = with_webhook(&other, inside).await;
        until("a message", async || reached.load(Ordering::SeqCst) > 0).await;
        deny_all_and_stop(server).await;
    });
}

/// No request names a target: a field that would is refused, and the description knows none.
#[test]
fn s11_no_caller_can_name_a_target() {
    on_each(|database| async move {
        let server = Server::start(&database).await;
        let target = "http://169.254.169.254/latest/meta-data";
        for field in [
            "webhook",
            "webhook_url",
            "callback",
            "callback_url",
            "otlp",
            "url",
            "notify",
        ] {
            for (path, mut body) in [
                ("/v1/executions", json!({"code": "1"})),
                ("/v1/sessions", json!({})),
                ("/v1/keys", json!({"roles": ["run"]})),
                ("/v1/tenants", json!({"tenant_id": "a"})),
                ("/v1/policies", json!({"policy_id": "a", "extends": "standard"})),
                ("/v1/approvals/apr-x/grant", json!({})),
            ] {
                body[field] = json!(target);
                let asked: Result<Value, _> = server.admin.call(Method::POST, path, Some(&body)).await;
                assert_eq!(problem(asked).status, 400, "{path} {field}");
            }
        }
        let api = get(&server.admin, "/openapi.json").await.unwrap();
        let mut names = Vec::new();
        properties(&api["components"]["schemas"], &mut names);
        assert!(names.len() > 50, "{names:?}");
        let is_target = |name: &&String| {
            ["url", "uri", "webhook", "callback", "endpoint", "otlp", "address"]
                .iter()
                .any(|word| name.contains(word))
        };
        let found: Vec<_> = names.iter().filter(is_target).collect();
        assert!(found.is_empty(), "{found:?}");
        // A header that tells where a proxy's client comes from changes nothing.
        let forwarded = [
            ("x-forwarded-host", "evil.example"),
            ("forwarded", "host=evil.example"),
        ];
        let sent = server
            .admin
            .send(Method::GET, "/v1/policies", NOTHING, &forwarded)
            .await;
        assert!(sent.is_ok());
        server.stop().await;
    });
}

/// The names of all properties in a description.
fn properties(schema: &Value, names: &mut Vec<String>) {
    match schema {
        Value::Object(fields) => {
            for (name, value) in fields {
                if name == "properties" {
                    names.extend(
                        value
                            .as_object()
                            .into_iter()
                            .flat_map(|found| found.keys().cloned()),
                    );
                }
                properties(value, names);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| properties(item, names)),
        _ => {}
    }
}
