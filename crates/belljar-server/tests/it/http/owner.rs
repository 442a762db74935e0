//! A service for the one who started it, with its records in memory.

use belljar_server::service::{Callers, Settings};
use belljar_server::store::Place;
use serde_json::{Value, json};

use super::{Server, get, problem, run, settings};
use crate::databases::{Database, TempDir, on_each};

async fn owned() -> Server {
    let database = Database::sqlite();
    Server::with(Settings {
        callers: Callers::Owner,
        store: Place::memory(),
        ..settings(&database)
    })
    .await
}

/// Asking is enough, and what ran is not kept.
#[tokio::test(flavor = "multi_thread")]
async fn without_a_policy_asking_is_enough() {
    let server = owned().await;
    let wish = json!({"code": "print(1)", "limits": {"memory": "600M", "timeout": 100}});
    for _ in 0..12 {
        let done = run(&server.admin, wish.clone()).await.unwrap();
        assert_eq!(done.success, Some(true));
        assert_eq!(done.record["status"], "completed");
    }
    assert_eq!(
        get(&server.admin, "/v1/records").await.unwrap()["records"],
        json!([])
    );
    // What cannot be is still refused.
    let wish = json!({"code": "print(1)", "limits": {"timeout": 301}});
    assert_eq!(problem(run(&server.admin, wish).await).status, 403);
    server.stop().await;
}

/// R10: a policy that is named counts, and what ran under it is on record.
#[tokio::test(flavor = "multi_thread")]
async fn r10_a_policy_that_is_named_counts() {
    let server = owned().await;
    for _ in 0..10 {
        run(&server.admin, json!({"code": "1", "policy_id": "standard"}))
            .await
            .unwrap();
    }
    let eleventh = run(&server.admin, json!({"code": "1", "policy_id": "standard"})).await;
    assert_eq!(problem(eleventh).kind, "quota_exceeded");
    let records = get(&server.admin, "/v1/records").await.unwrap();
    assert_eq!(records["records"].as_array().map(Vec::len), Some(11));
    let stats = get(&server.admin, "/v1/stats").await.unwrap();
    assert_eq!(stats["total_executions"], 11);
    server.stop().await;
}

/// Two at once do not share their records.
#[tokio::test(flavor = "multi_thread")]
async fn memory_is_of_one_alone() {
    let (one, other) = (owned().await, owned().await);
    run(&one.admin, json!({"code": "1", "policy_id": "standard"}))
        .await
        .unwrap();
    let count = async |server: &Server| {
        let records: Value = get(&server.admin, "/v1/records").await.unwrap();
        records["records"].as_array().map(Vec::len)
    };
    assert_eq!((count(&one).await, count(&other).await), (Some(1), Some(0)));
    one.stop().await;
    other.stop().await;
}

/// R48: the owner's own directory is the work directory.
#[tokio::test(flavor = "multi_thread")]
async fn r48_the_owner_may_name_a_work_directory() {
    let server = owned().await;
    let directory = TempDir::new();
    std::fs::write(directory.path().join("in"), "from the host").unwrap();
    let done = run(&server.admin, in_directory(directory.path())).await.unwrap();
    assert_eq!(done.outcome.unwrap().stdout, "from the host\n");
    server.stop().await;
}

#[test]
fn nobody_else_may_name_a_work_directory() {
    on_each(|database| async move {
        let server = Server::start(&database).await;
        let directory = TempDir::new();
        let refused = problem(run(&server.admin, in_directory(directory.path())).await);
        assert_eq!(
            (refused.status, refused.field.as_deref()),
            (400, Some("workspace"))
        );
        server.stop().await;
    });
}

fn in_directory(directory: &std::path::Path) -> Value {
    json!({"code": "print(open('in').read())", "workspace": directory})
}
