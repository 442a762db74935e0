//! R20 to R24: what runs, how long, and how it is ended.

use std::time::Duration;

use belljar::blocking;

use crate::again::{alone, test_name};
use crate::harness::{TempDir, belljar, everyone, run_code};

/// R20: code is Python unless said, and a path runs what its name says.
#[test]
fn r20_code_is_python_by_default_and_a_path_runs() {
    let dir = TempDir::new();
    let script = dir.file("hello.bash", "echo \"bash ${BASH_VERSION:+here}\"");
    let bare = dir.file("bare", "#!/usr/bin/env python3\nprint('by its first line')");
    for who in everyone() {
        belljar(who, ["run", "-c", "import sys; print(sys.version_info[0])"])
            .go()
            .expect_code(0)
            .expect_stdout("3\n");
        for (path, shown) in [(&script, "bash here\n"), (&bare, "by its first line\n")] {
            let path = path.to_str().expect("a plain path");
            belljar(who, ["run", path])
                .go()
                .expect_code(0)
                .expect_stdout(shown);
        }
    }
}

/// R20 through the library, waiting and asynchronous.
#[test]
fn r20_the_library_runs_code_and_files() {
    alone(test_name!(), || {
        let run = blocking::execute_code("import sys; print(sys.argv[1:], input())")
            .args(["a", "b c"])
            .stdin("typed")
            .run()
            .expect("a run");
        assert!(run.outcome.success(), "{:?}", run.outcome);
        assert_eq!(run.outcome.stdout.text(), "['a', 'b c'] typed\n");

        let dir = TempDir::new();
        let script = dir.file("count.sh", "echo $((6 * 7)); exit 3");
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        let run = runtime
            .block_on(belljar::execute_file(&script).into_future())
            .expect("a run");
        assert_eq!(run.outcome.stdout.text(), "42\n");
        assert_eq!(run.outcome.exit_code, Some(3));
        assert!(!run.outcome.success());
    });
}

/// R21: 30 seconds unless said; more than 300 only where a policy says so.
#[test]
fn r21_the_timeout_has_a_default_and_a_ceiling() {
    let dir = TempDir::new();
    let patient = dir.file(
        "patient.toml",
        "extends = \"standard\"\nmax_wall_time_seconds = 900",
    );
    let patient = patient.to_str().expect("a plain path");
    for who in everyone() {
        let wall_time = |args: &[&str]| {
            let done = run_code(who, "bash", ":", args).go().expect_code(0);
            done.json()["outcome"]["receipt"]["limits"]["wall_time"].as_f64()
        };
        assert_eq!(wall_time(&[]), Some(30.0));
        assert_eq!(wall_time(&["--timeout", "300s"]), Some(300.0));
        assert_eq!(wall_time(&["--policy", patient, "--timeout", "15m"]), Some(900.0));
        let denied = run_code(who, "bash", ":", &["--timeout", "301s"])
            .go()
            .expect_code(126);
        assert_eq!(denied.json()["denial"]["code"], "limit_exceeds_policy");
        assert_eq!(denied.json()["denial"]["rule"], "max_wall_time_seconds");
    }
}

/// R22: an endless loop ends near its limit, and so does everything it started. The leak check of
/// every run looks for survivors.
#[test]
fn r22_an_endless_loop_ends_as_timeout_with_all_its_descendants() {
    let family = "(while :; do :; done) & (setsid sleep 600 &) ; (trap '' HUP TERM INT; sleep 600) & \
                  exec 1>&- 2>&-; while :; do :; done";
    for who in everyone() {
        for (language, code) in [
            ("python", "while True: pass"),
            (
                "python",
                "import signal, time\nsignal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))\ntime.sleep(600)",
            ),
            ("bash", family),
        ] {
            let done = run_code(who, language, code, &["--timeout", "1s"])
                .go()
                .expect_code(124);
            let outcome = done.json()["outcome"].clone();
            assert_eq!(outcome["status"], "timeout", "{done:#?}");
            assert_eq!(outcome["error"]["type"], "timeout");
            assert_eq!(outcome["exit_code"], serde_json::Value::Null);
            let wall = outcome["usage"]["wall_seconds"].as_f64().expect("a time");
            assert!((1.0..10.0).contains(&wall), "{wall} s");
            assert!(done.took < Duration::from_secs(30), "{:?}", done.took);
        }
    }
}

/// R23: too much memory is a failure of its own kind, for one process and for many together.
#[test]
fn r23_a_memory_overrun_has_a_type_of_its_own() {
    let alone = "kept = []\nwhile True: kept.append(b'x' * (1 << 20))";
    let together = "import os, time\nfor _ in range(4):\n    if os.fork() == 0:\n        kept = b'x' * (30 << 20)\n        time.sleep(60)\ntime.sleep(60)";
    let disk = "while True:\n    for name in ('/tmp/a', '/dev/shm/b'):\n        open(name, 'ab').write(b'x' * (1 << 20))";
    for who in everyone() {
        for code in [alone, together] {
            let done = run_code(who, "python", code, &["--memory", "64M", "--timeout", "30s"])
                .go()
                .expect_code(137);
            let outcome = done.json()["outcome"].clone();
            assert_eq!(outcome["status"], "failed");
            assert_eq!(outcome["error"]["type"], "out_of_memory", "{done:#?}");
        }
        // What is written to memory-backed files is bounded as well, by the disk limit.
        let done = run_code(who, "python", disk, &["--disk", "16M", "--file-size", "64M"])
            .go()
            .expect_code(1);
        assert!(
            done.json()["outcome"]["stderr"]
                .as_str()
                .is_some_and(|text| text.contains("No space left"))
        );
        // One wish that is far too large is Python's own error, to be caught.
        let code = "try: bytearray(1 << 40)\nexcept MemoryError: print('caught')";
        assert_eq!(
            run_code(who, "python", code, &[])
                .go()
                .expect_code(0)
                .guest_stdout(),
            "caught\n"
        );
    }
}

/// R24: a fork bomb fills its own glass and nothing else, also under root.
#[test]
fn r24_a_fork_bomb_is_contained() {
    for who in everyone() {
        for (language, code) in [
            ("bash", "bomb() { bomb | bomb & }; bomb; while :; do :; done"),
            (
                "python",
                "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass",
            ),
        ] {
            let done = run_code(who, language, code, &["--timeout", "2s"]).go();
            assert_eq!(done.json()["outcome"]["status"], "timeout", "{done:#?}");
            // The machine still makes processes, and another sandbox still runs.
            belljar(who, ["run", "-c", "print('fine')"])
                .go()
                .expect_code(0)
                .expect_stdout("fine\n");
        }
    }
}
