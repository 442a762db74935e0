//! Directories on the host that go with whoever made them; what a process that was killed left, the next one removes.

use std::io;
use std::path::Path;
use std::sync::Once;

use belljar_linux::start_time;
use tempfile::TempDir;

/// How the name of each begins; then come the kind, and the pid and start time of its owner.
const BEGIN: &str = "belljar-places-";

/// A new one.
pub(crate) fn directory(kind: &str) -> io::Result<TempDir> {
    static SWEPT: Once = Once::new();
    SWEPT.call_once(|| sweep(&std::env::temp_dir()));
    let pid = std::process::id();
    let prefix = format!("{BEGIN}{kind}-{pid}-{}-", start_time(pid).unwrap_or_default());
    tempfile::Builder::new().prefix(&prefix).tempdir()
}

/// Removes those whose owner is gone.
fn sweep(dir: &Path) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(owner);
        if owner.is_some_and(|(pid, start)| start_time(pid) != Some(start)) {
            // What cannot be removed is somebody else's.
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

/// The pid and start time in a name of ours.
fn owner(name: &str) -> Option<(u32, u64)> {
    let mut parts = name.strip_prefix(BEGIN)?.split('-').skip(1);
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_dead_process_left_is_removed_and_nothing_else() {
        let place = tempfile::tempdir().unwrap();
        let pid = std::process::id();
        let start = start_time(pid).unwrap();
        let dead = [
            format!("{BEGIN}venv-{pid}-{}-x", start + 1),
            format!("{BEGIN}gvisor-4194305-7-y"),
        ];
        let kept = [
            format!("{BEGIN}strange"),
            format!("{BEGIN}venv-{pid}-{start}-x"),
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
