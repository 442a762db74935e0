//! Sessions over HTTP.

use std::time::Duration;

use axum::http::Method;
use belljar_server::client::{Client, ClientError};
use belljar_server::service::{GateSettings, Settings};
use belljar_server::wire::Execution;
use serde_json::{Value, json};

use super::{NOTHING, Server, get, problem, settings, until};
use crate::databases::on_each;

pub(super) async fn open(client: &Client, wishes: Value) -> Result<String, ClientError> {
    let made: Value = client.call(Method::POST, "/v1/sessions", Some(&wishes)).await?;
    Ok(made["session_id"].as_str().unwrap().to_owned())
}

async fn execute(client: &Client, session: &str, code: &str) -> Result<Execution, ClientError> {
    let path = format!("/v1/sessions/{session}/execute");
    client
        .call(Method::POST, &path, Some(&json!({ "code": code })))
        .await
}

async fn tell(client: &Client, session: &str, verb: &str) -> Result<Value, ClientError> {
    client
        .call(Method::POST, &format!("/v1/sessions/{session}/{verb}"), NOTHING)
        .await
}

/// How many were refused, each with that status.
async fn refusals<T: std::fmt::Debug>(
    tasks: Vec<tokio::task::JoinHandle<Result<T, ClientError>>>,
    status: u16,
) -> usize {
    let mut refused = 0;
    for task in tasks {
        let told = task.await.unwrap();
        if told.is_err() {
            assert_eq!(problem(told).status, status);
            refused += 1;
        }
    }
    refused
}

#[test]
fn a_session_keeps_its_state_and_every_cell_is_on_record() {
    on_each(|database| async move {
        let server = Server::start(&database).await;
        let admin = &server.admin;
        let wishes =
            json!({"globals": {"base": 40}, "files": {"in.txt": "x"}, "run_id": "r", "user_id": "ada"});
        let session = open(admin, wishes).await.unwrap();
        assert!(
            execute(admin, &session, "y = base + 1")
                .await
                .unwrap()
                .outcome
                .unwrap()
                .value
                .is_none()
        );
        let done = execute(admin, &session, "y + 1").await.unwrap();
        assert_eq!(done.outcome.unwrap().value, Some(json!(42)));
        let record = get(admin, &format!("/v1/records/{}", done.execution_id))
            .await
            .unwrap();
        assert_eq!(
            (&record["session_id"], &record["user_id"]),
            (&json!(session), &json!("ada"))
        );
        assert_eq!(
            get(admin, "/v1/records?run_id=r").await.unwrap()["records"]
                .as_array()
                .unwrap()
                .len(),
            2
        );
        // Code that raises is a result.
        let raised = execute(admin, &session, "1 / 0").await.unwrap();
        assert_eq!(raised.status, "failed");
        assert_eq!(
            raised.outcome.unwrap().exception.unwrap().kind,
            "ZeroDivisionError"
        );
        execute(admin, &session, "print('hello')").await.unwrap();
        assert_eq!(
            get(admin, &format!("/v1/sessions/{session}/logs")).await.unwrap()["stdout"],
            "hello\n"
        );
        tell(admin, &session, "reset").await.unwrap();
        let gone = execute(admin, &session, "y").await.unwrap();
        assert_eq!(gone.outcome.unwrap().exception.unwrap().kind, "NameError");
        assert_eq!(
            get(admin, "/v1/sessions").await.unwrap()["sessions"]
                .as_array()
                .unwrap()
                .len(),
            1
        );
        let path = format!("/v1/sessions/{session}");
        let _: Value = admin.call(Method::DELETE, &path, NOTHING).await.unwrap();
        for result in [
            get(admin, &path).await,
            execute(admin, &session, "1").await.map(|done| json!(done)),
        ] {
            assert_eq!(problem(result).status, 404);
        }
        server.stop().await;
    });
}

#[test]
fn a_session_is_interrupted_and_streamed() {
    on_each(|database| async move {
        let server = Server::start(&database).await;
        let session = open(&server.admin, json!({})).await.unwrap();
        assert_eq!(
            problem(tell(&server.admin, &session, "interrupt").await).status,
            409
        );
        let path = format!("/v1/sessions/{session}/execute?mode=stream");
        let code = "print('begun', flush=True)\nimport time\ntime.sleep(60)";
        let mut events = server
            .admin
            .events(&path, &json!({ "code": code }))
            .await
            .unwrap();
        let mut names = Vec::new();
        while let Some(event) = events.next().await.unwrap() {
            if event.data.contains("begun") && event.name == "output" {
                tell(&server.admin, &session, "interrupt").await.unwrap();
            }
            if event.name == "result" {
                let result: Value = serde_json::from_str(&event.data).unwrap();
                assert_eq!(result["outcome"]["error"]["type"], "interrupted");
            }
            names.push(event.name);
        }
        names.dedup();
        assert_eq!(names, ["started", "output", "result"]);
        // Its state is kept, and whoever hangs up interrupts too.
        execute(&server.admin, &session, "kept = 1").await.unwrap();
        let (client, id) = (server.admin.clone(), session.clone());
        let task = tokio::spawn(async move { execute(&client, &id, "import time; time.sleep(60)").await });
        until("a start", async || server.service.gate().load().0 == 1).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
        task.abort();
        let done = execute(&server.admin, &session, "kept").await.unwrap();
        assert_eq!(done.outcome.unwrap().value, Some(json!(1)));
        server.stop().await;
    });
}

#[test]
fn files_go_in_and_out() {
    on_each(|database| async move {
        let server = Server::start(&database).await;
        let admin = &server.admin;
        let session = open(admin, json!({"files": {"a/b.txt": "one"}})).await.unwrap();
        let path = |name: &str| format!("/v1/sessions/{session}/file?path={name}");
        assert_eq!(
            admin.bytes(Method::GET, &path("a/b.txt"), NOTHING).await.unwrap(),
            b"one"
        );
        // A body is any bytes; the client here writes JSON.
        let _: Value = admin
            .call(Method::PUT, &path("c.json"), Some(&json!([1, 2])))
            .await
            .unwrap();
        let done = execute(admin, &session, "import json; json.load(open('c.json'))")
            .await
            .unwrap();
        assert_eq!(done.outcome.unwrap().value, Some(json!([1, 2])));
        execute(admin, &session, "open('big', 'wb').write(bytes(3_000_000))")
            .await
            .unwrap();
        assert_eq!(
            admin
                .bytes(Method::GET, &path("big"), NOTHING)
                .await
                .unwrap()
                .len(),
            3_000_000
        );
        let list = get(admin, &format!("/v1/sessions/{session}/files"))
            .await
            .unwrap();
        let names: Vec<_> = list["files"]
            .as_array()
            .unwrap()
            .iter()
            .map(|file| file["path"].as_str().unwrap())
            .collect();
        assert_eq!(names, ["a", "a/b.txt", "big", "c.json"]);
        let _: Value = admin.call(Method::DELETE, &path("a"), NOTHING).await.unwrap();
        assert_eq!(problem(get(admin, &path("a/b.txt")).await).status, 404);
        execute(admin, &session, "import os; os.symlink('/etc/passwd', 'link')")
            .await
            .unwrap();
        for (name, status) in [
            ("link", 400),
            ("nope", 404),
            ("..%2Fx", 400),
            ("%2Fetc%2Fpasswd", 400),
        ] {
            assert_eq!(problem(get(admin, &path(name)).await).status, status, "{name}");
        }
        server.stop().await;
    });
}

#[test]
fn a_session_is_its_tenants_alone_and_there_is_an_end_to_them() {
    on_each(|database| async move {
        let server = Server::with(Settings {
            sessions: 2,
            ..settings(&database)
        })
        .await;
        server.add_tenant("a").await;
        server.add_tenant("b").await;
        let a = server.caller(json!({"roles": ["run"], "tenant_id": "a"})).await;
        let b = server.caller(json!({"roles": ["run"], "tenant_id": "b"})).await;
        let session = open(&a, json!({})).await.unwrap();
        assert_eq!(problem(execute(&b, &session, "1").await).status, 404);
        assert_eq!(problem(tell(&b, &session, "reset").await).status, 404);
        assert_eq!(get(&b, "/v1/sessions").await.unwrap()["sessions"], json!([]));
        open(&a, json!({})).await.unwrap();
        let refused = problem(open(&a, json!({})).await);
        assert_eq!((refused.status, refused.kind.as_str()), (429, "busy"));
        open(&b, json!({})).await.unwrap();
        let _: Value = a
            .call(Method::DELETE, &format!("/v1/sessions/{session}"), NOTHING)
            .await
            .unwrap();
        open(&a, json!({"idle_timeout": "300ms"})).await.unwrap();
        // One that ends by itself leaves its place.
        tokio::time::sleep(Duration::from_millis(600)).await;
        open(&a, json!({})).await.unwrap();
        server.stop().await;
    });
}

#[test]
fn what_a_session_may_not_have_is_refused_by_name() {
    on_each(|database| async move {
        let server = Server::start(&database).await;
        for (wishes, status, field) in [
            (json!({"language": "cobol"}), 400, Some("language")),
            (json!({"globals": {"a b": 1}}), 400, Some("tools")),
            (json!({"tools": ["not a name"]}), 400, Some("tools")),
            (
                json!({"language": "bash", "globals": {"a": 1}}),
                400,
                Some("globals"),
            ),
            (json!({"commands": true, "tools": ["ask"]}), 400, Some("tools")),
            (json!({"idle_timeout": "soon"}), 400, Some("idle_timeout")),
            (json!({"nope": 1}), 400, Some("nope")),
            (json!({"language": "c"}), 403, None),
            (json!({"max_tool_calls": 1000}), 403, None),
            (json!({"policy_id": "nope"}), 404, None),
        ] {
            let refused = problem(open(&server.admin, wishes.clone()).await);
            assert_eq!(
                (refused.status, refused.field.as_deref()),
                (status, field),
                "{wishes}"
            );
        }
        // A cell is held against the policy too, and its refusal is on record.
        let session = open(&server.admin, json!({})).await.unwrap();
        let path = format!("/v1/sessions/{session}/execute");
        let wide = json!({"code": "1", "limits": {"timeout": "1h"}});
        let refused: Result<Value, _> = server.admin.call(Method::POST, &path, Some(&wide)).await;
        assert_eq!(json!(problem(refused).denial)["code"], "limit_exceeds_policy");
        server.stop().await;
    });
}

/// Quotas and approvals hold for what a session executes.
#[test]
fn cells_count_and_are_approved() {
    on_each(|database| async move {
        let server = Server::start(&database).await;
        server
            .define(json!({"policy_id": "two", "extends": "standard", "max_executions_per_hour": 2}))
            .await;
        let session = open(&server.admin, json!({"policy_id": "two"})).await.unwrap();
        for _ in 0..2 {
            execute(&server.admin, &session, "1").await.unwrap();
        }
        assert_eq!(
            problem(execute(&server.admin, &session, "1").await).kind,
            "quota_exceeded"
        );
        server
            .define(json!({"policy_id": "asks", "extends": "standard", "require_approval": true}))
            .await;
        let session = open(&server.admin, json!({"policy_id": "asks"})).await.unwrap();
        let client = server.admin.clone();
        let task = tokio::spawn(async move { execute(&client, &session, "6 * 7").await });
        let pending = "/v1/approvals?state=pending";
        until("a question", async || {
            get(&server.admin, pending).await.unwrap()["approvals"][0].is_object()
        })
        .await;
        let approval = get(&server.admin, pending).await.unwrap()["approvals"][0].clone();
        assert_eq!(approval["request"]["code"], "6 * 7");
        let path = format!(
            "/v1/approvals/{}/grant",
            approval["approval_id"].as_str().unwrap()
        );
        let _: Value = server
            .admin
            .call(Method::POST, &path, Some(&json!({})))
            .await
            .unwrap();
        assert_eq!(
            task.await.unwrap().unwrap().outcome.unwrap().value,
            Some(json!(42))
        );
        server.stop().await;
    });
}

/// Cells of one session wait for one another, and not for a place that one of them has.
#[test]
fn cells_at_the_same_time_need_one_place() {
    on_each(|database| async move {
        let server = Server::with(Settings {
            gate: GateSettings::of(1),
            ..settings(&database)
        })
        .await;
        server.open_policy().await;
        let session = open(&server.admin, json!({"policy_id": "open"})).await.unwrap();
        let tasks: Vec<_> = (0..8)
            .map(|turn| {
                let (client, session) = (server.admin.clone(), session.clone());
                tokio::spawn(async move { execute(&client, &session, &format!("{turn} * 2")).await })
            })
            .collect();
        for (turn, task) in tasks.into_iter().enumerate() {
            let ended = tokio::time::timeout(Duration::from_secs(30), task).await;
            let execution = ended.expect("they do not wait for one another").unwrap().unwrap();
            assert_eq!(execution.outcome.unwrap().value, Some(json!(turn * 2)));
        }
        // So many may wait and no more.
        let tasks: Vec<_> = (0..100)
            .map(|_| {
                let (client, session) = (server.admin.clone(), session.clone());
                tokio::spawn(async move { execute(&client, &session, "import time; time.sleep(0.02)").await })
            })
            .collect();
        let refused = refusals(tasks, 429).await;
        assert!((1..=36).contains(&refused), "{refused} of 100 were refused");
    });
}

/// However many are asked for at once, a tenant has no more sessions than it may.
#[test]
fn no_race_makes_more_sessions() {
    on_each(|database| async move {
        let server = Server::with(Settings {
            sessions: 2,
            ..settings(&database)
        })
        .await;
        server.open_policy().await;
        let tasks: Vec<_> = (0..12)
            .map(|_| {
                let client = server.admin.clone();
                tokio::spawn(async move { open(&client, json!({"policy_id": "open"})).await })
            })
            .collect();
        assert_eq!(refusals(tasks, 429).await, 10);
        server.stop().await;
    });
}

/// No code runs in a session before something is executed, which is counted, approved and on record.
#[test]
fn nothing_runs_before_it_is_asked_for() {
    on_each(|database| async move {
        let server = Server::start(&database).await;
        server.open_policy().await;
        let early = "open('/workspace/early', 'w').write('x')";
        let pth = format!("import os; {early}\n");
        let mut files = json!({"sitecustomize.py": early, "usercustomize.py": early, "x.js": "1"});
        for version in 8..15 {
            files[format!(".local/lib/python3.{version}/site-packages/early.pth")] = json!(pth);
        }
        // Modules that a runner may want for itself.
        for module in [
            "json",
            "os",
            "sys",
            "ast",
            "io",
            "struct",
            "signal",
            "socket",
            "traceback",
            "types",
            "encodings",
        ] {
            files[format!("{module}.py")] = json!(early);
        }
        for (name, language) in [
            ("PYTHONPATH", "python"),
            ("PYTHONSTARTUP", "python"),
            ("LD_PRELOAD", "python"),
            ("NODE_OPTIONS", "javascript"),
        ] {
            let wish = json!({"policy_id": "open", "language": language, "files": files, "env": {name: "."}});
            let refused = problem(open(&server.admin, wish).await);
            assert_eq!(
                (refused.status, refused.field.as_deref()),
                (400, Some("env")),
                "{name}"
            );
        }
        // An interpreter that starts among these files, whether it was started ahead or not.
        let wish = json!({"policy_id": "open", "files": files, "env": {"LANG": "C"}});
        let session = open(&server.admin, wish).await.unwrap();
        let listed = get(&server.admin, &format!("/v1/sessions/{session}/files"))
            .await
            .unwrap();
        assert!(!listed.to_string().contains("\"early\""), "{listed}");
        server.stop().await;
    });
}

/// A key that is for some policies alone does not come to others by a session of somebody else.
#[test]
fn a_session_is_for_keys_of_its_policy() {
    on_each(|database| async move {
        let server = Server::start(&database).await;
        server.open_policy().await;
        server.add_tenant("a").await;
        let all = server.caller(json!({"roles": ["run"], "tenant_id": "a"})).await;
        let some = json!({"roles": ["run"], "tenant_id": "a", "policies": ["standard"]});
        let some = server.caller(some).await;
        let session = open(&all, json!({"policy_id": "open"})).await.unwrap();
        assert_eq!(problem(execute(&some, &session, "1").await).status, 404);
        assert!(execute(&all, &session, "1").await.is_ok());
        server.stop().await;
    });
}

/// Whoever asks for a new interpreter again and again waits for the first.
#[test]
fn resets_do_not_pile_up() {
    on_each(|database| async move {
        let server = Server::start(&database).await;
        server.open_policy().await;
        let session = open(&server.admin, json!({"policy_id": "open"})).await.unwrap();
        let tasks: Vec<_> = (0..50)
            .map(|_| {
                let (client, session) = (server.admin.clone(), session.clone());
                tokio::spawn(async move { tell(&client, &session, "reset").await })
            })
            .collect();
        let refused = refusals(tasks, 409).await;
        assert!(refused > 0);
        server.stop().await;
    });
}

/// Languages without an interpreter that stays have programs, and commands need no language.
#[test]
fn programs_and_commands_share_their_files() {
    on_each(|database| async move {
        let server = Server::start(&database).await;
        server.open_policy().await;
        let admin = &server.admin;
        let ask = async |session: &str, wish: Value| -> Result<Execution, ClientError> {
            let path = format!("/v1/sessions/{session}/execute");
            admin.call(Method::POST, &path, Some(&wish)).await
        };
        let session = open(admin, json!({"language": "bash", "policy_id": "open"}))
            .await
            .unwrap();
        let done = ask(
            &session,
            json!({"code": "echo one > f; read line; echo $line", "stdin": "typed\n"}),
        )
        .await;
        assert_eq!(done.unwrap().outcome.unwrap().stdout, "typed\n");
        let done = ask(&session, json!({"command": "cat 'f'", "outputs": ["f"]})).await;
        let outcome = done.unwrap().outcome.unwrap();
        assert_eq!((outcome.stdout.as_str(), outcome.files.len()), ("one\n", 1));
        // What ends it from outside takes the files along, and says so.
        let late = ask(&session, json!({"code": "sleep 60", "limits": {"timeout": 0.5}}))
            .await
            .unwrap();
        assert_eq!(late.status, "timeout");
        assert_eq!(
            late.outcome.unwrap().state_lost.as_deref(),
            Some("variables and files")
        );
        let done = ask(&session, json!({"command": ["cat", "f"]})).await.unwrap();
        assert_eq!(done.success, Some(false));
        let logs: Value = get(admin, &format!("/v1/sessions/{session}/logs")).await.unwrap();
        assert!(logs["stdout"].as_str().unwrap().contains("typed"));
        for (wish, field) in [
            (json!({}), "code"),
            (json!({"code": "1", "command": ["ls"]}), "command"),
            (json!({"command": "ls | sh"}), "command"),
            (json!({"code": "1", "globals": {"a": 1}}), "language"),
        ] {
            assert_eq!(
                problem(ask(&session, wish.clone()).await).field.as_deref(),
                Some(field),
                "{wish}"
            );
        }
        let session = open(admin, json!({"commands": true, "policy_id": "open"}))
            .await
            .unwrap();
        assert!(
            ask(&session, json!({"command": ["touch", "here"]}))
                .await
                .unwrap()
                .success
                .unwrap()
        );
        assert_eq!(
            ask(&session, json!({"command": ["ls"]}))
                .await
                .unwrap()
                .outcome
                .unwrap()
                .stdout,
            "here\n"
        );
        assert_eq!(
            problem(ask(&session, json!({"code": "1"})).await)
                .field
                .as_deref(),
            Some("language")
        );
        server.stop().await;
    });
}
