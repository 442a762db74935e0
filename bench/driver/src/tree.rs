//! Memory of this process and of everything below it: whatever belljar starts is.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

/// All processes below this one, itself among them.
fn tree() -> Vec<u32> {
    let parents: HashMap<u32, u32> = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(|pid| Some((pid, parent(pid)?)))
        .collect();
    let mut found = vec![std::process::id()];
    let mut next = 0;
    while let Some(&above) = found.get(next) {
        found.extend(
            parents
                .iter()
                .filter(|(_, parent)| **parent == above)
                .map(|(pid, _)| *pid),
        );
        next += 1;
    }
    found
}

fn parent(pid: u32) -> Option<u32> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in brackets, may hold anything.
    text.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

/// Memory of the whole tree in bytes; `None` where the kernel does not let us see all of it.
///
/// A page that several processes share is divided among them, so that their sum has it once.
pub(crate) fn memory() -> Option<u64> {
    let mut sum = 0;
    for pid in tree() {
        let path = format!("/proc/{pid}/smaps_rollup");
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            // It ended in between.
            Err(_) if !Path::new(&format!("/proc/{pid}")).exists() => continue,
            Err(_) => return None,
        };
        let line = text.lines().find_map(|line| line.strip_prefix("Pss:"));
        let kib: Option<u64> = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
        // A process that is just being made or unmade has no memory of its own.
        sum += kib.unwrap_or(0) * 1024;
    }
    Some(sum)
}

/// What the kernel itself needs for our sandboxes, and all that is charged to them; from their control groups.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Charged {
    pub groups: u64,
    pub kernel: u64,
    pub all: u64,
}

pub(crate) fn charged() -> Charged {
    let mut sum = Charged::default();
    add_groups(Path::new("/sys/fs/cgroup"), 0, &mut sum);
    sum
}

fn add_groups(dir: &Path, depth: usize, sum: &mut Charged) {
    let mark = format!("-{}-", std::process::id());
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if depth > 8 || !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        let group = entry.path();
        if dir.ends_with("belljar") && entry.file_name().to_string_lossy().contains(&mark) {
            let number = |name: &str| -> Option<u64> {
                fs::read_to_string(group.join(name)).ok()?.trim().parse().ok()
            };
            // Version 1, then version 2; other hierarchies have neither.
            let all = number("memory.usage_in_bytes").or_else(|| number("memory.current"));
            let kernel = number("memory.kmem.usage_in_bytes").or_else(|| in_statistics(&group));
            sum.groups += u64::from(all.is_some());
            sum.all += all.unwrap_or(0);
            sum.kernel += kernel.unwrap_or(0);
        }
        add_groups(&group, depth + 1, sum);
    }
}

fn in_statistics(group: &Path) -> Option<u64> {
    let text = fs::read_to_string(group.join("memory.stat")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("kernel "));
    line?.trim().parse().ok()
}

/// A line of `/proc/self/status` that is in KiB, in bytes.
pub(crate) fn own_status(name: &str) -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = line
        .trim_start_matches(':')
        .split_whitespace()
        .next()?
        .parse()
        .ok()?;
    Some(kib * 1024)
}
