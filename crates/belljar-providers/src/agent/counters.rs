//! Files of counters that an agent can read where it is.

use std::time::Duration;

use super::told::Told;
use crate::place::Used;

/// Which files say what has been used: those of its control group, as far as it sees them. Empty: not to be seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counters {
    pub cpu: String,
    pub memory_peak: String,
    pub kills: String,
}

impl Counters {
    pub(crate) fn paths(&self) -> [&str; 3] {
        [&self.cpu, &self.memory_peak, &self.kills]
    }
}

/// What an answer says has been used.
pub(crate) fn used(told: &Told) -> Option<Used> {
    let Told::Usage {
        cpu,
        memory,
        processes,
        counters: [own_cpu, peak, kills],
    } = told
    else {
        return None;
    };
    Some(Used {
        // What the group counts is all of it; what is added up misses what ended unseen.
        cpu: read_cpu(own_cpu).unwrap_or(*cpu),
        memory: Some(*memory),
        memory_peak: number(peak),
        kills: keyed(kills, "oom_kill").unwrap_or(0),
        processes: *processes,
    })
}

/// Version 2 has a row for it, in microseconds; version 1 nothing but the number, in nanoseconds.
fn read_cpu(text: &[u8]) -> Option<Duration> {
    keyed(text, "usage_usec")
        .map(Duration::from_micros)
        .or_else(|| number(text).map(Duration::from_nanos))
}

fn number(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.trim().parse().ok()
}

fn keyed(text: &[u8], key: &str) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?;
    let row = |line: &str| Some(line.strip_prefix(key)?.strip_prefix(' ')?.trim().to_owned());
    text.lines().find_map(row)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_of_groups_are_read() {
        let told = |cpu: &str, kills: &str| Told::Usage {
            cpu: Duration::from_secs(9),
            memory: 7,
            processes: 1,
            counters: [cpu.into(), b"4096\n".to_vec(), kills.into()],
        };
        let v2 = used(&told(
            "usage_usec 1500\nuser_usec 1\n",
            "low 0\noom 2\noom_kill 3\n",
        ))
        .unwrap();
        assert_eq!((v2.cpu, v2.kills), (Duration::from_micros(1500), 3));
        let v1 = used(&told(
            "2000000\n",
            "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n",
        ))
        .unwrap();
        assert_eq!((v1.cpu, v1.kills), (Duration::from_millis(2), 1));
        assert_eq!(v1.memory_peak, Some(4096));
        let none = used(&told("", "")).unwrap();
        assert_eq!((none.cpu, none.kills), (Duration::from_secs(9), 0));
    }
}
