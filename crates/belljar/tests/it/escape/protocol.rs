//! P49 to P51, P54: claims, hostile data, and what one run could leave for another.
//!
//! There is no channel between a guest and the engine yet besides its streams, so P49 tries every
//! descriptor that it can open, and P50 and P51 put hostile data where a reader might take it for
//! more than text.

use std::fs;

use super::{answer, program};
use crate::harness::{TempDir, everyone, run_code};

/// The streams take anything: the claims are seen there, as text, and count for nothing. A program
/// that ends well is reported as such, so the report can differ.
#[test]
fn p49_forged_results_change_nothing() {
    for who in everyone() {
        let done = program!("p49_forged_results.py")
            .run(who, &[], &[])
            .go()
            .expect_code(41);
        let json = done.json();
        assert_eq!(json["success"], false);
        assert_eq!(json["outcome"]["status"], "failed");
        assert_eq!(json["outcome"]["exit_code"], 41);
        let stdout = json["outcome"]["stdout"].as_str().expect("stdout");
        assert!(stdout.contains(r#""exit_code": 0"#), "{done:#?}");
        // The three streams, however they are opened, and nothing else.
        let stderr = json["outcome"]["stderr"].as_str().expect("stderr");
        assert!(stderr.ends_with("reached 3\n"), "{stderr}");
        let honest = run_code(who, "python", "pass", &[]).go().expect_code(0).json();
        assert_eq!(
            (&honest["success"], &honest["outcome"]["exit_code"]),
            (&true.into(), &0.into())
        );
    }
}

/// Seen as it is meant: one string, whatever is in it, in an outcome that any reader can parse.
#[test]
fn p50_hostile_json_stays_text() {
    for who in everyone() {
        let done = program!("p50_json_bomb.py")
            .run(who, &["--output-limit", "4M"], &[])
            .go()
            .expect_code(0);
        let json = done.json();
        assert_eq!(json["success"], true);
        assert_eq!(json["outcome"]["exit_code"], 0);
        let text = json["outcome"]["stdout"].as_str().expect("one string");
        assert!(text.starts_with(&"[".repeat(1_000_000)));
        assert!(text.contains(r#"{"a":NaN,"b":Infinity,"c":1e99999,"d":"\ud800"}"#));
        assert!(text.contains("\0\u{fffd}"));
        // Control characters are escaped on the way out, and the cut is told.
        assert!(!done.stdout.contains(['\x1b', '\0', '\x07', '\r']));
        assert!(text.ends_with("more dropped]\n"));
    }
}

/// Outside, loading what the program printed touches the canary: seen in the last lines.
#[test]
fn p51_pickles_are_never_loaded() {
    let load = "import pickle, sys; pickle.loads(open(sys.argv[1], 'rb').read())";
    for who in everyone() {
        let place = TempDir::new();
        let canary = place.path().join("canary");
        let path = canary.display().to_string();
        let out = format!("result.pkl={}/", place.path().display());
        let done = program!("p51_pickle.py")
            .run(who, &["--out", &out], &[&path])
            .go()
            .expect_code(0);
        assert!(done.guest_stdout().contains("touched"), "{done:#?}");
        assert!(!canary.exists());
        let pickle = place.path().join("result.pkl").display().to_string();
        super::Program {
            name: "load.py",
            code: load,
        }
        .outside(&[&pickle]);
        assert_eq!(fs::read(&canary).expect("the canary"), b"touched\n");
    }
}

#[test]
fn p54_one_run_finds_nothing_of_another() {
    for who in everyone() {
        let program = program!("p54_plant_and_scan.py");
        // While the other one lives, and after it has ended.
        let planting = std::thread::spawn(move || program.run(who, &[], &["plant", "1"]).go().expect_code(0));
        for _ in 0..3 {
            let done = program.run(who, &[], &["scan"]).go().expect_code(0);
            assert_eq!(answer(&done, "found"), "nothing");
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        planting.join().expect("the planter");
        let done = program.run(who, &[], &["scan"]).go().expect_code(0);
        assert_eq!(answer(&done, "found"), "nothing");
        // Seen failing within one run: it finds what it planted itself.
        let done = program.run(who, &[], &["plant", "scan"]).go().expect_code(0);
        assert!(
            answer(&done, "found").contains("/tmp/p54 /dev/shm/p54 /workspace/p54"),
            "{done:#?}"
        );
        assert!(answer(&done, "found").contains("abstract"), "{done:#?}");
    }
}

/// The queues that the filter or Landlock refuse otherwise, all seen within one run.
#[cfg(feature = "weaken")]
#[test]
fn p54_one_run_finds_its_own_queues_without_seccomp_and_landlock() {
    for who in everyone() {
        let run = program!("p54_plant_and_scan.py").run(who, &[], &["plant", "scan"]);
        let done = run.without("seccomp,landlock").go().expect_code(0);
        assert!(
            answer(&done, "found").ends_with("shm sem msg mq abstract"),
            "{done:#?}"
        );
        let run = program!("p54_plant_and_scan.py").run(who, &[], &["scan"]);
        assert_eq!(answer(&run.without("seccomp,landlock").go(), "found"), "nothing");
    }
}
