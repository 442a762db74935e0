//! Programs that use everything at once: stressors of stress-ng, and random sequences of allowed system calls.
//!
//! These are the quick rounds. `tests/stress/run` and `tests/fuzz-boundary/run` take every stressor on every path and run for as long
//! as they are told, and watch what the host has of memory, which no test beside others can.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use belljar_linux::{RuleAction, rules};

use super::{Done, error_kind, number};
use crate::harness::{Run, Who, belljar, everyone, expect_nothing_left, finish, run_code, spawn};
use crate::machine;

/// One of each kind: memory, processes, descriptors, pipes, sockets, signals, timers, files, locks.
const STRESSORS: [&str; 10] = [
    "vm", "fork", "dup", "pipe", "sockpair", "sigq", "timer", "dentry", "flock", "epoll",
];
/// Starts a program of the machine from an interpreter, so that guests forked from a warm one do the same.
const START: &str =
    "import subprocess, sys\nsys.exit(subprocess.run(sys.argv[1:], stdout=sys.stderr).returncode & 255)";
/// More than an engine needs for a guest that prints little.
const MAX_ENGINE_KIB: u64 = 64 << 10;

/// Runs it to its end and checks what is left; also returns the largest size of the engine, in KiB.
fn watched(run: &Run) -> (Done, u64) {
    let mut child = spawn(&mut run.command());
    let pid = child.id();
    drop(child.stdin.take());
    let over = AtomicBool::new(false);
    let (output, peak) = std::thread::scope(|scope| {
        let watching = scope.spawn(|| {
            let mut peak = 0;
            while !over.load(Ordering::Relaxed) {
                peak = super::resources::peak_kib(pid).unwrap_or(0).max(peak);
                std::thread::sleep(Duration::from_millis(10));
            }
            peak
        });
        let output = finish(child);
        over.store(true, Ordering::Relaxed);
        (output, watching.join().expect("the watcher"))
    });
    let done = Done {
        code: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        took: Duration::ZERO,
    };
    expect_nothing_left(pid, &done);
    (done, peak)
}

/// Whatever became of the stressor, belljar had an answer, stayed small, and a neighbour ran meanwhile.
#[test]
fn stressors_are_contained_next_to_a_neighbour() {
    let path = machine::path();
    if !path
        .split(':')
        .any(|dir| Path::new(dir).join("stress-ng").exists())
    {
        machine::absent(
            "stressors",
            "stress-ng is not installed (apt-get install stress-ng)",
        );
        return;
    }
    for who in everyone() {
        for name in STRESSORS {
            let stressor = format!("--{name}");
            let limits = [
                "--memory",
                "64M",
                "--processes",
                "10",
                "--disk",
                "32M",
                "--timeout",
                "20s",
            ];
            let words = [
                "stress-ng",
                &stressor,
                "1",
                "--timeout",
                "1s",
                "--temp-path",
                "/tmp",
                "--oomable",
            ];
            let mut all = vec!["run", "--json"];
            all.extend(limits);
            all.extend(["-c", START, "--"]);
            all.extend(words);
            let neighbour = std::thread::spawn(move || run_code(who, "python", "print(6 * 7)", &[]).go());
            let (done, peak) = watched(&belljar(who, all));
            assert!(done.json()["outcome"].is_object(), "{name} as {who:?}: {done:#?}");
            assert!(
                ["", "exit_code", "out_of_memory", "signal"].contains(&error_kind(&done).as_str()),
                "{name} as {who:?}: {done:#?}"
            );
            assert!(
                peak < MAX_ENGINE_KIB,
                "{name} as {who:?}: the engine grew to {peak} KiB"
            );
            let neighbour = neighbour.join().expect("a neighbour");
            assert_eq!(neighbour.guest_stdout(), "42\n", "{name} as {who:?}");
        }
    }
}

/// The table of the fuzzer: every call that a guest may make.
fn permitted_calls() -> String {
    let mut table = String::new();
    for rule in rules() {
        if matches!(rule.action, RuleAction::Allow | RuleAction::Check(_)) {
            writeln!(table, "{} {}", rule.number, rule.name).expect("write to a string");
        }
    }
    table
}

fn fuzzed(who: Who, seed: &str) -> Done {
    let code = include_str!(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/fuzz-boundary/guest.c"
    ));
    belljar(who, ["run", "--json", "--lang", "c", "-c", code, "--", seed, "3"])
        .stdin(permitted_calls())
        .go()
}

/// The same seed makes the same sequences. Whatever they do, the sandbox ends with an outcome and a neighbour runs.
#[test]
fn random_calls_with_odd_arguments_are_contained() {
    for who in everyone() {
        let neighbour = std::thread::spawn(move || run_code(who, "python", "print(6 * 7)", &[]).go());
        let done = fuzzed(who, "17");
        assert!(done.json()["outcome"].is_object(), "{who:?}: {done:#?}");
        // It may have run out of memory, or ended itself; otherwise it says what it did.
        if error_kind(&done).is_empty() {
            assert!(number(&done, "calls") > 0, "{who:?}: {done:#?}");
            assert!(number(&done, "succeeded") > 0, "{who:?}: {done:#?}");
        }
        assert_eq!(neighbour.join().expect("a neighbour").guest_stdout(), "42\n");
    }
}
