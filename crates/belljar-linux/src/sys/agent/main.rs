//! The agent: belljar's own program inside of a container, or beside a program that has no walls.
//!
//! It starts guests, passes their streams, and ends them; it puts files into the work directory and takes them out. It decides
//! nothing: what a guest may do comes as a list of system calls, and how it ended goes to the engine as the kernel told it.
//! In a container it is pid 1, which nobody inside can signal, and not dumpable, so that nobody inside can look into it.
//!
//! It has no runtime and no C library, so it runs in any image. Everything it holds is in fixed memory.

#![no_std]
#![no_main]

#[path = "../native/calls.rs"]
#[expect(dead_code, reason = "the lists of an agent have no late calls")]
mod calls;
mod files;
mod guest;
mod kernel;
mod leash;
mod line;
mod memory;
#[path = "../native/syscall.rs"]
#[allow(dead_code, reason = "the zygote's native part has more to do")]
mod syscall;
mod tree;
mod wire;

use core::arch::global_asm;

use files::Writing;
use guest::Guest;
use kernel::Wait;
use line::{Gone, Line};
use wire::{ask, tell};

/// Nothing here panics; if it did, this process could not be trusted any more.
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    syscall::exit(70)
}

/// Tables for unwinding name it. Nothing unwinds here.
#[unsafe(no_mangle)]
pub extern "C" fn rust_eh_personality() {}

#[cfg(target_arch = "x86_64")]
global_asm!(
    ".globl _start",
    "_start:",
    "xor ebp, ebp",
    "mov rdi, rsp",
    "and rsp, -16",
    "call {main}",
    main = sym main,
);

#[cfg(target_arch = "aarch64")]
global_asm!(".globl _start", "_start:", "mov x0, sp", "bl {main}", main = sym main);

/// What the kernel puts on the stack: a count, then as many addresses of texts, then a null.
extern "C" fn main(stack: *const usize) -> ! {
    // SAFETY: the kernel has put the count there.
    let count = unsafe { *stack };
    let argument = |at: usize| {
        // SAFETY: below the count, and the null stands at the count.
        unsafe { *stack.add(1 + at.min(count)) as *const u8 }
    };
    // SAFETY: the list of arguments ends with a null, and so does that of the variables behind it.
    let lists = unsafe { (stack.add(1).cast(), stack.add(2 + count).cast()) };
    kernel::clear_umask();
    kernel::ignore_closed_pipes(true);
    if count > 2 && is(argument(1), b"leash") {
        // SAFETY: both lists are the kernel's own.
        unsafe { leash::hold(count, lists.0, lists.1) }
    }
    if count > 1 && kernel::enter_directory(argument(1)).is_err() {
        syscall::exit(71);
    }
    if count > 2
        && let Some(owner) = number(argument(2))
    {
        files::OWNER.store(owner, core::sync::atomic::Ordering::Relaxed);
    }
    // It has nothing to say there, and nobody else is to find it.
    syscall::close(2);
    const SET_DUMPABLE: i64 = 4;
    const SET_CHILD_SUBREAPER: i64 = 36;
    let _ = kernel::prctl(SET_DUMPABLE, 0);
    // What loses its parent becomes ours, also where we are not pid 1.
    let _ = kernel::prctl(SET_CHILD_SUBREAPER, 1);
    // SAFETY: this is the only one.
    let line = unsafe { Line::new() };
    let Ok(children) = kernel::watch_children() else {
        syscall::exit(72)
    };
    let mut agent = Agent {
        line,
        children,
        guest: None,
        writing: None,
    };
    let Err(Gone) = agent.serve();
    // The engine has gone, and so does everything here.
    tree::end_all(|_, _, _| {});
    syscall::exit(0)
}

/// Whether an argument is that word.
fn is(argument: *const u8, word: &[u8]) -> bool {
    // SAFETY: an argument is a NUL-terminated text, and is not read beyond its NUL: a word holds none.
    (0..=word.len()).all(|at| unsafe { *argument.add(at) } == word.get(at).copied().unwrap_or(0))
}

/// The number that an argument is.
fn number(argument: *const u8) -> Option<u32> {
    let mut number = 0u32;
    for at in 0.. {
        // SAFETY: an argument is a NUL-terminated text, and is not read beyond its NUL.
        match unsafe { *argument.add(at) } {
            0 => break,
            digit @ b'0'..=b'9' => number = number.checked_mul(10)?.checked_add(u32::from(digit - b'0'))?,
            _ => return None,
        }
    }
    Some(number)
}

struct Agent {
    line: Line,
    children: i32,
    guest: Option<Guest>,
    writing: Option<Writing>,
}

impl Agent {
    /// Serves the engine until it has gone.
    fn serve(&mut self) -> Result<core::convert::Infallible, Gone> {
        let words: [u32; 4] = [
            wire::VERSION,
            kernel::own_pid() as u32,
            kernel::own_uid(),
            kernel::landlock_version(),
        ];
        let [a, b, c, d] = words.map(u32::to_le_bytes);
        let mut limits = [0u8; wire::LIMITS * 8];
        for (number, place) in limits.chunks_exact_mut(8).enumerate() {
            place.copy_from_slice(&kernel::highest_limit(number as i64).to_le_bytes());
        }
        self.line.say(tell::HELLO, &[&a, &b, &c, &d, &limits])?;
        loop {
            self.line.flush()?;
            let mut waits = [Wait::new(-1, 0); 7];
            waits[0] = Wait::new(self.children, Wait::READABLE);
            waits[1..3].copy_from_slice(&self.line.waits());
            if let Some(guest) = &self.guest {
                waits[3..].copy_from_slice(&guest.waits(self.line.has_room()));
            }
            kernel::poll(&mut waits);
            if waits[1].seen != 0 {
                self.line.hear()?;
                while let Some((kind, size)) = self.line.frame()? {
                    self.obey(kind, size)?;
                }
            }
            if let Some(guest) = &mut self.guest {
                guest.serve(&mut self.line)?;
            }
            if waits[0].seen != 0 {
                self.reap()?;
            }
        }
    }

    /// Does what a frame asks for, and lets go of it.
    fn obey(&mut self, kind: u8, size: usize) -> Result<(), Gone> {
        let line = &mut self.line;
        match kind {
            // These let go of their frame themselves: their answers may be long.
            ask::READ => return files::read(line, size),
            ask::LIST => return files::list(line, size),
            ask::WRITE => self.writing = Some(Writing::begin(line.body(size))?),
            ask::CONTENT => {
                if let Some(writing) = &mut self.writing {
                    writing.write(line.body(size));
                }
            }
            ask::CLOSE => {
                let errno = self.writing.take().map_or(kernel::EINVAL, Writing::end);
                line.answer(errno)?;
            }
            ask::REMOVE => {
                let errno = files::remove(line.body(size));
                line.answer(errno)?;
            }
            ask::START => {
                if self.guest.is_some() {
                    return Err(Gone);
                }
                // SAFETY: there is no other guest, and the engine made the calls for this one.
                match unsafe { Guest::start(line.body(size)) } {
                    Ok(guest) => {
                        self.guest = Some(guest);
                        line.say(tell::STARTED, &[])?;
                    }
                    Err((step, errno)) => {
                        line.say(tell::NOT_STARTED, &[&step.to_le_bytes(), &errno.to_le_bytes()])?;
                    }
                }
            }
            ask::INPUT => {
                if let Some(guest) = &mut self.guest {
                    guest.input(line.body(size))?;
                }
            }
            ask::INPUT_END => {
                if let Some(guest) = &mut self.guest {
                    guest.input_ends();
                }
            }
            ask::SAY => {
                if let Some(guest) = &mut self.guest {
                    guest.say(line.body(size))?;
                }
            }
            ask::SIGNAL => {
                let signal = line
                    .body(size)
                    .first_chunk::<4>()
                    .map(|number| i32::from_le_bytes(*number));
                if let (Some(guest), Some(signal)) = (&self.guest, signal) {
                    kernel::kill(guest.pid(), i64::from(signal));
                }
            }
            ask::GRANT => {
                let more = line
                    .body(size)
                    .first_chunk::<4>()
                    .map(|count| u32::from_le_bytes(*count));
                if let (Some(guest), Some(more)) = (&mut self.guest, more) {
                    guest.grant(more as usize);
                }
            }
            ask::END => {
                if let Some(guest) = self.guest.take() {
                    guest.end(line)?;
                }
            }
            ask::USAGE => return self.tell_usage(size),
            _ => return Err(Gone),
        }
        self.line.done(size);
        Ok(())
    }

    /// Tells what has been used so far, and what files of counters say.
    fn tell_usage(&mut self, size: usize) -> Result<(), Gone> {
        let mut counters = [[0u8; 512]; 3];
        let mut sizes = [0usize; 3];
        let mut rest: &[u8] = self.line.body(size);
        for (memory, count) in counters.iter_mut().zip(&mut sizes) {
            let (head, after) = rest.split_first_chunk::<4>().ok_or(Gone)?;
            let (path, after) = after
                .split_at_checked(u32::from_le_bytes(*head) as usize)
                .ok_or(Gone)?;
            rest = after;
            if let Ok(file) = kernel::open(kernel::HERE, path, 0, 0) {
                *count = syscall::read(file, memory).max(0) as usize;
                syscall::close(file);
            }
        }
        self.line.done(size);
        let (cpu, memory, count) = tree::usage();
        let [first, second, third] = &counters;
        self.line.say(
            tell::USAGE,
            &[
                &cpu.to_le_bytes(),
                &memory.to_le_bytes(),
                &count.to_le_bytes(),
                &(sizes[0] as u32).to_le_bytes(),
                &first[..sizes[0]],
                &(sizes[1] as u32).to_le_bytes(),
                &second[..sizes[1]],
                &(sizes[2] as u32).to_le_bytes(),
                &third[..sizes[2]],
            ],
        )
    }

    /// Children have ended; the guest may be one of them.
    fn reap(&mut self) -> Result<(), Gone> {
        let mut word = [0u8; 128];
        syscall::read(self.children, &mut word);
        while let Ok(Some((pid, status, memory))) = kernel::wait(false) {
            if let Some(guest) = self.guest.take_if(|guest| guest.pid() == pid) {
                guest.finish(&mut self.line, status, memory)?;
            }
        }
        Ok(())
    }
}
