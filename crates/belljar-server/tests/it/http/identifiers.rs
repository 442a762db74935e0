//! S5: ids that could be read as a path, an option, a control sequence or nothing are rejected wherever one is given.

use axum::http::Method;
use serde_json::{Value, json};

use super::bad_input::raw;
use super::{Server, get, problem, run};
use crate::databases::on_each;

const BAD: [&str; 12] = [
    "",
    ".",
    "..",
    "../x",
    "/",
    "a/b",
    "-x",
    "a b",
    "a\n",
    "\u{1b}[31m",
    "\0",
    "\u{202e}x",
];

/// Seen failing for `.` and `..`, which were ids of policies, and for `-x`.
#[test]
fn s5_ids_that_are_none_cannot_be_given() {
    on_each(|database| async move {
        let server = Server::start(&database).await;
        let long = "x".repeat(257);
        for bad in BAD.into_iter().chain([&*long]) {
            let policy = json!({"policy_id": bad, "extends": "standard"});
            let defined: Result<Value, _> = server
                .admin
                .call(Method::POST, "/v1/policies", Some(&policy))
                .await;
            let defined = problem(defined);
            assert_eq!(
                (defined.status, defined.field.as_deref()),
                (400, Some("policy_id")),
                "{bad:?}"
            );
            let tenant = json!({"tenant_id": bad});
            let added: Result<Value, _> = server
                .admin
                .call(Method::POST, "/v1/tenants", Some(&tenant))
                .await;
            let added = problem(added);
            assert_eq!(
                (added.status, added.field.as_deref()),
                (400, Some("tenant_id")),
                "{bad:?}"
            );
            // What is only looked up is not found, or not even a name.
            for wish in [
                json!({"code": "1", "policy_id": bad}),
                json!({"code": "1", "tenant_id": bad}),
                json!({"code": "1", "environment": bad}),
            ] {
                let refused = problem(run(&server.admin, wish.clone()).await);
                assert!(matches!(refused.status, 400 | 404), "{wish}: {refused:?}");
                assert!(
                    !refused.detail.contains(['\n', '\u{1b}', '\0']),
                    "{:?}",
                    refused.detail
                );
            }
            let key = json!({"roles": ["run"], "tenant_id": bad});
            let made: Result<Value, _> = server.admin.call(Method::POST, "/v1/keys", Some(&key)).await;
            assert!(matches!(problem(made).status, 400 | 404), "{bad:?}");
        }
        assert_eq!(
            get(&server.admin, "/v1/tenants").await.unwrap()["tenants"]
                .as_array()
                .unwrap()
                .len(),
            1
        );
        let policies = get(&server.admin, "/v1/policies").await.unwrap();
        assert!(
            policies["policies"]
                .as_array()
                .unwrap()
                .iter()
                .all(|policy| policy["origin"] == "built-in")
        );
        server.stop().await;
    });
}

/// In an address they stand escaped, as no client would make them simpler on the way.
#[test]
fn s5_ids_that_are_none_lead_nowhere_in_an_address() {
    on_each(|database| async move {
        let server = Server::start(&database).await;
        let routes = [
            ("GET", "/v1/policies/"),
            ("PUT", "/v1/policies/"),
            ("DELETE", "/v1/policies/"),
            ("GET", "/v1/environments/"),
            ("GET", "/v1/sessions/"),
            ("DELETE", "/v1/sessions/"),
            ("GET", "/v1/executions/"),
            ("GET", "/v1/records/"),
            ("GET", "/v1/approvals/"),
            ("DELETE", "/v1/keys/"),
        ];
        for (method, route) in routes {
            for id in [
                "%2e",
                "%2e%2e",
                "..",
                ".",
                "%2f",
                "a%2fb",
                "%2dx",
                "%20",
                "%0a",
                "%1b[31m",
                "%00",
                "%ff",
                "%e2%80%ae",
            ] {
                let body = if method == "PUT" {
                    r#"{"extends": "standard"}"#
                } else {
                    ""
                };
                let request = format!(
                    "{method} {route}{id} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer {}\r\n\
                     Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
                    server.key,
                    body.len()
                );
                let (status, answer) = raw(&server, request.as_bytes()).await;
                assert!(
                    matches!(status, 400 | 404),
                    "{method} {route}{id}: {status} {answer}"
                );
                assert!(!answer.contains('\u{1b}'), "{answer}");
            }
        }
        server.stop().await;
    });
}
