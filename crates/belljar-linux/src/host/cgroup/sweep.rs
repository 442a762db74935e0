//! Removing what a dead engine left behind.

use std::fs;
use std::path::{Path, PathBuf};

use crate::owner;

/// The name of a sandbox's group: its provider, its id, and the engine that owns it.
pub(crate) fn group_name(tag: &str, id: &str) -> String {
    format!("{tag}.{id}.{}", owner::own())
}

/// How the names of one provider's groups begin.
pub(crate) fn fresh_tag() -> String {
    let mut bytes = [0u8; 4];
    // Where there is no randomness a process has one provider, and its pid is in the name anyway.
    let _ = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    format!("{:08x}", u32::from_ne_bytes(bytes))
}

/// Removes every group of one provider: what an engine that died left, once its processes are gone.
pub(crate) fn remove_all(subtrees: &[PathBuf], tag: &str) {
    let begin = format!("{tag}.");
    for subtree in subtrees {
        let entries = fs::read_dir(subtree).into_iter().flatten().flatten();
        let ours: Vec<PathBuf> = entries
            .filter(|entry| entry.file_name().to_string_lossy().starts_with(&begin))
            .map(|entry| entry.path())
            .collect();
        let _ = super::remove(&ours);
        // An engine may have died between making the subtree and the first group in it.
        let _ = fs::remove_dir(subtree);
    }
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
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    // What is not one of ours has an owner as well.
    !name.rsplit('.').next().is_some_and(owner::is_gone)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_of_a_living_engine_is_kept() {
        assert!(has_owner(Path::new(&group_name("cafe", "bj-1"))));
        let dead = owner::own()
            .rsplit_once('-')
            .map(|(begin, _)| format!("bj-1.{begin}-1"));
        assert!(!has_owner(Path::new(&dead.unwrap())));
        assert!(has_owner(Path::new("bj-1.4194304.1")));
        assert!(has_owner(Path::new("somebody-elses")));
    }
}
