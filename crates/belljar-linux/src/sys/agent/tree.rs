//! Everything that runs beside the agent: ending it, and adding up what it has used.

use super::files::names;
use super::kernel::{self, DIRECTORY, HERE, SIGKILL};
use super::syscall;

/// The kernel counts time in hundredths of a second there.
const TICK: u64 = 10_000;

/// Ends everything else and waits until it is gone. The status and the memory of `guest` are told to `see`.
pub fn end_all(mut see: impl FnMut(i32, i32, u64)) {
    loop {
        strike();
        // One at a time: what a process leaves behind becomes ours, and is to be ended too.
        match kernel::wait(true) {
            Ok(Some((pid, status, memory))) => see(pid, status, memory),
            Ok(None) => {}
            Err(_) => return,
        }
    }
}

/// Kills everything that can be seen from here.
fn strike() {
    let own = kernel::own_pid();
    if own == 1 {
        // All there is, in a namespace that is ours.
        kernel::kill(-1, SIGKILL);
        return;
    }
    // Without one: our children. What they leave behind becomes ours.
    let mut path = [0u8; 64];
    let mut text = Text::new(&mut path);
    text.push(b"/proc/self/task/");
    text.number(own as u64);
    text.push(b"/children\0");
    let Ok(file) = kernel::open(HERE, text.bytes(), 0, 0) else {
        return;
    };
    let mut memory = [0u8; 4096];
    let count = syscall::read(file, &mut memory).max(0) as usize;
    syscall::close(file);
    // The last one may be cut off in the middle; then it is ended the next time.
    let whole = memory[..count]
        .iter()
        .rposition(|byte| *byte == b' ')
        .map_or(0, |at| at + 1);
    for word in memory[..whole].split(|byte| *byte == b' ') {
        if let Some(pid) = number(word).filter(|pid| *pid > 1) {
            kernel::kill(pid as i32, SIGKILL);
        }
    }
}

/// What all others use now: processor time in microseconds, memory in bytes, and how many they are.
pub fn usage() -> (u64, u64, u32) {
    let (mut cpu, mut memory, mut count) = (kernel::children_cpu(), 0, 0);
    let own = kernel::own_pid();
    let Ok(proc) = kernel::open(HERE, b"/proc\0", DIRECTORY, 0) else {
        return (cpu, memory, count);
    };
    let mut entries = [0u8; 4096];
    while let Ok(size @ 1..) = kernel::entries(proc, &mut entries) {
        for pid in names(&entries[..size]).filter_map(number) {
            if pid == own as u64 {
                continue;
            }
            if let Some((micros, bytes)) = of_process(proc, pid, own) {
                cpu += micros;
                memory += bytes;
                count += 1;
            }
        }
    }
    syscall::close(proc);
    (cpu, memory, count)
}

/// The same of one process, with those of its children that it has waited for. None of what is not below us.
fn of_process(proc: i32, pid: u64, own: i32) -> Option<(u64, u64)> {
    let mut path = [0u8; 40];
    let mut text = Text::new(&mut path);
    text.number(pid);
    text.push(b"/stat\0");
    let file = kernel::open(proc, text.bytes(), 0, 0).ok()?;
    let mut memory = [0u8; 1024];
    let count = syscall::read(file, &mut memory).max(0) as usize;
    syscall::close(file);
    let line = memory.get(..count)?;
    // The name may hold anything; the last bracket ends it. The state comes next.
    let after = line.iter().rposition(|byte| *byte == b')')? + 2;
    let mut fields = [0u64; 22];
    for (field, word) in fields
        .iter_mut()
        .zip(line.get(after..)?.split(|byte| *byte == b' '))
    {
        *field = number(word).unwrap_or(0);
    }
    // Where we are not alone, those in our session's groups count; their parents lead to us.
    if own != 1 && !is_below(proc, fields[1], own) {
        return None;
    }
    let ticks = fields[11] + fields[12] + fields[13] + fields[14];
    Some((ticks * TICK, fields[21] * 4096))
}

/// Whether a process with that parent descends from us.
fn is_below(proc: i32, mut parent: u64, own: i32) -> bool {
    for _ in 0..64 {
        if parent == own as u64 {
            return true;
        }
        if parent <= 1 {
            return false;
        }
        let mut path = [0u8; 40];
        let mut text = Text::new(&mut path);
        text.number(parent);
        text.push(b"/stat\0");
        let Ok(file) = kernel::open(proc, text.bytes(), 0, 0) else {
            return false;
        };
        let mut memory = [0u8; 512];
        let count = syscall::read(file, &mut memory).max(0) as usize;
        syscall::close(file);
        let line = memory.get(..count).unwrap_or(&[]);
        let Some(after) = line.iter().rposition(|byte| *byte == b')') else {
            return false;
        };
        let words = line.get(after + 2..).unwrap_or(&[]);
        parent = words
            .split(|byte| *byte == b' ')
            .nth(1)
            .and_then(number)
            .unwrap_or(0);
    }
    false
}

fn number(text: &[u8]) -> Option<u64> {
    if text.is_empty() || text.len() > 18 {
        return None;
    }
    text.iter().try_fold(0u64, |number, byte| {
        byte.is_ascii_digit()
            .then(|| number * 10 + u64::from(byte - b'0'))
    })
}

/// A short text that is put together.
struct Text<'a> {
    memory: &'a mut [u8],
    size: usize,
}

impl<'a> Text<'a> {
    fn new(memory: &'a mut [u8]) -> Self {
        Self { memory, size: 0 }
    }

    fn push(&mut self, bytes: &[u8]) {
        if let Some(place) = self.memory.get_mut(self.size..self.size + bytes.len()) {
            place.copy_from_slice(bytes);
            self.size += bytes.len();
        }
    }

    fn number(&mut self, mut number: u64) {
        let mut digits = [0u8; 20];
        let mut first = digits.len();
        loop {
            first -= 1;
            digits[first] = b'0' + (number % 10) as u8;
            number /= 10;
            if number == 0 || first == 0 {
                break;
            }
        }
        self.push(&digits[first..]);
    }

    fn bytes(&self) -> &[u8] {
        &self.memory[..self.size]
    }
}
