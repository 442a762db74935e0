//! R35, R36, R37: which wall something runs behind, and who may say that it needs none.

use axum::http::Method;
use belljar_server::client::{Client, ClientError};
use belljar_server::service::{Callers, Settings};
use belljar_server::store::Place;
use belljar_server::wire::Problem;
use serde_json::{Value, json};

use super::{Server, get, problem, run, settings, until};
use crate::databases::{Database, on_each};

async fn owned() -> Server {
    let database = Database::sqlite();
    Server::with(Settings {
        callers: Callers::Owner,
        store: Place::memory(),
        ..settings(&database)
    })
    .await
}

/// A policy that lets code run without a wall.
async fn define_trusting(server: &Server) {
    server
        .define(json!({
            "policy_id": "trusting", "extends": "standard", "isolation_level": "none", "providers": ["venv"],
            "network_policy": "full", "allow_network": true,
        }))
        .await;
}

async fn open_session(client: &Client, wish: Value) -> Result<Value, ClientError> {
    client.call(Method::POST, "/v1/sessions", Some(&wish)).await
}

async fn execute(client: &Client, session: &Value, code: &str) -> Result<Value, ClientError> {
    let id = session["session_id"].as_str().unwrap();
    let path = format!("/v1/sessions/{id}/execute");
    client
        .call(Method::POST, &path, Some(&json!({ "code": code })))
        .await
}

/// Why something was denied.
fn code(refused: &Problem) -> Value {
    json!(refused.denial.as_ref().unwrap().code)
}

async fn pending(server: &Server) -> Vec<Value> {
    let list = get(&server.admin, "/v1/approvals?state=pending").await.unwrap();
    list["approvals"].as_array().unwrap().clone()
}

async fn approve(server: &Server, approval: &Value) {
    let id = approval["approval_id"].as_str().unwrap();
    let path = format!("/v1/approvals/{id}/grant");
    let _: Value = server
        .admin
        .call(Method::POST, &path, Some(&json!({})))
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn r37_an_owner_runs_without_a_wall_only_what_it_says_yes_to() {
    let server = owned().await;
    let wish = json!({"code": "print('ran')", "provider": "venv"});
    let refused = problem(run(&server.admin, wish.clone()).await);
    assert_eq!(
        (refused.status, code(&refused)),
        (403, json!("approval_required"))
    );
    let mut approved = wish;
    approved["approved"] = json!(true);
    let done = run(&server.admin, approved.clone()).await.unwrap();
    let outcome = done.outcome.unwrap();
    assert_eq!(outcome.stdout, "ran\n");
    assert_eq!(json!(outcome.receipt)["provider"], "venv");
    assert_eq!(json!(outcome.receipt)["isolation"], "none");
    // A yes is for exactly what was asked for: behind a wall it changes nothing.
    approved["provider"] = json!("native");
    let outcome = run(&server.admin, approved).await.unwrap().outcome.unwrap();
    assert_eq!(json!(outcome.receipt)["isolation"], "process");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r37_an_owners_session_needs_one_yes() {
    let server = owned().await;
    let refused = problem(open_session(&server.admin, json!({"provider": "venv"})).await);
    assert_eq!(code(&refused), "approval_required");
    let wish = json!({"provider": "venv", "approved": true});
    let session = open_session(&server.admin, wish).await.unwrap();
    for (code, value) in [("x = 20", Value::Null), ("x + 1", json!(21))] {
        let done = execute(&server.admin, &session, code).await.unwrap();
        assert_eq!(done["outcome"]["value"], value, "{done:#}");
        assert_eq!(done["outcome"]["receipt"]["provider"], "venv");
    }
    server.stop().await;
}

/// An owner's yes also stands for the approval that a policy of its own wants.
#[tokio::test(flavor = "multi_thread")]
async fn r12_an_owner_may_approve_with_the_request() {
    let server = owned().await;
    server
        .define(json!({"policy_id": "asks", "extends": "standard", "require_approval": true}))
        .await;
    let wish = json!({"code": "print(1)", "policy_id": "asks", "approved": true});
    let done = run(&server.admin, wish).await.unwrap();
    assert_eq!(done.success, Some(true));
    assert!(pending(&server).await.is_empty());
    server.stop().await;
}

#[test]
fn nobody_else_may_approve_their_own_code() {
    on_each(|database| async move {
        let server = Server::start(&database).await;
        define_trusting(&server).await;
        let wish = json!({"code": "print(1)", "policy_id": "trusting", "approved": true});
        let refused = problem(run(&server.admin, wish).await);
        assert_eq!(
            (refused.status, refused.field.as_deref()),
            (400, Some("approved"))
        );
        let wish = json!({"policy_id": "trusting", "approved": true});
        let refused = problem(open_session(&server.admin, wish).await);
        assert_eq!(
            (refused.status, refused.field.as_deref()),
            (400, Some("approved"))
        );
        server.stop().await;
    });
}

/// R12, R37: where there may be no wall, somebody is asked about everything, and sees why.
#[test]
fn r37_without_a_wall_everything_waits_for_a_yes() {
    on_each(|database| async move {
        let server = Server::start(&database).await;
        define_trusting(&server).await;
        let client = server.admin.clone();
        let asked = tokio::spawn(async move {
            run(&client, json!({"code": "print('ran')", "policy_id": "trusting"})).await
        });
        until("a question", async || !pending(&server).await.is_empty()).await;
        let approval = pending(&server).await.swap_remove(0);
        let asks = approval["asks"].as_array().unwrap();
        assert_eq!(asks[0], "to run without a wall: provider venv", "{approval:#}");
        assert!(!asked.is_finished());
        approve(&server, &approval).await;
        let outcome = asked.await.unwrap().unwrap().outcome.unwrap();
        assert_eq!(
            (&*outcome.stdout, &json!(outcome.receipt)["provider"]),
            ("ran\n", &json!("venv"))
        );

        // In a session it is each execution that is asked about.
        let session = open_session(&server.admin, json!({"policy_id": "trusting"}))
            .await
            .unwrap();
        assert!(pending(&server).await.is_empty());
        let (client, of) = (server.admin.clone(), session.clone());
        let asked = tokio::spawn(async move { execute(&client, &of, "6 * 7").await });
        until("a question", async || !pending(&server).await.is_empty()).await;
        approve(&server, &pending(&server).await.swap_remove(0)).await;
        assert_eq!(asked.await.unwrap().unwrap()["outcome"]["value"], 42);
        server.stop().await;
    });
}

/// R35, R36.
#[test]
fn a_wall_is_the_one_that_is_asked_for_or_none() {
    on_each(|database| async move {
        let server = Server::start(&database).await;
        let denied = async |wish: Value| {
            let refused = problem(run(&server.admin, wish).await);
            assert_eq!(refused.status, 403, "{refused:?}");
            let denial = refused.denial.unwrap();
            (denial.code.word().to_owned(), denial.rule)
        };
        let of = |code: &str, rule: &str| (code.to_owned(), rule.to_owned());
        // `standard` names none, so what has no wall is not among them.
        assert_eq!(
            denied(json!({"code": "1", "provider": "venv"})).await,
            of("provider_not_allowed", "isolation_level")
        );
        assert_eq!(
            denied(json!({"code": "1", "provider": "docker"})).await,
            of("isolation_unavailable", "isolation_level")
        );
        assert_eq!(
            denied(json!({"code": "1", "provider": "native", "image": "python:3"})).await,
            of("provider_not_allowed", "image")
        );
        server
            .define(json!({"policy_id": "images", "extends": "standard", "allowed_images": ["python:*"]}))
            .await;
        assert_eq!(
            denied(json!({"code": "1", "policy_id": "images", "image": "alpine"})).await,
            of("image_not_allowed", "allowed_images")
        );
        // What is preferred and not there is passed over; what is required is not replaced.
        server
            .define(json!({"policy_id": "prefers", "extends": "standard", "providers": ["docker", "native"]}))
            .await;
        let done = run(&server.admin, json!({"code": "1", "policy_id": "prefers"}))
            .await
            .unwrap();
        assert_eq!(json!(done.outcome.unwrap().receipt)["provider"], "native");
        server
            .define(json!({"policy_id": "requires", "extends": "standard", "providers": ["docker"]}))
            .await;
        assert_eq!(
            denied(json!({"code": "1", "policy_id": "requires"})).await,
            of("isolation_unavailable", "providers")
        );
        let wrong = problem(run(&server.admin, json!({"code": "1", "provider": "moat"})).await);
        assert_eq!((wrong.status, wrong.field.as_deref()), (400, Some("provider")));
        server.stop().await;
    });
}

#[test]
fn a_policy_that_names_walls_is_read_with_care() {
    on_each(|database| async move {
        let server = Server::start(&database).await;
        let define = async |more: Value| {
            let mut policy = json!({"policy_id": "walls", "extends": "standard"});
            policy
                .as_object_mut()
                .unwrap()
                .extend(more.as_object().unwrap().clone());
            let told: Result<Value, _> = server
                .admin
                .call(Method::POST, "/v1/policies", Some(&policy))
                .await;
            told
        };
        for (wrong, field) in [
            (json!({"providers": ["moat"]}), "providers"),
            (
                json!({"providers": ["native"], "isolation_level": "container"}),
                "providers",
            ),
            (json!({"providers": ["venv"]}), "providers"),
            (json!({"providers": "docker"}), "providers"),
            (json!({"allowed_images": ["a*b"]}), "allowed_images"),
            (json!({"allowed_images": [""]}), "allowed_images"),
        ] {
            let refused = problem(define(wrong.clone()).await);
            assert_eq!(
                (refused.status, refused.field.as_deref()),
                (400, Some(field)),
                "{wrong}: {refused:?}"
            );
        }
        let fields = json!({"providers": ["docker", "native"], "allowed_images": ["python:*"]});
        define(fields.clone()).await.unwrap();
        let found = get(&server.admin, "/v1/policies/walls").await.unwrap();
        for name in ["providers", "allowed_images"] {
            assert_eq!(found["policy"][name], fields[name]);
        }
        server.stop().await;
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn all_walls_are_told() {
    let server = owned().await;
    let told = get(&server.admin, "/v1/capabilities").await.unwrap();
    // Of the usual one as ever.
    assert_eq!(
        (&told["provider"], &told["isolation"]),
        (&json!("native"), &json!("process"))
    );
    assert!(told["languages"]["python"].is_object());
    let walls = told["providers"].as_array().unwrap();
    let names: Vec<_> = walls
        .iter()
        .map(|wall| wall["provider"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["native", "venv"]);
    for wall in walls {
        assert_eq!(wall["state"], "present");
        assert!(wall["version"].is_string() && wall["networks"].is_array());
        assert_eq!(wall["controls"]["rlimits"]["state"], "present", "{wall:#}");
    }
    assert_eq!(walls[1]["isolation"], "none");
    assert_eq!(walls[1]["controls"]["seccomp"]["state"], "absent");
    server.stop().await;
}
