//! R7, R8, R17, S2: policies over HTTP.

use axum::http::Method;
use serde_json::{Value, json};

use super::{NOTHING, Server, get, problem, run, until};
use crate::databases::on_each;

#[test]
fn the_built_in_four_are_there_and_cannot_be_changed() {
    on_each(|database| async move {
        let server = Server::start(&database).await;
        let list = get(&server.admin, "/v1/policies").await.unwrap();
        let ids: Vec<_> = list["policies"]
            .as_array()
            .unwrap()
            .iter()
            .map(|found| found["policy"]["policy_id"].as_str().unwrap())
            .collect();
        assert_eq!(ids, ["high_security", "permissive", "restricted", "standard"]);
        let changed: Result<Value, _> = server
            .admin
            .call(Method::PUT, "/v1/policies/standard", Some(&json!({})))
            .await;
        assert_eq!(problem(changed).status, 409);
        let deleted: Result<Value, _> = server
            .admin
            .call(Method::DELETE, "/v1/policies/standard", NOTHING)
            .await;
        assert_eq!(problem(deleted).status, 409);
        // R8: an unknown one is an error.
        assert_eq!(
            problem(run(&server.admin, json!({"code": "1", "policy_id": "nope"})).await).status,
            404
        );
        server.stop().await;
    });
}

/// R17: define, get, list and delete round-trip.
#[test]
fn a_policy_round_trips() {
    on_each(|database| async move {
        let server = Server::start(&database).await;
        let fields = json!({"name": "Team", "extends": "standard", "max_memory_mb": 99, "keep_code": true});
        let made: Value = server
            .admin
            .call(Method::PUT, "/v1/policies/team", Some(&fields))
            .await
            .unwrap();
        assert_eq!(
            (&made["version"], &made["origin"]),
            (&json!(1), &json!("defined"))
        );
        let found = get(&server.admin, "/v1/policies/team").await.unwrap();
        assert_eq!(found, made);
        assert_eq!(found["policy"]["max_memory_mb"], 99);
        // What was told is what can be told again.
        let again: Value = server
            .admin
            .call(Method::POST, "/v1/policies", Some(&found["policy"]))
            .await
            .unwrap();
        assert_eq!(again, made);
        let by_hash = format!("/v1/policies/{}", made["hash"].as_str().unwrap());
        let _: Value = server
            .admin
            .call(Method::DELETE, "/v1/policies/team", NOTHING)
            .await
            .unwrap();
        assert_eq!(problem(get(&server.admin, "/v1/policies/team").await).status, 404);
        assert_eq!(get(&server.admin, &by_hash).await.unwrap(), made);
        for (fields, field) in [
            (json!({"policy_id": "x", "max_memory_mb": -5}), "max_memory_mb"),
            (json!({"policy_id": "x", "max_memroy_mb": 5}), "max_memroy_mb"),
            (json!({"policy_id": "../x"}), "policy_id"),
            (json!({}), "policy_id"),
            (json!([]), "policy"),
        ] {
            let refused: Result<Value, _> = server
                .admin
                .call(Method::POST, "/v1/policies", Some(&fields))
                .await;
            let refused = problem(refused);
            assert_eq!(
                (refused.status, refused.field.as_deref()),
                (400, Some(field)),
                "{fields}"
            );
        }
        server.stop().await;
    });
}

/// S2: a run keeps the policy that it was planned with.
#[test]
fn a_policy_that_is_changed_meanwhile_changes_nothing_that_runs() {
    on_each(|database| async move {
        let server = Server::start(&database).await;
        let fields =
            |seconds: u32| json!({"policy_id": "p", "extends": "standard", "max_wall_time_seconds": seconds});
        server.define(fields(20)).await;
        let hash = get(&server.admin, "/v1/policies/p").await.unwrap()["hash"].clone();
        let client = server.admin.clone();
        let task = tokio::spawn(async move {
            run(
                &client,
                json!({"code": "import time; time.sleep(1.5); print(1)", "policy_id": "p"}),
            )
            .await
        });
        until("a start", async || {
            let under_way = get(&server.admin, "/v1/executions").await.unwrap();
            under_way["executions"]
                .as_array()
                .is_some_and(|list| !list.is_empty())
        })
        .await;
        server.define(fields(1)).await;
        let done = task.await.unwrap().unwrap();
        assert_eq!(done.status, "completed");
        assert_eq!(done.record["policy_hash"], hash);
        let done = run(
            &server.admin,
            json!({"code": "import time; time.sleep(1.5)", "policy_id": "p"}),
        )
        .await
        .unwrap();
        assert_eq!(done.status, "timeout");
        assert_ne!(done.record["policy_hash"], hash);
        server.stop().await;
    });
}

#[test]
fn code_is_kept_only_where_the_policy_says_so() {
    on_each(|database| async move {
        let server = Server::start(&database).await;
        server
            .define(json!({"policy_id": "kept", "extends": "standard", "keep_code": true}))
            .await;
        let code = "print('a needle in the hay')";
        let kept = run(&server.admin, json!({"code": code, "policy_id": "kept"}))
            .await
            .unwrap();
        let record = get(&server.admin, &format!("/v1/records/{}", kept.execution_id))
            .await
            .unwrap();
        assert_eq!(record["code"], code);
        let other = run(&server.admin, json!({ "code": code })).await.unwrap();
        let record = get(&server.admin, &format!("/v1/records/{}", other.execution_id))
            .await
            .unwrap();
        assert!(!record.to_string().contains("needle"));
        server.stop().await;
    });
}
