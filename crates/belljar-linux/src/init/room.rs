//! Bounding processes exactly while threads come and go.
//!
//! The kernel bounds tasks and takes a thread for one (`RLIMIT_NPROC`, which within a user namespace
//! of its own counts this sandbox alone). So the limit is kept at the processes that are permitted
//! plus the threads that there are: a new thread waits until init has made room for it, a new
//! process is the kernel's business. The other way round, with processes that wait, does not work:
//! a signal interrupts that wait, and a shell whose child has just ended sees its next fork fail
//! with EINTR. Threads are made with all signals blocked.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags, statx};
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, prlimit};

use crate::mounts;

/// How long a thread that was let in may take to be born.
const BIRTH: Duration = Duration::from_millis(20);
/// How long threads that have ended may leave room behind. A guest that is quick can fill it with
/// processes; what is too many then is ended when init looks next.
const STALE: Duration = Duration::from_millis(50);

/// The room that a guest's processes have.
#[derive(Debug)]
pub(super) struct Room {
    /// Whether processes can be seen; without that nothing is counted.
    counts: bool,
    /// Where they can be seen, once somebody has looked.
    proc: Option<OwnedFd>,
    /// Processes that may be alive at once.
    processes: u32,
    /// Tasks that may be alive at once, whatever they are.
    most: u64,
    /// Who was let in to make a thread that may not have been born yet, and when.
    expected: Vec<(u32, Instant)>,
    limit: u64,
    settled: Instant,
    /// Whether a process may have been born under the limit that was there before.
    unsure: bool,
    /// The process that holds a warm guest's memory. It is not the guest's own and does not count.
    holder: Option<Pid>,
    /// Whether the holder lives. A dead one has no task reserved, whether its parent has reaped it or not.
    holder_lives: bool,
}

impl Room {
    pub(super) fn new(counts: bool, processes: u32, tasks: u64) -> Self {
        let limit = tasks_for(processes);
        // A lower limit of the host's own cannot be raised.
        let most = getrlimit(Resource::Nproc)
            .maximum
            .map_or(tasks, |maximum| tasks.min(maximum));
        Self {
            counts,
            proc: None,
            processes,
            most,
            expected: Vec::new(),
            limit,
            settled: Instant::now(),
            unsure: false,
            holder: None,
            holder_lives: false,
        }
    }

    /// Reserves a task for the holder of the guest's memory, which is not counted as a process.
    pub(super) fn reserve_for_holder(&mut self, pid: Pid) {
        self.holder = Some(pid);
        self.holder_lives = true;
    }

    /// Takes the holder's task back. A guest that killed its holder and was quick to use the task has a process too many, which is
    /// killed.
    pub(super) fn release_holder(&mut self) -> io::Result<()> {
        self.holder_lives = false;
        self.most = self.most.saturating_sub(1);
        self.settle()
    }

    /// Makes room for the thread that `task` is about to make. Beyond `most` the kernel refuses it.
    pub(super) fn one_more(&mut self, task: u32) -> io::Result<()> {
        // A task that asks again has its last one, or never will.
        self.expected.retain(|(other, _)| *other != task);
        self.expected.push((task, Instant::now()));
        self.settle()
    }

    /// When to look again for threads that have ended; never, where there is no room for any.
    pub(super) fn settles_in(&self) -> Option<Duration> {
        let after = if self.expected.is_empty() { STALE } else { BIRTH };
        let open = self.unsure || self.limit > tasks_for(self.processes);
        open.then(|| after.saturating_sub(self.settled.elapsed()))
    }

    /// Sets the limit to what it should be by now.
    pub(super) fn settle(&mut self) -> io::Result<()> {
        self.expected.retain(|(_, since)| since.elapsed() < BIRTH);
        if !self.counts {
            return Ok(());
        }
        let proc = match self.proc.take() {
            Some(proc) => proc,
            None => own_proc()?,
        };
        let (mut pids, threads) = look(self.proc.insert(proc).as_fd())?;
        let found = pids.len();
        pids.retain(|pid| Some(*pid) != self.holder);
        let reserved = u64::from(self.holder_lives && pids.len() < found);
        let wanted = tasks_for(self.processes) + reserved + threads + self.expected.len() as u64;
        let before = std::mem::replace(&mut self.limit, wanted.min(self.most));
        self.settled = Instant::now();
        let limit = Rlimit {
            current: Some(self.limit),
            maximum: Some(self.most),
        };
        for pid in &pids {
            // It may have ended by now.
            let _ = prlimit(Some(*pid), Resource::Nproc, limit);
        }
        // Only after the limit is down again, so that nobody takes the place of what is ended.
        let permitted = self.processes as usize;
        // A child of the meantime has its parent's old limit and was not seen: look once more.
        self.unsure = self.limit < before || pids.len() > permitted;
        if pids.len() > permitted {
            pids.sort_by_key(|pid| pid.as_raw_nonzero());
            for pid in pids.drain(permitted..) {
                let _ = rustix::process::kill_process(pid, Signal::KILL);
            }
        }
        Ok(())
    }
}

/// A `/proc` that is attached nowhere and hides nothing. In the guest's own, a program that it cannot read hides a process
/// even from init. Most guests start no thread, so it is made for those that do.
pub(super) fn own_proc() -> io::Result<OwnedFd> {
    let own = mounts::procfs(&[("subset", "pid")])?;
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(&own, ".", flags, Mode::empty())?)
}

/// The limit that leaves room for so many processes; init is one more.
pub(super) fn tasks_for(processes: u32) -> u64 {
    u64::from(processes) + 1
}

/// The processes of this pid namespace without init, and how many threads they have beyond one each.
fn look(proc: BorrowedFd<'_>) -> io::Result<(Vec<Pid>, u64)> {
    let mut pids = Vec::new();
    let mut threads = 0;
    for entry in rustix::fs::Dir::read_from(proc)? {
        let entry = entry?;
        let name = entry.file_name().to_str().unwrap_or_default();
        let Some(pid) = name
            .parse()
            .ok()
            .and_then(Pid::from_raw)
            .filter(|pid| !pid.is_init())
        else {
            continue;
        };
        pids.push(pid);
        // A directory has a link for itself, one for its parent, and here one for each thread.
        let tasks = statx(proc, format!("{name}/task"), AtFlags::empty(), StatxFlags::NLINK);
        threads += tasks.map_or(0, |tasks| u64::from(tasks.stx_nlink).saturating_sub(3));
    }
    Ok((pids, threads))
}
