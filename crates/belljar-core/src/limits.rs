//! Limits that bite. A [`Limits`] value is always valid: it can only be built by checking.

use serde::{Deserialize, Serialize};

use crate::units::{Bytes, Seconds};

/// The fewest open files that a process can do with: a wall that is raised in it needs some for a moment.
pub(crate) const LEAST_OPEN_FILES: u32 = 16;

/// Everything a run may use. Every field is checked at construction (R6).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Told")]
pub struct Limits {
    memory: Bytes,
    cpu_time: Seconds,
    wall_time: Seconds,
    processes: u32,
    open_files: u32,
    file_size: Bytes,
    disk: Bytes,
    output: Bytes,
    cpu_percent: Option<u32>,
}

/// Limits as somebody else tells them: not checked yet.
#[derive(Deserialize)]
struct Told {
    memory: Bytes,
    cpu_time: Seconds,
    wall_time: Seconds,
    processes: u32,
    open_files: u32,
    file_size: Bytes,
    disk: Bytes,
    output: Bytes,
    cpu_percent: Option<u32>,
}

impl TryFrom<Told> for Limits {
    type Error = LimitError;

    fn try_from(told: Told) -> Result<Self, LimitError> {
        let mib = |bytes: Bytes| i64::try_from(bytes.mib_ceil()).unwrap_or(i64::MAX);
        let checked = Self::new(&LimitNumbers {
            max_memory_mb: mib(told.memory),
            max_cpu_seconds: told.cpu_time.get(),
            max_wall_time_seconds: told.wall_time.get(),
            max_processes: told.processes.into(),
            max_open_files: told.open_files.into(),
            max_file_size_mb: mib(told.file_size),
            max_disk_mb: mib(told.disk),
            max_output_mb: mib(told.output),
            max_cpu_percent: told.cpu_percent.map(Into::into),
        })?;
        // Those that were lowered for one run need not be whole mebibytes.
        Ok(Self {
            memory: told.memory,
            file_size: told.file_size,
            disk: told.disk,
            output: told.output,
            ..checked
        })
    }
}

/// A limit outside the range that makes sense, named by its field.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{field} must be {expected}, not {value}")]
pub struct LimitError {
    pub field: &'static str,
    pub expected: &'static str,
    pub value: String,
}

/// The raw numbers of [`Limits`], in the units callers write them in. Signed on purpose: a
/// negative number must be refused by name, not wrapped.
#[derive(Clone, Debug, PartialEq)]
pub struct LimitNumbers {
    pub max_memory_mb: i64,
    pub max_cpu_seconds: f64,
    pub max_wall_time_seconds: f64,
    pub max_processes: i64,
    pub max_open_files: i64,
    pub max_file_size_mb: i64,
    pub max_disk_mb: i64,
    pub max_output_mb: i64,
    pub max_cpu_percent: Option<i64>,
}

impl Default for LimitNumbers {
    /// The `standard` policy's numbers (R7), and ours where the documents are silent.
    fn default() -> Self {
        Self {
            max_memory_mb: 256,
            max_cpu_seconds: 30.0,
            max_wall_time_seconds: 60.0,
            max_processes: 10,
            max_open_files: 256,
            max_file_size_mb: 10,
            max_disk_mb: 64,
            max_output_mb: 16,
            max_cpu_percent: None,
        }
    }
}

/// The largest value taken for anything counted in mebibytes: 16 TiB.
const MAX_MB: i64 = 1 << 24;
/// The smallest memory in which an interpreter can start at all.
const MIN_MEMORY_MB: i64 = 8;

impl Limits {
    /// The largest share of CPU that can be written: a thousand whole CPUs.
    pub const MOST_CPU_PERCENT: u32 = 100_000;

    pub fn new(numbers: &LimitNumbers) -> Result<Self, LimitError> {
        Ok(Self {
            memory: megabytes(
                "max_memory_mb",
                numbers.max_memory_mb,
                MIN_MEMORY_MB,
                "from 8 to 16777216",
            )?,
            cpu_time: positive_seconds("max_cpu_seconds", numbers.max_cpu_seconds)?,
            wall_time: positive_seconds("max_wall_time_seconds", numbers.max_wall_time_seconds)?,
            processes: count(
                "max_processes",
                numbers.max_processes,
                1,
                32_768,
                "from 1 to 32768",
            )?,
            open_files: count(
                "max_open_files",
                numbers.max_open_files,
                i64::from(LEAST_OPEN_FILES),
                1 << 20,
                "from 16 to 1048576",
            )?,
            file_size: megabytes(
                "max_file_size_mb",
                numbers.max_file_size_mb,
                0,
                "from 0 to 16777216",
            )?,
            disk: megabytes("max_disk_mb", numbers.max_disk_mb, 1, "from 1 to 16777216")?,
            output: megabytes("max_output_mb", numbers.max_output_mb, 0, "from 0 to 16777216")?,
            cpu_percent: numbers
                .max_cpu_percent
                .map(|value| {
                    let most = i64::from(Self::MOST_CPU_PERCENT);
                    count("max_cpu_percent", value, 1, most, "from 1 to 100000")
                })
                .transpose()?,
        })
    }

    /// Memory of the whole sandbox: processes, page cache and its private file systems together.
    pub const fn memory(&self) -> Bytes {
        self.memory
    }
    /// CPU time of all processes together.
    pub const fn cpu_time(&self) -> Seconds {
        self.cpu_time
    }
    /// Time on the clock.
    pub const fn wall_time(&self) -> Seconds {
        self.wall_time
    }
    /// Processes alive at once. Threads are bounded separately, by [`Limits::tasks`].
    pub const fn processes(&self) -> u32 {
        self.processes
    }
    /// Open descriptors of one process.
    pub const fn open_files(&self) -> u32 {
        self.open_files
    }
    /// Size of one file.
    pub const fn file_size(&self) -> Bytes {
        self.file_size
    }
    /// Bytes in the sandbox's private file systems.
    pub const fn disk(&self) -> Bytes {
        self.disk
    }
    /// Bytes kept of each output stream, and of all files handed back.
    pub const fn output(&self) -> Bytes {
        self.output
    }
    /// Share of one CPU, in percent; `None` leaves it to the scheduler.
    pub const fn cpu_percent(&self) -> Option<u32> {
        self.cpu_percent
    }

    /// How many tasks (threads of all processes together) may be alive. The kernel's pids
    /// controller counts threads, and ordinary programs have many: node starts eleven before it
    /// reads a line of the script. So tasks get their own, wider bound.
    pub const fn tasks(&self) -> u32 {
        64 + 16 * self.processes
    }

    /// The same limits, each lowered where `overrides` asks for less. An override that asks for
    /// more is the guard's business and is not applied here.
    #[must_use]
    pub fn lowered(&self, overrides: &LimitOverrides) -> Self {
        Self {
            memory: overrides
                .memory
                .map_or(self.memory, |value| value.min(self.memory)),
            cpu_time: overrides
                .cpu_time
                .map_or(self.cpu_time, |value| value.min(self.cpu_time)),
            wall_time: overrides
                .wall_time
                .map_or(self.wall_time, |value| value.min(self.wall_time)),
            processes: overrides
                .processes
                .map_or(self.processes, |value| value.min(self.processes)),
            open_files: overrides
                .open_files
                .map_or(self.open_files, |value| value.min(self.open_files)),
            file_size: overrides
                .file_size
                .map_or(self.file_size, |value| value.min(self.file_size)),
            disk: overrides.disk.map_or(self.disk, |value| value.min(self.disk)),
            output: overrides
                .output
                .map_or(self.output, |value| value.min(self.output)),
            cpu_percent: match (overrides.cpu_percent, self.cpu_percent) {
                (Some(asked), Some(permitted)) => Some(asked.min(permitted)),
                (asked, permitted) => asked.or(permitted),
            },
        }
    }

    /// The same limits, each raised to at least what `floor` needs: for a compiler.
    #[must_use]
    pub fn raised_to(&self, floor: &StageFloor) -> Self {
        self.widened_to(&Self {
            memory: floor.memory,
            processes: floor.processes,
            file_size: floor.file_size,
            open_files: floor.open_files,
            disk: floor.disk,
            ..self.clone()
        })
    }

    /// The larger of both, limit by limit: what a sandbox must hold for all of its stages.
    #[must_use]
    pub fn widened_to(&self, other: &Self) -> Self {
        Self {
            memory: self.memory.max(other.memory),
            processes: self.processes.max(other.processes),
            file_size: self.file_size.max(other.file_size),
            open_files: self.open_files.max(other.open_files),
            disk: self.disk.max(other.disk),
            ..self.clone()
        }
    }

    /// The numbers again, for showing and for building a changed copy.
    pub fn numbers(&self) -> LimitNumbers {
        let mb = |bytes: Bytes| i64::try_from(bytes.mib_ceil()).unwrap_or(MAX_MB);
        LimitNumbers {
            max_memory_mb: mb(self.memory),
            max_cpu_seconds: self.cpu_time.get(),
            max_wall_time_seconds: self.wall_time.get(),
            max_processes: i64::from(self.processes),
            max_open_files: i64::from(self.open_files),
            max_file_size_mb: mb(self.file_size),
            max_disk_mb: mb(self.disk),
            max_output_mb: mb(self.output),
            max_cpu_percent: self.cpu_percent.map(i64::from),
        }
    }
}

/// What a compiler truly needs, whatever the policy gives to the program itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StageFloor {
    pub memory: Bytes,
    pub processes: u32,
    pub file_size: Bytes,
    pub open_files: u32,
    pub disk: Bytes,
}

impl StageFloor {
    pub const NONE: Self = Self {
        memory: Bytes::ZERO,
        processes: 0,
        file_size: Bytes::ZERO,
        open_files: 0,
        disk: Bytes::ZERO,
    };
}

/// What a request asks for, limit by limit; unset means the policy's own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LimitOverrides {
    pub memory: Option<Bytes>,
    pub cpu_time: Option<Seconds>,
    pub wall_time: Option<Seconds>,
    pub processes: Option<u32>,
    pub open_files: Option<u32>,
    pub file_size: Option<Bytes>,
    pub disk: Option<Bytes>,
    pub output: Option<Bytes>,
    pub cpu_percent: Option<u32>,
}

fn megabytes(
    field: &'static str,
    value: i64,
    least: i64,
    expected: &'static str,
) -> Result<Bytes, LimitError> {
    match u64::try_from(value) {
        Ok(megabytes) if (least..=MAX_MB).contains(&value) => Ok(Bytes::from_mib(megabytes)),
        _ => Err(LimitError {
            field,
            expected,
            value: value.to_string(),
        }),
    }
}

fn count(
    field: &'static str,
    value: i64,
    least: i64,
    most: i64,
    expected: &'static str,
) -> Result<u32, LimitError> {
    match u32::try_from(value) {
        Ok(number) if (least..=most).contains(&value) => Ok(number),
        _ => Err(LimitError {
            field,
            expected,
            value: value.to_string(),
        }),
    }
}

fn positive_seconds(field: &'static str, value: f64) -> Result<Seconds, LimitError> {
    match Seconds::new(value) {
        Ok(seconds) if value > 0.0 => Ok(seconds),
        _ => Err(LimitError {
            field,
            expected: "a number of seconds above 0",
            value: value.to_string(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// R6: a limit that is negative, zero where that makes no sense, or not a number is refused by name.
    #[test]
    fn invalid_limits_name_their_field() {
        type Spoil = fn(&mut LimitNumbers);
        let cases: [(&str, Spoil); 14] = [
            ("max_memory_mb", |n| n.max_memory_mb = -1),
            ("max_memory_mb", |n| n.max_memory_mb = 0),
            ("max_memory_mb", |n| n.max_memory_mb = i64::MAX),
            ("max_cpu_seconds", |n| n.max_cpu_seconds = -1.0),
            ("max_cpu_seconds", |n| n.max_cpu_seconds = f64::NAN),
            ("max_wall_time_seconds", |n| n.max_wall_time_seconds = 0.0),
            ("max_wall_time_seconds", |n| {
                n.max_wall_time_seconds = f64::INFINITY
            }),
            ("max_processes", |n| n.max_processes = 0),
            ("max_processes", |n| n.max_processes = -10),
            ("max_open_files", |n| n.max_open_files = 7),
            ("max_file_size_mb", |n| n.max_file_size_mb = -1),
            ("max_disk_mb", |n| n.max_disk_mb = 0),
            ("max_output_mb", |n| n.max_output_mb = i64::MIN),
            ("max_cpu_percent", |n| n.max_cpu_percent = Some(0)),
        ];
        for (field, spoil) in cases {
            let mut numbers = LimitNumbers::default();
            spoil(&mut numbers);
            let error = Limits::new(&numbers).unwrap_err();
            assert_eq!(error.field, field);
            assert!(error.to_string().starts_with(field), "{error}");
        }
    }

    #[test]
    fn overrides_only_lower() {
        let limits = Limits::new(&LimitNumbers::default()).unwrap();
        let asked = LimitOverrides {
            memory: Some(Bytes::from_mib(64)),
            processes: Some(1000),
            cpu_percent: Some(50),
            ..LimitOverrides::default()
        };
        let lowered = limits.lowered(&asked);
        assert_eq!(lowered.memory(), Bytes::from_mib(64));
        assert_eq!(lowered.processes(), 10);
        assert_eq!(lowered.cpu_percent(), Some(50));
    }

    #[test]
    fn numbers_round_trip() {
        let limits = Limits::new(&LimitNumbers::default()).unwrap();
        assert_eq!(Limits::new(&limits.numbers()), Ok(limits));
    }
}
