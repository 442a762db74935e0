//! Commands by a service: the same flags, the same output, the same exit codes.

mod batch;
mod session;

use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::json;

use super::Serving;
use crate::harness::{Run, TempDir, Who, belljar, finish, spawn};

struct Remote {
    server: Serving,
    key: String,
    home: TempDir,
}

impl Remote {
    fn start() -> Self {
        Self::start_with(&[])
    }

    fn start_with(args: &[&str]) -> Self {
        let home = TempDir::new();
        let server = Serving::start(Who::User, &home, args);
        let key = server.key.clone().expect("a key");
        let policy = r#"{"policy_id": "open", "extends": "standard", "max_executions_per_minute": 1000,
            "max_executions_per_hour": 1000, "allowed_languages": ["python", "bash", "c"]}"#;
        server
            .ask("POST", "/v1/policies", Some(&key), policy)
            .expect("an answer");
        Self { server, key, home }
    }

    fn run(&self, args: &[&str]) -> Run {
        belljar(Who::User, args.iter().copied())
            .env("BELLJAR_URL", &format!("http://{}", self.server.address))
            .env("BELLJAR_KEY", &self.key)
    }
}

/// Each of these is run here and there, and must look the same.
#[test]
fn it_looks_the_same_as_here() {
    let remote = Remote::start();
    let cases: [&[&str]; 9] = [
        &[
            "run",
            "-c",
            "print('out'); import sys; print('err', file=sys.stderr)",
        ],
        &["run", "-c", "import sys; sys.exit(7)"],
        &["run", "-c", "import os; os.kill(os.getpid(), 11)"],
        &["run", "--timeout", "500ms", "-c", "while True: pass"],
        &[
            "run",
            "--memory",
            "64M",
            "-c",
            "[bytearray(10**6) for _ in range(999)]",
        ],
        &["run", "-c", "import sys; sys.stdout.buffer.write(b'\\xff\\xfe')"],
        &["run", "--lang", "c", "-c", "int main(void) { return 3 }"],
        &["exec", "--", "sh", "-c", "echo $A; exit 4"],
        &["exec", "--", "nosuch"],
    ];
    for case in cases {
        let mut there: Vec<&str> = vec![case[0], "--policy", "open"];
        there.extend(&case[1..]);
        let there = remote.run(&there).stdin("typed").go();
        let here = belljar(Who::User, case.iter().copied()).stdin("typed").go();
        assert_eq!(there.code, here.code, "{case:?}\n{there:#?}\n{here:#?}");
        assert_eq!(there.stdout, here.stdout, "{case:?}");
        assert_eq!(there.stderr, here.stderr, "{case:?}");
    }
    remote.server.end();
}

#[test]
fn data_goes_in_and_comes_out() {
    let remote = Remote::start();
    let place = TempDir::new();
    place.file("in.txt", "from the file");
    let code = "import sys, os; d = sys.stdin.buffer.read(); open('out.bin', 'wb').write(d); \
                print(open('in.txt').read(), sys.argv[1], os.environ['A'], len(d))";
    let args = [
        "run", "--file", "in.txt", "--out", "out.bin", "--env", "A=b", "-c", code, "--", "arg",
    ];
    let done = remote
        .run(&args)
        .stdin(b"\xff\x00binary")
        .cwd(place.path())
        .go()
        .expect_code(0);
    assert_eq!(done.stdout, "from the file arg b 8\n");
    let taken = std::fs::read(place.path().join("out.bin")).expect("the file");
    assert_eq!(taken, b"\xff\x00binary");
    let json = remote
        .run(&["run", "--json", "-c", "print(1)"])
        .go()
        .expect_code(0)
        .json();
    assert_eq!(
        (&json["success"], &json["outcome"]["stdout"]),
        (&json!(true), &json!("1\n"))
    );
    let receipt = remote
        .run(&["run", "--receipt", "-c", "pass"])
        .go()
        .expect_code(0);
    assert!(
        receipt.stderr.contains("policy") && receipt.stderr.contains("enforced"),
        "{receipt:#?}"
    );
    remote.server.end();
}

#[test]
fn what_the_service_refuses_is_said_with_its_fix() {
    let remote = Remote::start();
    let denied = remote
        .run(&["run", "--lang", "ruby", "-c", "1"])
        .go()
        .expect_code(126);
    assert!(
        denied.stderr.contains("does not allow ruby") && denied.stderr.contains("hint: add"),
        "{denied:#?}"
    );
    let json = remote
        .run(&["run", "--json", "--lang", "ruby", "-c", "1"])
        .go()
        .expect_code(126)
        .json();
    assert_eq!(json["denial"]["code"], "language_not_allowed");
    remote
        .run(&["run", "--policy", "nope", "-c", "1"])
        .go()
        .expect_code(2);
    remote
        .run(&["exec", "--allow-command", "ls", "--", "ls"])
        .go()
        .expect_code(2);
    let wrong = belljar(Who::User, ["run", "-c", "1", "--key", "bj_x"])
        .env("BELLJAR_URL", &format!("http://{}", remote.server.address))
        .go()
        .expect_code(126);
    assert!(wrong.stderr.contains("a key is needed"), "{wrong:#?}");
    let gone = belljar(Who::User, ["run", "-c", "1", "--url", "http://127.0.0.1:9"])
        .go()
        .expect_code(125);
    assert!(gone.stderr.contains("cannot reach"), "{gone:#?}");
    remote.server.end();
}

/// Ctrl-C here ends it there.
#[test]
fn an_interrupt_ends_it_at_the_service() {
    let remote = Remote::start();
    let args = [
        "run",
        "--run-id",
        "long",
        "-c",
        "import time; print('up', flush=True); time.sleep(50)",
    ];
    let mut command = remote.run(&args).command();
    let mut child = spawn(command.stdin(Stdio::null()).stdout(Stdio::piped()));
    let mut line = String::new();
    let output = child.stdout.take().expect("its output");
    std::io::BufRead::read_line(&mut std::io::BufReader::new(output), &mut line).expect("a line");
    assert_eq!(line, "up\n");
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("a signal");
    assert_eq!(finish(child).status.code(), Some(137));
    let began = Instant::now();
    loop {
        let path = "/v1/records?run_id=long";
        let (_, page) = remote
            .server
            .ask("GET", path, Some(&remote.key), "")
            .expect("an answer");
        if page["records"][0]["status"] == "killed" {
            break;
        }
        assert!(began.elapsed() < Duration::from_secs(10), "{page}");
        std::thread::sleep(Duration::from_millis(50));
    }
    remote.server.end();
}

/// R36, R37: the service's policies decide about walls, and its approvers about trust.
#[test]
fn a_wall_is_asked_for_there() {
    let remote = Remote::start();
    let lines = remote.home.file("in.jsonl", "{\"code\": \"print('ran')\"}\n");
    let lines = lines.to_str().expect("plain");
    let commands: [&[&str]; 3] = [
        &["run", "-c", "print('ran')"],
        &["session"],
        &["batch", lines, "-o", "-", "--quiet"],
    ];
    for command in commands {
        let go = |args: &[&str]| {
            let all = [command, &["--policy", "open"], args].concat();
            remote.run(&all).stdin("print('ran')").go()
        };
        let done = go(&["--provider", "native"]).expect_code(0);
        assert!(done.stdout.contains("ran"), "{done:#?}");
        for (args, told) in [
            (
                &["--provider", "venv"][..],
                "`open` requires process isolation; venv gives none",
            ),
            (
                &["--provider", "native", "--image", "python:3"],
                "no provider that it may have is made of images",
            ),
        ] {
            let done = go(args);
            assert_ne!(done.code, Some(0), "{done:#?}");
            assert!((done.stdout.clone() + &done.stderr).contains(told), "{done:#?}");
        }
        let done = go(&["--trust"]).expect_code(2);
        assert!(
            done.stderr.contains("--trust is for runs on this machine"),
            "{done:#?}"
        );
    }
    remote.server.end();
}
