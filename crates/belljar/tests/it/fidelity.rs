//! Ordinary work passes: what people run must not notice the glass.
//!
//! Everything here runs under the `standard` policy with its own numbers (256 MB, 10 processes,
//! 64 MB of disk), except where a test says which number a compiler needs.

mod packages;
mod python;
mod tools;

use crate::harness::{Run, Who, belljar};

/// Code under `--policy standard`.
fn standard(who: Who, language: &str, code: &str) -> Run {
    belljar(
        who,
        ["run", "--policy", "standard", "--lang", language, "-c", code],
    )
}

/// Runs code under `--policy standard` and holds that it prints `stdout` and nothing else.
#[track_caller]
fn expect(who: Who, language: &str, code: &str, stdout: &str) {
    let done = standard(who, language, code).go();
    assert_eq!(
        (done.code, done.stdout.as_str(), done.stderr.as_str()),
        (Some(0), stdout, ""),
        "as {who:?}:\n{code}"
    );
}
