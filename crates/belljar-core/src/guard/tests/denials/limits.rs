//! Limits: lower is fine, higher is not, nothing is a mistake.

use super::super::World;
use super::{Mend, Row, carry_out};
use crate::denial::DenialCode;
use crate::units::{Bytes, Seconds};

/// R18: each limit may be lowered and none may be raised.
pub(super) fn limit_rows() -> Vec<Row> {
    vec![
        limit(
            "max_memory_mb",
            "257",
            "set max_memory_mb = 257 in the policy, or ask for less",
            |world| world.request.limits.memory = Some(Bytes::new((256 << 20) + 1)),
        ),
        limit(
            "max_cpu_seconds",
            "30.5",
            "set max_cpu_seconds = 30.5 in the policy, or ask for less",
            |world| world.request.limits.cpu_time = Seconds::new(30.5).ok(),
        ),
        limit(
            "max_wall_time_seconds",
            "61",
            "set max_wall_time_seconds = 61 in the policy, or ask for less",
            |world| world.request.limits.wall_time = Some(Seconds::whole(61)),
        ),
        limit(
            "max_processes",
            "11",
            "set max_processes = 11 in the policy, or ask for less",
            |world| world.request.limits.processes = Some(11),
        ),
        limit(
            "max_open_files",
            "257",
            "set max_open_files = 257 in the policy, or ask for less",
            |world| world.request.limits.open_files = Some(257),
        ),
        limit(
            "max_file_size_mb",
            "11",
            "set max_file_size_mb = 11 in the policy, or ask for less",
            |world| world.request.limits.file_size = Some(Bytes::from_mib(11)),
        ),
        limit(
            "max_disk_mb",
            "65",
            "set max_disk_mb = 65 in the policy, or ask for less",
            |world| world.request.limits.disk = Some(Bytes::from_mib(65)),
        ),
        limit(
            "max_output_mb",
            "17",
            "set max_output_mb = 17 in the policy, or ask for less",
            |world| world.request.limits.output = Some(Bytes::from_mib(17)),
        ),
        limit(
            "max_cpu_percent",
            "51",
            "set max_cpu_percent = 51 in the policy, or ask for less",
            |world| {
                world.policy = carry_out("set max_cpu_percent = 50 in the policy", &world.policy);
                world.request.limits.cpu_percent = Some(51);
            },
        ),
        too_small("memory", "7.9 MiB", |world| {
            world.request.limits.memory = Some(Bytes::new((8 << 20) - 1));
        }),
        too_small("cpu_time", "0 s", |world| {
            world.request.limits.cpu_time = Some(Seconds::ZERO);
        }),
        too_small("wall_time", "0 s", |world| {
            world.request.limits.wall_time = Some(Seconds::ZERO);
        }),
        too_small("processes", "0", |world| world.request.limits.processes = Some(0)),
        too_small("open_files", "7", |world| {
            world.request.limits.open_files = Some(7)
        }),
        too_small("disk", "0 B", |world| {
            world.request.limits.disk = Some(Bytes::ZERO)
        }),
        too_small("cpu_percent", "0", |world| {
            world.request.limits.cpu_percent = Some(0);
        }),
    ]
}

fn limit(field: &'static str, value: &'static str, fix: &'static str, spoil: fn(&mut World)) -> Row {
    Row {
        name: field,
        spoil,
        code: DenialCode::LimitExceedsPolicy,
        rule: field,
        value,
        fix,
        mend: Mend::AsWritten,
    }
}

fn too_small(rule: &'static str, value: &'static str, spoil: fn(&mut World)) -> Row {
    Row {
        name: rule,
        spoil,
        code: DenialCode::ArgumentInvalid,
        rule,
        value,
        fix: "ask for at least 8 MiB of memory, 16 open files, and more than nothing of the rest",
        mend: Mend::By(|world| {
            let limits = &mut world.request.limits;
            limits.memory = limits.memory.and(Some(Bytes::from_mib(8)));
            limits.cpu_time = limits.cpu_time.and(Seconds::new(0.1).ok());
            limits.wall_time = limits.wall_time.and(Seconds::new(0.1).ok());
            limits.processes = limits.processes.and(Some(1));
            limits.open_files = limits.open_files.and(Some(16));
            limits.disk = limits.disk.and(Some(Bytes::from_mib(1)));
            limits.cpu_percent = limits.cpu_percent.and(Some(1));
        }),
    }
}
