//! A PostgreSQL of the tests' own, for every crate whose tests need one.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

/// Starts it, and gives the directory of its socket, or why there is none. It ends with this process, whose end of its input
/// closes then.
pub(crate) fn start(spawn: impl FnOnce(&mut Command) -> Child) -> Result<PathBuf, String> {
    static RUNNING: OnceLock<Child> = OnceLock::new();
    let directory = std::env::temp_dir().join(belljar_engine::fresh_id("belljar-pg"));
    let mut command = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/postgres"));
    command
        .arg(&directory)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut child = spawn(&mut command);
    let mut line = String::new();
    let output = child.stdout.take().expect("an output");
    BufReader::new(output).read_line(&mut line).expect("a line");
    let _ = RUNNING.set(child);
    match line.trim() {
        "ready" => Ok(directory),
        why => Err(why.to_owned()),
    }
}

/// The URL of a database there.
pub(crate) fn url(directory: &Path, name: &str) -> String {
    format!("postgres://belljar@localhost/{name}?host={}", directory.display())
}
