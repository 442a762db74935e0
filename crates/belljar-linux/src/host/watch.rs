//! What may end a stage from outside: its deadline, its CPU time, its memory.

use std::os::fd::OwnedFd;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use belljar_core::provider::Ended;
use belljar_core::{Limits, Usage};
use tokio::io::unix::AsyncFd;

use super::group::SandboxGroup;
use super::tree::{shared_out, tree_usage};

/// How often memory is looked at when nothing else bounds it.
const MEMORY_INTERVAL: Duration = Duration::from_millis(20);
/// How long a stage runs before it is listened for that its memory runs out. Most have ended by then, and a look at the count of
/// kills says the same.
const DEAF: Duration = Duration::from_millis(5);
/// Longer than anything runs.
const FAR: Duration = Duration::from_secs(86_400 * 365);
/// The shortest pause between two looks at the CPU time.
const SHORTEST: Duration = Duration::from_millis(10);

/// What may end a stage from outside.
#[derive(Debug)]
pub(crate) struct Watch {
    deadline: tokio::time::Instant,
    /// What was left of the time when the clock was stopped.
    left: Option<Duration>,
    cpu_limit: Duration,
    cpu_before: Duration,
    cpu_seen: Duration,
    memory_limit: Option<u64>,
    memory_seen: Option<u64>,
    kills_before: u64,
    next_look: tokio::time::Instant,
    out_of_memory: OutOfMemory,
    adds_up: bool,
}

/// Whether it is heard that memory runs out.
#[derive(Debug)]
enum OutOfMemory {
    /// From this moment on.
    Later(tokio::time::Instant),
    Heard(AsyncFd<OwnedFd>),
    /// Without a group, or where the kernel ends the whole group by itself.
    Unheard,
}

impl Watch {
    /// Watches a stage with `limits` that starts now. `memory_accounted` says that the kernel bounds its
    /// memory by itself.
    pub(crate) fn new(
        limits: &Limits,
        started: Instant,
        group: Option<&SandboxGroup>,
        memory_accounted: bool,
    ) -> Self {
        let cpu_before = group.and_then(SandboxGroup::cpu);
        let cpu_limit = limits.cpu_time().duration();
        let started = tokio::time::Instant::from_std(started);
        let watched = !memory_accounted && !crate::weaken::is_off("watchdog");
        let memory_limit = watched.then(|| limits.memory().get());
        let first_look = if memory_limit.is_some() {
            MEMORY_INTERVAL
        } else {
            next_cpu_check(cpu_limit, Duration::ZERO)
        };
        Self {
            adds_up: memory_limit.is_some() || cpu_before.is_none(),
            deadline: started + limits.wall_time().duration().min(FAR),
            left: None,
            cpu_limit,
            cpu_before: cpu_before.unwrap_or_default(),
            cpu_seen: Duration::ZERO,
            memory_limit,
            memory_seen: None,
            kills_before: group.map_or(0, SandboxGroup::out_of_memory_kills),
            next_look: started + first_look.min(FAR),
            out_of_memory: match group {
                Some(_) => OutOfMemory::Later(started + DEAF),
                None => OutOfMemory::Unheard,
            },
        }
    }

    /// Counts from now on, for processes that were there before.
    pub(crate) fn forget_before(&mut self, group: Option<&SandboxGroup>, roots: &[i32]) {
        if group.and_then(SandboxGroup::cpu).is_none() {
            self.cpu_before = tree_usage(roots).cpu;
        }
    }

    /// Resolves when something must end the stage. Cancel-safe.
    pub(crate) async fn trip(&mut self, group: Option<&SandboxGroup>, roots: &[i32]) -> Ended {
        loop {
            let memory = async {
                match &self.out_of_memory {
                    OutOfMemory::Heard(event) => drop(event.readable().await),
                    OutOfMemory::Later(at) => tokio::time::sleep_until(*at).await,
                    OutOfMemory::Unheard => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = tokio::time::sleep_until(self.deadline) => return Ended::WallTime,
                () = memory => match self.out_of_memory {
                    OutOfMemory::Later(_) => {
                        self.listen(group);
                        if self.saw_memory_run_out(group) {
                            return Ended::OutOfMemory;
                        }
                        continue;
                    }
                    _ => return Ended::OutOfMemory,
                },
                () = tokio::time::sleep_until(self.next_look) => {}
            }
            if let Some(reason) = self.look(group, roots) {
                return reason;
            }
        }
    }

    fn listen(&mut self, group: Option<&SandboxGroup>) {
        let event = group.and_then(SandboxGroup::out_of_memory_event);
        self.out_of_memory = event
            .and_then(|event| crate::sys::events::watch(event).ok())
            .map_or(OutOfMemory::Unheard, OutOfMemory::Heard);
    }

    /// Time does not count from now on.
    pub(crate) fn stop_clock(&mut self) {
        if self.left.is_none() {
            let now = tokio::time::Instant::now();
            self.left = Some(self.deadline.saturating_duration_since(now));
            self.deadline = now + FAR;
        }
    }

    /// Time counts again.
    pub(crate) fn start_clock(&mut self) {
        if let Some(left) = self.left.take() {
            self.deadline = tokio::time::Instant::now() + left;
        }
    }

    /// Whether it looks at single processes, since no group counts for it.
    pub(crate) const fn adds_up(&self) -> bool {
        self.adds_up
    }

    /// Whether the deadline has passed.
    pub(crate) fn is_late(&self) -> bool {
        self.deadline <= tokio::time::Instant::now()
    }

    /// Whether the kernel has killed something for want of memory since this began.
    pub(crate) fn saw_memory_run_out(&self, group: Option<&SandboxGroup>) -> bool {
        group.is_some_and(|group| group.out_of_memory_kills() > self.kills_before)
    }

    /// What was used: the kernel's count where there is one, else init's word, else what was seen.
    pub(crate) fn usage(
        &self,
        group: Option<&SandboxGroup>,
        reported: Option<Duration>,
        wall: Duration,
    ) -> Usage {
        let cpu = match group.and_then(SandboxGroup::cpu) {
            Some(cpu) => cpu.saturating_sub(self.cpu_before),
            None => reported.unwrap_or(self.cpu_seen),
        };
        Usage {
            wall_seconds: wall.as_secs_f64(),
            cpu_seconds: cpu.as_secs_f64(),
            memory_peak: group.and_then(SandboxGroup::memory_peak).or(self.memory_seen),
        }
    }

    fn look(&mut self, group: Option<&SandboxGroup>, roots: &[i32]) -> Option<Ended> {
        let counted = group.and_then(SandboxGroup::cpu);
        let tree = if counted.is_none() || self.memory_limit.is_some() {
            tree_usage(roots)
        } else {
            Default::default()
        };
        let cpu = counted.unwrap_or(tree.cpu).saturating_sub(self.cpu_before);
        self.cpu_seen = self.cpu_seen.max(cpu);
        if self.memory_limit.is_some() {
            self.memory_seen = self.memory_seen.max(Some(tree.memory));
        }
        // A warm interpreter's forks share most of what they hold, and a second look counts that once.
        let over = |limit| tree.memory > limit && shared_out(roots) > limit;
        if self.memory_limit.is_some_and(over) {
            return Some(Ended::OutOfMemory);
        }
        if self.cpu_seen >= self.cpu_limit {
            return Some(Ended::CpuTime);
        }
        let pause = next_cpu_check(self.cpu_limit, self.cpu_seen);
        let pause = if self.memory_limit.is_some() {
            pause.min(MEMORY_INTERVAL)
        } else {
            pause
        };
        self.next_look = tokio::time::Instant::now() + pause;
        None
    }
}

/// When CPU time must be looked at next: not before all processors together could have used up
/// what is left.
fn next_cpu_check(limit: Duration, used: Duration) -> Duration {
    // To ask takes a look at half a dozen files, so it is asked once.
    static PROCESSORS: LazyLock<u32> =
        LazyLock::new(|| std::thread::available_parallelism().map_or(1, |count| count.get() as u32));
    let processors = *PROCESSORS;
    (limit.saturating_sub(used) / processors).max(SHORTEST)
}
