//! Where this host has the libraries that programs name.

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Where loaders look by themselves.
const USUAL: [&str; 5] = ["/lib64", "/usr/lib64", "/lib", "/usr/lib", "/usr/local/lib"];

/// Libraries by name.
#[derive(Debug, Default)]
pub(super) struct Libraries {
    listed: HashMap<String, PathBuf>,
}

impl Libraries {
    /// As the host's own list has them; where there is none, by looking.
    pub(super) fn look() -> Self {
        let listing = ["/sbin/ldconfig", "/usr/sbin/ldconfig"]
            .iter()
            .find_map(|program| {
                let mut command = Command::new(program);
                command.arg("-p").stdin(Stdio::null()).stderr(Stdio::null());
                command.output().ok().filter(|output| output.status.success())
            });
        let listed = listing.map_or_else(HashMap::new, |output| {
            read(&String::from_utf8_lossy(&output.stdout))
        });
        Self { listed }
    }

    /// Where the library of that name is, looked for in these places first.
    pub(super) fn find(&self, name: &str, places: &[PathBuf]) -> Option<PathBuf> {
        if name.contains('/') {
            return Some(PathBuf::from(name)).filter(|path| path.is_absolute() && path.is_file());
        }
        let there = |place: PathBuf| Some(place.join(name)).filter(|path| path.is_file());
        let first = places.iter().cloned().find_map(there);
        first
            .or_else(|| self.listed.get(name).cloned())
            .or_else(|| USUAL.iter().map(PathBuf::from).find_map(there))
    }
}

/// Reads what `ldconfig -p` prints: `libz.so.1 (libc6,x86-64) => /lib/x86_64-linux-gnu/libz.so.1`.
fn read(listing: &str) -> HashMap<String, PathBuf> {
    let own = if cfg!(target_arch = "aarch64") {
        "AArch64"
    } else {
        "x86-64"
    };
    let mut listed = HashMap::new();
    for line in listing.lines() {
        let Some((named, path)) = line.split_once(" => ") else {
            continue;
        };
        if let Some((name, kind)) = named.trim().split_once(' ')
            && kind.contains(own)
        {
            // The first is the one that a loader takes.
            listed
                .entry(name.to_owned())
                .or_insert_with(|| PathBuf::from(path.trim()));
        }
    }
    listed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_is_read_for_this_processor_alone() {
        let own = if cfg!(target_arch = "aarch64") {
            "AArch64"
        } else {
            "x86-64"
        };
        let listing = format!(
            "3 libs found in cache `/etc/ld.so.cache'\n\tlibz.so.1 (libc6,{own}) => /lib/a/libz.so.1\n\
             \tlibz.so.1 (libc6,{own}) => /lib/b/libz.so.1\n\tlibm.so.6 (libc6) => /lib32/libm.so.6\n"
        );
        let listed = read(&listing);
        assert_eq!(listed.len(), 1);
        assert_eq!(listed["libz.so.1"], PathBuf::from("/lib/a/libz.so.1"));
    }
}
