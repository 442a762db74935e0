//! S6: who may do what.

use axum::http::Method;
use belljar_server::client::Client;
use serde_json::{Value, json};

use super::{NOTHING, Server, get, problem, run, settings};
use crate::databases::on_each;

#[test]
fn without_a_good_key_nothing_is_told() {
    on_each(|database| async move {
        let server = Server::start(&database).await;
        let wrong = format!("bj_{}_{}", "0".repeat(16), "0".repeat(64));
        let (most, last) = server.key.split_at(server.key.len() - 1);
        let altered = format!("{most}{}", if last == "0" { "1" } else { "0" });
        let keys = [
            None,
            Some("x"),
            Some(""),
            Some(wrong.as_str()),
            Some(altered.as_str()),
        ];
        for key in keys {
            let client = Client::remote(&server.url, key).unwrap();
            for path in [
                "/v1/executions",
                "/v1/policies",
                "/v1/records",
                "/v1/keys",
                "/v1/stats",
                "/metrics",
            ] {
                let refused = problem(get(&client, path).await);
                assert_eq!(
                    (refused.status, refused.kind.as_str()),
                    (401, "unauthorized"),
                    "{path}"
                );
            }
            assert_eq!(problem(run(&client, json!({"code": "1"})).await).status, 401);
        }
        // What says nothing of anybody needs none.
        let nobody = Client::remote(&server.url, None).unwrap();
        for path in ["/healthz", "/readyz", "/openapi.json", "/docs"] {
            assert!(nobody.bytes(Method::GET, path, NOTHING).await.is_ok(), "{path}");
        }
        server.stop().await;
    });
}

#[test]
fn a_key_that_is_revoked_opens_nothing_from_then_on() {
    on_each(|database| async move {
        let server = Server::start(&database).await;
        let key = server.new_key(json!({"roles": ["read"]})).await;
        let client = Client::remote(&server.url, Some(&key)).unwrap();
        assert!(get(&client, "/v1/records").await.is_ok());
        let id = key.split('_').nth(1).unwrap();
        let path = format!("/v1/keys/{id}");
        let _: Value = server.admin.call(Method::DELETE, &path, NOTHING).await.unwrap();
        assert_eq!(problem(get(&client, "/v1/records").await).status, 401);
        let again: Result<Value, _> = server.admin.call(Method::DELETE, &path, NOTHING).await;
        assert_eq!(problem(again).status, 404);
        let soon = server.service.now() + 0.5;
        let short = server
            .caller(json!({"roles": ["read"], "expires_at": soon}))
            .await;
        assert!(get(&short, "/v1/records").await.is_ok());
        tokio::time::sleep(std::time::Duration::from_millis(600)).await;
        assert_eq!(problem(get(&short, "/v1/records").await).status, 401);
        server.stop().await;
    });
}

#[test]
fn roles_hold() {
    on_each(|database| async move {
        let server = Server::start(&database).await;
        server.add_tenant("a").await;
        let runs = server.caller(json!({"roles": ["run"], "tenant_id": "a"})).await;
        let reads = server.caller(json!({"roles": ["read"], "tenant_id": "a"})).await;
        let admin = server.caller(json!({"roles": ["admin"], "tenant_id": "a"})).await;
        assert!(run(&runs, json!({"code": "1"})).await.is_ok());
        assert_eq!(problem(run(&reads, json!({"code": "1"})).await).kind, "forbidden");
        assert_eq!(problem(get(&runs, "/v1/records").await).status, 403);
        assert!(get(&reads, "/v1/records").await.is_ok());
        for client in [&runs, &reads] {
            assert_eq!(problem(get(client, "/v1/keys").await).status, 403);
        }
        // A tenant's admin makes keys of its own tenant, and nothing that is everybody's.
        assert!(get(&admin, "/v1/keys").await.is_ok());
        let policy = json!({"policy_id": "mine"});
        let defined: Result<Value, _> = admin.call(Method::POST, "/v1/policies", Some(&policy)).await;
        assert_eq!(problem(defined).status, 403);
        for path in [
            "/v1/tenants",
            "/v1/audit/head",
            "/v1/audit/verify",
            "/v1/audit/entries",
        ] {
            assert_eq!(problem(get(&admin, path).await).status, 403, "{path}");
        }
        let wish = json!({"roles": ["admin"], "tenant_id": "default"});
        let other: Result<Value, _> = admin.call(Method::POST, "/v1/keys", Some(&wish)).await;
        assert_eq!(problem(other).status, 403);
        let made: Value = admin
            .call(Method::POST, "/v1/keys", Some(&json!({"roles": ["run"]})))
            .await
            .unwrap();
        assert_eq!(made["tenant_id"], "a");
        server.stop().await;
    });
}

#[test]
fn a_tenant_sees_its_own_alone() {
    on_each(|database| async move {
        let server = Server::start(&database).await;
        server.add_tenant("a").await;
        server.add_tenant("b").await;
        let all = json!(["run", "read", "admin"]);
        let a = server.caller(json!({"roles": all, "tenant_id": "a"})).await;
        let b = server.caller(json!({"roles": all, "tenant_id": "b"})).await;
        let done = run(&a, json!({"code": "1"})).await.unwrap();
        assert_eq!(done.record["tenant_id"], "a");
        for path in [
            format!("/v1/records/{}", done.execution_id),
            format!("/v1/executions/{}", done.execution_id),
        ] {
            assert!(get(&a, &path).await.is_ok());
            assert_eq!(problem(get(&b, &path).await).status, 404, "{path}");
        }
        assert_eq!(get(&b, "/v1/records").await.unwrap()["records"], json!([]));
        assert_eq!(get(&b, "/v1/stats").await.unwrap()["total_executions"], 0);
        assert_eq!(problem(get(&b, "/v1/records?tenant_id=a").await).status, 403);
        assert_eq!(
            problem(run(&b, json!({"code": "1", "tenant_id": "a"})).await).status,
            403
        );
        // The operator sees all, and may run for each that there is.
        assert_eq!(
            get(&server.admin, "/v1/records?tenant_id=a").await.unwrap()["records"][0]["tenant_id"],
            "a"
        );
        let done = run(&server.admin, json!({"code": "1", "tenant_id": "b"}))
            .await
            .unwrap();
        assert_eq!(done.record["tenant_id"], "b");
        assert_eq!(
            problem(run(&server.admin, json!({"code": "1", "tenant_id": "c"})).await).status,
            404
        );
        // Keys of another tenant are not even there.
        let of_a = get(&server.admin, "/v1/keys").await.unwrap();
        let id = of_a["keys"]
            .as_array()
            .unwrap()
            .iter()
            .find(|key| key["tenant_id"] == "a")
            .unwrap()["key_id"]
            .clone();
        let path = format!("/v1/keys/{}", id.as_str().unwrap());
        let revoked: Result<Value, _> = b.call(Method::DELETE, &path, NOTHING).await;
        assert_eq!(problem(revoked).status, 404);
        server.stop().await;
    });
}

#[test]
fn a_key_is_for_its_policies() {
    on_each(|database| async move {
        let server = Server::start(&database).await;
        server.open_policy().await;
        let client = server
            .caller(json!({"roles": ["run"], "policies": ["open"]}))
            .await;
        assert!(
            run(&client, json!({"code": "1", "policy_id": "open"}))
                .await
                .is_ok()
        );
        let refused = problem(run(&client, json!({"code": "1"})).await);
        assert_eq!(refused.status, 403);
        assert_eq!(
            serde_json::to_value(refused.denial).unwrap()["code"],
            "policy_not_allowed"
        );
        let unknown = json!({"roles": ["run"], "policies": ["nope"]});
        let made: Result<Value, _> = server.admin.call(Method::POST, "/v1/keys", Some(&unknown)).await;
        assert_eq!(problem(made).status, 404);
        server.stop().await;
    });
}

#[test]
fn without_keys_everybody_may_where_that_was_asked_for() {
    on_each(|database| async move {
        let server = Server::with(belljar_server::service::Settings {
            callers: belljar_server::service::Callers::Anyone,
            ..settings(&database)
        })
        .await;
        let anybody = Client::remote(&server.url, None).unwrap();
        assert!(run(&anybody, json!({"code": "1"})).await.is_ok());
        assert!(get(&anybody, "/v1/keys").await.is_ok());
        // A key that is brought must still be good.
        let wrong = Client::remote(&server.url, Some("bj_x")).unwrap();
        assert_eq!(problem(get(&wrong, "/v1/keys").await).status, 401);
        server.stop().await;
    });
}

/// The first key is told once; the next start makes none.
#[test]
fn the_first_key_is_made_once() {
    on_each(|database| async move {
        let server = Server::start(&database).await;
        assert!(!server.key.is_empty());
        let key = server.key.clone();
        server.stop().await;
        let server = Server::start(&database).await;
        assert!(server.key.is_empty());
        let admin = Client::remote(&server.url, Some(&key)).unwrap();
        assert!(get(&admin, "/v1/keys").await.is_ok());
        server.stop().await;
    });
}

/// No key makes one that may do more than itself.
#[test]
fn a_key_makes_no_stronger_one() {
    on_each(|database| async move {
        let server = Server::start(&database).await;
        server.add_tenant("a").await;
        let expires = server.service.now() + 60.0;
        let admin =
            json!({"roles": ["admin"], "tenant_id": "a", "policies": ["standard"], "expires_at": expires});
        let admin = server.caller(admin).await;
        let make = async |wish: Value| admin.call::<Value>(Method::POST, "/v1/keys", Some(&wish)).await;
        for beyond in [
            json!({"roles": ["run"], "policies": ["permissive"]}),
            json!({"roles": ["run"], "policies": ["permissive", "standard"]}),
            json!({"roles": ["run"], "expires_at": expires + 1.0}),
        ] {
            assert_eq!(problem(make(beyond.clone()).await).status, 403, "{beyond}");
        }
        let made = make(json!({"roles": ["run"]})).await.unwrap();
        let runs = Client::remote(&server.url, made["key"].as_str()).unwrap();
        assert_eq!(
            problem(run(&runs, json!({"code": "1", "policy_id": "permissive"})).await).status,
            403
        );
        assert!(run(&runs, json!({"code": "1"})).await.is_ok());
        let keys = get(&admin, "/v1/keys").await.unwrap();
        let keys = keys["keys"].as_array().unwrap();
        assert!(keys.iter().all(|key| key["expires_at"] == expires), "{keys:?}");
        let never = json!({"roles": ["run"], "expires_at": 1e300});
        let never = server
            .admin
            .call::<Value>(Method::POST, "/v1/keys", Some(&never))
            .await;
        assert_eq!(problem(never).field.as_deref(), Some("expires_at"));
        server.stop().await;
    });
}

/// The figures are of all tenants.
#[test]
fn a_tenant_does_not_see_the_figures_of_all() {
    on_each(|database| async move {
        let server = Server::start(&database).await;
        server.add_tenant("a").await;
        let reads = server.caller(json!({"roles": ["read"], "tenant_id": "a"})).await;
        assert_eq!(problem(get(&reads, "/metrics").await).status, 403);
        let all = server.caller(json!({"roles": ["read"]})).await;
        assert!(all.bytes(Method::GET, "/metrics", NOTHING).await.is_ok());
        server.stop().await;
    });
}
