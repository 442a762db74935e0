//! Bad input: one clear sentence with a hint, exit code 2 or 126, nothing runs, nothing is left.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::expect_one_problem;
use crate::harness::{TempDir, Who, belljar, everyone};

/// Runs `belljar run` with `args` on code that leaves a mark when it runs.
fn expect_refused(who: Who, code: i32, args: &[&str]) {
    let dir = TempDir::new();
    let mount = format!("{}:/mark:rw", dir.path().display());
    let mut all = vec!["run", "-c", "#!/bin/bash\ntouch /mark/ran", "--mount", &mount];
    all.extend(args);
    let done = belljar(who, all).go();
    assert_eq!(done.code, Some(code), "{args:?} as {who:?}: {done:#?}");
    expect_one_problem(&done);
    assert!(!dir.path().join("ran").exists(), "{args:?} ran");
    let done = belljar(
        who,
        ["run", "--json", "-c", "#!/bin/bash"].iter().chain(args).copied(),
    )
    .go();
    assert_eq!(
        (done.code, done.stderr.as_str()),
        (Some(code), ""),
        "{args:?} with --json"
    );
    let json = done.json();
    assert!(
        json["error"]["hint"].is_string() || json["denial"]["fix"].is_string(),
        "{json:#}"
    );
}

#[test]
fn limits_that_cannot_be_read() {
    for who in everyone() {
        for bad in [
            "",
            "x",
            "-5",
            "1.5.2",
            "12Q",
            "1e999",
            "nan",
            "99999999999999999999",
            "0x10",
            "5 5",
            "M",
        ] {
            for flag in ["--memory", "--file-size", "--disk", "--output-limit"] {
                expect_refused(who, 2, &[flag, bad]);
            }
        }
        for bad in ["", "x", "-1", "1.5.2", "10q", "inf", "nan", "1e999"] {
            for flag in ["--timeout", "--cpu-seconds"] {
                expect_refused(who, 2, &[flag, bad]);
            }
        }
        for bad in ["", "x", "-1", "1.5", "4294967296", "1e3"] {
            for flag in ["--processes", "--open-files", "--cpu-percent"] {
                expect_refused(who, 2, &[flag, bad]);
            }
        }
        // Numbers that no policy could have, and numbers that leave nothing to run with.
        for (code, args) in [
            (2, ["--memory", "900000G"]),
            (2, ["--processes", "100000"]),
            (2, ["--open-files", "9999999"]),
            (2, ["--cpu-percent", "0"]),
            (126, ["--memory", "1M"]),
            (126, ["--timeout", "0"]),
            (126, ["--timeout", "400s"]),
            (126, ["--cpu-seconds", "0"]),
            (126, ["--processes", "0"]),
            (126, ["--open-files", "3"]),
            (126, ["--disk", "0"]),
        ] {
            expect_refused(who, code, &args);
        }
    }
}

#[test]
fn words_that_are_not_known() {
    for who in everyone() {
        for args in [
            ["--lang", "cobol"],
            ["--lang", ""],
            ["--lang", "\u{1b}[31mred"],
            ["--network", "wifi"],
            ["--require", "moat"],
            ["--policy", "lenient"],
            ["--policy", ""],
        ] {
            expect_refused(who, 2, &args);
        }
    }
}

#[test]
fn files_mounts_and_variables() {
    let dir = TempDir::new();
    let plain = dir.file("plain", "x");
    let plain = plain.display();
    let secret = dir.file("secret", "x");
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o000)).expect("a mode");
    let long = "x".repeat(256);
    let deep = "d/".repeat(65) + "f";
    let mut cases: Vec<[String; 2]> = Vec::new();
    for name in ["../x", "/x", "a/../../x", "~/x", "", ".", &long, &deep] {
        cases.push(["--file".to_owned(), format!("{name}={plain}")]);
        cases.push(["--out".to_owned(), name.to_owned()]);
    }
    for (flag, value) in [
        ("--file", "a=/nonexistent/b".to_owned()),
        ("--file", "a=/".to_owned()),
        ("--file", "a=/dev/zero".to_owned()),
        ("--file", format!("main.bash={plain}")),
        ("--out", "a=/nonexistent/b".to_owned()),
        ("--out", format!("a={plain}/below")),
        ("--out", "a=/dev/null".to_owned()),
        ("--stdin", "/nonexistent".to_owned()),
        ("--stdin", "/".to_owned()),
        ("--unpack", "/nonexistent".to_owned()),
        ("--unpack", plain.to_string()),
        ("--unpack", "/dev/zero".to_owned()),
        ("--mount", String::new()),
        ("--mount", "/usr".to_owned()),
        ("--mount", "/usr:".to_owned()),
        ("--mount", ":/data".to_owned()),
        ("--mount", "/usr:data".to_owned()),
        ("--mount", "/usr:/data/../etc".to_owned()),
        ("--mount", "/usr:/data:rx".to_owned()),
        ("--mount", "/usr:/data:ro:ro".to_owned()),
        ("--mount", "/nonexistent:/data".to_owned()),
        ("--env", String::new()),
        ("--env", "=x".to_owned()),
        ("--env", "NOT_SET_HERE".to_owned()),
        ("--env", "\u{1b}[31m".to_owned()),
    ] {
        cases.push([flag.to_owned(), value]);
    }
    for reserved in [
        "/",
        "/proc",
        "/proc/x",
        "/dev",
        "/sys",
        "/etc",
        "/etc/x",
        "/usr/x",
        "/bin",
        "/workspace",
        "/tmp",
    ] {
        cases.push(["--mount".to_owned(), format!("/usr:{reserved}")]);
    }
    for who in everyone() {
        for [flag, value] in &cases {
            expect_refused(who, 2, &[flag, value]);
        }
        let twice = format!("a={plain}");
        expect_refused(who, 2, &["--file", &twice, "--file", &twice]);
        expect_refused(who, 126, &["--file", &twice, "--file", &format!("a/b={plain}")]);
        if who == Who::User {
            expect_refused(who, 2, &["--stdin", secret.to_str().expect("plain")]);
        }
    }
}

#[test]
fn policies_that_cannot_be_used() {
    let dir = TempDir::new();
    let bad = [
        ("syntax", "name = ", ":1: "),
        ("unknown", "\ncolour = 1", ":2: colour: unknown field"),
        (
            "type",
            "max_memory_mb = \"lots\"",
            ":1: max_memory_mb: invalid type",
        ),
        (
            "negative",
            "max_memory_mb = -5",
            ":1: max_memory_mb: must be from 8",
        ),
        ("zero", "max_processes = 0", ":1: max_processes: must be"),
        ("nan", "max_cpu_seconds = nan", ":1: max_cpu_seconds: must be"),
        (
            "level",
            "isolation_level = \"jail\"",
            ":1: isolation_level: `jail` is not known",
        ),
        (
            "language",
            "allowed_languages = [\"cobol\"]",
            ":1: allowed_languages: `cobol` is not known",
        ),
        (
            "control",
            "[controls]\nmoat = \"require\"",
            ":2: controls: `moat` is not known",
        ),
        (
            "demand",
            "[controls]\nseccomp = \"maybe\"",
            ":2: seccomp: `maybe` is not known",
        ),
        (
            "base",
            "extends = \"lenient\"",
            ":1: extends: `lenient` is not a built-in policy",
        ),
        (
            "mount",
            "allowed_mounts = [\"/a\"]",
            ":1: allowed_mounts: `/a` is not a mount",
        ),
        ("id", "policy_id = \"../x\"", ":1: policy_id: must be letters"),
    ];
    let binary = dir.file("binary.toml", [0xff, 0xfe, 0x00]);
    for who in everyone() {
        for (name, text, shown) in bad {
            let path = dir.file(&format!("{name}.toml"), text);
            let path = path.to_str().expect("plain");
            expect_refused(who, 2, &["--policy", path]);
            for command in ["check", "show"] {
                let done = belljar(who, ["policy", command, path]).go().expect_code(2);
                expect_one_problem(&done);
                assert!(
                    done.stderr.starts_with(&format!("belljar: {path}{shown}")),
                    "{}",
                    done.stderr
                );
            }
        }
        for path in [
            binary.as_path(),
            Path::new("/"),
            Path::new("/dev/zero"),
            Path::new("./absent.toml"),
        ] {
            expect_refused(who, 2, &["--policy", path.to_str().expect("plain")]);
        }
    }
}

#[test]
fn programs_that_cannot_be_found_or_told_apart() {
    let dir = TempDir::new();
    let mystery = dir.file("mystery", "hello");
    let mystery = mystery.to_str().expect("plain").to_owned();
    for who in everyone() {
        for (code, args) in [
            (2, vec!["run"]),
            (2, vec!["run", "/nonexistent.py"]),
            (2, vec!["run", "/"]),
            (2, vec!["run", &mystery]),
            (2, vec!["run", "-"]),
            (2, vec!["run", "-", "--lang", "python", "--stdin", "-"]),
            (126, vec!["run", "-c", ""]),
            (2, vec!["exec"]),
            (2, vec!["exec", ""]),
            (2, vec!["exec", "echo 'open"]),
            (2, vec!["exec", "a; b"]),
            (126, vec!["exec", "--", ""]),
            (2, vec!["policy", "show", "lenient"]),
        ] {
            let done = belljar(who, args.iter().copied()).go();
            assert_eq!(done.code, Some(code), "{args:?}: {done:#?}");
            expect_one_problem(&done);
        }
    }
}

/// What the argument parser itself finds is a usage error as well, and as JSON where that was asked for.
#[test]
fn flags_that_do_not_exist() {
    for who in everyone() {
        for args in [
            vec!["frobnicate"],
            vec!["run", "-c", "1", "--nope"],
            vec!["run", "-c", "1", "file.py"],
            vec!["run", "-c", "1", "--memory"],
            vec!["doctor", "extra"],
            vec!["policy"],
            vec!["completions", "tcsh"],
        ] {
            let done = belljar(who, args.clone()).go();
            assert_eq!((done.code, done.stdout.as_str()), (Some(2), ""), "{args:?}");
            assert!(!done.stderr.is_empty());
        }
        let done = belljar(who, ["run", "--json", "-c", "1", "--nope"])
            .go()
            .expect_code(2);
        assert_eq!(done.json()["error"]["kind"], "usage");
        assert_eq!(done.stderr, "");
    }
}
