//! What a request asks for, limit by limit, against what the policy permits.

use crate::denial::{Denial, DenialCode};
use crate::limits::{LEAST_OPEN_FILES, LimitOverrides, Limits};
use crate::policy::Policy;

/// R18's rule for requests: overrides may only lower.
pub(super) fn check(policy: &Policy, asked: &LimitOverrides) -> Result<(), Denial> {
    let limits = &policy.limits;
    let mb = |bytes: crate::Bytes| bytes.mib_ceil().to_string();
    let rows: [(&str, bool, String, String, String); 9] = [
        row("max_memory_mb", asked.memory, limits.memory(), mb),
        row("max_cpu_seconds", asked.cpu_time, limits.cpu_time(), |value| {
            value.get().to_string()
        }),
        row(
            "max_wall_time_seconds",
            asked.wall_time,
            limits.wall_time(),
            |value| value.get().to_string(),
        ),
        row("max_processes", asked.processes, limits.processes(), |value| {
            value.to_string()
        }),
        row("max_open_files", asked.open_files, limits.open_files(), |value| {
            value.to_string()
        }),
        row("max_file_size_mb", asked.file_size, limits.file_size(), mb),
        row("max_disk_mb", asked.disk, limits.disk(), mb),
        row("max_output_mb", asked.output, limits.output(), mb),
        row(
            "max_cpu_percent",
            asked.cpu_percent,
            limits.cpu_percent().unwrap_or(Limits::MOST_CPU_PERCENT),
            |value| value.to_string(),
        ),
    ];
    for (field, exceeds, asked, permitted, shown) in rows {
        if exceeds {
            return Err(Denial::new(
                DenialCode::LimitExceedsPolicy,
                field,
                shown.clone(),
                format!(
                    "the request asks for {asked}, policy `{}` permits {permitted}",
                    policy.policy_id
                ),
                format!("set {field} = {shown} in the policy, or ask for less"),
            ));
        }
    }
    // A limit of nothing is a mistake, not a wish: each must leave something to run with.
    let least_memory = crate::Bytes::from_mib(8);
    let too_small = [
        ("memory", shown_if(asked.memory, |value| value < least_memory)),
        ("cpu_time", shown_if(asked.cpu_time, |value| value.get() <= 0.0)),
        ("wall_time", shown_if(asked.wall_time, |value| value.get() <= 0.0)),
        ("processes", shown_if(asked.processes, |value| value == 0)),
        (
            "open_files",
            shown_if(asked.open_files, |value| value < LEAST_OPEN_FILES),
        ),
        ("disk", shown_if(asked.disk, |value| value.get() == 0)),
        ("cpu_percent", shown_if(asked.cpu_percent, |value| value == 0)),
    ];
    for (field, shown) in too_small {
        if let Some(shown) = shown {
            return Err(Denial::new(
                DenialCode::ArgumentInvalid,
                field,
                shown,
                format!("a {field} limit that small leaves nothing to run with"),
                "ask for at least 8 MiB of memory, 16 open files, and more than nothing of the rest",
            ));
        }
    }
    Ok(())
}

fn shown_if<T: Copy + std::fmt::Display>(asked: Option<T>, bad: impl Fn(T) -> bool) -> Option<String> {
    asked.filter(|value| bad(*value)).map(|value| value.to_string())
}

fn row<T: PartialOrd + Copy + std::fmt::Display>(
    field: &'static str,
    asked: Option<T>,
    permitted: T,
    show: impl Fn(T) -> String,
) -> (&'static str, bool, String, String, String) {
    let Some(asked) = asked else {
        return (field, false, String::new(), String::new(), String::new());
    };
    (
        field,
        asked > permitted,
        asked.to_string(),
        permitted.to_string(),
        show(asked),
    )
}
