//! Control groups: one small trait, version 2 and version 1 behind it.
//!
//! Each sandbox has a group of its own, made before it and removed after it, never reused: pages of
//! its file systems stay charged to it after its death. All groups live below `belljar/` within
//! the group that belljar itself is in, so that whatever bounds belljar bounds them as well.

mod mounts;
mod sweep;
mod v1;
mod v2;

use std::fmt::Debug;
use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

pub(crate) use sweep::{fresh_tag, group_name, remove_all};

use belljar_core::Weight;

use crate::wire::CgroupJoin;

/// The directory that holds every group of ours.
const SUBTREE: &str = "belljar";

/// A way to make groups on this machine.
pub(crate) trait Hierarchy: Send + Sync + Debug {
    /// Which version this is, for receipts.
    fn version(&self) -> &'static str;
    /// Which resources it can bound.
    fn bounds(&self) -> Bounds;
    /// The directories that hold our groups.
    fn subtrees(&self) -> Vec<PathBuf>;
    /// The processor time that all our groups have used so far, where that is counted.
    fn cpu(&self) -> Option<Duration>;
    /// How init gets into a group.
    fn join(&self) -> CgroupJoin;
    /// Makes an empty group; `shares` where it may be given a share of the processors.
    fn create(&self, name: &str, shares: bool) -> io::Result<Box<dyn Group>>;
}

/// One sandbox's group.
pub(crate) trait Group: Send + Sync + Debug {
    /// Sets limits; called again before each stage.
    fn limit(&self, limits: &GroupLimits) -> io::Result<()>;
    /// Sets what it weighs beside other groups; nothing where it has no share of the processors.
    fn weigh(&self, weight: Weight) -> io::Result<()>;
    /// The descriptor that a process is born into it by; none where nobody can be.
    fn birthplace(&self) -> io::Result<Option<OwnedFd>>;
    /// Files into which a task writes `0` to move here.
    fn entries(&self) -> io::Result<Vec<OwnedFd>>;
    /// The group's directories, for clean-up by others.
    fn dirs(&self) -> Vec<PathBuf>;
    /// The processor time that it has used so far, where that is counted.
    fn cpu(&self) -> Option<Duration>;
    /// The most memory that it has used at once.
    fn memory_peak(&self) -> Option<u64>;
    /// How often the kernel has killed something in it for want of memory.
    fn out_of_memory_kills(&self) -> u64;
    /// A descriptor that becomes readable when memory runs out, where the kernel does not end the
    /// whole group by itself.
    fn out_of_memory_event(&self) -> Option<OwnedFd>;
}

/// Which resources a hierarchy can bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bounds {
    pub memory: bool,
    pub pids: bool,
    pub cpu: bool,
}

/// Limits of a whole sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct GroupLimits {
    pub memory: u64,
    pub tasks: u32,
    pub cpu_percent: Option<u32>,
}

/// The hierarchy of this machine, or why there is none that we may use.
pub(crate) fn find() -> Result<Box<dyn Hierarchy>, NoHierarchy> {
    if crate::weaken::is_off("cgroup") {
        return Err(NoHierarchy {
            why: "switched off for a test".to_owned(),
            fix: String::new(),
        });
    }
    let mounts = mounts::read().map_err(|error| NoHierarchy {
        why: format!("/proc/self/mountinfo cannot be read: {error}"),
        fix: "mount /proc".to_owned(),
    })?;
    // A v2 tree without controllers often lies beside v1 hierarchies that have them.
    let v2 = v2::V2::find(&mounts);
    if let Ok(hierarchy) = v2 {
        return Ok(Box::new(hierarchy));
    }
    match v1::V1::find(&mounts) {
        Some(Ok(hierarchy)) => Ok(Box::new(hierarchy)),
        Some(Err(why)) => Err(why),
        None => v2.map(|hierarchy| Box::new(hierarchy) as Box<dyn Hierarchy>),
    }
}

/// Removes groups whose engine is gone.
pub(crate) fn sweep(hierarchy: &dyn Hierarchy) {
    for subtree in hierarchy.subtrees() {
        sweep::sweep(&subtree);
    }
}

/// Why no group can be made, and what to do about it.
#[derive(Clone, Debug)]
pub(crate) struct NoHierarchy {
    pub why: String,
    pub fix: String,
}

/// A directory in which we make groups. Another belljar may remove it while it is empty.
#[derive(Debug)]
struct Subtree {
    dir: PathBuf,
    /// Whether it was made ready by us.
    ready: AtomicBool,
}

impl Subtree {
    fn below(parent: &Path) -> Self {
        Self {
            dir: parent.join(SUBTREE),
            ready: AtomicBool::new(false),
        }
    }

    /// Makes the group of that name; `prepare` is for a subtree that we have not used yet.
    fn make(&self, name: &str, prepare: impl Fn(&Path) -> io::Result<()>) -> io::Result<PathBuf> {
        let dir = self.dir.join(name);
        let mut tries = 0;
        loop {
            let made = if self.ready.load(Ordering::Relaxed) {
                Ok(())
            } else {
                match fs::create_dir(&self.dir) {
                    Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                    _ => prepare(&self.dir),
                }
            };
            match made.and_then(|()| fs::create_dir(&dir)) {
                Ok(()) => {
                    self.ready.store(true, Ordering::Relaxed);
                    return Ok(dir);
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound && tries < 100 => {
                    self.ready.store(false, Ordering::Relaxed);
                    tries += 1;
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// Removes a group's directories, waiting out the moment in which the kernel still holds them.
pub(super) fn remove(dirs: &[PathBuf]) -> io::Result<()> {
    let mut result = Ok(());
    for dir in dirs {
        let mut wait = Duration::from_micros(50);
        loop {
            match fs::remove_dir(dir) {
                Err(error)
                    if error.raw_os_error() == Some(libc::EBUSY) && wait < Duration::from_millis(500) =>
                {
                    std::thread::sleep(wait);
                    wait *= 2;
                }
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    result = Err(error);
                    break;
                }
                _ => break,
            }
        }
    }
    result
}

fn write(dir: &Path, file: &str, value: impl ToString) -> io::Result<()> {
    fs::OpenOptions::new()
        .write(true)
        .open(dir.join(file))?
        .write_all(value.to_string().as_bytes())
}

/// The same for a file that not every kernel has.
fn write_if_there(dir: &Path, file: &str, value: impl ToString) -> io::Result<()> {
    match write(dir, file, value) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

/// What a short file says. Such files have no size to ask for.
fn read(dir: &Path, file: &str) -> Option<String> {
    let mut text = [0; 2048];
    let count = fs::File::open(dir.join(file)).ok()?.read(&mut text).ok()?;
    Some(String::from_utf8_lossy(text.get(..count)?).into_owned())
}

fn read_number(dir: &Path, file: &str) -> Option<u64> {
    read(dir, file)?.trim().parse().ok()
}

/// The number after `key` in a file of `key number` lines.
fn read_key(dir: &Path, file: &str, key: &str) -> Option<u64> {
    let text = read(dir, file)?;
    text.lines()
        .find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.trim().parse().ok())
}

/// Whether this process may make directories in `dir`.
fn may_write(dir: &Path) -> bool {
    rustix::fs::access(dir, rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What was said of a group is what the kernel holds of it.
    #[test]
    fn a_weight_reaches_the_kernel() {
        let hierarchy = match find() {
            Ok(hierarchy) if hierarchy.bounds().cpu => hierarchy,
            _ => {
                let _ = writeln!(
                    io::stderr(),
                    "not tested here: weights: no share of the processors"
                );
                return;
            }
        };
        let name = group_name(&fresh_tag(), "weight");
        let group = hierarchy.create(&name, true).expect("a group");
        let held = |file: &str| group.dirs().iter().find_map(|dir| read_number(dir, file));
        for (count, v1, v2) in [(1, 1024, 100), (4, 256, 25), (1000, 10, 1)] {
            group.weigh(Weight::among(count)).expect("it is weighed");
            match hierarchy.version() {
                "v1" => assert_eq!(held("cpu.shares"), Some(v1)),
                _ => assert_eq!(held("cpu.weight"), Some(v2)),
            }
        }
        remove(&group.dirs()).expect("it is removed");
    }
}
