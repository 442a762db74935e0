//! Version 1: one directory in each controller's hierarchy.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};

use super::mounts::CgroupMount;
use super::{
    Bounds, Group, GroupLimits, Hierarchy, NoHierarchy, Subtree, may_write, read_key, read_number, write,
    write_if_there,
};
use belljar_core::Weight;

use crate::wire::CgroupJoin;

/// Controllers that we use where they are there.
const CONTROLLERS: [&str; 4] = ["memory", "pids", "cpuacct", "cpu"];

#[derive(Debug)]
pub(super) struct V1 {
    /// Our subtree, by controller.
    subtrees: Vec<(&'static str, Subtree)>,
}

impl V1 {
    /// `None` where the machine has no v1 controllers at all.
    pub(super) fn find(mounts: &[CgroupMount]) -> Option<Result<Self, NoHierarchy>> {
        let mut subtrees = Vec::new();
        let mut refused = None;
        for controller in CONTROLLERS {
            let Some(mount) = mounts
                .iter()
                .find(|mount| mount.controllers.iter().any(|name| name == controller))
            else {
                continue;
            };
            // A group that delegates to us may be above ours when a service moved us deeper.
            if may_write(&mount.own) {
                subtrees.push((controller, Subtree::below(&mount.own)));
            } else {
                refused.get_or_insert_with(|| mount.own.clone());
            }
        }
        if subtrees.iter().any(|(controller, _)| *controller == "memory") {
            return Some(Ok(Self { subtrees }));
        }
        refused.map(|dir| {
            Err(NoHierarchy {
                why: format!("cgroup v1 is mounted, but {} is not writable", dir.display()),
                fix: "run as root, or have an administrator create the groups and give them to you"
                    .to_owned(),
            })
        })
    }

    fn has(&self, controller: &str) -> bool {
        self.subtrees.iter().any(|(name, _)| *name == controller)
    }
}

impl Hierarchy for V1 {
    fn version(&self) -> &'static str {
        "v1"
    }

    fn bounds(&self) -> Bounds {
        Bounds {
            memory: self.has("memory"),
            pids: self.has("pids"),
            cpu: self.has("cpu"),
        }
    }

    fn subtrees(&self) -> Vec<PathBuf> {
        self.subtrees
            .iter()
            .map(|(_, subtree)| subtree.dir.clone())
            .collect()
    }

    fn cpu(&self) -> Option<Duration> {
        let (_, subtree) = self.subtrees.iter().find(|(name, _)| *name == "cpuacct")?;
        used(&subtree.dir)
    }

    fn join(&self) -> CgroupJoin {
        CgroupJoin::Later
    }

    fn create(&self, name: &str, shares: bool) -> io::Result<Box<dyn Group>> {
        let mut group = V1Group {
            dirs: Vec::with_capacity(self.subtrees.len()),
        };
        // A directory of its own, for nothing where there is no share to give.
        let wanted = |controller: &str| shares || controller != "cpu";
        for (controller, subtree) in self.subtrees.iter().filter(|(controller, _)| wanted(controller)) {
            match subtree.make(name, |_| Ok(())) {
                Ok(dir) => group.dirs.push((controller, dir)),
                Err(error) => {
                    let _ = super::remove(&group.dirs());
                    return Err(error);
                }
            }
        }
        Ok(Box::new(group))
    }
}

fn used(dir: &Path) -> Option<Duration> {
    read_number(dir, "cpuacct.usage").map(Duration::from_nanos)
}

#[derive(Debug)]
struct V1Group {
    dirs: Vec<(&'static str, PathBuf)>,
}

impl V1Group {
    fn dir(&self, controller: &str) -> Option<&PathBuf> {
        self.dirs
            .iter()
            .find(|(name, _)| *name == controller)
            .map(|(_, dir)| dir)
    }
}

impl Group for V1Group {
    fn limit(&self, limits: &GroupLimits) -> io::Result<()> {
        if let Some(dir) = self.dir("memory") {
            // The limit with swap must never be below the one without, so the order depends on
            // which way they move. Machines without swap accounting lack the second file.
            let swap = "memory.memsw.limit_in_bytes";
            match write(dir, "memory.limit_in_bytes", limits.memory) {
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                    write_if_there(dir, swap, limits.memory)?;
                    write(dir, "memory.limit_in_bytes", limits.memory)?;
                }
                result => result?,
            }
            write_if_there(dir, swap, limits.memory)?;
            // TCP buffers have a counter of their own here; newer kernels lack it.
            write_if_there(dir, "memory.kmem.tcp.limit_in_bytes", limits.memory)?;
        }
        if let Some(dir) = self.dir("pids") {
            write(dir, "pids.max", limits.tasks)?;
        }
        if let Some(dir) = self.dir("cpu") {
            // An earlier stage may have had a share of its own; -1 takes it away again.
            write(
                dir,
                "cpu.cfs_quota_us",
                limits.cpu_percent.map_or(-1, |percent| i64::from(percent) * 1000),
            )?;
        } else if limits.cpu_percent.is_some() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        Ok(())
    }

    fn weigh(&self, weight: Weight) -> io::Result<()> {
        match self.dir("cpu") {
            // Its own scale: what nothing was said about has 1024 there.
            Some(dir) => write(dir, "cpu.shares", u32::from(weight.get()) * 1024 / 100),
            None => Ok(()),
        }
    }

    fn birthplace(&self) -> io::Result<Option<OwnedFd>> {
        Ok(None)
    }

    fn entries(&self) -> io::Result<Vec<OwnedFd>> {
        let mut tasks = Vec::with_capacity(self.dirs.len());
        for (_, dir) in &self.dirs {
            tasks.push(OwnedFd::from(
                fs::OpenOptions::new().write(true).open(dir.join("tasks"))?,
            ));
        }
        Ok(tasks)
    }

    fn dirs(&self) -> Vec<PathBuf> {
        self.dirs.iter().map(|(_, dir)| dir.clone()).collect()
    }

    fn cpu(&self) -> Option<Duration> {
        used(self.dir("cpuacct")?)
    }

    fn memory_peak(&self) -> Option<u64> {
        read_number(self.dir("memory")?, "memory.max_usage_in_bytes")
    }

    fn out_of_memory_kills(&self) -> u64 {
        self.dir("memory")
            .and_then(|dir| read_key(dir, "memory.oom_control", "oom_kill"))
            .unwrap_or_default()
    }

    fn out_of_memory_event(&self) -> Option<OwnedFd> {
        let dir = self.dir("memory")?;
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).ok()?;
        let control = fs::File::open(dir.join("memory.oom_control")).ok()?;
        let line = format!("{} {}", event.as_raw_fd(), control.as_raw_fd());
        write(dir, "cgroup.event_control", line).ok()?;
        Some(event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_that_cannot_be_written_leaves_the_other_alone() {
        let dir = std::env::temp_dir().join(format!("belljar-v1-{}", std::process::id()));
        fs::create_dir(&dir).expect("a directory");
        let swap = dir.join("memory.memsw.limit_in_bytes");
        fs::write(&swap, "before").expect("a file");
        let group = V1Group {
            dirs: vec![("memory", dir.clone())],
        };
        let limits = GroupLimits {
            memory: 1 << 20,
            tasks: 1,
            cpu_percent: None,
        };
        // What went wrong is told, not what the next try would have run into.
        let error = group.limit(&limits).expect_err("no such file");
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert_eq!(fs::read_to_string(&swap).expect("a file"), "before");
        fs::remove_dir_all(&dir).expect("the directory is gone");
    }
}
