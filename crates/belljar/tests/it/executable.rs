//! The executable where every user can start it.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::Duration;

use crate::harness::is_root;

/// Says where the executable is, when a test starts itself again as somebody who cannot look.
pub(crate) const EXECUTABLE: &str = "BELLJAR_IT_EXECUTABLE";

/// The executable, where every user can start it.
pub(crate) fn executable() -> &'static Path {
    static COPY: LazyLock<PathBuf> = LazyLock::new(|| match std::env::var_os(EXECUTABLE) {
        Some(known) => known.into(),
        None => everyones_copy(Path::new(env!("CARGO_BIN_EXE_belljar"))),
    });
    &COPY
}

/// A copy of an executable, where every user can start it.
pub(crate) fn everyones_copy(built: &Path) -> PathBuf {
    if !is_root() {
        return built.to_owned();
    }
    let found = fs::metadata(built).expect("the executable");
    let dir = std::env::temp_dir()
        .join("belljar-it")
        .join(format!("{}-{}", found.mtime_nsec(), found.len()));
    let copy = dir.join(built.file_name().expect("a name"));
    if !copy.exists() {
        fs::create_dir_all(&dir).expect("a directory for the executable");
        remove_old_copies(dir.parent().expect("parent"));
        for dir in [dir.parent().expect("parent"), &dir] {
            fs::set_permissions(dir, fs::Permissions::from_mode(0o755)).expect("open directory");
        }
        let partial = dir.join(format!("partial-{}", std::process::id()));
        fs::copy(built, &partial).expect("copy the executable");
        fs::set_permissions(&partial, fs::Permissions::from_mode(0o755)).expect("make it executable");
        fs::rename(&partial, &copy).expect("put the executable in place");
    }
    copy
}

/// Removes the copies of builds that nobody has run for a day.
fn remove_old_copies(dir: &Path) {
    let day = Duration::from_secs(86_400);
    for copy in fs::read_dir(dir).expect("the copies").flatten() {
        let made = copy.metadata().and_then(|found| found.modified());
        if made.is_ok_and(|made| made.elapsed().is_ok_and(|age| age > day)) {
            let _ = fs::remove_dir_all(copy.path());
        }
    }
}
