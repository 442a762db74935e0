//! R15, R16, S4 over HTTP.

use axum::http::Method;
use serde_json::{Value, json};

use super::{NOTHING, Server, get, problem, run};
use crate::databases::on_each;

#[test]
fn records_are_paged_and_figures_add_up() {
    on_each(|database| async move {
        let server = Server::start(&database).await;
        let empty = get(&server.admin, "/v1/stats").await.unwrap();
        assert_eq!(
            (&empty["total_executions"], &empty["avg_wall_time_seconds"]),
            (&json!(0), &json!(0.0))
        );
        for turn in 0..3 {
            let request = json!({"code": "1", "user_id": format!("u{turn}"), "run_id": "r"});
            run(&server.admin, request).await.unwrap();
        }
        let first = get(&server.admin, "/v1/records?limit=2").await.unwrap();
        assert_eq!(first["records"].as_array().unwrap().len(), 2);
        let rest = get(
            &server.admin,
            &format!("/v1/records?limit=2&before={}", first["next"]),
        )
        .await
        .unwrap();
        assert_eq!(
            (rest["records"].as_array().unwrap().len(), &rest["next"]),
            (1, &Value::Null)
        );
        let of_one = get(&server.admin, "/v1/records?user_id=u1").await.unwrap();
        assert_eq!(of_one["records"].as_array().unwrap().len(), 1);
        let stats = get(&server.admin, "/v1/stats?bucket=3600").await.unwrap();
        assert_eq!(stats["total_executions"], 3);
        assert_eq!(stats["by_status"], json!({"completed": 3}));
        assert_eq!(stats["by_language"], json!({"python": 3}));
        assert_eq!(stats["by_policy"], json!({"standard": 3}));
        assert!(stats["wall_time_seconds"]["p99"].as_f64().unwrap() > 0.0);
        assert!(!stats["buckets"].as_array().unwrap().is_empty());
        for path in [
            "/v1/records?limit=0",
            "/v1/records?limit=x",
            "/v1/records?status=fine",
            "/v1/records?before=x",
            "/v1/records?nope=1",
            "/v1/records?user_id=%00",
            "/v1/stats?bucket=0",
            "/v1/audit/verify?seq=1",
        ] {
            assert_eq!(problem(get(&server.admin, path).await).status, 400, "{path}");
        }
        server.stop().await;
    });
}

#[test]
fn the_chain_is_exported_as_it_was_hashed_and_verified() {
    on_each(|database| async move {
        let server = Server::start(&database).await;
        run(&server.admin, json!({"code": "1"})).await.unwrap();
        let head = get(&server.admin, "/v1/audit/head").await.unwrap();
        let text = server
            .admin
            .bytes(Method::GET, "/v1/audit/entries", NOTHING)
            .await
            .unwrap();
        let lines: Vec<Value> = String::from_utf8(text)
            .unwrap()
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(lines.len() as i64, head["seq"].as_i64().unwrap());
        assert_eq!(lines.last().unwrap()["hash"], head["hash"]);
        let verified = get(&server.admin, "/v1/audit/verify").await.unwrap();
        assert_eq!(
            (&verified["valid"], &verified["entries"]),
            (&json!(true), &head["seq"])
        );
        database
            .tamper(
                "UPDATE audit SET body = REPLACE(body, 'completed', 'conpleted') WHERE kind = 'execution'",
            )
            .await;
        let verified = get(&server.admin, "/v1/audit/verify").await.unwrap();
        assert_eq!(
            (&verified["valid"], &verified["seq"]),
            (&json!(false), &head["seq"])
        );
        server.stop().await;
    });
}

/// What is older than the retention goes by itself, and the rest stays provable.
#[test]
fn old_records_go_by_themselves() {
    on_each(|database| async move {
        let server = Server::with(belljar_server::service::Settings {
            retention: Some(std::time::Duration::from_millis(300)),
            ..super::settings(&database)
        })
        .await;
        run(&server.admin, json!({"code": "1"})).await.unwrap();
        tokio::time::sleep(std::time::Duration::from_millis(400)).await;
        run(&server.admin, json!({"code": "2"})).await.unwrap();
        server.service.tidy().await.unwrap();
        let left = get(&server.admin, "/v1/records").await.unwrap();
        assert_eq!(left["records"].as_array().unwrap().len(), 1);
        assert_eq!(
            get(&server.admin, "/v1/audit/verify").await.unwrap()["valid"],
            true
        );
        server.stop().await;
    });
}
