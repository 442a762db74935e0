//! Every flag of `belljar run` does what its help says.

use crate::harness::{TempDir, Who, belljar, everyone, run_code};

/// The limits that were in force, as the receipt has them.
fn limits(who: Who, args: &[&str]) -> serde_json::Value {
    let done = run_code(who, "bash", ":", args).go().expect_code(0);
    done.json()["outcome"]["receipt"]["limits"].clone()
}

#[test]
fn limits_are_taken_with_their_units() {
    for who in everyone() {
        let standard = limits(who, &[]);
        for (flag, text, field, value) in [
            ("--memory", "64M", "memory", 64.0 * 1048576.0),
            ("--memory", "1G", "memory", 1073741824.0),
            ("--memory", "128MiB", "memory", 134217728.0),
            ("--timeout", "2s", "wall_time", 2.0),
            ("--timeout", "1500ms", "wall_time", 1.5),
            ("--timeout", "2m", "wall_time", 120.0),
            ("--cpu-seconds", "7", "cpu_time", 7.0),
            ("--processes", "3", "processes", 3.0),
            ("--open-files", "64", "open_files", 64.0),
            ("--file-size", "1K", "file_size", 1024.0),
            ("--file-size", "100M", "file_size", 104857600.0),
            ("--disk", "128M", "disk", 134217728.0),
            ("--output-limit", "1M", "output", 1048576.0),
            ("--cpu-percent", "50", "cpu_percent", 50.0),
        ] {
            let found = limits(who, &[flag, text]);
            assert_eq!(found[field].as_f64(), Some(value), "{flag} {text}");
            assert_ne!(found, standard, "{flag} {text}");
        }
        // A longer clock means more CPU time, a larger file a larger disk, unless they are said.
        assert_eq!(limits(who, &["--timeout", "200s"])["cpu_time"], 200.0);
        assert_eq!(limits(who, &["--file-size", "100M"])["disk"], 104_857_600);
    }
}

/// With a policy named, a request may ask for less and never for more.
#[test]
fn a_named_policy_is_a_ceiling() {
    let dir = TempDir::new();
    let small = dir.file(
        "small.toml",
        "extends = \"standard\"\nmax_memory_mb = 64\nmax_processes = 4\nmax_disk_mb = 8",
    );
    let small = small.to_str().expect("plain");
    for who in everyone() {
        let found = limits(who, &["--policy", small, "--memory", "32M"]);
        assert_eq!(
            (found["memory"].as_u64(), found["processes"].as_u64()),
            (Some(32 << 20), Some(4))
        );
        for (flag, value, rule) in [
            ("--memory", "65M", "max_memory_mb"),
            ("--processes", "5", "max_processes"),
            ("--timeout", "61s", "max_wall_time_seconds"),
            ("--cpu-seconds", "31s", "max_cpu_seconds"),
            ("--open-files", "257", "max_open_files"),
            ("--file-size", "11M", "max_file_size_mb"),
            ("--disk", "9M", "max_disk_mb"),
            ("--output-limit", "17M", "max_output_mb"),
        ] {
            let done = run_code(who, "bash", ":", &["--policy", small, flag, value])
                .go()
                .expect_code(126);
            assert_eq!(done.json()["denial"]["rule"], rule);
        }
        let mount = run_code(who, "bash", ":", &["--policy", small, "--mount", "/usr:/data"])
            .go()
            .expect_code(126);
        assert_eq!(mount.json()["denial"]["code"], "mount_not_allowed");
    }
}

#[test]
fn arguments_after_the_dashes_are_the_programs_own() {
    let dir = TempDir::new();
    let script = dir.file("show.py", "import sys; print(sys.argv[1:])");
    let script = script.to_str().expect("plain");
    for who in everyone() {
        belljar(who, ["run", script, "--", "--json", "-c", "a b", "", "--", "-x"])
            .go()
            .expect_code(0)
            .expect_stdout("['--json', '-c', 'a b', '', '--', '-x']\n");
    }
}

/// R47: with the check on, arguments that name places outside are refused.
#[test]
fn r47_check_paths_refuses_arguments_that_leave() {
    for who in everyone() {
        for argument in [
            "../x",
            "a/../../x",
            "/etc/passwd",
            "~",
            "~root/x",
            "--file=/etc/passwd",
            "--x=../y",
        ] {
            let done = belljar(
                who,
                ["run", "--check-paths", "-c", "print('ran')", "--", argument],
            )
            .go()
            .expect_code(126);
            super::expect_one_problem(&done);
            let done = belljar(who, ["exec", "--check-paths", "--", "echo", argument])
                .go()
                .expect_code(126);
            super::expect_one_problem(&done);
            belljar(who, ["exec", "--", "echo", argument])
                .go()
                .expect_code(0)
                .expect_stdout(&format!("{argument}\n"));
        }
        for argument in ["x", "a/b.txt", "-la", "--flag=value", "..."] {
            belljar(who, ["exec", "--check-paths", "--", "echo", argument])
                .go()
                .expect_code(0)
                .expect_stdout(&format!("{argument}\n"));
        }
    }
}

#[test]
fn who_asked_stands_in_the_record() {
    for who in everyone() {
        let args = ["--tenant", "acme", "--user", "ada", "--run-id", "r-1"];
        let done = run_code(who, "bash", "echo secret words", &args)
            .go()
            .expect_code(0);
        let record = done.json()["record"].clone();
        for (field, value) in [
            ("tenant_id", "acme"),
            ("user_id", "ada"),
            ("run_id", "r-1"),
            ("policy_id", "standard"),
        ] {
            assert_eq!(record[field], value);
        }
        // R14: the code itself is never part of it.
        assert!(!record.to_string().contains("secret words"));
        assert_eq!(record["code_hash"].as_str().map(str::len), Some(64));
    }
}

#[test]
fn the_receipt_can_be_shown_beside_the_output() {
    for who in everyone() {
        let done = belljar(who, ["run", "--receipt", "-c", "print('out')"])
            .go()
            .expect_code(0);
        assert_eq!(done.stdout, "out\n");
        for line in ["provider   native", "network    none", "seccomp", "landlock"] {
            assert!(done.stderr.contains(line), "{line}\n{}", done.stderr);
        }
        // A kernel of its own is what the native provider never has.
        let absent = |line: &str| line.contains("ABSENT") && !line.starts_with("own-kernel");
        assert_eq!(
            done.stderr.lines().any(absent),
            who == Who::User,
            "{}",
            done.stderr
        );
    }
}
