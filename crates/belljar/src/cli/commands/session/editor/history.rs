//! What was typed in earlier sessions. A prompt without it works as well, so nothing here is an error.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rustyline::Editor;
use rustyline::history::{FileHistory, History as _};

use super::indent::Indent;

/// The most cells that are kept.
pub(super) const MOST_ENTRIES: usize = 1_000;
/// The longest cell that is kept.
const LONGEST: usize = 64 << 10;
/// The largest file that is read.
const LARGEST_FILE: u64 = MOST_ENTRIES as u64 * (LONGEST as u64) / 4;

/// The file, where there is one that can be used.
#[derive(Debug)]
pub(super) struct History {
    path: Option<PathBuf>,
}

impl History {
    pub(super) fn load(editor: &mut Editor<Indent, FileHistory>, path: Option<PathBuf>) -> Self {
        let path = path.filter(|path| is_usable(path));
        if let Some(path) = path.as_ref().filter(|path| path.exists()) {
            let _ = editor.load_history(path);
        }
        Self { path }
    }

    /// Keeps a cell, also for sessions that run at the same time.
    pub(super) fn add(&mut self, editor: &mut Editor<Indent, FileHistory>, cell: &str) {
        let cell = cell.trim_end();
        if cell.len() > LONGEST || !editor.history_mut().add(cell).unwrap_or(false) {
            return;
        }
        if let Some(path) = &self.path
            && editor.append_history(path).is_err()
        {
            self.path = None;
        }
    }
}

/// Whether it is a plain file of a bearable size, or its directory can hold one.
fn is_usable(path: &Path) -> bool {
    match fs::metadata(path) {
        Ok(found) => found.is_file() && found.len() <= LARGEST_FILE,
        Err(_) => path.parent().is_some_and(|directory| {
            let made = DirBuilder::new().recursive(true).mode(0o700).create(directory);
            made.is_ok()
        }),
    }
}
