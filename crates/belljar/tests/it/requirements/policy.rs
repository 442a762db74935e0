//! R9 and R36: what a policy refuses does not run, and is told with exit code 126.

use crate::harness::{Done, TempDir, belljar, everyone, run_code};

fn denial_code(done: &Done) -> String {
    done.json()["denial"]["code"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

/// R9: a language that the policy lacks is a failure called PolicyViolation, and nothing runs.
#[test]
fn r9_a_language_that_the_policy_lacks_does_not_run() {
    for who in everyone() {
        let dir = TempDir::new();
        let mount = format!("{}:/data:rw", dir.path().display());
        let code = "system('touch /data/ran')";
        let done = run_code(who, "ruby", code, &["--policy", "standard", "--mount", &mount])
            .go()
            .expect_code(126);
        assert_eq!(denial_code(&done), "language_not_allowed");
        let record = done.json()["record"].clone();
        assert_eq!(record["status"], "failed");
        assert_eq!(record["sandbox_id"], "");
        let message = record["error_message"].as_str().expect("a message");
        assert!(
            message.starts_with("PolicyViolation: policy `standard` does not allow ruby"),
            "{message}"
        );
        assert!(!dir.path().join("ran").exists());

        let done = belljar(who, ["run", "--policy", "standard", "--lang", "ruby", "-c", code])
            .go()
            .expect_code(126);
        assert_eq!(
            done.stderr,
            "belljar: policy `standard` does not allow ruby, only python, javascript, bash\n\
             hint: add \"ruby\" to allowed_languages in the policy\n"
        );
        assert_eq!(done.stdout, "");
    }
}

/// R36: a policy that wants a container is never served by less.
#[test]
fn r36_a_container_policy_never_downgrades() {
    let dir = TempDir::new();
    let vm = dir.file("vm.toml", "extends = \"standard\"\nisolation_level = \"vm\"");
    for who in everyone() {
        for policy in ["restricted", "high_security", vm.to_str().expect("plain")] {
            let done = run_code(who, "python", "print('ran')", &["--policy", policy, "--trust"]).go();
            if done.code == Some(0) {
                // There are containers here; that is what it must have been.
                assert_eq!(
                    done.json()["outcome"]["receipt"]["isolation"],
                    "container",
                    "{policy}"
                );
                assert!(!policy.ends_with("vm.toml"));
                continue;
            }
            let done = done.expect_code(126);
            assert_eq!(denial_code(&done), "isolation_unavailable", "{policy}");
            assert!(!done.stdout.contains("\"ran"));
        }
    }
}

/// A control that is required and missing is a denial with a fix, never a weaker run.
#[test]
fn r36_a_required_control_is_there_or_nothing_runs() {
    for who in everyone() {
        let done = belljar(who, ["doctor", "--json"]).go().expect_code(0);
        for finding in done.json()["controls"].as_array().expect("controls") {
            let control = finding["control"].as_str().expect("a name");
            let done = run_code(who, "bash", "echo ran", &["--require", control]).go();
            if finding["state"] == "present" {
                let seen = &done.json()["outcome"]["receipt"]["controls"][control]["state"];
                assert_eq!(
                    (done.code, seen.as_str()),
                    (Some(0), Some("enforced")),
                    "{control} as {who:?}"
                );
            } else {
                assert_eq!(
                    denial_code(&done.expect_code(126)),
                    "control_unavailable",
                    "{control}"
                );
            }
        }
    }
}

/// Approval cannot be given on the command line, so what needs it does not run.
#[test]
fn r12_what_needs_approval_does_not_run() {
    let dir = TempDir::new();
    let policy = dir.file("asking.toml", "extends = \"standard\"\nrequire_approval = true");
    for who in everyone() {
        let args = ["--policy", policy.to_str().expect("plain")];
        let done = run_code(who, "python", "print('ran')", &args)
            .go()
            .expect_code(126);
        assert_eq!(denial_code(&done), "approval_required");
    }
}
