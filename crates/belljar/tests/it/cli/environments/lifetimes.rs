//! Builds that are killed, stopped or race, and environments that are in use.

use std::io::{BufRead, BufReader, Read};
use std::process::Child;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::Place;
use super::wheel::Wheel;
use crate::again::{alone, test_name};
use crate::harness::{Who, everyone, finish, is_root, spawn};

const SLOW: &str = "import time; time.sleep(30)";

fn signal(child: &Child, signal: Signal) {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    kill_process(pid.expect("a pid"), signal).expect("a signal");
}

/// Starts a build that sleeps in its last step, and waits until it is there.
fn start_slow(place: &Place) -> Child {
    let wheel = place.put(&Wheel::new("slow", "1.0").module("slow", SLOW));
    let run = place.belljar(&["env", "create", "x", "--packages", &wheel, "--preload", "slow"]);
    let mut child = spawn(&mut run.command());
    let mut lines = BufReader::new(child.stderr.take().expect("stderr")).lines();
    let there = lines.any(|line| line.is_ok_and(|line| line == "Importing slow"));
    assert!(there, "it never came to its last step");
    // Nobody reads the rest, and nothing may wait for that.
    thread::spawn(move || lines.for_each(drop));
    child
}

#[test]
fn a_killed_build_is_swept_by_the_next_command() {
    alone(test_name!(), || {
        let place = Place::new(if is_root() { Who::Root } else { Who::User });
        let child = start_slow(&place);
        assert_eq!(place.entries("building").len(), 2);
        // While it lives, nobody takes it for dead.
        place.belljar(&["env", "list"]).go().expect_code(0);
        assert_eq!(place.entries("building").len(), 2);
        signal(&child, Signal::KILL);
        finish(child);
        assert_eq!(place.entries("building").len(), 2);
        let deadline = Instant::now() + Duration::from_secs(10);
        while !crate::harness::orphans().is_empty() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(20));
            while rustix::process::wait(rustix::process::WaitOptions::NOHANG)
                .is_ok_and(|found| found.is_some())
            {}
        }
        place.belljar(&["env", "list"]).go().expect_code(0);
        place.expect_nothing_built();
    });
}

#[test]
fn an_interrupted_build_leaves_nothing() {
    for who in everyone() {
        for with in [Signal::INT, Signal::TERM] {
            let place = Place::new(who);
            let child = start_slow(&place);
            let started = Instant::now();
            signal(&child, with);
            let output = finish(child);
            assert_eq!(output.status.code(), Some(137));
            assert!(started.elapsed() < Duration::from_secs(10));
            place.expect_nothing_built();
        }
    }
}

#[test]
fn an_environment_in_use_is_not_removed() {
    for who in everyone() {
        let place = Place::new(who);
        let wheel = place.put(&Wheel::new("used", "1.0").module("used", "V = 1"));
        place.create(&["x", "--packages", &wheel]);
        let code = "import sys; print('go', flush=True); sys.stdin.read(); import used; print(used.V)";
        let run = place.belljar(&["run", "-E", "x", "--stdin", "-", "-c", code]);
        let mut child = spawn(&mut run.command());
        let mut stdout = BufReader::new(child.stdout.take().expect("stdout"));
        let mut first = String::new();
        stdout.read_line(&mut first).expect("a line");
        assert_eq!(first, "go\n");
        let remove = || {
            // Not `go`: another run of ours is alive.
            let output = finish(spawn(&mut place.belljar(&["env", "remove", "x"]).command()));
            (
                output.status.code(),
                String::from_utf8_lossy(&output.stderr).into_owned(),
            )
        };
        let (code, said) = remove();
        assert_eq!(code, Some(125), "{said}");
        assert!(said.contains("`x` is in use"), "{said}");
        // It can be replaced; what runs keeps what it has.
        let output = finish(spawn(
            &mut place.belljar(&["env", "create", "x", "--replace"]).command(),
        ));
        assert!(output.status.success());
        drop(child.stdin.take());
        let mut rest = String::new();
        stdout.read_to_string(&mut rest).expect("text");
        finish(child);
        assert_eq!(rest, "1\n");
        // The old one was left while it was in use; now it is swept.
        assert_eq!(place.entries("content").len(), 2);
        place.belljar(&["env", "list"]).go().expect_code(0);
        assert_eq!(place.entries("content").len(), 1);
        let (code, said) = remove();
        assert_eq!(code, Some(0), "{said}");
        place.expect_nothing_built();
    }
}

#[test]
fn a_name_is_given_once_unless_it_is_replaced() {
    for who in everyone() {
        let place = Place::new(who);
        let one = place.put(&Wheel::new("thing", "1.0").module("thing", "V = 1"));
        let two = place.put(&Wheel::new("thing", "2.0").module("thing", "V = 2"));
        place.create(&["x", "--packages", &one]);
        let again = ["env", "create", "x", "--packages", &two];
        place.belljar(&again).go().expect_code(2);
        assert_eq!(place.prints("x", "import thing; print(thing.V)"), "1\n");
        place.create(&["x", "--packages", &two, "--replace"]);
        assert_eq!(place.prints("x", "import thing; print(thing.V)"), "2\n");
        // A replacement that fails leaves what was there.
        let bad = [
            "env",
            "create",
            "x",
            "--packages",
            &one,
            "--preload",
            "absent",
            "--replace",
        ];
        place.belljar(&bad).go().expect_code(125);
        assert_eq!(place.prints("x", "import thing; print(thing.V)"), "2\n");
        assert_eq!(place.entries("content").len(), 1);
        assert_eq!(place.entries("building"), [""; 0]);
    }
}

#[test]
fn builds_at_the_same_time_do_not_disturb_each_other() {
    for who in everyone() {
        let place = Place::new(who);
        let wheel = place.put(&Wheel::new("raced", "1.0").module("raced", "V = 1"));
        let create = ["env", "create", "x", "--packages", &wheel, "--preload", "raced"];
        let children: Vec<Child> = (0..3)
            .map(|_| spawn(&mut place.belljar(&create).command()))
            .collect();
        let mut codes: Vec<_> = children
            .into_iter()
            .map(|child| finish(child).status.code())
            .collect();
        codes.sort();
        assert_eq!(codes, [Some(0), Some(2), Some(2)]);
        place
            .belljar(&["env", "show", "x", "--verify"])
            .go()
            .expect_code(0);
        let replace: Vec<&str> = create.iter().copied().chain(["--replace"]).collect();
        let children: Vec<Child> = (0..3)
            .map(|_| spawn(&mut place.belljar(&replace).command()))
            .collect();
        for child in children {
            assert!(finish(child).status.success());
        }
        place
            .belljar(&["env", "show", "x", "--verify"])
            .go()
            .expect_code(0);
        assert_eq!(place.entries("content").len(), 1);
        assert_eq!(place.entries("building"), [""; 0]);
    }
}
