//! Directories on the host that go with whoever made them; what a process that was killed left, the next one removes.

use std::io;
use std::path::Path;
use std::sync::Once;

use belljar_linux::owner;
use tempfile::TempDir;

/// How the name of each begins; then come the kind and its owner.
const BEGIN: &str = "belljar-places-";

/// A new one.
pub(crate) fn directory(kind: &str) -> io::Result<TempDir> {
    static SWEPT: Once = Once::new();
    SWEPT.call_once(|| sweep(&std::env::temp_dir()));
    let prefix = format!("{BEGIN}{kind}.{}.", owner::own());
    tempfile::Builder::new().prefix(&prefix).tempdir()
}

/// Removes those whose owner is gone.
fn sweep(dir: &Path) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let owner = name
            .to_str()
            .and_then(|name| name.strip_prefix(BEGIN)?.split('.').nth(1));
        if owner.is_some_and(owner::is_gone) {
            // What cannot be removed is somebody else's.
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_dead_process_left_is_removed_and_nothing_else() {
        let place = tempfile::tempdir().unwrap();
        let (dead, _) = owner::own().rsplit_once('-').unwrap();
        let dead = [
            format!("{BEGIN}venv.{dead}-1.x"),
            format!("{BEGIN}gvisor.{dead}-2.y"),
        ];
        let kept = [
            format!("{BEGIN}strange"),
            format!("{BEGIN}venv.{}.x", owner::own()),
            "other".to_owned(),
        ];
        for name in dead.iter().chain(&kept) {
            std::fs::create_dir_all(place.path().join(name).join("below")).unwrap();
        }
        sweep(place.path());
        let entries = std::fs::read_dir(place.path()).unwrap();
        let mut left: Vec<_> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        assert_eq!(left, kept);
    }
}
