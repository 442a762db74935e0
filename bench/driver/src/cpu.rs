//! CPU time of everything that is measured, from one of the kernel's counters.
//!
//! Adding up processes would not do: of what ends without anybody to wait for it, such as the first process in a
//! sandbox of bubblewrap's, no counter of another process ever hears.

use std::fs;
use std::path::Path;

use crate::Measured;

/// What the counter says: a group's of version 1 or 2, or that of the whole machine.
pub(crate) fn micros(counter: &Path) -> Measured<u64> {
    let text = fs::read_to_string(counter)?;
    let found = match counter.file_name().and_then(|name| name.to_str()) {
        Some("cpuacct.usage") => text.trim().parse::<u64>().ok().map(|nanos| nanos / 1000),
        Some("cpu.stat") => text
            .lines()
            .find_map(|line| line.strip_prefix("usage_usec ")?.parse().ok()),
        _ => busy(&text),
    };
    Ok(found.ok_or_else(|| format!("{} has no CPU time", counter.display()))?)
}

/// Of `/proc/stat`: everything but idling and waiting, in hundredths of a second.
fn busy(text: &str) -> Option<u64> {
    let all = text.lines().next()?.strip_prefix("cpu ")?;
    let ticks: Vec<u64> = all
        .split_whitespace()
        .filter_map(|field| field.parse().ok())
        .collect();
    // user, nice, system, (idle, waiting,) irq, softirq
    let busy = [0, 1, 2, 5, 6].iter().map(|field| ticks.get(*field));
    Some(busy.sum::<Option<u64>>()? * 10_000)
}
