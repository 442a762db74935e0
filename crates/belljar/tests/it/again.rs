//! Tests that start themselves again, in a process of their own and as another user.
//!
//! A program that embeds the library has a launcher as its child, and one that is killed leaves
//! orphans to whoever adopts them. In a process of their own neither meets another test's eyes.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::LazyLock;

use crate::harness::{self, EXECUTABLE, Who, control_groups, everyone, everyones_copy, orphans};

/// The test that is to do its work in this process.
const ALONE: &str = "BELLJAR_IT_ALONE";

/// The name of the test in which it stands.
macro_rules! test_name {
    () => {{
        const fn here() {}
        let name = std::any::type_name_of_val(&here);
        let (_, name) = name.split_once("::").expect("a path");
        name.trim_end_matches("::here")
    }};
}
pub(crate) use test_name;

/// Does `work` once as everyone, each time in a process of its own after which nothing is left.
pub(crate) fn alone(name: &str, work: impl FnOnce()) {
    if std::env::var(ALONE).is_ok_and(|alone| alone == name) {
        return work();
    }
    for who in everyone() {
        let output = start(name, who, &[]);
        let shown = text(&output);
        assert!(
            output.status.success() && shown.contains("1 passed"),
            "{name} as {who:?}\n{shown}"
        );
    }
}

/// Whether this process was started by [`start`] with that variable.
pub(crate) fn asked_for(variable: &str) -> bool {
    std::env::var_os(variable).is_some()
}

/// Starts this test again as `who` with further variables, waits for its end and looks for leftovers.
pub(crate) fn start(name: &str, who: Who, variables: &[&str]) -> Output {
    static COPY: LazyLock<PathBuf> =
        LazyLock::new(|| everyones_copy(&std::env::current_exe().expect("this executable")));
    let mut command = Command::new(&*COPY);
    command
        .args([name, "--exact", "--nocapture", "--test-threads=1"])
        .env_clear()
        .env("PATH", std::env::var("PATH").unwrap_or_default())
        .env("HOME", "/nonexistent")
        .env(ALONE, name)
        .env(EXECUTABLE, harness::executable())
        .envs(variables.iter().map(|name| (name, "1")))
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    harness::become_who(&mut command, who);
    let child = harness::spawn(&mut command);
    let pid = child.id();
    let output = harness::finish(child);
    assert!(
        orphans().is_empty(),
        "{:?} are left of {name}\n{}",
        orphans(),
        text(&output)
    );
    assert!(
        control_groups(pid).is_empty(),
        "control groups are left of {name}"
    );
    output
}

fn text(output: &Output) -> String {
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    text(&output.stdout) + &text(&output.stderr)
}
