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
    let Some((init, others)) = roots.split_first() else {
        return TreeUsage::default();
    };
    // What init has reaped is counted with init.
    let mut usage = TreeUsage {
        cpu: cpu_time(*init),
        memory: 0,
    };
    let mut waiting = children(*init);
    waiting.extend(others);
    let mut seen = 0;
    while let Some(pid) = waiting.pop() {
        seen += 1;
        if seen > 4096 {
            break;
        }
        usage.cpu += cpu_time(pid);
        usage.memory += memory(pid);
        waiting.extend(children(pid));
    }
    usage
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
    const HELD: [&str; 4] = ["RssAnon", "RssShmem", "VmSwap", "VmPTE"];
    let Ok(status) = fs::read_to_string(format!("/proc/{pid}/status")) else {
        return 0;
    };
    let kibibytes = |line: &str| {
        let (name, value) = line.split_once(':')?;
        let held = HELD.contains(&name);
        value
            .trim()
            .strip_suffix(" kB")
            .filter(|_| held)?
            .parse::<u64>()
            .ok()
    };
    status.lines().filter_map(kibibytes).sum::<u64>() << 10
}
