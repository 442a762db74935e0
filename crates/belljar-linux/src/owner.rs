//! Which process something belongs to that outlives it: a control group, a directory, a container.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::LazyLock;

/// This process, so that no other is taken for it: the namespace that its pid is of, the pid, and when it started.
pub fn own() -> &'static str {
    static OWN: LazyLock<String> = LazyLock::new(|| {
        let pid = std::process::id();
        format!(
            "{}-{pid}-{}",
            namespace().unwrap_or_default(),
            start_time(pid).unwrap_or_default()
        )
    });
    &OWN
}

/// Whether the process of that name is known to be gone. Of another namespace's processes nothing is known.
pub fn is_gone(owner: &str) -> bool {
    let mut numbers = owner.split('-').map(str::parse::<u64>);
    let (Some(Ok(space)), Some(Ok(pid)), Some(Ok(start)), None) =
        (numbers.next(), numbers.next(), numbers.next(), numbers.next())
    else {
        return false;
    };
    let Ok(pid) = u32::try_from(pid) else { return false };
    namespace() == Some(space) && start_time(pid) != Some(start)
}

/// The namespace that pids are of here.
fn namespace() -> Option<u64> {
    fs::metadata("/proc/self/ns/pid").ok().map(|found| found.ino())
}

/// When a process started, in ticks since boot: tells it from a later one with the same number.
pub(crate) fn start_time(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold anything; the fields follow its last parenthesis.
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_dead_of_this_namespace_are_gone() {
        let (space, pid) = (namespace().unwrap(), std::process::id());
        assert!(!is_gone(own()));
        assert!(is_gone(&format!("{space}-{pid}-1")));
        assert!(is_gone(&format!("{space}-4194305-1")));
        // A live one of another namespace looks like this from here.
        assert!(!is_gone(&format!("{}-4194305-1", space + 1)));
        for strange in [
            "",
            "1",
            "a-b-c",
            &format!("{space}-{pid}-1-1"),
            &format!("{space}-99999999999-1"),
        ] {
            assert!(!is_gone(strange), "{strange}");
        }
    }
}
