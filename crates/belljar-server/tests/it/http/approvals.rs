//! R12, R37, R52: what somebody has to approve waits for their word.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::http::Method;
use axum::routing::post;
use belljar_server::client::{Client, ClientError};
use belljar_server::service::{Settings, Webhook};
use belljar_server::store::EntryKind;
use belljar_server::wire::Execution;
use serde_json::{Value, json};

use super::{Server, get, problem, run, settings, until};
use crate::databases::{Database, on_each};

async fn with_policy(server: &Server) {
    server
        .define(
            json!({"policy_id": "asks", "extends": "standard", "require_approval": true, "keep_code": true}),
        )
        .await;
}

/// Asks for something in a task of its own, and gives the approval that it waits for.
async fn waiting(
    server: &Server,
    request: Value,
) -> (tokio::task::JoinHandle<Result<Execution, ClientError>>, Value) {
    let before = pending(server).await.len();
    let client = server.admin.clone();
    let task = tokio::spawn(async move { run(&client, request).await });
    until("a question", async || pending(server).await.len() > before).await;
    let approval = pending(server).await.swap_remove(0);
    (task, approval)
}

async fn pending(server: &Server) -> Vec<Value> {
    let list = get(&server.admin, "/v1/approvals?state=pending").await.unwrap();
    list["approvals"].as_array().unwrap().clone()
}

async fn say(
    client: &Client,
    approval: &Value,
    verb: &str,
    reason: Option<&str>,
) -> Result<Value, ClientError> {
    let path = format!(
        "/v1/approvals/{}/{verb}",
        approval["approval_id"].as_str().unwrap()
    );
    client
        .call(Method::POST, &path, Some(&json!({ "reason": reason })))
        .await
}

#[test]
fn it_waits_until_somebody_says_yes() {
    on_each(|database| async move {
        let server = Server::start(&database).await;
        with_policy(&server).await;
        let code = "print('approved')";
        let request =
            json!({"code": code, "policy_id": "asks", "env": {"A": "1"}, "user_id": "ada", "run_id": "r"});
        let (task, approval) = waiting(&server, request).await;
        // The approver sees the code, the policy, and what it asks for.
        assert_eq!(approval["request"]["code"], code);
        assert_eq!(
            (&approval["policy_id"], &approval["user_id"]),
            (&json!("asks"), &json!("ada"))
        );
        assert_eq!(approval["asks"], json!(["variables: A"]));
        assert_eq!(approval["diff"], Value::Null);
        let id = approval["execution_id"].as_str().unwrap().to_owned();
        assert_eq!(
            get(&server.admin, &format!("/v1/executions/{id}")).await.unwrap()["status"],
            "pending"
        );
        assert!(!task.is_finished());
        let granted = say(&server.admin, &approval, "grant", None).await.unwrap();
        assert_eq!(
            (&granted["state"], &granted["request"]),
            (&json!("granted"), &Value::Null)
        );
        let done = task.await.unwrap().unwrap();
        assert_eq!(done.outcome.unwrap().stdout, "approved\n");
        assert_eq!(done.approval_id.as_deref(), approval["approval_id"].as_str());
        // A second word is an error, whichever it is.
        for verb in ["grant", "deny"] {
            assert_eq!(
                problem(say(&server.admin, &approval, verb, Some("x")).await).status,
                409
            );
        }
        // All of it is audited.
        let entries = server.service.store().entries(0, 100).await.unwrap();
        let actions: Vec<Value> = entries
            .iter()
            .filter(|entry| entry.kind == EntryKind::Approval)
            .map(|entry| serde_json::from_str::<Value>(&entry.body).unwrap()["action"].clone())
            .collect();
        assert_eq!(actions, ["asked", "granted"]);
        server.stop().await;
    });
}

#[test]
fn a_no_ends_it_with_its_reason() {
    on_each(|database| async move {
        let server = Server::start(&database).await;
        with_policy(&server).await;
        let (task, approval) = waiting(&server, json!({"code": "1", "policy_id": "asks"})).await;
        assert_eq!(
            problem(say(&server.admin, &approval, "deny", None).await)
                .field
                .as_deref(),
            Some("reason")
        );
        say(&server.admin, &approval, "deny", Some("not today"))
            .await
            .unwrap();
        let refused = problem(task.await.unwrap());
        assert_eq!(refused.status, 403);
        assert!(refused.detail.contains("not today"), "{}", refused.detail);
        assert_eq!(json!(refused.denial)["code"], "approval_denied");
        let path = format!("/v1/records/{}", approval["execution_id"].as_str().unwrap());
        let record = get(&server.admin, &path).await.unwrap();
        assert_eq!(
            (&record["status"], &record["usage"]),
            (&json!("failed"), &Value::Null)
        );
        server.stop().await;
    });
}

/// The next code of the same run is shown against what was approved before.
#[test]
fn the_approver_sees_what_changed() {
    on_each(|database| async move {
        let server = Server::start(&database).await;
        with_policy(&server).await;
        let request = |code: &str| json!({"code": code, "policy_id": "asks", "run_id": "r7"});
        let (task, approval) = waiting(&server, request("a = 1\nprint(a)\n")).await;
        say(&server.admin, &approval, "grant", None).await.unwrap();
        task.await.unwrap().unwrap();
        let (task, approval) = waiting(&server, request("a = 2\nprint(a)\n")).await;
        let path = format!("/v1/approvals/{}", approval["approval_id"].as_str().unwrap());
        let shown = get(&server.admin, &path).await.unwrap();
        let diff = shown["diff"].as_str().unwrap();
        assert!(diff.contains("-a = 1\n+a = 2\n print(a)"), "{diff}");
        say(&server.admin, &approval, "grant", None).await.unwrap();
        task.await.unwrap().unwrap();
        server.stop().await;
    });
}

/// R52: absent or use_default goes on, require_escalated asks, anything else is refused.
#[test]
fn a_caller_can_ask_to_be_approved() {
    on_each(|database| async move {
        let server = Server::start(&database).await;
        let request = |word: &str| json!({"code": "print(1)", "sandbox_permissions": word});
        assert!(run(&server.admin, request("use_default")).await.is_ok());
        assert_eq!(
            problem(run(&server.admin, request("everything")).await)
                .field
                .as_deref(),
            Some("sandbox_permissions")
        );
        let (task, approval) = waiting(&server, request("require_escalated")).await;
        assert!(
            approval["asks"][0]
                .as_str()
                .unwrap()
                .contains("require_escalated")
        );
        say(&server.admin, &approval, "grant", None).await.unwrap();
        assert!(task.await.unwrap().is_ok());
        server.stop().await;
    });
}

#[test]
fn only_who_may_decides_and_only_for_its_tenant() {
    on_each(|database| async move {
        let server = Server::start(&database).await;
        with_policy(&server).await;
        server.add_tenant("a").await;
        server.add_tenant("b").await;
        let runs = server.caller(json!({"roles": ["run"], "tenant_id": "a"})).await;
        let approves = server
            .caller(json!({"roles": ["approve"], "tenant_id": "a"}))
            .await;
        let other = server
            .caller(json!({"roles": ["approve"], "tenant_id": "b"}))
            .await;
        let client = runs.clone();
        let task = tokio::spawn(async move { run(&client, json!({"code": "1", "policy_id": "asks"})).await });
        until("a question", async || !pending(&server).await.is_empty()).await;
        let approval = pending(&server).await.swap_remove(0);
        assert_eq!(problem(say(&runs, &approval, "grant", None).await).status, 403);
        assert_eq!(problem(say(&other, &approval, "grant", None).await).status, 404);
        assert_eq!(
            get(&other, "/v1/approvals").await.unwrap()["approvals"],
            json!([])
        );
        assert_eq!(problem(get(&runs, "/v1/approvals").await).status, 403);
        // Deciding is not reading: results are for those who run and read.
        let path = format!("/v1/executions/{}", approval["execution_id"].as_str().unwrap());
        assert_eq!(problem(get(&approves, &path).await).status, 403);
        say(&approves, &approval, "grant", None).await.unwrap();
        assert!(task.await.unwrap().is_ok());
        server.stop().await;
    });
}

#[test]
fn nobody_decides_and_it_expires_or_is_withdrawn() {
    on_each(|database| async move {
        let server = Server::with(Settings {
            approval_time: Duration::from_millis(700),
            ..settings(&database)
        })
        .await;
        with_policy(&server).await;
        let (task, approval) = waiting(&server, json!({"code": "1", "policy_id": "asks"})).await;
        let refused = problem(task.await.unwrap());
        assert_eq!(json!(refused.denial)["code"], "approval_expired");
        assert_eq!(
            problem(say(&server.admin, &approval, "grant", None).await).status,
            409
        );
        // Whoever hangs up does not want it any more.
        let (task, approval) = waiting(&server, json!({"code": "1", "policy_id": "asks"})).await;
        task.abort();
        let path = format!("/v1/approvals/{}", approval["approval_id"].as_str().unwrap());
        until("a withdrawal", async || {
            let state = get(&server.admin, &path).await.unwrap()["state"].clone();
            state == "withdrawn"
        })
        .await;
        server.stop().await;
    });
}

/// In the background the answer is 202 with what it waits for; and quotas count when it runs.
#[test]
fn in_the_background_it_is_told_what_it_waits_for() {
    on_each(|database| async move {
        let server = Server::start(&database).await;
        server
            .define(json!({"policy_id": "one", "extends": "standard", "require_approval": true, "max_executions_per_hour": 1}))
            .await;
        let request = json!({"code": "print(1)", "policy_id": "one"});
        let path = "/v1/executions?mode=background";
        let mut started = Vec::new();
        for _ in 0..2 {
            let execution: Execution = server
                .admin
                .call(Method::POST, path, Some(&request))
                .await
                .unwrap();
            assert_eq!(execution.status, "pending");
            assert!(execution.approval_id.is_some());
            started.push(execution);
        }
        for execution in &started {
            let approval = json!({"approval_id": execution.approval_id});
            say(&server.admin, &approval, "grant", None).await.unwrap();
            let path = format!("/v1/executions/{}", execution.execution_id);
            until("an end", async || {
                get(&server.admin, &path).await.unwrap()["success"].is_boolean()
            })
            .await;
        }
        let ends: Vec<_> = [&started[0], &started[1]]
            .map(|one| format!("/v1/records/{}", one.execution_id))
            .into();
        assert_eq!(get(&server.admin, &ends[0]).await.unwrap()["status"], "completed");
        let second = get(&server.admin, &ends[1]).await.unwrap();
        assert_eq!(second["denial"]["code"], "quota_exceeded");
        server.stop().await;
    });
}

/// What could not run anyway is refused at once; nobody is asked.
#[test]
fn nobody_is_asked_about_what_cannot_run() {
    on_each(|database| async move {
        let server = Server::start(&database).await;
        with_policy(&server).await;
        let refused = problem(
            run(
                &server.admin,
                json!({"code": "x", "language": "c", "policy_id": "asks"}),
            )
            .await,
        );
        assert_eq!(json!(refused.denial)["code"], "language_not_allowed");
        assert!(pending(&server).await.is_empty());
        server.stop().await;
    });
}

/// The code is held until the decision, and then nowhere unless the policy keeps it.
#[test]
fn the_code_is_held_until_the_decision() {
    on_each(|database| async move {
        let server = Server::start(&database).await;
        server
            .define(json!({"policy_id": "asks", "extends": "standard", "require_approval": true}))
            .await;
        let (task, approval) = waiting(
            &server,
            json!({"code": "# a needle\nprint(1)", "policy_id": "asks"}),
        )
        .await;
        say(&server.admin, &approval, "grant", None).await.unwrap();
        task.await.unwrap().unwrap();
        let path = format!("/v1/approvals/{}", approval["approval_id"].as_str().unwrap());
        assert!(
            !get(&server.admin, &path)
                .await
                .unwrap()
                .to_string()
                .contains("needle")
        );
        for entry in server.service.store().entries(0, 100).await.unwrap() {
            assert!(!entry.body.contains("needle"));
        }
        server.stop().await;
    });
}

const SECRET: &str = "between us";

/// What somebody answers who does not know the secret counts for nothing.
#[test]
fn an_answer_of_a_webhook_is_signed() {
    on_each(|database| async move {
        let (server, ..) = with_webhook(&database, json!({"decision": "grant"}), "a guess").await;
        let (task, approval) = waiting(&server, json!({"code": "print(7)", "policy_id": "asks"})).await;
        tokio::time::sleep(std::time::Duration::from_millis(500)).await;
        let path = format!("/v1/approvals/{}", approval["approval_id"].as_str().unwrap());
        assert_eq!(get(&server.admin, &path).await.unwrap()["state"], "pending");
        task.abort();
        server.stop().await;
    });
}

/// A program that is told of what waits, and answers at once or later.
async fn with_webhook(
    database: &Database,
    answer: Value,
    secret: &'static str,
) -> (Server, Webhook, Arc<Mutex<Vec<(String, Vec<u8>)>>>) {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&heard);
    let handler = move |headers: axum::http::HeaderMap, body: axum::body::Bytes| {
        let signature = headers["belljar-signature"].to_str().unwrap().to_owned();
        told.lock().unwrap().push((signature, body.to_vec()));
        let answer = answer.to_string();
        let told: Value = serde_json::from_slice(&body).unwrap();
        let signed = format!("{}\n{answer}", told["approval_id"].as_str().unwrap());
        let now = told["created_at"].as_f64().unwrap();
        let webhook = Webhook {
            url: String::new(),
            secret: secret.into(),
        };
        let headers = [("belljar-signature", webhook.sign(now, signed.as_bytes()))];
        async move { (headers, answer) }
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    let router = axum::Router::new().route("/hook", post(handler));
    tokio::spawn(async move { axum::serve(listener, router).await });
    let webhook = Webhook {
        url,
        secret: SECRET.into(),
    };
    let server = Server::with(Settings {
        webhook: Some(webhook.clone()),
        ..settings(database)
    })
    .await;
    with_policy(&server).await;
    (server, webhook, heard)
}

#[test]
fn a_webhook_is_told_and_may_decide_at_once() {
    on_each(|database| async move {
        let (server, webhook, heard) = with_webhook(&database, json!({"decision": "grant"}), SECRET).await;
        let done = run(&server.admin, json!({"code": "print(7)", "policy_id": "asks"}))
            .await
            .unwrap();
        assert_eq!(done.outcome.unwrap().stdout, "7\n");
        let (signature, body) = heard.lock().unwrap()[0].clone();
        assert!(webhook.is_signed(server.service.now(), &body, &signature));
        let told: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(told["request"]["code"], "print(7)");
        server.stop().await;
    });
}

#[test]
fn a_webhook_may_decide_later_with_its_signature() {
    on_each(|database| async move {
        let (server, webhook, _) = with_webhook(&database, json!({}), SECRET).await;
        let (task, approval) = waiting(&server, json!({"code": "print(7)", "policy_id": "asks"})).await;
        let id = approval["approval_id"].as_str().unwrap();
        let path = format!("/v1/approvals/{id}/webhook");
        let nobody = Client::remote(&server.url, None).unwrap();
        let word = json!({"decision": "deny", "reason": "no"});
        let signed = |id: &str| [id.as_bytes(), b"\n", word.to_string().as_bytes()].concat();
        let now = server.service.now();
        for signature in [
            "",
            "t=1,v1=00",
            &webhook.sign(now, &signed("apr-other")),
            &webhook.sign(now - 900.0, &signed(id)),
        ] {
            let headers = [("belljar-signature", signature)];
            let refused = nobody.send(Method::POST, &path, Some(&word), &headers).await;
            assert_eq!(problem(refused).status, 401);
        }
        let signature = webhook.sign(now, &signed(id));
        let headers = [("belljar-signature", signature.as_str())];
        nobody
            .send(Method::POST, &path, Some(&word), &headers)
            .await
            .unwrap();
        assert_eq!(
            json!(problem(task.await.unwrap()).denial)["code"],
            "approval_denied"
        );
        let found = get(&server.admin, &format!("/v1/approvals/{id}")).await.unwrap();
        assert_eq!(
            (&found["state"], &found["decided_by"]),
            (&json!("denied"), &json!("webhook"))
        );
        server.stop().await;
    });
}

/// What was approved and what is asked for may be too long to be compared; then that is said, and nobody waits.
#[test]
fn what_is_too_long_is_not_compared() {
    on_each(|database| async move {
        let server = Server::start(&database).await;
        with_policy(&server).await;
        let wish = |digit: char| {
            let code = format!("a = '{}'", digit.to_string().repeat(700_000));
            json!({"code": code, "policy_id": "asks", "run_id": "long"})
        };
        let (task, approval) = waiting(&server, wish('1')).await;
        say(&server.admin, &approval, "grant", None).await.unwrap();
        task.await.unwrap().unwrap();
        let (task, approval) = waiting(&server, wish('2')).await;
        let path = format!("/v1/approvals/{}", approval["approval_id"].as_str().unwrap());
        let shown = get(&server.admin, &path).await.unwrap();
        let diff = shown["diff"].as_str().unwrap();
        assert!(diff.contains("too long"), "{}", diff.len());
        say(&server.admin, &approval, "deny", Some("enough"))
            .await
            .unwrap();
        assert_eq!(problem(task.await.unwrap()).status, 403);
        server.stop().await;
    });
}

/// So many of a tenant's may wait for approval, and no more.
#[test]
fn not_everything_may_wait_for_approval() {
    on_each(|database| async move {
        let server = Server::start(&database).await;
        with_policy(&server).await;
        server.add_tenant("other").await;
        let wish = json!({"code": "1", "policy_id": "asks"});
        let path = "/v1/executions?mode=background";
        for _ in 0..200 {
            let _: Value = server.admin.call(Method::POST, path, Some(&wish)).await.unwrap();
        }
        let refused = server.admin.call::<Value>(Method::POST, path, Some(&wish)).await;
        assert_eq!(problem(refused).status, 429);
        let other = json!({"code": "1", "policy_id": "asks", "tenant_id": "other"});
        let _: Value = server.admin.call(Method::POST, path, Some(&other)).await.unwrap();
        server.stop().await;
    });
}
