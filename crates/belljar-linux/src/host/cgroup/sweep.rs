//! Removing what a dead engine left behind.

use std::fs;
use std::path::{Path, PathBuf};

/// The name of a sandbox's group: its id and the engine that owns it.
pub(crate) fn group_name(id: &str) -> String {
    let pid = std::process::id();
    format!("{id}.{pid}.{}", start_time(pid).unwrap_or_default())
}

/// Removes every group below `subtree` whose engine is gone. Its processes are gone too: they die
/// with the launcher, and the launcher with the engine.
pub(super) fn sweep(subtree: &Path) {
    let Ok(entries) = fs::read_dir(subtree) else {
        return;
    };
    let stale: Vec<PathBuf> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.is_dir() && !has_owner(path))
        .collect();
    if !stale.is_empty() {
        let _ = super::remove(&stale);
    }
}

fn has_owner(path: &Path) -> bool {
    let name = path
        .file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default();
    let mut parts = name.rsplit('.');
    let (Some(start), Some(pid)) = (parts.next(), parts.next().and_then(|pid| pid.parse().ok())) else {
        // Not one of ours.
        return true;
    };
    start_time(pid).is_some_and(|now| now.to_string() == start)
}

/// When a process started, in ticks since boot: tells it from a later one with the same number.
fn start_time(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold anything; the fields follow its last parenthesis.
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_of_a_living_engine_is_kept() {
        assert!(has_owner(Path::new(&group_name("bj-1"))));
        assert!(!has_owner(Path::new("bj-1.1.0")));
        assert!(!has_owner(Path::new("bj-1.4194304.1")));
        assert!(has_owner(Path::new("somebody-elses")));
    }
}
