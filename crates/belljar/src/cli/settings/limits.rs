//! From what was typed to limits with units.

use std::fmt::Display;
use std::str::FromStr;

use belljar::LimitOverrides;
use belljar_core::limits::LimitError;

use super::super::args::LimitArgs;
use super::super::problem::Problem;

pub(super) fn read(args: &LimitArgs) -> Result<LimitOverrides, Problem> {
    const SIZE: &str = "512M";
    const TIME: &str = "10s";
    Ok(LimitOverrides {
        memory: quantity(args.memory.as_deref(), "--memory", SIZE)?,
        cpu_time: quantity(args.cpu_seconds.as_deref(), "--cpu-seconds", TIME)?,
        wall_time: quantity(args.timeout.as_deref(), "--timeout", TIME)?,
        processes: count(args.processes.as_deref(), "--processes", "20")?,
        open_files: count(args.open_files.as_deref(), "--open-files", "512")?,
        file_size: quantity(args.file_size.as_deref(), "--file-size", SIZE)?,
        disk: quantity(args.disk.as_deref(), "--disk", SIZE)?,
        output: quantity(args.output_limit.as_deref(), "--output-limit", "64M")?,
        cpu_percent: count(args.cpu_percent.as_deref(), "--cpu-percent", "50")?,
    })
}

/// A limit that no policy could have, told in the words of the command line.
pub(super) fn beyond(error: &LimitError) -> Problem {
    let flag = match error.field {
        "max_memory_mb" => "--memory",
        "max_cpu_seconds" => "--cpu-seconds",
        "max_wall_time_seconds" => "--timeout",
        "max_processes" => "--processes",
        "max_open_files" => "--open-files",
        "max_file_size_mb" => "--file-size",
        "max_disk_mb" => "--disk",
        "max_output_mb" => "--output-limit",
        "max_cpu_percent" => "--cpu-percent",
        other => other,
    };
    Problem::usage(format!("{flag}: {error}")).hint(format!("ask for another {flag}"))
}

pub(super) fn quantity<T>(text: Option<&str>, flag: &str, example: &str) -> Result<Option<T>, Problem>
where
    T: FromStr,
    T::Err: Display,
{
    text.map(|text| {
        text.parse().map_err(|error: T::Err| {
            Problem::usage(format!("{flag}: {error}")).hint(format!("for example {flag} {example}"))
        })
    })
    .transpose()
}

pub(super) fn count(text: Option<&str>, flag: &str, example: &str) -> Result<Option<u32>, Problem> {
    text.map(|text| {
        text.parse().map_err(|_| {
            Problem::usage(format!("{flag}: `{text}` is not a whole number"))
                .hint(format!("for example {flag} {example}"))
        })
    })
    .transpose()
}
