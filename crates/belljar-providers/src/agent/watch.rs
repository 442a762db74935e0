//! What may end a guest from outside: its deadline, its CPU time, its memory.

use std::time::{Duration, Instant};

use belljar_core::provider::Ended;
use belljar_core::{Limits, Usage};
use tokio::sync::mpsc::UnboundedReceiver;

use super::counters::{self, Counters};
use super::line::Line;
use super::told::Told;
use crate::place::{Place, Used};

/// How often it is looked at how much has been used, where the kernel does not bound the memory by itself.
const MEMORY_INTERVAL: Duration = Duration::from_millis(20);
/// How often otherwise, at the least and at the most.
const SHORTEST: Duration = Duration::from_millis(10);
const LONGEST: Duration = Duration::from_millis(500);
/// Longer than anything runs.
const FAR: Duration = Duration::from_secs(86_400 * 365);

/// What may end an execution from outside.
#[derive(Debug)]
pub(crate) struct Watch {
    started: Instant,
    deadline: tokio::time::Instant,
    /// What was left of the time when the clock was stopped.
    left: Option<Duration>,
    cpu_limit: Duration,
    /// The memory that is held from here because nothing else holds it.
    memory_limit: Option<u64>,
    /// The most processes, where nothing else counts them.
    process_limit: Option<u32>,
    before: Used,
    seen: Used,
    most: u64,
    next_look: tokio::time::Instant,
    asked: Option<UnboundedReceiver<Told>>,
}

/// What is to be held from here.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Held {
    pub memory: bool,
    pub processes: bool,
}

impl Watch {
    /// Watches an execution with `limits` that starts now, when so much has been used before.
    pub(crate) fn new(limits: &Limits, held: Held, before: Used) -> Self {
        let started = Instant::now();
        let now = tokio::time::Instant::from_std(started);
        let mut watch = Self {
            started,
            deadline: now + limits.wall_time().duration().min(FAR),
            left: None,
            cpu_limit: limits.cpu_time().duration(),
            memory_limit: held.memory.then(|| limits.memory().get()),
            process_limit: held.processes.then(|| limits.processes()),
            before,
            seen: before,
            most: 0,
            next_look: now,
            asked: None,
        };
        watch.next_look = now + watch.pause();
        watch
    }

    pub(crate) const fn seen(&self) -> Used {
        self.seen
    }

    fn cpu(&self) -> Duration {
        self.seen.cpu.saturating_sub(self.before.cpu)
    }

    /// How long until the next look: until it could have used up its time on all processors.
    fn pause(&self) -> Duration {
        if self.memory_limit.is_some() || self.process_limit.is_some() {
            return MEMORY_INTERVAL;
        }
        let left = self.cpu_limit.saturating_sub(self.cpu());
        let processors = std::thread::available_parallelism().map_or(1, |count| count.get() as u32);
        (left / processors).clamp(SHORTEST, LONGEST)
    }

    /// Resolves when something must end the execution. Cancel-safe.
    pub(crate) async fn trip(&mut self, line: &Line, place: &dyn Place, paths: &Counters) -> Ended {
        loop {
            tokio::select! {
                biased;
                () = tokio::time::sleep_until(self.deadline), if self.left.is_none() => return Ended::WallTime,
                used = look(&mut self.asked, self.next_look, line, place, paths) => {
                    self.asked = None;
                    if let Some(used) = used {
                        self.saw(used);
                    }
                    self.next_look = tokio::time::Instant::now() + self.pause();
                    if let Some(reason) = self.reason() {
                        return reason;
                    }
                }
            }
        }
    }

    /// What the last look said.
    pub(crate) fn saw(&mut self, used: Used) {
        // What ends does not take back what it used.
        let cpu = used.cpu.max(self.seen.cpu);
        self.seen = Used { cpu, ..used };
        self.most = self.most.max(used.memory.unwrap_or(0));
    }

    fn reason(&self) -> Option<Ended> {
        if self.saw_memory_run_out() {
            return Some(Ended::OutOfMemory);
        }
        if self.cpu() > self.cpu_limit {
            return Some(Ended::CpuTime);
        }
        // What forks without end is ended; what it is called is for the place to say.
        let crowd = self
            .process_limit
            .is_some_and(|limit| self.seen.processes > limit);
        crowd.then_some(Ended::Signaled(libc::SIGKILL))
    }

    /// Whether the kernel has killed something for want of memory, or it went past what is held from here.
    pub(crate) fn saw_memory_run_out(&self) -> bool {
        self.seen.kills > self.before.kills || self.memory_limit.is_some_and(|limit| self.most > limit)
    }

    /// Whether its time is over.
    pub(crate) fn is_late(&self) -> bool {
        self.left.is_none() && tokio::time::Instant::now() >= self.deadline
    }

    pub(crate) fn stop_clock(&mut self) {
        if self.left.is_none() {
            self.left = Some(
                self.deadline
                    .saturating_duration_since(tokio::time::Instant::now()),
            );
        }
    }

    pub(crate) fn start_clock(&mut self) {
        if let Some(left) = self.left.take() {
            self.deadline = tokio::time::Instant::now() + left;
        }
    }

    /// What was used while it was watched; `told` is what the agent added up at the end.
    pub(crate) fn usage(&self, told: Option<Duration>, peak: Option<u64>) -> Usage {
        let cpu = self.cpu().max(told.unwrap_or_default());
        Usage {
            wall_seconds: self.started.elapsed().as_secs_f64(),
            cpu_seconds: cpu.as_secs_f64(),
            memory_peak: self
                .seen
                .memory_peak
                .or_else(|| Some(self.most.max(peak?)))
                .filter(|peak| *peak > 0),
        }
    }
}

/// How much has been used, once it is time to look. Cancel-safe: a question that was asked stays asked.
async fn look(
    asked: &mut Option<UnboundedReceiver<Told>>,
    at: tokio::time::Instant,
    line: &Line,
    place: &dyn Place,
    paths: &Counters,
) -> Option<Used> {
    if asked.is_none() {
        tokio::time::sleep_until(at).await;
        if let Some(used) = place.used() {
            return Some(used);
        }
    }
    let answer = asked.get_or_insert_with(|| line.ask_usage(paths.paths()));
    counters::used(&answer.recv().await?).map(|used| with_outside(used, place))
}

/// With what is seen from outside.
fn with_outside(used: Used, place: &dyn Place) -> Used {
    Used {
        cpu: used.cpu.max(place.cpu().unwrap_or_default()),
        ..used
    }
}

/// How much has been used by now; nothing where the agent does not say.
pub(crate) async fn now(line: &Line, place: &dyn Place, paths: &Counters) -> Used {
    if let Some(used) = place.used() {
        return used;
    }
    let mut answer = line.ask_usage(paths.paths());
    let told = tokio::time::timeout(Duration::from_secs(5), answer.recv()).await;
    let used = told.ok().flatten().and_then(|told| counters::used(&told));
    with_outside(used.unwrap_or_default(), place)
}
