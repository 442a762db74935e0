//! What lives below this process: never anybody else's processes.

use std::fs;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::harness::{children, control_groups};

/// One process below this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) pid: u32,
    pub(super) parent: u32,
    pub(super) name: String,
}

impl Process {
    pub(super) fn kill(&self) {
        let pid = Pid::from_raw(self.pid.cast_signed()).expect("a pid");
        let _ = kill_process(pid, Signal::KILL);
    }

    /// Whether it is gone, or as good as: one that only waits to be reaped.
    pub(super) fn is_over(&self) -> bool {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid)).unwrap_or_default();
        let state = status.lines().find_map(|line| line.strip_prefix("State:"));
        state.is_none_or(|state| state.trim().starts_with(['Z', 'X']))
    }
}

/// All processes below this one, parents first.
pub(super) fn all() -> Vec<Process> {
    let mut found: Vec<Process> = Vec::new();
    let mut waiting = vec![std::process::id()];
    while let Some(parent) = waiting.pop() {
        for pid in children(parent) {
            // One that ended meanwhile has no name any more.
            if let Ok(name) = fs::read_to_string(format!("/proc/{pid}/comm")) {
                let name = name.trim().to_owned();
                found.push(Process { pid, parent, name });
                waiting.push(pid);
            }
        }
    }
    found
}

pub(super) fn launchers() -> Vec<Process> {
    children_of(&[std::process::id()], "bj-launcher")
}

pub(super) fn nurseries() -> Vec<Process> {
    children_of(&pids(&launchers()), "bj-nursery")
}

/// Warm interpreters: Python that a nursery started itself.
pub(super) fn zygotes() -> Vec<Process> {
    children_of(&pids(&nurseries()), "python")
}

/// The first processes of sandboxes, which are clones of their nursery and keep its name.
pub(super) fn inits() -> Vec<Process> {
    children_of(&pids(&nurseries()), "bj-nursery")
}

/// Guests that a warm interpreter forked.
pub(super) fn forks() -> Vec<Process> {
    children_of(&pids(&zygotes()), "python")
}

fn children_of(parents: &[u32], beginning: &str) -> Vec<Process> {
    let mut found = all();
    found.retain(|process| parents.contains(&process.parent) && process.name.starts_with(beginning));
    found
}

fn pids(processes: &[Process]) -> Vec<u32> {
    processes.iter().map(|process| process.pid).collect()
}

/// Host mounts of this process.
pub(super) fn mounts() -> usize {
    fs::read_to_string("/proc/self/mountinfo")
        .expect("mountinfo")
        .lines()
        .count()
}

/// Open descriptors of this process.
pub(super) fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").expect("descriptors").count()
}

/// Waits until no process is below this one and it has no control group.
#[track_caller]
pub(super) fn expect_nothing() {
    wait_until("nothing is left", || {
        all().is_empty() && control_groups(std::process::id()).is_empty()
    });
}

#[track_caller]
pub(super) fn wait_until(what: &str, done: impl Fn() -> bool) {
    let started = Instant::now();
    while !done() {
        assert!(
            started.elapsed() < Duration::from_secs(20),
            "not within 20 s: {what}; {:?} {:?}",
            all(),
            control_groups(std::process::id())
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}
