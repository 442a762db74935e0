//! Control groups for processes that others start: providers whose walls are somebody else's.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

use belljar_core::{Control, Limits, ProviderError, Support, Weight};

use crate::host::cgroup::{self, GroupLimits, Hierarchy, NoHierarchy};
use crate::host::group::SandboxGroup;
use crate::host::probe;

/// The groups that one provider makes.
#[derive(Debug, Default)]
pub struct Groups {
    hierarchy: OnceLock<Result<Box<dyn Hierarchy>, NoHierarchy>>,
    tag: OnceLock<String>,
}

impl Groups {
    fn hierarchy(&self) -> Result<&dyn Hierarchy, &NoHierarchy> {
        let found = self.hierarchy.get_or_init(|| {
            let found = cgroup::find();
            if let Ok(hierarchy) = &found {
                cgroup::sweep(&**hierarchy);
            }
            found
        });
        found.as_ref().map(|hierarchy| &**hierarchy)
    }

    /// Which limits the kernel can hold here.
    pub fn controls(&self) -> BTreeMap<Control, Support> {
        let found = self.hierarchy();
        probe::group_controls(found.map(|hierarchy| (hierarchy.version(), hierarchy.bounds())))
    }

    /// A group for the sandbox of that name, with room for so many tasks that are no guest's. None where there are no groups.
    pub fn make(
        &self,
        id: &str,
        limits: &Limits,
        beside: Beside,
    ) -> Result<Option<ProcessGroup>, ProviderError> {
        let Ok(hierarchy) = self.hierarchy() else {
            return Ok(None);
        };
        let tag = self.tag.get_or_init(cgroup::fresh_tag);
        let name = cgroup::group_name(tag, id);
        let group = SandboxGroup::make(hierarchy, &name, limited(limits, beside), true)?;
        Ok(Some(ProcessGroup {
            group: Some(group),
            bounds: self.controls(),
            beside,
        }))
    }
}

/// What runs in a group beside the guests.
#[derive(Clone, Copy, Debug, Default)]
pub struct Beside {
    pub memory: u64,
    /// Its tasks; none where tasks are not to be bounded.
    pub tasks: Option<u32>,
}

fn limited(limits: &Limits, beside: Beside) -> GroupLimits {
    GroupLimits {
        memory: limits.memory().get().saturating_add(beside.memory),
        tasks: beside
            .tasks
            .map_or(u32::MAX >> 10, |tasks| limits.tasks().saturating_add(tasks)),
        cpu_percent: limits.cpu_percent(),
    }
}

/// One group, removed when it goes out of scope; by then nothing may be in it.
#[derive(Debug)]
pub struct ProcessGroup {
    group: Option<SandboxGroup>,
    bounds: BTreeMap<Control, Support>,
    beside: Beside,
}

impl ProcessGroup {
    fn group(&self) -> Option<&SandboxGroup> {
        self.group.as_ref()
    }

    /// Which limits it holds.
    pub const fn controls(&self) -> &BTreeMap<Control, Support> {
        &self.bounds
    }

    /// Files into which a task writes `0` to move there.
    pub fn entries(&self) -> Vec<PathBuf> {
        self.group().map(SandboxGroup::entry_paths).unwrap_or_default()
    }

    pub fn limit(&mut self, limits: &Limits) -> Result<(), ProviderError> {
        match &mut self.group {
            Some(group) => group.set(limited(limits, self.beside)),
            None => Ok(()),
        }
    }

    pub fn weigh(&mut self, weight: Weight) {
        if let Some(group) = &mut self.group {
            group.weigh(weight);
        }
    }

    /// The processor time that it has used so far, where that is counted.
    pub fn cpu(&self) -> Option<Duration> {
        self.group()?.cpu()
    }

    pub fn memory_peak(&self) -> Option<u64> {
        self.group()?.memory_peak()
    }

    /// How often the kernel has killed something in it for want of memory.
    pub fn out_of_memory_kills(&self) -> u64 {
        self.group().map_or(0, SandboxGroup::out_of_memory_kills)
    }

    /// Kills everything in it, whoever started it, and looks again until nothing is left or it has taken too long.
    pub fn kill(&self) {
        let mut pause = Duration::from_micros(200);
        while self.strike() && pause < Duration::from_millis(200) {
            std::thread::sleep(pause);
            pause *= 2;
        }
    }

    /// Kills what is in it now; false where there was nothing.
    fn strike(&self) -> bool {
        let mut any = false;
        for file in self.entries() {
            let Ok(text) = fs::read_to_string(&file) else {
                continue;
            };
            for pid in text.lines().filter_map(|line| line.trim().parse().ok()) {
                if let Some(pid) = rustix::process::Pid::from_raw(pid) {
                    any = true;
                    let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
                }
            }
        }
        any
    }

    /// Removes it and says whether that worked.
    pub fn remove(mut self) -> Result<(), ProviderError> {
        self.group.take().map_or(Ok(()), SandboxGroup::remove)
    }
}
