//! Version 2: one directory for everything.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};

use super::mounts::CgroupMount;
use super::{
    Bounds, Group, GroupLimits, Hierarchy, NoHierarchy, Subtree, may_write, read_key, read_number, write,
    write_if_there,
};
use belljar_core::Weight;

use crate::wire::CgroupJoin;

const CONTROLLERS: [&str; 3] = ["memory", "pids", "cpu"];

#[derive(Debug)]
pub(super) struct V2 {
    subtree: Subtree,
    controllers: Vec<&'static str>,
}

impl V2 {
    pub(super) fn find(mounts: &[CgroupMount]) -> Result<Self, NoHierarchy> {
        let Some(mount) = mounts.iter().find(|mount| mount.version == 2) else {
            return Err(NoHierarchy {
                why: "no cgroup file system is mounted".to_owned(),
                fix: "mount cgroup2 on /sys/fs/cgroup".to_owned(),
            });
        };
        let mut refusals = Vec::new();
        for parent in candidates(mount) {
            match usable(&parent) {
                Ok(controllers) => {
                    return Ok(Self {
                        subtree: Subtree::below(&parent),
                        controllers,
                    });
                }
                Err(why) => refusals.push(format!("{}: {why}", parent.display())),
            }
        }
        Err(NoHierarchy {
            why: refusals.join("; "),
            fix: "run as root, or in a delegated group: systemd-run --user --scope -p Delegate=yes -- belljar …"
                .to_owned(),
        })
    }
}

/// Groups that may hold our subtree, best first: the parent of our own (a delegated group whose
/// leaf we are in), our own, and for root the top.
fn candidates(mount: &CgroupMount) -> Vec<PathBuf> {
    let mut found = Vec::new();
    if let Some(above) = mount.own.parent().filter(|above| above.starts_with(&mount.point)) {
        found.push(above.to_path_buf());
    }
    found.push(mount.own.clone());
    if !found.contains(&mount.point) {
        found.push(mount.point.clone());
    }
    found
}

/// The controllers that groups below `parent` can have, switched on if need be.
fn usable(parent: &Path) -> Result<Vec<&'static str>, String> {
    if !may_write(parent) {
        return Err("not writable, no delegation".to_owned());
    }
    let list = |file: &str| fs::read_to_string(parent.join(file)).unwrap_or_default();
    let has = |text: &str, name: &str| text.split_whitespace().any(|word| word == name);
    let available = list("cgroup.controllers");
    if !has(&available, "memory") {
        return Err("has no memory controller".to_owned());
    }
    let mut controllers = Vec::new();
    for name in CONTROLLERS.into_iter().filter(|name| has(&available, name)) {
        // Fails with EBUSY where processes live in the group itself.
        if has(&list("cgroup.subtree_control"), name)
            || write(parent, "cgroup.subtree_control", format!("+{name}")).is_ok()
        {
            controllers.push(name);
        }
    }
    if controllers.contains(&"memory") {
        Ok(controllers)
    } else {
        Err("its controllers cannot be passed on (processes live in it, or it is not delegated)".to_owned())
    }
}

impl Hierarchy for V2 {
    fn version(&self) -> &'static str {
        "v2"
    }

    fn bounds(&self) -> Bounds {
        let has = |name| self.controllers.contains(&name);
        Bounds {
            memory: has("memory"),
            pids: has("pids"),
            cpu: has("cpu"),
        }
    }

    fn subtrees(&self) -> Vec<PathBuf> {
        vec![self.subtree.dir.clone()]
    }

    fn cpu(&self) -> Option<Duration> {
        used(&self.subtree.dir)
    }

    fn join(&self) -> CgroupJoin {
        CgroupJoin::Born
    }

    fn create(&self, name: &str, _shares: bool) -> io::Result<Box<dyn Group>> {
        let wanted: Vec<String> = self.controllers.iter().map(|name| format!("+{name}")).collect();
        let wanted = wanted.join(" ");
        let dir = self
            .subtree
            .make(name, |subtree| write(subtree, "cgroup.subtree_control", &wanted))?;
        let opened = rustix::fs::open(
            &dir,
            OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC,
            Mode::empty(),
        );
        let handle = match opened {
            Ok(handle) => handle,
            Err(error) => {
                let _ = super::remove(&[dir]);
                return Err(error.into());
            }
        };
        Ok(Box::new(V2Group {
            dir,
            handle,
            controllers: self.controllers.clone(),
        }))
    }
}

fn used(dir: &Path) -> Option<Duration> {
    read_key(dir, "cpu.stat", "usage_usec").map(Duration::from_micros)
}

#[derive(Debug)]
struct V2Group {
    dir: PathBuf,
    handle: OwnedFd,
    controllers: Vec<&'static str>,
}

impl Group for V2Group {
    fn limit(&self, limits: &GroupLimits) -> io::Result<()> {
        write(&self.dir, "memory.max", limits.memory)?;
        write_if_there(&self.dir, "memory.swap.max", 0)?;
        // All of it goes at once: half a sandbox is worse than none.
        write(&self.dir, "memory.oom.group", 1)?;
        if self.controllers.contains(&"pids") {
            write(&self.dir, "pids.max", limits.tasks)?;
        }
        if self.controllers.contains(&"cpu") {
            // An earlier stage may have had a share of its own; `max` takes it away again.
            let share = limits.cpu_percent.map_or("max".to_owned(), |percent| {
                (u64::from(percent) * 1000).to_string()
            });
            write(&self.dir, "cpu.max", format!("{share} 100000"))?;
        }
        Ok(())
    }

    fn weigh(&self, weight: Weight) -> io::Result<()> {
        match self.controllers.contains(&"cpu") {
            true => write(&self.dir, "cpu.weight", weight.get()),
            false => Ok(()),
        }
    }

    fn birthplace(&self) -> io::Result<Option<OwnedFd>> {
        self.handle.try_clone().map(Some)
    }

    fn entries(&self) -> io::Result<Vec<OwnedFd>> {
        let file = fs::OpenOptions::new()
            .write(true)
            .open(self.dir.join("cgroup.procs"))?;
        Ok(vec![file.into()])
    }

    fn dirs(&self) -> Vec<PathBuf> {
        vec![self.dir.clone()]
    }

    fn cpu(&self) -> Option<Duration> {
        used(&self.dir)
    }

    fn memory_peak(&self) -> Option<u64> {
        read_number(&self.dir, "memory.peak")
    }

    fn out_of_memory_kills(&self) -> u64 {
        read_key(&self.dir, "memory.events", "oom_kill").unwrap_or_default()
    }

    fn out_of_memory_event(&self) -> Option<OwnedFd> {
        None
    }
}
