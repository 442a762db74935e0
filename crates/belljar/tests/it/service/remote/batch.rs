//! `belljar batch` by a service.

use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::super::Serving;
use super::Remote;
use crate::harness::{TempDir, Who, belljar, finish, spawn};

fn lines(place: &TempDir, name: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(place.path().join(name)).expect("answers");
    text.lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect()
}

fn batch(jobs: &str) -> [&str; 8] {
    [
        "batch",
        "in.jsonl",
        "-o",
        "out.jsonl",
        "--jobs",
        jobs,
        "--policy",
        "open",
    ]
}

/// Starts a batch in `place` and does not wait for it.
fn start(remote: &Remote, args: &[&str], place: &TempDir) -> Child {
    let mut command = remote.run(args).cwd(place.path()).command();
    let piped = command.stdin(Stdio::null()).stdout(Stdio::piped());
    spawn(piped.stderr(Stdio::piped()))
}

/// What of an answer is the same wherever it ran.
fn gist(answer: &Value) -> Value {
    let cases = answer["cases"].as_array().map(|cases| {
        let gist = |case: &Value| json!([case["verdict"], case["status"], case["stdout"], case["exit_code"]]);
        cases.iter().map(gist).collect::<Vec<_>>()
    });
    json!({
        "line": answer["line"], "id": answer["id"], "success": answer["success"],
        "stdout": answer["outcome"]["stdout"], "exit_code": answer["outcome"]["exit_code"],
        "status": answer["outcome"]["status"], "kind": answer["outcome"]["error"]["kind"], "cases": cases,
        "error": answer["error"]["kind"], "denial": answer["denial"]["code"],
    })
}

#[test]
fn lines_have_the_same_answers_as_here() {
    let remote = Remote::start();
    let place = TempDir::new();
    let requests = [
        json!({ "id": "a", "code": "print(input())", "stdin": "in" }),
        json!({ "id": "b", "code": "import sys; sys.exit(3)" }),
        json!({ "command": ["sh", "-c", "echo $A; cat f"], "files": { "f": "data" } }),
        json!({ "code": "while True: pass", "limits": { "timeout": "500ms" } }),
        json!({ "language": "c", "code": "int main(void) { return 3 }", "cases": [{}, {}] }),
        json!({
            "code": "n = int(input())\nprint(n * 2 if n != 2 else 5)", "cases": [
                { "stdin": "1", "expected_stdout": "2" }, { "stdin": "2", "expected_stdout": "4" }, { "stdin": "x" },
            ],
        }),
        json!({ "nope": 1 }),
    ];
    let text: String = requests.iter().map(|request| format!("{request}\n")).collect();
    place.file("in.jsonl", text);
    let args = |out: &'static str| ["batch", "in.jsonl", "-o", out, "--jobs", "3", "--env", "A=b"];
    let here = belljar(Who::User, args("here.jsonl")).cwd(place.path()).go();
    let with_policy = args("there.jsonl").into_iter().chain(["--policy", "open"]);
    let there = remote
        .run(&with_policy.collect::<Vec<_>>())
        .cwd(place.path())
        .go();
    assert_eq!(
        (here.code, there.code),
        (Some(1), Some(1)),
        "{here:#?}\n{there:#?}"
    );
    let (here, there) = (lines(&place, "here.jsonl"), lines(&place, "there.jsonl"));
    assert_eq!(there.len(), requests.len());
    for (here, there) in here.iter().zip(&there) {
        assert_eq!(gist(there), gist(here), "{there:#}");
    }
    assert_eq!(there[0]["record"]["policy_id"], "open");
    // Asked again, nothing runs again; under another policy it is another batch.
    let count = || {
        let asked = remote.server.ask("GET", "/v1/stats", Some(&remote.key), "");
        asked.expect("an answer").1["total_executions"].as_u64()
    };
    let before = count();
    let with_policy = args("there.jsonl").into_iter().chain(["--policy", "open"]);
    remote
        .run(&with_policy.collect::<Vec<_>>())
        .cwd(place.path())
        .go()
        .expect_code(1);
    assert_eq!(count(), before);
    let other = args("there.jsonl").into_iter().chain(["--policy", "standard"]);
    let refused = remote.run(&other.collect::<Vec<_>>()).cwd(place.path()).go();
    assert_eq!(refused.code, Some(2), "{refused:#?}");
    remote.server.end();
}

/// A service that is full says to come again, and a batch does.
#[test]
fn a_full_service_is_asked_again() {
    let remote = Remote::start_with(&["--places", "1", "--queue", "1"]);
    let place = TempDir::new();
    let line = json!({ "code": "import time; time.sleep(0.2); print(1)" });
    place.file("in.jsonl", format!("{line}\n").repeat(12));
    let args = batch("6");
    remote.run(&args).cwd(place.path()).go().expect_code(0);
    let answers = lines(&place, "out.jsonl");
    assert_eq!(answers.len(), 12);
    assert!(
        answers.iter().all(|answer| answer["outcome"]["stdout"] == "1\n"),
        "{answers:#?}"
    );
    remote.server.end();
}

/// What somebody cancels at the service is an answer; the lines after it run.
#[test]
fn one_that_the_service_cancels_is_an_answer() {
    let remote = Remote::start();
    let place = TempDir::new();
    let long = json!({ "code": "import time; print('up', flush=True); time.sleep(50)" });
    place.file("in.jsonl", format!("{long}\n{}\n", json!({ "code": "print(2)" })));
    let args = batch("1");
    let child = start(&remote, &args, &place);
    let ask = |method: &str, path: &str| {
        let asked = remote.server.ask(method, path, Some(&remote.key), "");
        asked.expect("an answer").1
    };
    let began = Instant::now();
    let id = loop {
        let page = ask("GET", "/v1/executions");
        if let Some(id) = page["executions"][0]["execution_id"].as_str() {
            break id.to_owned();
        }
        assert!(began.elapsed() < Duration::from_secs(20), "{page}");
        std::thread::sleep(Duration::from_millis(50));
    };
    ask("POST", &format!("/v1/executions/{id}/cancel"));
    finish(child);
    let answers = lines(&place, "out.jsonl");
    assert_eq!(answers.len(), 2, "{answers:#?}");
    assert_eq!(answers[0]["outcome"]["status"], "killed");
    assert_eq!(answers[1]["outcome"]["stdout"], "2\n");
    remote.server.end();
}

/// A service that goes away ends the batch; nothing that it did not answer is written down as answered.
#[test]
fn a_batch_goes_on_when_its_service_is_back() {
    let remote = Remote::start();
    let place = TempDir::new();
    let line = json!({ "code": "import time; time.sleep(0.5); print(1)" });
    place.file("in.jsonl", format!("{line}\n").repeat(6));
    let args = batch("1");
    let child = start(&remote, &args, &place);
    let began = Instant::now();
    while std::fs::read_to_string(place.path().join("out.jsonl")).map_or(0, |text| text.lines().count()) < 2 {
        assert!(began.elapsed() < Duration::from_secs(30));
        std::thread::sleep(Duration::from_millis(20));
    }
    let Remote { server, key, home } = remote;
    let address = server.address.clone();
    server.kill();
    let gone = finish(child);
    assert_eq!(gone.status.code(), Some(125), "{gone:?}");
    let answered = lines(&place, "out.jsonl");
    assert!((2..6).contains(&answered.len()), "{answered:#?}");
    assert!(
        answered.iter().all(|answer| answer["success"] == true),
        "{answered:#?}"
    );
    let server = Serving::start(Who::User, &home, &["--listen", &address]);
    let remote = Remote { server, key, home };
    remote.run(&args).cwd(place.path()).go().expect_code(0);
    assert_eq!(lines(&place, "out.jsonl").len(), 6);
    // Who cannot be asked at all is told of at once.
    let began = Instant::now();
    let elsewhere = remote.run(&[
        "batch",
        "in.jsonl",
        "-o",
        "x.jsonl",
        "--url",
        "http://127.0.0.1:9",
    ]);
    elsewhere.cwd(place.path()).go().expect_code(125);
    assert!(began.elapsed() < Duration::from_secs(10));
    remote.server.end();
}
