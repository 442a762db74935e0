//! What the processes of a sandbox use, added up from outside, for machines without the control
//! groups that would count it.

use std::fs;
use std::time::Duration;

/// What the processes of a sandbox use, added up from outside.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TreeUsage {
    pub cpu: Duration,
    pub memory: u64,
}

/// Adds up all descendants of `roots`, init and whichever guest is not its child: an orphan's new parent
/// is init, so nothing is missed.
pub(crate) fn tree_usage(roots: &[i32]) -> TreeUsage {
    // What init has reaped is counted with init, whose own memory is not the guest's.
    let mut usage = TreeUsage {
        cpu: roots.first().map_or(Duration::ZERO, |init| cpu_time(*init)),
        memory: 0,
    };
    for pid in members(roots) {
        usage.cpu += cpu_time(pid);
        usage.memory += memory(pid);
    }
    usage
}

/// The same memory, with what several processes share counted once. That takes the kernel a walk through all
/// their pages, so it is asked only when the sum above is too much.
pub(crate) fn shared_out(roots: &[i32]) -> u64 {
    members(roots).into_iter().map(share).sum()
}

/// All descendants of `roots` without init.
fn members(roots: &[i32]) -> Vec<i32> {
    let Some((init, others)) = roots.split_first() else {
        return Vec::new();
    };
    let mut waiting = children(*init);
    waiting.extend(others);
    descendants(waiting)
}

/// These and all processes below them, as far as there is an end to them.
pub fn descendants(mut waiting: Vec<i32>) -> Vec<i32> {
    let mut found = Vec::new();
    while let Some(pid) = waiting.pop() {
        if found.len() >= 4096 {
            break;
        }
        found.push(pid);
        waiting.extend(children(pid));
    }
    found
}

fn children(pid: i32) -> Vec<i32> {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    tasks
        .flatten()
        .filter_map(|task| fs::read_to_string(task.path().join("children")).ok())
        .flat_map(|list| {
            list.split_whitespace()
                .filter_map(|pid| pid.parse().ok())
                .collect::<Vec<i32>>()
        })
        .collect()
}

/// User and system time of a process and of the children it has reaped.
fn cpu_time(pid: i32) -> Duration {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else {
        return Duration::ZERO;
    };
    let Some((_, fields)) = stat.rsplit_once(')') else {
        return Duration::ZERO;
    };
    let ticks: u64 = fields
        .split_whitespace()
        .skip(11)
        .take(4)
        .filter_map(|field| field.parse::<u64>().ok())
        .sum();
    Duration::from_millis(ticks.saturating_mul(1000) / rustix::param::clock_ticks_per_second().max(1))
}

/// What a process holds that no file on a disk backs: pages of its own, pages it shares (counted
/// for each who shares them), and the tables that map them, which alone can fill a machine.
fn memory(pid: i32) -> u64 {
    sum_of(pid, "status", &["RssAnon", "RssShmem", "VmSwap", "VmPTE"]).unwrap_or(0)
}

/// Its part of the same: a page that several processes map is divided between them. Where the kernel does
/// not tell, the whole.
fn share(pid: i32) -> u64 {
    match sum_of(pid, "smaps_rollup", &["Pss_Anon", "Pss_Shmem", "SwapPss"]) {
        Some(pages) if pages > 0 => pages + sum_of(pid, "status", &["VmPTE"]).unwrap_or(0),
        _ => memory(pid),
    }
}

/// The sum of these lines, in bytes, of what the kernel says of a process.
fn sum_of(pid: i32, file: &str, names: &[&str]) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/{file}")).ok()?;
    let kibibytes = |line: &str| {
        let (name, value) = line.split_once(':')?;
        let wanted = names.contains(&name);
        value
            .trim()
            .strip_suffix(" kB")
            .filter(|_| wanted)?
            .parse::<u64>()
            .ok()
    };
    Some(text.lines().filter_map(kibibytes).sum::<u64>() << 10)
}
