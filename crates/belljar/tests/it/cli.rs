//! The command line as people and programs use it: flags, streams, exit codes, reports, bad input.

mod bad_input;
mod batch;
mod commands;
mod environments;
mod exit_codes;
mod files;
mod flags;
mod providers;
mod reports;
pub(crate) mod session;
mod streams;

/// Holds that `stderr` is one sentence and one hint, with nothing in either that acts on a terminal.
#[track_caller]
fn expect_one_problem(done: &crate::harness::Done) {
    let lines: Vec<_> = done.stderr.lines().collect();
    assert!(
        matches!(lines[..], [problem, hint] if problem.starts_with("belljar: ") && hint.starts_with("hint: ")),
        "{done:#?}"
    );
    assert!(
        !done.stderr.chars().any(|c| c.is_control() && c != '\n'),
        "{done:#?}"
    );
    assert_eq!(done.stdout, "", "{done:#?}");
}
