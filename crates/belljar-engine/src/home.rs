//! Where belljar keeps what is the caller's own.

use std::path::PathBuf;

/// The caller's data directory: `BELLJAR_HOME`, or `belljar` in the place where such data belongs.
pub fn home() -> Option<PathBuf> {
    let place = |variable: &str| {
        std::env::var_os(variable)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    place("BELLJAR_HOME")
        .or_else(|| Some(place("XDG_DATA_HOME")?.join("belljar")))
        .or_else(|| Some(place("HOME")?.join(".local/share/belljar")))
        .or_else(|| {
            rustix::process::geteuid()
                .is_root()
                .then(|| PathBuf::from("/var/lib/belljar"))
        })
}
