//! What people see while a batch runs.

use serde_json::json;

use super::{batch, out_name, write_lines};
use crate::harness::{Run, TempDir, belljar, everyone};

/// Runs its arguments on a terminal of their own and shows what they show there.
const ON_A_TERMINAL: &str = "import os, pty, sys\n\
    status = pty.spawn(sys.argv[1:])\n\
    sys.exit(os.waitstatus_to_exitcode(status))";

fn on_terminal(run: Run, kind: &str) -> Run {
    run.within(&["python3", "-c", ON_A_TERMINAL]).env("TERM", kind)
}

#[test]
fn on_a_terminal_there_is_a_bar() {
    let dir = TempDir::new();
    write_lines(&dir, "in.jsonl", &vec![json!({"command": ["sleep", "0.3"]}); 6]);
    for who in everyone() {
        let summary = format!("belljar: 6 lines in {}: 6 completed\r\n", out_name(who));
        let done = on_terminal(batch(who, &dir, &["--jobs", "1"]), "xterm")
            .go()
            .expect_code(0);
        assert!(done.stdout.contains("% 3 lines, "), "{done:#?}");
        assert!(done.stdout.contains("/s: 3 completed ["), "{done:#?}");
        assert!(done.stdout.ends_with(&summary), "{done:#?}");

        let done = on_terminal(batch(who, &dir, &["--restart"]), "dumb")
            .go()
            .expect_code(0);
        assert_eq!(done.stdout, summary);
        let done = on_terminal(batch(who, &dir, &["--restart", "--quiet"]), "xterm")
            .go()
            .expect_code(0);
        assert_eq!(done.stdout, "");

        // Answers on the same screen, and no bar among them.
        let to_screen = belljar(who, ["batch", "in.jsonl", "-o", "-", "--jobs", "1"]).cwd(dir.path());
        let done = on_terminal(to_screen, "xterm").go().expect_code(0);
        assert!(!done.stdout.contains("% "), "{done:#?}");
        assert_eq!(done.stdout.matches("{\"line\":").count(), 6, "{done:#?}");
    }
}

#[test]
fn elsewhere_there_is_a_line_every_ten_seconds() {
    let dir = TempDir::new();
    let lines = [json!({"command": ["true"]}), json!({"command": ["sleep", "11"]})];
    write_lines(&dir, "in.jsonl", &lines);
    let who = everyone()[0];
    let done = batch(who, &dir, &["--jobs", "1"]).go().expect_code(0);
    let shown: Vec<_> = done.stderr.lines().collect();
    let place = out_name(who);
    assert_eq!(shown.len(), 2, "{done:#?}");
    assert!(
        shown[0].starts_with("belljar: 1 line, 0.1/s: 1 completed; about "),
        "{}",
        shown[0]
    );
    assert_eq!(shown[1], format!("belljar: 2 lines in {place}: 2 completed"));
}
