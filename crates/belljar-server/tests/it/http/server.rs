//! Ending, starting again, and what is said meanwhile.

use axum::http::Method;
use belljar_server::service::GateSettings;
use serde_json::{Value, json};

use super::{NOTHING, Server, get, problem, run, settings, until};
use crate::databases::on_each;

/// Running work gets its time, new work is refused.
#[test]
fn an_end_waits_for_what_runs_and_takes_nothing_new() {
    on_each(|database| async move {
        let server = Server::start(&database).await;
        let client = server.admin.clone();
        let task = tokio::spawn(async move {
            run(
                &client,
                json!({"code": "import time; time.sleep(1); print('end')"}),
            )
            .await
        });
        until("a start", async || server.service.gate().load().0 == 1).await;
        server.service.gate().close();
        let refused = problem(run(&server.admin, json!({"code": "1"})).await);
        assert_eq!((refused.status, refused.kind.as_str()), (503, "unavailable"));
        assert_eq!(problem(get(&server.admin, "/readyz").await).status, 503);
        assert!(server.admin.bytes(Method::GET, "/healthz", NOTHING).await.is_ok());
        server.stop().await;
        assert_eq!(task.await.unwrap().unwrap().outcome.unwrap().stdout, "end\n");
    });
}

/// Past its queue a tenant is told to come again; another has its turn.
#[test]
fn a_full_queue_is_said_and_another_tenant_is_served() {
    on_each(|database| async move {
        let server = Server::with(belljar_server::service::Settings {
            gate: GateSettings {
                places: 2,
                share: 1,
                queue: 1,
                ..GateSettings::default()
            },
            ..settings(&database)
        })
        .await;
        server.open_policy().await;
        server.add_tenant("a").await;
        server.add_tenant("b").await;
        let a = server.caller(json!({"roles": ["run"], "tenant_id": "a"})).await;
        let b = server.caller(json!({"roles": ["run"], "tenant_id": "b"})).await;
        let slow = json!({"code": "import time; time.sleep(1)", "policy_id": "open"});
        let tasks: Vec<_> = (0..5)
            .map(|_| {
                let (a, slow) = (a.clone(), slow.clone());
                tokio::spawn(async move { run(&a, slow).await })
            })
            .collect();
        until("a full queue", async || server.service.gate().load() == (1, 1)).await;
        assert!(run(&b, json!({"code": "1", "policy_id": "open"})).await.is_ok());
        let (mut ran, mut busy) = (0, 0);
        for task in tasks {
            match task.await.unwrap() {
                Ok(_) => ran += 1,
                refusal => {
                    let refusal = problem(refusal);
                    assert_eq!(
                        (refusal.status, refusal.kind.as_str(), refusal.retry_after),
                        (429, "busy", Some(1))
                    );
                    busy += 1;
                }
            }
        }
        assert_eq!((ran, busy), (2, 3));
        server.stop().await;
    });
}

#[test]
fn every_answer_has_an_id_and_the_callers_own_is_kept() {
    on_each(|database| async move {
        let server = Server::start(&database).await;
        let ask = async |headers: &[(&'static str, &str)]| {
            let response = server
                .admin
                .send(Method::GET, "/healthz", NOTHING, headers)
                .await
                .unwrap();
            response.headers()["x-request-id"].to_str().unwrap().to_owned()
        };
        assert!(ask(&[]).await.starts_with("req-"));
        assert_eq!(ask(&[("x-request-id", "mine-1")]).await, "mine-1");
        assert!(ask(&[("x-request-id", "a b\tc")]).await.starts_with("req-"));
        server.stop().await;
    });
}

#[test]
fn the_description_has_every_route_and_figures_are_counted() {
    on_each(|database| async move {
        let server = Server::start(&database).await;
        let api = get(&server.admin, "/openapi.json").await.unwrap();
        assert_eq!(api["openapi"], "3.1.0");
        for path in [
            "/v1/executions",
            "/v1/executions/{id}",
            "/v1/policies/{id}",
            "/v1/audit/verify",
            "/readyz",
        ] {
            assert!(api["paths"].get(path).is_some(), "{path}");
        }
        run(&server.admin, json!({"code": "1"})).await.unwrap();
        let _ = run(&server.admin, json!({"code": ""})).await;
        let text = server
            .admin
            .bytes(Method::GET, "/metrics", NOTHING)
            .await
            .unwrap();
        let text = String::from_utf8(text).unwrap();
        for line in [
            "belljar_executions_total{status=\"completed\"} 1",
            "belljar_refusals_total{kind=\"denied\"} 1",
            "belljar_executions_running 0",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
        let capabilities: Value = get(&server.admin, "/v1/capabilities").await.unwrap();
        assert_eq!(capabilities["provider"], "native");
        server.stop().await;
    });
}

/// Whoever asks for much and takes none of it does not keep a connection.
#[test]
fn who_takes_nothing_is_hung_up_on() {
    on_each(|database| async move {
        let server = Server::start(&database).await;
        let address = server.url.strip_prefix("http://").unwrap().to_owned();
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        let stream = socket.connect(address.parse().unwrap()).await.unwrap();
        let asking = "GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(200);
        let mut written = 0;
        until("the connection ends", async || {
            let rest = &asking.as_bytes()[written % asking.len()..];
            match stream.try_write(rest) {
                Ok(more) => {
                    written += more;
                    false
                }
                Err(error) => error.kind() != std::io::ErrorKind::WouldBlock,
            }
        })
        .await;
        server.stop().await;
    });
}
