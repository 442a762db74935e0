//! The guest of the moment: starting it, and its streams.

use super::calls;
use super::kernel::{self, EAGAIN, EINTR, ENOENT, HERE, PATH_ONLY, Wait};
use super::line::{Gone, Line, Passed};
use super::memory::{Buffer, Queue};
use super::syscall;
use super::tree;
use super::wire::{
    GRANTED, STEP_EXEC, STEP_FORK, STEP_LANDLOCK, STEP_STREAMS, WINDOW, WITH_CHANNEL, ask, tell,
};

/// The most words, and the most variables.
const MOST: usize = 24_000;

static INPUT: Buffer<WINDOW> = Buffer::new();
static SAYING: Buffer<WINDOW> = Buffer::new();
static WORDS: Buffer<{ (MOST + 1) * 8 }> = Buffer::new();
static VARIABLES: Buffer<{ (MOST + 1) * 8 }> = Buffer::new();

/// What failed on the way to a running guest: a step, and how.
type Failed = (u32, i32);

pub struct Guest {
    pid: i32,
    /// Our end of each stream; -1 once it is closed.
    stdin: i32,
    stdout: i32,
    stderr: i32,
    channel: i32,
    input: Queue,
    input_ends: bool,
    saying: Queue,
    cpu_before: u64,
    /// How much may still be told.
    granted: usize,
}

/// The guest's ends of its streams.
struct Theirs([i32; 4]);

impl Theirs {
    fn close(&self) {
        self.0
            .iter()
            .copied()
            .filter(|fd| *fd >= 0)
            .for_each(syscall::close);
    }

    fn streams(&self) -> &[i32] {
        let count = if self.0[3] < 0 { 3 } else { 4 };
        &self.0[..count]
    }
}

impl Guest {
    /// Starts the guest that a frame describes.
    ///
    /// # Safety
    /// There must be no other guest, and the calls in the frame must be made for one.
    pub unsafe fn start(body: &mut [u8]) -> Result<Self, Failed> {
        let streams = |errno| (STEP_STREAMS, errno);
        let with_channel = body.first().is_some_and(|flags| flags & WITH_CHANNEL != 0);
        let [stdin_theirs, stdin] = kernel::pipe(0).map_err(streams)?;
        let [stdout, stdout_theirs] = kernel::pipe(0).map_err(streams)?;
        let [stderr, stderr_theirs] = kernel::pipe(0).map_err(streams)?;
        let [channel, channel_theirs] = if with_channel {
            kernel::sockets().map_err(streams)?
        } else {
            [-1; 2]
        };
        let [report, report_theirs] = kernel::pipe(0).map_err(streams)?;
        let theirs = Theirs([stdin_theirs, stdout_theirs, stderr_theirs, channel_theirs]);
        let ours = [stdin, stdout, stderr, channel];
        let cpu_before = kernel::children_cpu();
        let pid = match kernel::fork() {
            Ok(0) => {
                // SAFETY: the caller answers for the calls; this is the copy, which does nothing else.
                let failed = unsafe { become_guest(body, theirs.streams()) };
                let mut told = [0u8; 8];
                told[..4].copy_from_slice(&failed.0.to_le_bytes());
                told[4..].copy_from_slice(&failed.1.to_le_bytes());
                syscall::write(report_theirs, &told);
                syscall::exit(127)
            }
            forked => forked,
        };
        theirs.close();
        syscall::close(report_theirs);
        let close_ours = || {
            ours.iter()
                .copied()
                .filter(|fd| *fd >= 0)
                .for_each(syscall::close)
        };
        let pid = match pid {
            Ok(pid) => pid,
            Err(errno) => {
                syscall::close(report);
                close_ours();
                return Err((STEP_FORK, errno));
            }
        };
        let mut told = [0u8; 8];
        // The report closes when the program starts.
        let count = loop {
            match syscall::check(syscall::read(report, &mut told)) {
                Err(EINTR) => {}
                Ok(count) => break count,
                Err(_) => break 0,
            }
        };
        syscall::close(report);
        if count == 8 {
            close_ours();
            tree::end_all(|_, _, _| {});
            let [a, b, c, d, e, f, g, h] = told;
            return Err((u32::from_le_bytes([a, b, c, d]), i32::from_le_bytes([e, f, g, h])));
        }
        ours.iter()
            .copied()
            .filter(|fd| *fd >= 0)
            .for_each(kernel::set_nonblocking);
        // SAFETY: there is no other guest, so nobody else has these.
        let (input, saying) = unsafe { (INPUT.get(), SAYING.get()) };
        Ok(Self {
            pid,
            stdin,
            stdout,
            stderr,
            channel,
            input: Queue::new(input),
            input_ends: false,
            saying: Queue::new(saying),
            cpu_before,
            granted: GRANTED,
        })
    }

    pub const fn pid(&self) -> i32 {
        self.pid
    }

    /// What to wait for. Its output only where there is room for it.
    pub const fn waits(&self, has_room: bool) -> [Wait; 4] {
        let output = if has_room && self.granted > 0 {
            Wait::READABLE
        } else {
            0
        };
        let input = if self.input.is_empty() { 0 } else { Wait::WRITABLE };
        let said = if self.saying.is_empty() { 0 } else { Wait::WRITABLE };
        [
            const_wait(self.stdin, input),
            const_wait(self.stdout, output),
            const_wait(self.stderr, output),
            const_wait(self.channel, output | said),
        ]
    }

    /// Takes a piece of its input.
    pub fn input(&mut self, bytes: &[u8]) -> Result<(), Gone> {
        // Nobody reads it any more.
        if self.stdin < 0 || self.input.push(bytes) {
            return Ok(());
        }
        Err(Gone)
    }

    pub fn grant(&mut self, more: usize) {
        self.granted = self.granted.saturating_add(more);
    }

    pub fn input_ends(&mut self) {
        self.input_ends = true;
    }

    pub fn say(&mut self, bytes: &[u8]) -> Result<(), Gone> {
        if self.channel < 0 || self.saying.push(bytes) {
            return Ok(());
        }
        Err(Gone)
    }

    /// Moves what can be moved without waiting.
    pub fn serve(&mut self, line: &mut Line) -> Result<(), Gone> {
        feed(line, &mut self.stdin, &mut self.input, ask::INPUT)?;
        if self.input_ends && self.input.is_empty() {
            close(&mut self.stdin);
        }
        if self.channel >= 0 {
            feed(line, &mut self.channel, &mut self.saying, ask::SAY)?;
        }
        for (kind, fd) in [
            (tell::STDOUT, &mut self.stdout),
            (tell::STDERR, &mut self.stderr),
            (tell::SAID, &mut self.channel),
        ] {
            if *fd < 0 || self.granted == 0 || !line.has_room() {
                continue;
            }
            match line.pass(kind, *fd)? {
                Passed::Some(count) => self.granted = self.granted.saturating_sub(count),
                Passed::Nothing => {}
                Passed::End | Passed::Failed(_) => {
                    close(fd);
                    if kind == tell::SAID {
                        line.say(tell::SILENT, &[])?;
                    }
                }
            }
        }
        Ok(())
    }

    /// It has ended with that status: ends what it left, tells the rest of what it wrote, and its end.
    pub fn finish(mut self, line: &mut Line, status: i32, memory: u64) -> Result<(), Gone> {
        let mut most = memory;
        tree::end_all(|_, _, memory| most = most.max(memory));
        self.last_words(line)?;
        let cpu = kernel::children_cpu().saturating_sub(self.cpu_before);
        let parts: [&[u8]; 3] = [&status.to_le_bytes(), &cpu.to_le_bytes(), &most.to_le_bytes()];
        line.say(tell::ENDED, &parts)
    }

    /// Ends it, with everything else.
    pub fn end(mut self, line: &mut Line) -> Result<(), Gone> {
        let (own, mut status, mut most) = (self.pid, 9, 0);
        tree::end_all(|pid, ended, memory| {
            most = most.max(memory);
            if pid == own {
                status = ended;
            }
        });
        self.last_words(line)?;
        let cpu = kernel::children_cpu().saturating_sub(self.cpu_before);
        let parts: [&[u8]; 3] = [&status.to_le_bytes(), &cpu.to_le_bytes(), &most.to_le_bytes()];
        line.say(tell::ENDED, &parts)
    }

    /// Everything that could write is dead, so all it wrote is there.
    fn last_words(&mut self, line: &mut Line) -> Result<(), Gone> {
        for (kind, fd) in [
            (tell::STDOUT, self.stdout),
            (tell::STDERR, self.stderr),
            (tell::SAID, self.channel),
        ] {
            // A pipe holds a MiB at the most.
            let mut left = 4 << 20;
            while fd >= 0 && left > 0 {
                match line.pass(kind, fd)? {
                    Passed::Some(count) => left -= count.max(1).min(left),
                    Passed::Nothing | Passed::End | Passed::Failed(_) => break,
                }
            }
        }
        for fd in [
            &mut self.stdin,
            &mut self.stdout,
            &mut self.stderr,
            &mut self.channel,
        ] {
            close(fd);
        }
        Ok(())
    }
}

const fn const_wait(fd: i32, wanted: i16) -> Wait {
    // A descriptor below zero is not looked at.
    Wait::new(if wanted == 0 { -1 } else { fd }, wanted)
}

fn close(fd: &mut i32) {
    if *fd >= 0 {
        syscall::close(*fd);
        *fd = -1;
    }
}

/// Writes what waits, and tells how much was taken.
fn feed(line: &mut Line, fd: &mut i32, queue: &mut Queue, kind: u8) -> Result<(), Gone> {
    while *fd >= 0 && !queue.is_empty() {
        let count = match syscall::check(syscall::write(*fd, queue.bytes())) {
            Ok(count) => count as usize,
            Err(EINTR) => continue,
            Err(EAGAIN) => return Ok(()),
            // It does not want any more.
            Err(_) => {
                queue.clear();
                if kind == ask::INPUT {
                    close(fd);
                }
                return Ok(());
            }
        };
        queue.take(count);
        line.say(tell::TAKEN, &[&[kind], &(count as u32).to_le_bytes()])?;
    }
    Ok(())
}

/// Reads parts of a frame one after the other.
struct Reader<'a> {
    rest: &'a mut [u8],
}

impl<'a> Reader<'a> {
    fn number(&mut self) -> Option<usize> {
        let rest = core::mem::take(&mut self.rest);
        let (number, rest) = rest.split_first_chunk_mut::<4>()?;
        self.rest = rest;
        Some(u32::from_le_bytes(*number) as usize)
    }

    fn bytes(&mut self) -> Option<&'a mut [u8]> {
        let size = self.number()?;
        let rest = core::mem::take(&mut self.rest);
        let (bytes, rest) = rest.split_at_mut_checked(size)?;
        self.rest = rest;
        Some(bytes)
    }
}

/// In the copy: becomes the guest. Returns only what failed.
///
/// # Safety
/// The calls in the frame must be made for this.
unsafe fn become_guest(body: &mut [u8], streams: &[i32]) -> Failed {
    const MALFORMED: Failed = (STEP_FORK, kernel::EINVAL);
    syscall::block_signals(0);
    kernel::ignore_closed_pipes(false);
    let Some(rest) = body.get_mut(1..) else {
        return MALFORMED;
    };
    let mut reader = Reader { rest };
    let (Some(landlock), Some(list)) = (reader.bytes(), reader.bytes()) else {
        return MALFORMED;
    };
    // SAFETY: this process does nothing else, so nobody else has these.
    let (words, variables) = unsafe { (WORDS.get(), VARIABLES.get()) };
    let (Some(words), Some(variables)) = (texts(&mut reader, words), texts(&mut reader, variables)) else {
        return MALFORMED;
    };
    let rules = if landlock.is_empty() {
        None
    } else {
        match landlock_rules(landlock) {
            Ok(rules) => Some(rules),
            Err(errno) => return (STEP_LANDLOCK, errno),
        }
    };
    // The list may hold the filter, after which there is no calling Landlock; so its descriptor is the list's last stream.
    let mut fds = [-1i32; 5];
    let mut count = streams.len();
    fds[..count].copy_from_slice(streams);
    if let Some(rules) = rules {
        fds[count] = rules;
        count += 1;
    }
    // SAFETY: the engine made this list for a guest of this agent.
    if let Err(failed) = unsafe { calls::perform(list, &fds[..count]) } {
        return (failed.call as u32, failed.errno);
    }
    let Some(programs) = reader.number() else {
        return MALFORMED;
    };
    let mut last = ENOENT;
    for _ in 0..programs {
        let Some(program) = reader.bytes() else {
            return MALFORMED;
        };
        // SAFETY: both lists were made by `texts`.
        let errno = unsafe { kernel::exec(program, words, variables) };
        if errno != ENOENT {
            last = errno;
        }
    }
    (STEP_EXEC, last)
}

/// A list of addresses of texts, with a null at its end.
fn texts(reader: &mut Reader<'_>, memory: &mut [u8]) -> Option<*const *const u8> {
    let count = reader.number().filter(|count| *count <= MOST)?;
    let start = memory.as_mut_ptr();
    let mut slots = memory.chunks_exact_mut(8);
    for _ in 0..count {
        let text = reader.bytes()?;
        if text.last() != Some(&0) {
            return None;
        }
        slots
            .next()?
            .copy_from_slice(&(text.as_ptr() as u64).to_ne_bytes());
    }
    slots.next()?.copy_from_slice(&[0; 8]);
    Some(start.cast())
}

/// Landlock's rules out of what the engine says: its attributes, then what is allowed below which path.
fn landlock_rules(said: &mut [u8]) -> Result<i32, i32> {
    let mut reader = Reader { rest: said };
    let attributes = reader.bytes().ok_or(kernel::EINVAL)?;
    let rules = kernel::landlock_rules(attributes)?;
    let count = reader.number().ok_or(kernel::EINVAL)?;
    for _ in 0..count {
        let access = reader.bytes().ok_or(kernel::EINVAL)?;
        let access = access.first_chunk::<8>().ok_or(kernel::EINVAL)?;
        let path = reader.bytes().ok_or(kernel::EINVAL)?;
        match kernel::open(HERE, path, PATH_ONLY, 0) {
            Ok(place) => {
                let allowed = kernel::landlock_allow(rules, place, u64::from_le_bytes(*access));
                syscall::close(place);
                allowed?;
            }
            // A place that is not there needs no leave.
            Err(ENOENT) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(rules)
}
