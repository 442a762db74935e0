//! The programs that execute code inside a sandbox on the engine's behalf. Each stands read-only in
//! every sandbox; none of them is a wall.

use belljar_core::language::RUNNER_DIR;

/// Each file: its place below the runners' directory, and its text.
const FILES: [(&str, &str); 0] = [];

/// Where each file stands, and what is in it.
pub(crate) fn files() -> impl Iterator<Item = (String, Vec<u8>)> {
    FILES
        .iter()
        .map(|(name, text)| (format!("{RUNNER_DIR}/{name}"), text.as_bytes().to_vec()))
}
