//! What programs read, and what people are taught: `--json`, doctor, policy, languages, help.

use serde_json::Value;

use crate::harness::{TempDir, Who, belljar, everyone, output_of, run_code};

/// Holds that `value` is an object with exactly these fields.
#[track_caller]
fn expect_fields(value: &Value, fields: &[&str]) {
    let found: Vec<_> = value
        .as_object()
        .unwrap_or_else(|| panic!("no object: {value:#}"))
        .keys()
        .collect();
    let mut wanted = fields.to_vec();
    wanted.sort_unstable();
    assert_eq!(found, wanted);
}

#[test]
fn a_run_as_json_has_this_shape() {
    for who in everyone() {
        let done = run_code(who, "bash", "echo out; echo err >&2", &[]).go();
        let json = done.json();
        expect_fields(&json, &["success", "outcome", "record"]);
        let outcome = &json["outcome"];
        expect_fields(
            outcome,
            &[
                "sandbox_id",
                "status",
                "exit_code",
                "signal",
                "stdout",
                "stderr",
                "compile",
                "error",
                "value",
                "displays",
                "tool_calls",
                "exception",
                "state_lost",
                "flags",
                "files",
                "usage",
                "receipt",
                "started_at",
                "completed_at",
                "duration",
            ],
        );
        expect_fields(&outcome["usage"], &["wall_seconds", "cpu_seconds", "memory_peak"]);
        expect_fields(
            &outcome["receipt"],
            &[
                "provider",
                "isolation",
                "policy_id",
                "policy_hash",
                "environment",
                "controls",
                "network",
                "limits",
                "shown",
                "origin",
            ],
        );
        expect_fields(
            &json["record"],
            &[
                "record_id",
                "sandbox_id",
                "tenant_id",
                "user_id",
                "run_id",
                "language",
                "code_hash",
                "policy_id",
                "status",
                "exit_code",
                "wall_time_seconds",
                "created_at",
                "completed_at",
                "error_message",
                "policy_hash",
                "usage",
            ],
        );
        assert_eq!(
            (outcome["stdout"].as_str(), outcome["stderr"].as_str()),
            (Some("out\n"), Some("err\n"))
        );
        assert_eq!(
            outcome["receipt"]["controls"]
                .as_object()
                .map(serde_json::Map::len),
            Some(20)
        );
        let times = ["started_at", "completed_at"].map(|field| outcome[field].as_f64().expect("a time"));
        assert!(times[0] > 1.7e9 && times[1] >= times[0], "{times:?}");

        let failed = run_code(who, "bash", "exit 2", &[]).go().json();
        expect_fields(&failed["outcome"]["error"], &["type", "stage", "message"]);
        let denied = run_code(who, "bash", ":", &["--policy", "restricted"])
            .go()
            .json();
        expect_fields(&denied, &["denial", "record"]);
        expect_fields(&denied["denial"], &["code", "rule", "value", "message", "fix"]);
        let misunderstood = run_code(who, "cobol", ":", &[]).go().json();
        expect_fields(&misunderstood["error"], &["kind", "message", "hint"]);
    }
}

#[test]
fn doctor_tells_what_this_machine_gives() {
    for who in everyone() {
        let json = belljar(who, ["doctor", "--json"]).go().expect_code(0).json();
        expect_fields(
            &json,
            &[
                "ready",
                "provider",
                "isolation",
                "networks",
                "languages",
                "controls",
                "providers",
                "shared_limits",
            ],
        );
        assert_eq!(json["ready"], true);
        assert_eq!(
            json["networks"],
            serde_json::json!(["none", "local", "restricted", "full"])
        );
        for finding in json["controls"].as_array().expect("controls") {
            let fields: &[&str] = if finding["state"] == "present" {
                &["control", "essential", "effect_of_absence", "state", "detail"]
            } else {
                &["control", "essential", "effect_of_absence", "state", "why", "fix"]
            };
            expect_fields(finding, fields);
        }
        let text = belljar(who, ["doctor"]).go().expect_code(0).stdout;
        assert!(
            text.contains("Sandboxes can be made here: process isolation by the native provider"),
            "{text}"
        );
        assert!(!text.contains('\u{1b}'), "no colours in a pipe");
        if who == Who::User {
            assert!(text.contains("fix:"), "{text}");
        }
    }
}

#[test]
fn policies_are_listed_shown_and_checked() {
    let dir = TempDir::new();
    for who in everyone() {
        let list = belljar(who, ["policy", "list"]).go().expect_code(0).stdout;
        let json = belljar(who, ["policy", "list", "--json"])
            .go()
            .expect_code(0)
            .json();
        for (name, policy) in ["standard", "restricted", "permissive", "high_security"]
            .iter()
            .zip(json.as_array().expect("an array"))
        {
            assert_eq!(policy["policy_id"], *name);
            assert!(list.lines().any(|line| line.starts_with(name)), "{list}");
            // What is shown can be saved, checked and used.
            let shown = belljar(who, ["policy", "show", name]).go().expect_code(0).stdout;
            let file = dir.file(&format!("{name}.toml"), &shown);
            let file = file.to_str().expect("plain");
            let checked = belljar(who, ["policy", "check", file]).go().expect_code(0).stdout;
            assert!(
                checked.starts_with(&format!("{file}: policy `{name}` is valid (sha256 ")),
                "{checked}"
            );
            let checked = belljar(who, ["policy", "check", "--json", file])
                .go()
                .expect_code(0)
                .json();
            assert_eq!(
                (&checked["valid"], &checked["policy"]),
                (&Value::Bool(true), policy)
            );
            let again = belljar(who, ["policy", "show", "--json", file])
                .go()
                .expect_code(0)
                .json();
            assert_eq!(&again, policy);
        }
    }
}

#[test]
fn languages_are_listed_with_what_is_missing() {
    for who in everyone() {
        let text = belljar(who, ["languages"]).go().expect_code(0).stdout;
        let json = belljar(who, ["languages", "--json"]).go().expect_code(0).json();
        let rows = json.as_array().expect("an array");
        assert_eq!(rows.len(), 14);
        for row in rows {
            expect_fields(
                row,
                &[
                    "language",
                    "aliases",
                    "extensions",
                    "available",
                    "version",
                    "programs",
                    "compiled",
                    "install",
                ],
            );
            let name = row["language"].as_str().expect("a name");
            let line = text
                .lines()
                .find(|line| line.split_whitespace().next() == Some(name))
                .expect("a line");
            assert_eq!(
                line.contains("not here; install"),
                row["available"] == false,
                "{line}"
            );
        }
    }
}

#[test]
fn help_teaches_with_examples() {
    for who in everyone() {
        for (args, shown) in [
            (&["--help"][..], "belljar run script.py"),
            (&["run", "--help"], "cat in.csv | belljar run filter.py > out.csv"),
            (
                &["exec", "--help"],
                "belljar exec --unpack project.tar.gz -- make test",
            ),
            (&["doctor", "--help"], "belljar doctor --json | jq"),
            (&["policy", "--help"], "belljar policy show standard > team.toml"),
            (&["languages", "--help"], "belljar run hello.go"),
            (&["completions", "--help"], "belljar completions zsh"),
        ] {
            let help = belljar(who, args.iter().copied()).go().expect_code(0);
            assert!(
                help.stdout.contains("Examples:") && help.stdout.contains(shown),
                "{args:?}\n{}",
                help.stdout
            );
            assert_eq!(help.stderr, "");
        }
        let version = belljar(who, ["--version"]).go().expect_code(0).stdout;
        assert_eq!(version, format!("belljar {}\n", env!("CARGO_PKG_VERSION")));
    }
}

#[test]
fn completions_are_scripts_that_know_the_flags() {
    for who in everyone() {
        for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
            let script = belljar(who, ["completions", shell]).go().expect_code(0).stdout;
            for word in ["doctor", "cpu-seconds", "check-paths"] {
                assert!(script.contains(word), "{shell} does not know {word}");
            }
            // Two of them do not complete the words of a flag.
            if matches!(shell, "bash" | "zsh" | "fish") {
                assert!(
                    script.contains("typescript") && script.contains("process-count"),
                    "{shell}"
                );
            }
        }
        let script = belljar(who, ["completions", "bash"]).go().stdout;
        let dir = TempDir::new();
        let path = dir.file("completions", script);
        let checked = output_of(std::process::Command::new("bash").arg("-n").arg(path));
        assert!(checked.status.success(), "{checked:?}");
    }
}
