//! Running code over HTTP.

use std::time::{Duration, Instant};

use axum::http::Method;
use belljar_server::wire::Execution;
use serde_json::{Value, json};

use super::{Server, get, problem, run, until};
use crate::databases::on_each;

#[test]
fn code_runs_and_its_record_is_there() {
    on_each(|database| async move {
        let server = Server::start(&database).await;
        let request = json!({
            "code": "import sys; print(sys.argv[1], input(), open('in.txt').read()); open('out', 'wb').write(b'\\xff')",
            "args": ["a"], "stdin": "b", "files": {"in.txt": "c"}, "outputs": ["out"],
            "user_id": "ada", "run_id": "r1", "metadata": {"k": "v"},
        });
        let done = run(&server.admin, request).await.unwrap();
        let outcome = done.outcome.unwrap();
        assert_eq!((done.status.as_str(), done.success), ("completed", Some(true)));
        assert_eq!(outcome.stdout, "a b c\n");
        assert_eq!(outcome.files[0].base64.as_deref(), Some("/w=="));
        assert_eq!(outcome.receipt.policy_id, "standard");
        let record = get(&server.admin, &format!("/v1/records/{}", done.execution_id))
            .await
            .unwrap();
        // Document 000's fourteen fields, and ours.
        for field in [
            "record_id",
            "sandbox_id",
            "tenant_id",
            "user_id",
            "run_id",
            "language",
            "code_hash",
            "policy_id",
            "status",
            "exit_code",
            "wall_time_seconds",
            "created_at",
            "completed_at",
            "error_message",
            "policy_hash",
            "usage",
            "receipt",
            "metadata",
        ] {
            assert!(record.get(field).is_some(), "{field}");
        }
        assert_eq!(
            (&record["user_id"], &record["tenant_id"]),
            (&json!("ada"), &json!("default"))
        );
        assert_eq!(record["metadata"]["k"], "v");
        // R14: the code is nowhere.
        assert!(!record.to_string().contains("sys.argv"));
        server.stop().await;
    });
}

#[test]
fn a_program_that_fails_is_a_result() {
    on_each(|database| async move {
        let server = Server::start(&database).await;
        let done = run(&server.admin, json!({"code": "import sys; sys.exit(3)"}))
            .await
            .unwrap();
        assert_eq!((done.status.as_str(), done.success), ("failed", Some(false)));
        assert_eq!(done.outcome.unwrap().exit_code, Some(3));
        let slow = json!({"code": "while True: pass", "limits": {"timeout": "300ms"}});
        assert_eq!(run(&server.admin, slow).await.unwrap().status, "timeout");
        let bytes = json!({"code": "import sys; sys.stdout.buffer.write(b'\\xff\\x00')"});
        let outcome = run(&server.admin, bytes).await.unwrap().outcome.unwrap();
        assert_eq!(outcome.stdout_base64.as_deref(), Some("/wA="));
        server.stop().await;
    });
}

/// R9, R14: refused, said why, and on record; nothing ran.
#[test]
fn a_denial_explains_itself_and_is_on_record() {
    on_each(|database| async move {
        let server = Server::start(&database).await;
        let refused = problem(run(&server.admin, json!({"code": "int main;", "language": "c"})).await);
        assert_eq!((refused.status, refused.kind.as_str()), (403, "denied"));
        let denial = serde_json::to_value(refused.denial.unwrap()).unwrap();
        assert_eq!(denial["code"], "language_not_allowed");
        let id = refused.record.unwrap()["record_id"].as_str().unwrap().to_owned();
        let record = get(&server.admin, &format!("/v1/records/{id}")).await.unwrap();
        assert_eq!(record["status"], "failed");
        assert_eq!(record["denial"]["code"], "language_not_allowed");
        assert!(
            record["error_message"]
                .as_str()
                .unwrap()
                .starts_with("PolicyViolation")
        );
        server.stop().await;
    });
}

#[test]
fn a_stream_tells_it_as_it_happens() {
    on_each(|database| async move {
        let server = Server::start(&database).await;
        let code = "import time\nfor i in range(3):\n    print(i, flush=True)\n    time.sleep(0.1)";
        let mut events = server
            .admin
            .events("/v1/executions?mode=stream", &json!({ "code": code }))
            .await
            .unwrap();
        let (mut names, mut text, mut last) = (Vec::new(), String::new(), Value::Null);
        while let Some(event) = events.next().await.unwrap() {
            last = serde_json::from_str(&event.data).unwrap();
            if event.name == "output" {
                text += last["text"].as_str().unwrap();
            }
            names.push(event.name);
        }
        assert_eq!(text, "0\n1\n2\n");
        assert_eq!(
            (names.first().unwrap().as_str(), names.last().unwrap().as_str()),
            ("started", "result")
        );
        assert!(names.len() > 3, "{names:?}");
        assert_eq!(last["status"], "completed");
        // What cannot run is an ordinary problem.
        let refused = server
            .admin
            .events("/v1/executions?mode=stream", &json!({"code": ""}))
            .await;
        assert_eq!(problem(refused).status, 403);
        server.stop().await;
    });
}

#[test]
fn in_the_background_the_result_is_fetched_later() {
    on_each(|database| async move {
        let server = Server::start(&database).await;
        let background = "/v1/executions?mode=background";
        let request = json!({"code": "import time; time.sleep(0.3); print('done')"});
        let started: Execution = server
            .admin
            .call(Method::POST, background, Some(&request))
            .await
            .unwrap();
        assert_eq!((started.status.as_str(), started.success), ("running", None));
        let path = format!("/v1/executions/{}", started.execution_id);
        let under_way = get(&server.admin, "/v1/executions").await.unwrap();
        assert_eq!(
            under_way["executions"][0]["execution_id"],
            json!(started.execution_id)
        );
        until("an end", async || {
            get(&server.admin, &path).await.unwrap()["success"] == true
        })
        .await;
        let found = get(&server.admin, &path).await.unwrap();
        assert_eq!(found["outcome"]["stdout"], "done\n");
        server.stop().await;
        // It is there after a restart too, and for whoever may see it.
        let server = Server::start(&database).await;
        let found = server
            .service
            .store()
            .result(&started.execution_id, 0.0)
            .await
            .unwrap();
        assert!(found.is_some());
        server.stop().await;
    });
}

#[test]
fn what_is_cancelled_ends_at_once_and_is_on_record() {
    on_each(|database| async move {
        let server = Server::start(&database).await;
        let request = json!({"code": "import time; time.sleep(50)"});
        let background = "/v1/executions?mode=background";
        let started: Execution = server
            .admin
            .call(Method::POST, background, Some(&request))
            .await
            .unwrap();
        let path = format!("/v1/executions/{}", started.execution_id);
        let began = Instant::now();
        let _: Value = server
            .admin
            .call(Method::POST, &format!("{path}/cancel"), super::NOTHING)
            .await
            .unwrap();
        until("an end", async || {
            get(&server.admin, &path).await.unwrap()["status"] == "killed"
        })
        .await;
        assert!(began.elapsed() < Duration::from_secs(10));
        let again: Result<Value, _> = server
            .admin
            .call(Method::POST, &format!("{path}/cancel"), super::NOTHING)
            .await;
        assert_eq!(problem(again).status, 409);
        server.stop().await;
    });
}

/// What is cancelled before it had its turn was not the service's fault.
#[test]
fn what_is_cancelled_before_it_began_is_told_as_a_conflict() {
    on_each(|database| async move {
        let server = Server::start(&database).await;
        server
            .define(json!({"policy_id": "asks", "extends": "standard", "require_approval": true}))
            .await;
        let client = server.admin.clone();
        let task = tokio::spawn(async move { run(&client, json!({"code": "1", "policy_id": "asks"})).await });
        let under_way = async || get(&server.admin, "/v1/executions").await.unwrap()["executions"][0].clone();
        until("a question", async || under_way().await["status"] == "pending").await;
        let id = under_way().await["execution_id"].as_str().unwrap().to_owned();
        let path = format!("/v1/executions/{id}/cancel");
        let _: Value = server
            .admin
            .call(Method::POST, &path, super::NOTHING)
            .await
            .unwrap();
        let told = problem(task.await.unwrap());
        assert_eq!((told.status, told.kind.as_str()), (409, "killed"));
        let record = get(&server.admin, &format!("/v1/records/{id}")).await.unwrap();
        assert_eq!(record["status"], "killed");
        server.stop().await;
    });
}

/// Cancelling by closing the connection.
#[test]
fn whoever_hangs_up_ends_what_runs_for_them() {
    on_each(|database| async move {
        let server = Server::start(&database).await;
        for mode in ["wait", "stream"] {
            let path = format!("/v1/executions?mode={mode}");
            let request = json!({"code": "import time; print(1, flush=True); time.sleep(50)"});
            let (client, run_id) = (server.admin.clone(), format!("hung up {mode}"));
            let mut request = request;
            request["run_id"] = json!(run_id);
            let task = tokio::spawn(async move {
                let mut events = client.events(&path, &request).await?;
                while events.next().await?.is_some() {}
                Ok::<_, belljar_server::client::ClientError>(())
            });
            until("a start", async || {
                get(&server.admin, "/v1/executions").await.unwrap()["executions"][0]["record"]["run_id"]
                    == json!(run_id)
            })
            .await;
            tokio::time::sleep(Duration::from_millis(100)).await;
            task.abort();
            let records = format!("/v1/records?run_id={}", run_id.replace(' ', "%20"));
            until("an end", async || {
                get(&server.admin, &records).await.unwrap()["records"][0]["status"] == "killed"
            })
            .await;
        }
        server.stop().await;
    });
}

#[test]
fn asked_twice_by_the_same_name_it_runs_once() {
    on_each(|database| async move {
        let server = Server::start(&database).await;
        let ask = async |key: &str, code: &str| {
            let body = json!({ "code": code });
            let headers = [("idempotency-key", key)];
            let response = server
                .admin
                .send(Method::POST, "/v1/executions", Some(&body), &headers)
                .await?;
            let bytes = axum::body::to_bytes(response.into_body(), 1 << 20).await.unwrap();
            Ok(serde_json::from_slice::<Execution>(&bytes).unwrap())
        };
        let code = "import uuid; print(uuid.uuid4())";
        let first = ask("k", code).await.unwrap();
        let again = ask("k", code).await.unwrap();
        assert_eq!(first, again);
        assert_ne!(
            ask("other", code).await.unwrap().outcome.unwrap().stdout,
            first.outcome.unwrap().stdout
        );
        assert_eq!(problem(ask("k", "print(1)").await).status, 409);
        assert_eq!(
            problem(ask("", code).await).field.as_deref(),
            Some("Idempotency-Key")
        );
        let stats = get(&server.admin, "/v1/stats").await.unwrap();
        assert_eq!(stats["total_executions"], 2);
        server.stop().await;
    });
}

#[test]
fn many_are_answered_in_their_order() {
    on_each(|database| async move {
        let server = Server::start(&database).await;
        server.open_policy().await;
        let lines: Vec<String> = [
            json!({"id": "slow", "code": "import time; time.sleep(0.4); print(0)", "policy_id": "open"}),
            json!({"id": 1, "code": "print(1)", "policy_id": "open"}),
            json!({"cod": "x"}),
            json!({"id": [3], "code": "x", "language": "c", "policy_id": "open"}),
            json!({"code": "print(4)", "policy_id": "open"}),
        ]
        .iter()
        .map(ToString::to_string)
        .collect();
        let body = format!("{}\n\nnonsense\n", lines.join("\n"));
        let response = post_text(&server, "/v1/batches?jobs=3", &body).await;
        let answers: Vec<Value> = response
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let numbers: Vec<_> = answers
            .iter()
            .map(|answer| answer["line"].as_u64().unwrap())
            .collect();
        assert_eq!(numbers, [1, 2, 3, 4, 5, 7]);
        assert_eq!(
            (&answers[0]["id"], &answers[0]["execution"]["outcome"]["stdout"]),
            (&json!("slow"), &json!("0\n"))
        );
        assert_eq!(answers[1]["execution"]["outcome"]["stdout"], "1\n");
        assert_eq!(answers[2]["problem"]["status"], 400);
        assert_eq!(
            (&answers[3]["id"], &answers[3]["problem"]["denial"]["code"]),
            (&json!([3]), &json!("language_not_allowed"))
        );
        assert_eq!(answers[4]["execution"]["outcome"]["stdout"], "4\n");
        assert_eq!(answers[5]["problem"]["status"], 400);
        for path in ["/v1/batches?jobs=0", "/v1/batches?jobs=1000"] {
            assert!(
                post_text(&server, path, "{}")
                    .await
                    .contains("must be from 1 to 64")
            );
        }
        server.stop().await;
    });
}

/// Sends a body that is not JSON, and gives the answer's.
async fn post_text(server: &Server, path: &str, body: &str) -> String {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut socket = tokio::net::TcpStream::connect(server.url.trim_start_matches("http://"))
        .await
        .unwrap();
    let head = format!(
        "POST {path} HTTP/1.0\r\nHost: localhost\r\nAuthorization: Bearer {}\r\n\
         Content-Type: application/x-ndjson\r\nContent-Length: {}\r\n\r\n",
        server.key,
        body.len()
    );
    socket
        .write_all(format!("{head}{body}").as_bytes())
        .await
        .unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await.unwrap();
    answer.split_once("\r\n\r\n").unwrap().1.to_owned()
}

#[test]
fn environments_are_listed() {
    on_each(|database| async move {
        let server = Server::start(&database).await;
        let list = get(&server.admin, "/v1/environments").await.unwrap();
        assert_eq!(list["environments"][0], "host");
        for path in [
            "/v1/environments/nope",
            "/v1/environments/host",
            "/v1/environments/..%2Fx",
        ] {
            assert_eq!(problem(get(&server.admin, path).await).status, 404, "{path}");
        }
        server.stop().await;
    });
}

/// Code that is evaluated has a value, in a sandbox of its own, with one record like any other.
#[test]
fn what_is_evaluated_has_a_value() {
    on_each(|database| async move {
        let server = Server::start(&database).await;
        let wish = json!({
            "code": "import json\nprint(input())\nopen('out', 'w').write('x')\n[n * 2 for n in rows]", "evaluate": true,
            "globals": {"rows": [1, 2]}, "stdin": "typed", "outputs": ["out"], "run_id": "r",
        });
        let done = run(&server.admin, wish).await.unwrap();
        let outcome = done.outcome.unwrap();
        assert_eq!(outcome.value, Some(json!([2, 4])));
        assert_eq!((outcome.stdout.as_str(), outcome.files.len()), ("typed\n", 1));
        let records = get(&server.admin, "/v1/records?run_id=r").await.unwrap();
        assert_eq!(records["records"].as_array().map(Vec::len), Some(1));
        let hash = &records["records"][0]["code_hash"];
        assert_ne!(*hash, json!(belljar_core::record::code_hash(b"")));
        let raised = run(
            &server.admin,
            json!({"code": "import os", "evaluate": true, "allow_imports": ["json"]}),
        );
        let outcome = raised.await.unwrap().outcome.unwrap();
        assert_eq!(outcome.exception.unwrap().kind, "ImportError");
        // Nothing is left of the interpreter.
        assert_eq!(
            get(&server.admin, "/v1/sessions").await.unwrap()["sessions"],
            json!([])
        );
        // R22: its clock is the kernel's.
        let late = json!({"code": "while True: pass", "evaluate": true, "limits": {"timeout": 0.5}});
        assert_eq!(run(&server.admin, late).await.unwrap().status, "timeout");
        for (wish, field) in [
            (
                json!({"code": "1", "evaluate": true, "stdin_base64": "AA=="}),
                "stdin_base64",
            ),
            (
                json!({"code": "1", "evaluate": true, "globals": {"not a name": 1}}),
                "tools",
            ),
        ] {
            let refused = problem(run(&server.admin, wish).await);
            assert_eq!(refused.field.as_deref(), Some(field));
        }
        server.stop().await;
    });
}
