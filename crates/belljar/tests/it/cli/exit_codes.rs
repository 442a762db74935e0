//! The table of exit codes, each for real.

use crate::harness::{belljar, everyone};

#[test]
fn every_code_of_the_table_happens() {
    for who in everyone() {
        for (code, args, shown) in [
            (0, &["run", "-c", "pass"][..], ""),
            (0, &["exec", "--", "true"], ""),
            (1, &["run", "-c", "raise SystemExit(1)"], ""),
            (42, &["run", "-c", "raise SystemExit(42)"], ""),
            (255, &["exec", "--", "bash", "-c", "exit 255"], ""),
            (
                1,
                &["run", "-c", "pass", "--out", "missing"],
                "belljar: `missing` was not taken: not there\n",
            ),
            (
                3,
                &["run", "-c", "raise SystemExit(3)", "--out", "missing"],
                "belljar: `missing` was not taken: not there\n",
            ),
            (2, &["run", "-c", "pass", "--memory", "x"], "belljar: --memory: "),
            (
                124,
                &["run", "-c", "while True: pass", "--timeout", "500ms"],
                "belljar: the program did not end within 0.5 s\n",
            ),
            (
                124,
                &["run", "-c", "while True: pass", "--cpu-seconds", "1"],
                "belljar: the program used up its 1 s of CPU time\n",
            ),
            (
                125,
                &["exec", "--", "no-such-program"],
                "belljar: the program cannot start: `no-such-program` is not there\n",
            ),
            (
                125,
                &["exec", "--", "/etc/passwd"],
                "belljar: the program cannot start: `/etc/passwd` cannot be executed\n",
            ),
            (
                126,
                &["run", "--policy", "standard", "--lang", "lua", "-c", ""],
                "belljar: policy `standard` does not allow lua",
            ),
            (
                126,
                &["exec", "--allow-command", "ls", "--", "cat"],
                "belljar: `cat` is not on the list of allowed commands: ls\n",
            ),
            (
                137,
                &[
                    "run",
                    "-c",
                    "x = []\nwhile True: x.append(b'x' * 999999)",
                    "--memory",
                    "32M",
                ],
                "belljar: the program needed more than its 32 MiB of memory\n",
            ),
            (
                137,
                &["exec", "--", "sh", "-c", "kill -9 $$"],
                "belljar: the program was killed by signal 9 (SIGKILL)\n",
            ),
            (
                139,
                &["exec", "--", "sh", "-c", "kill -SEGV $$"],
                "(SIGSEGV: a bad memory access)\n",
            ),
            (143, &["exec", "--", "sh", "-c", "kill $$"], "(SIGTERM)\n"),
        ] {
            let done = belljar(who, args.iter().copied()).go();
            assert_eq!(done.code, Some(code), "{args:?} as {who:?}: {done:#?}");
            assert!(done.stderr.contains(shown), "{args:?} as {who:?}: {done:#?}");
            assert_eq!(done.stderr.is_empty(), shown.is_empty(), "{done:#?}");
        }
    }
}

/// The same ends, for a program: the exit code agrees with what the object says.
#[test]
fn the_json_form_ends_with_the_same_codes() {
    for who in everyone() {
        for (code, args, status, kind) in [
            (0, &["-c", "pass"][..], "completed", None),
            (7, &["-c", "raise SystemExit(7)"], "failed", Some("exit_code")),
            (
                139,
                &["-c", "import os; os.kill(os.getpid(), 11)"],
                "failed",
                Some("signal"),
            ),
            (
                124,
                &["-c", "while True: pass", "--timeout", "500ms"],
                "timeout",
                Some("timeout"),
            ),
            (
                124,
                &["-c", "while True: pass", "--cpu-seconds", "1"],
                "timeout",
                Some("cpu_time"),
            ),
            (
                137,
                &[
                    "-c",
                    "x = []\nwhile True: x.append(b'x' * 999999)",
                    "--memory",
                    "32M",
                ],
                "failed",
                Some("out_of_memory"),
            ),
        ] {
            let done = belljar(who, ["run", "--json"].iter().chain(args).copied()).go();
            let json = done.json();
            assert_eq!(
                (done.code, done.stderr.as_str()),
                (Some(code), ""),
                "{args:?}: {json:#}"
            );
            assert_eq!(json["success"], code == 0);
            assert_eq!(json["outcome"]["status"], status);
            assert_eq!(json["outcome"]["error"]["type"].as_str(), kind);
            assert_eq!(json["record"]["status"], status);
        }
    }
}

#[test]
fn the_help_lists_them_all() {
    for who in everyone() {
        for command in ["run", "exec"] {
            let done = belljar(who, ["help", command]).go().expect_code(0);
            for row in ["0-255 ", "2 ", "124 ", "125 ", "126 ", "137 "] {
                assert!(
                    done.stdout.contains(&format!("\n  {row}")),
                    "{row}\n{}",
                    done.stdout
                );
            }
        }
    }
}
