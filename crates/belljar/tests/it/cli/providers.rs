//! R35 to R37 on the command line: which wall, of which image, and code that somebody trusts.

use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use super::expect_one_problem;
use crate::again::{alone, test_name};
use crate::harness::{Done, TempDir, Who, belljar, everyone, is_root, run_code};
use crate::machine::absent;

/// The code and the rule of a denial.
#[track_caller]
fn denied(done: Done) -> (Value, Value) {
    let denial = done.expect_code(126).json()["denial"].clone();
    (denial["code"].clone(), denial["rule"].clone())
}

fn receipt(who: Who, args: &[&str]) -> Value {
    let done = run_code(who, "python", "print('ran')", args).go().expect_code(0);
    done.json()["outcome"]["receipt"].clone()
}

#[test]
fn r37_without_a_wall_somebody_has_to_say_yes() {
    for who in everyone() {
        let found = receipt(who, &["--provider", "venv", "--trust"]);
        assert_eq!(
            (&found["provider"], &found["isolation"], &found["network"]),
            (&json!("venv"), &json!("none"), &json!("full"))
        );
        let done = run_code(who, "python", "1", &["--provider", "venv"]).go();
        assert_eq!(denied(done), (json!("approval_required"), json!("providers")));
        let done = belljar(who, ["run", "--provider", "venv", "-c", "print('ran')"]).go();
        expect_one_problem(&done);
        assert!(done.stderr.contains("--trust"), "{done:#?}");
        // Trust alone takes no wall away.
        assert_eq!(receipt(who, &["--trust"])["isolation"], "process");
    }
}

#[test]
fn r12_trust_is_the_approval_that_a_policy_wants() {
    let dir = TempDir::new();
    let asks = dir.file("asks.toml", "extends = \"standard\"\nrequire_approval = true");
    let asks = asks.to_str().expect("plain");
    for who in everyone() {
        let done = run_code(who, "python", "1", &["--policy", asks]).go();
        assert_eq!(
            denied(done),
            (json!("approval_required"), json!("require_approval"))
        );
        let found = receipt(who, &["--policy", asks, "--trust"]);
        assert_eq!(found["provider"], "native");
    }
}

/// R36: what a policy requires is there or nothing runs; what it prefers may be passed over (R35).
#[test]
fn r35_a_policy_says_which_walls_there_may_be() {
    let dir = TempDir::new();
    let policy = |name: &str, lines: &str| {
        let path = dir.file(name, format!("extends = \"standard\"\n{lines}"));
        path.to_str().expect("plain").to_owned()
    };
    let requires = policy("requires.toml", "providers = [\"docker\"]");
    let prefers = policy("prefers.toml", "providers = [\"docker\", \"native\"]");
    let vm = policy("vm.toml", "isolation_level = \"vm\"");
    let images = policy("images.toml", "allowed_images = [\"python:*\"]");
    for who in everyone() {
        // Nothing listens there, whatever this machine has.
        let run = |args: &[&str]| {
            let run = run_code(who, "python", "print('ran')", args);
            run.env("DOCKER_HOST", "unix:///nowhere/docker.sock")
        };
        let done = run(&["--policy", &requires]).go();
        let denial = done.json()["denial"].clone();
        assert_eq!(denied(done), (json!("isolation_unavailable"), json!("providers")));
        assert!(
            denial["message"]
                .as_str()
                .is_some_and(|text| text.contains("isolation by docker, ")),
            "{denial}"
        );
        let done = run(&["--policy", &prefers]).go().expect_code(0);
        assert_eq!(done.json()["outcome"]["receipt"]["provider"], "native");
        let done = run(&["--policy", &vm]).go();
        assert_eq!(
            denied(done),
            (json!("isolation_unavailable"), json!("isolation_level"))
        );
        for (args, code, rule) in [
            (
                &["--provider", "docker"][..],
                "isolation_unavailable",
                "providers",
            ),
            (
                &["--image", "python:3"],
                "isolation_unavailable",
                "isolation_level",
            ),
            (
                &["--policy", "standard", "--provider", "venv", "--trust"],
                "provider_not_allowed",
                "isolation_level",
            ),
            (
                &["--policy", &requires, "--provider", "native"],
                "provider_not_allowed",
                "providers",
            ),
            (
                &["--provider", "native", "--image", "python:3"],
                "provider_not_allowed",
                "image",
            ),
            (
                &["--policy", &images, "--image", "alpine"],
                "image_not_allowed",
                "allowed_images",
            ),
        ] {
            assert_eq!(denied(run(args).go()), (json!(code), json!(rule)), "{args:?}");
        }
    }
}

/// An interpreter that stays is killed together with what would bury it, so others are kept from seeing that.
#[test]
fn every_command_that_executes_takes_them() {
    alone(test_name!(), || {
        let dir = TempDir::new();
        let lines = dir.file("in.jsonl", "{\"code\": \"print('ran')\"}\n");
        let lines = lines.to_str().expect("plain");
        let who = everyone()[0];
        let trusted = ["--provider", "venv", "--trust"];
        let done = belljar(
            who,
            [&["exec", "--json"][..], &trusted, &["--", "echo", "ran"]].concat(),
        )
        .go();
        let receipt = &done.expect_code(0).json()["outcome"]["receipt"];
        assert_eq!(receipt["provider"], "venv");
        let done = belljar(who, [&["session"][..], &trusted].concat())
            .stdin("x = 20\nx + 1")
            .go();
        done.expect_code(0).expect_stdout("21\n");
        let done = belljar(who, ["session", "--provider", "venv"])
            .stdin("1")
            .go()
            .expect_code(126);
        assert!(done.stderr.contains("without any wall"), "{done:#?}");
        let batch = [&["batch", lines, "-o", "-", "--quiet"][..], &trusted].concat();
        let done = belljar(who, batch).go().expect_code(0);
        let answer: Value = serde_json::from_str(&done.stdout).expect("one line");
        assert_eq!(answer["outcome"]["receipt"]["provider"], "venv", "{answer:#}");
    });
}

/// What was begun with one wall does not go on with another.
#[test]
fn a_batch_is_resumed_with_the_same_wall() {
    let dir = TempDir::new();
    let lines = dir.file("in.jsonl", "{\"code\": \"1\"}\n");
    let (lines, out) = (lines.to_str().expect("plain"), dir.path().join("out.jsonl"));
    let out = out.to_str().expect("plain");
    let who = everyone()[0];
    belljar(who, ["batch", lines, "-o", out, "--quiet"])
        .go()
        .expect_code(0);
    let again = [
        "batch",
        lines,
        "-o",
        out,
        "--quiet",
        "--provider",
        "venv",
        "--trust",
    ];
    let done = belljar(who, again).go();
    assert_ne!(done.code, Some(0), "{done:#?}");
    assert!(done.stderr.contains("--restart"), "{done:#?}");
}

#[test]
fn what_cannot_be_meant_is_one_problem_with_a_hint() {
    for who in everyone() {
        for (args, told, hint) in [
            (
                &["--provider", "moat"][..],
                "--provider: `moat` is not known",
                "venv, native, docker, gvisor",
            ),
            (&["--provider", ""], "--provider: `` is not known", "use one of"),
            (
                &["--image", ""],
                "--image: `` is no image's name",
                "python:3.12-slim",
            ),
            (
                &["--image", "a b"],
                "--image: `a b` is no image's name",
                "NAME:TAG",
            ),
            (&["--image=-v"], "--image: `-v` is no image's name", "NAME:TAG"),
            (&["--image", "a\u{1b}[2J"], "is no image's name", "NAME:TAG"),
            (
                &["--trust", "--url", "http://127.0.0.1:1"],
                "--trust is for runs on this machine",
                "leave it out",
            ),
        ] {
            for command in [
                &["run", "-c", "1"][..],
                &["session"],
                &["batch", "/dev/null", "-o", "-"],
            ] {
                let done = belljar(who, [command, args].concat()).go().expect_code(2);
                expect_one_problem(&done);
                assert!(
                    done.stderr.contains(told) && done.stderr.contains(hint),
                    "{done:#?}"
                );
            }
        }
    }
}

#[test]
fn providers_are_listed_with_what_they_hold() {
    for who in everyone() {
        let nowhere = |args: &[&str]| {
            let run = belljar(who, args.to_vec());
            run.env("DOCKER_HOST", "unix:///nowhere/docker.sock")
                .go()
                .expect_code(0)
        };
        let all = nowhere(&["providers", "--json"]).json();
        let names: Vec<_> = all
            .as_array()
            .expect("a list")
            .iter()
            .map(|wall| &wall["provider"])
            .collect();
        assert_eq!(names, ["venv", "native", "docker", "gvisor"]);
        let of = |name: &str| {
            let mut walls = all.as_array().expect("a list").iter();
            walls
                .find(|wall| wall["provider"] == name)
                .expect("a wall")
                .clone()
        };
        for (name, isolation) in [("venv", "none"), ("native", "process")] {
            let wall = of(name);
            assert_eq!(
                (&wall["isolation"], &wall["state"]),
                (&json!(isolation), &json!("present"))
            );
            assert!(
                wall["start_ms"].as_f64().is_some_and(|took| took > 0.0),
                "{wall:#}"
            );
            assert!(wall["version"].is_string());
        }
        assert!(
            of("native")["holds"]
                .as_array()
                .expect("a list")
                .contains(&json!("seccomp"))
        );
        let lacks = of("venv")["does_not_hold"].clone();
        let lacks: Vec<_> = lacks.as_array().expect("a list").iter().collect();
        assert!(
            lacks
                .iter()
                .any(|lack| lack["control"] == "seccomp" && lack["effect"].is_string())
        );
        let docker = of("docker");
        assert_eq!(
            (&docker["state"], &docker["start_ms"]),
            (&json!("absent"), &Value::Null)
        );
        assert!(docker["why"].is_string() && docker["fix"].is_string());

        let text = nowhere(&["providers", "--no-measure"]).stdout;
        let native = text
            .lines()
            .find(|line| line.starts_with("native "))
            .expect("a row");
        let cells: Vec<_> = native.split_whitespace().collect();
        assert_eq!(
            (cells[1], cells[2], cells[4]),
            ("process", "-", "present"),
            "{text}"
        );
        for part in [
            "\nvenv, none isolation\n",
            "  holds:    ",
            "  does not: ",
            "own-kernel: ",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }

        // One that is not there is told by doctor, and is no reason to fail.
        let doctor = nowhere(&["doctor", "--json"]).json();
        let walls = doctor["providers"].as_array().expect("a list");
        let docker = walls
            .iter()
            .find(|wall| wall["provider"] == "docker")
            .expect("a wall");
        assert_eq!(
            (&docker["state"], &doctor["ready"]),
            (&json!("absent"), &json!(true))
        );
        let text = nowhere(&["doctor"]).stdout;
        assert!(
            text.contains("yes native  process") && text.contains("no  docker  container"),
            "{text}"
        );
    }
}

/// gVisor needs neither root nor an engine.
#[test]
fn gvisor_is_there_for_everyone() {
    for who in everyone() {
        let found = belljar(who, ["providers", "--json", "--no-measure"])
            .go()
            .expect_code(0)
            .json();
        let all = found.as_array().expect("a list");
        let gvisor = all.iter().find(|provider| provider["provider"] == "gvisor");
        if !gvisor.is_some_and(|gvisor| gvisor["state"] == "present") {
            absent("gVisor on the command line", &format!("{gvisor:?}"));
            return;
        }
        let code = "import os\nprint(os.listdir('/workspace'), len(os.listdir('/proc')) > 3)";
        let done = run_code(who, "python", code, &["--provider", "gvisor"]);
        let done = done.go().expect_code(0);
        let outcome = &done.json()["outcome"];
        assert_eq!(done.guest_stdout(), "['main.py'] True\n");
        let own_kernel = &outcome["receipt"]["controls"]["own-kernel"];
        let rootless = who == Who::User || !is_root();
        assert_eq!(
            own_kernel.to_string().contains("rootless"),
            rootless,
            "{own_kernel}"
        );
    }
}

/// An engine that is not for everyone says so to those whom it is not for.
#[test]
fn a_socket_that_denies_permission_says_who_may() {
    if !is_root() {
        absent(
            "an engine's socket that denies permission",
            "only root can keep it from others",
        );
        return;
    }
    let dir = TempDir::new();
    let path = dir.path().join("docker.sock");
    let _listener = std::os::unix::net::UnixListener::bind(&path).expect("a socket");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("a mode");
    let done = belljar(Who::User, ["run", "--provider", "docker", "-c", "1"])
        .env("DOCKER_HOST", &format!("unix://{}", path.display()))
        .go()
        .expect_code(126);
    expect_one_problem(&done);
    assert!(
        done.stderr.contains("ermission denied")
            && done.stderr.contains("the group that owns the engine's socket"),
        "{done:#?}"
    );
}
