//! Which directory of the host is meant by a path that sandboxes show.
//!
//! What is kept ready shows a directory, not a path: where an environment is removed and built again, another
//! stands at the same path, and what showed the first must not serve the second.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use belljar_core::Plan;

/// A shown path, and what stood there. A mount keeps that from being given up, so its number stays its own.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Shown {
    path: PathBuf,
    /// Device and number; unset where nothing can be seen.
    identity: Option<(u64, u64)>,
    /// Whether it is the whole root, instead of a part of the host's that is shown where it stands.
    is_root: bool,
}

impl Shown {
    pub(crate) fn all(paths: &[PathBuf]) -> Vec<Self> {
        paths.iter().map(|path| Self::now(path)).collect()
    }

    fn now(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            identity: std::fs::metadata(path)
                .ok()
                .map(|found| (found.dev(), found.ino())),
            is_root: false,
        }
    }

    /// What `plan` shows of the host beyond what every sandbox sees, or instead of it.
    pub(crate) fn of(plan: &Plan) -> Vec<Self> {
        let root = plan.root().map(|path| Self {
            is_root: true,
            ..Self::now(path)
        });
        root.into_iter().chain(Self::all(plan.shows())).collect()
    }

    pub(crate) const fn is_root(&self) -> bool {
        self.is_root
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// Whether both are for the same paths, and something else stood at one of them.
pub(crate) fn is_outdated(old: &[Shown], new: &[Shown]) -> bool {
    old != new && old.iter().map(Shown::path).eq(new.iter().map(Shown::path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_at_the_path_now_is_another() {
        let dir = std::env::temp_dir().join(format!("belljar-shown-{}", std::process::id()));
        std::fs::create_dir(&dir).unwrap();
        let paths = [dir.clone(), "/usr".into()];
        let first = Shown::all(&paths);
        assert_eq!(first, Shown::all(&paths));
        assert!(!is_outdated(&first, &first));
        // Held as a mount would hold it.
        let held = std::fs::File::open(&dir).unwrap();
        std::fs::remove_dir(&dir).unwrap();
        std::fs::create_dir(&dir).unwrap();
        let second = Shown::all(&paths);
        drop(held);
        std::fs::remove_dir(&dir).unwrap();
        assert!(is_outdated(&first, &second));
        assert!(!is_outdated(&first[..1], &second));
    }
}
