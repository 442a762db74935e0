//! What the machine has for the tests, and saying what it has not.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex, PoisonError};

use crate::harness::{Who, belljar};

/// Where `tests/setup` puts what no package has.
fn tools() -> Vec<PathBuf> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/test-tools");
    match std::env::var_os("BELLJAR_TEST_TOOLS") {
        Some(dir) => vec![dir.into()],
        None => vec!["/var/lib/belljar-test".into(), own],
    }
}

/// The PATH of every run: the caller's, then the TypeScript compiler of `tests/setup`.
pub(crate) fn path() -> String {
    let mut path = std::env::var("PATH").unwrap_or_default();
    for dir in tools() {
        path = format!("{path}:{}", dir.join("npm/node_modules/.bin").display());
    }
    path
}

/// The Python environment of `tests/setup`, with numpy, pandas and matplotlib.
pub(crate) fn venv() -> Option<PathBuf> {
    let given = std::env::var_os("BELLJAR_TEST_VENV").map(PathBuf::from);
    let made = tools().into_iter().map(|dir| dir.join("venv"));
    given
        .into_iter()
        .chain(made)
        .find(|venv| venv.join("bin/python3").exists())
}

/// Tells that something could not be tried here. The line is seen whether the test passes or not,
/// and `tests/run` repeats it at its end.
pub(crate) fn absent(what: &str, why: &str) {
    // The macros would be captured with the rest of a passing test's output.
    let _ = std::io::stderr().write_all(format!("not tested here: {what}: {why}\n").as_bytes());
}

/// One line of `belljar languages --json`.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub available: bool,
    pub compiled: bool,
    pub install: String,
}

/// What `belljar languages --json` says to `who`.
pub(crate) fn languages(who: Who) -> BTreeMap<String, Row> {
    static KNOWN: LazyLock<Mutex<BTreeMap<bool, BTreeMap<String, Row>>>> = LazyLock::new(Mutex::default);
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    known.entry(who == Who::Root).or_insert_with(|| ask(who)).clone()
}

fn ask(who: Who) -> BTreeMap<String, Row> {
    let done = belljar(who, ["languages", "--json"]).go().expect_code(0);
    let rows = done.json();
    let text = |row: &serde_json::Value, field: &str| row[field].as_str().expect("text").to_owned();
    rows.as_array()
        .expect("an array")
        .iter()
        .map(|row| {
            let found = Row {
                available: row["available"].as_bool().expect("a boolean"),
                compiled: row["compiled"].as_bool().expect("a boolean"),
                install: text(row, "install"),
            };
            (text(row, "language"), found)
        })
        .collect()
}

/// Whether `who` can run `language`; tells it where not.
pub(crate) fn has(who: Who, language: &str, what: &str) -> bool {
    let row = &languages(who)[language];
    if !row.available {
        absent(
            what,
            &format!("{who:?} has no {language} (install {})", row.install),
        );
    }
    row.available
}
