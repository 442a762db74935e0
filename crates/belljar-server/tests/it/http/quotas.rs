//! R10, R11, S7 over HTTP.

use serde_json::json;

use super::{Server, get, problem, run};
use crate::databases::on_each;

/// R10, S7: two hundred at once under a quota of ten, and exactly ten run; another tenant is unaffected.
#[test]
fn two_hundred_at_once_have_their_ten() {
    on_each(|database| async move {
        let server = Server::start(&database).await;
        server.add_tenant("a").await;
        server.add_tenant("b").await;
        let a = server.caller(json!({"roles": ["run"], "tenant_id": "a"})).await;
        let b = server.caller(json!({"roles": ["run"], "tenant_id": "b"})).await;
        let tasks: Vec<_> = (0..200)
            .map(|_| {
                let a = a.clone();
                tokio::spawn(async move { run(&a, json!({"code": "1"})).await })
            })
            .collect();
        let (mut ran, mut refused) = (0, 0);
        for task in tasks {
            match task.await.unwrap() {
                Ok(_) => ran += 1,
                refusal => {
                    let refusal = problem(refusal);
                    assert_eq!((refusal.status, refusal.kind.as_str()), (429, "quota_exceeded"));
                    assert!(refusal.retry_after.is_some());
                    refused += 1;
                }
            }
        }
        assert_eq!((ran, refused), (10, 190));
        assert!(run(&b, json!({"code": "1"})).await.is_ok());
        let stats = get(&server.admin, "/v1/stats?tenant_id=a").await.unwrap();
        assert_eq!(stats["total_executions"], 200);
        assert_eq!(stats["by_status"]["completed"], 10);
        assert!(server.service.store().verify(None).await.unwrap().is_ok());
        server.stop().await;
    });
}

#[test]
fn only_so_many_of_a_tenant_run_at_once() {
    on_each(|database| async move {
        let server = Server::start(&database).await;
        server
            .define(json!({"policy_id": "one", "extends": "standard", "max_concurrent_executions": 1}))
            .await;
        let request = json!({"code": "import time; time.sleep(0.5)", "policy_id": "one"});
        let tasks: Vec<_> = (0..3)
            .map(|_| {
                let (client, request) = (server.admin.clone(), request.clone());
                tokio::spawn(async move { run(&client, request).await.is_ok() })
            })
            .collect();
        let mut ran = 0;
        for task in tasks {
            ran += u32::from(task.await.unwrap());
        }
        assert_eq!(ran, 1);
        assert!(run(&server.admin, request).await.is_ok());
        server.stop().await;
    });
}
