//! The zygote's loop: a request comes, a guest is forked; a guest ends, the engine is told.

use core::sync::atomic::{AtomicU64, Ordering};

use super::frames::{self, Buffer, Fds, Gone};
use super::guest::{self, Request};
use super::line::Line;
use super::report;
use super::syscall::{self, check, number};

const NEW_PID: i64 = 0x2000_0000;
const SIGCHLD: u64 = 1 << 16;
const CLOSE_ON_EXEC: i64 = 0o2_000_000;
const NON_BLOCKING: i64 = 0o4_000;
const EAGAIN: i32 = 11;
const EINVAL: i32 = 22;
/// The most guests at once.
const MOST_GUESTS: usize = 1024;

unsafe extern "C" {
    fn fork() -> i32;
    fn __errno_location() -> *mut i32;
    fn PyOS_BeforeFork();
    fn PyOS_AfterFork_Child();
    fn PyThread_tss_create(key: *mut [i32; 2]) -> i32;
    fn PyThread_tss_delete(key: *mut [i32; 2]);
}

/// The signals that were blocked before this began.
static BLOCKED: AtomicU64 = AtomicU64::new(0);

/// Before there can be other threads: those too must not be the ones that hear of a guest's end.
pub fn begin() {
    BLOCKED.store(syscall::block_signals(SIGCHLD), Ordering::Relaxed);
}

/// Has the linker look up what the interpreter calls after a fork, and never before one.
pub fn rehearse() {
    let mut key = [0; 2];
    // SAFETY: the interpreter's own struct is a flag and a number.
    unsafe {
        PyThread_tss_create(&raw mut key);
        PyThread_tss_delete(&raw mut key);
    }
}

struct Zygote {
    channel: i32,
    own_namespace: i32,
    /// Becomes readable when a guest ends.
    ends: i32,
    /// Where the first forks tell what they find out: read here, written there.
    heard: i32,
    report: i32,
    /// Whether one has told that it shares no memory with anybody.
    clean: bool,
    /// The signals that a guest has blocked.
    blocked: u64,
    guests: [Guest; MOST_GUESTS],
}

#[derive(Clone, Copy)]
struct Guest {
    pid: i32,
    number: u64,
}

const NOBODY: Guest = Guest { pid: 0, number: 0 };

pub fn serve(channel: i32, own_namespace: i32) -> i32 {
    let mut pipe = [-1i32; 2];
    let set = SIGCHLD;
    // Again: a module may have let it through.
    syscall::block_signals(set);
    let args = [pipe.as_mut_ptr() as i64, CLOSE_ON_EXEC | NON_BLOCKING, 0, 0, 0, 0];
    // SAFETY: the address is that of two descriptors.
    let piped = check(unsafe { syscall::call(number::PIPE2, args) });
    let args = [-1, &raw const set as i64, 8, CLOSE_ON_EXEC | NON_BLOCKING, 0, 0];
    // SAFETY: the address is that of a set of eight bytes.
    let ends = check(unsafe { syscall::call(number::SIGNALFD4, args) });
    let (Ok(_), Ok(ends)) = (piped, ends) else {
        syscall::exit(1)
    };
    if !guest::can_close() {
        let line = Line::new("{\"event\":\"unfit\",\"why\":\"the kernel has no close_range here\"}");
        let _ = frames::send(channel, line.bytes(), None);
        syscall::exit(1);
    }
    let mut zygote = Zygote {
        channel,
        own_namespace,
        ends: ends as i32,
        heard: pipe[0],
        report: pipe[1],
        clean: false,
        blocked: BLOCKED.load(Ordering::Relaxed),
        guests: [NOBODY; MOST_GUESTS],
    };
    // Once for all forks: no Python runs in this process any more.
    // SAFETY: the caller holds the interpreter's lock, as both functions of the interpreter demand.
    unsafe { PyOS_BeforeFork() };
    let flags = zygote.run();
    // SAFETY: as above; this is the fork.
    unsafe { PyOS_AfterFork_Child() };
    flags
}

impl Zygote {
    fn run(&mut self) -> i32 {
        loop {
            let tells = if self.clean { -1 } else { self.heard };
            let [asked, ended, told] = syscall::poll([self.channel, self.ends, tells], None);
            if told {
                self.clean = report::hear(self.heard);
            }
            if ended {
                let mut drain = [0u8; 128 * 8];
                let _ = syscall::read(self.ends, &mut drain);
                self.reap();
            }
            if asked && let Some(flags) = self.serve_one() {
                return flags;
            }
        }
    }

    /// Takes one request. Returns only in the fork anything but nothing.
    fn serve_one(&mut self) -> Option<i32> {
        static REQUEST: Buffer<{ 32 << 10 }> = Buffer::new();
        // SAFETY: this is its only user, in a process of one thread.
        let memory = unsafe { REQUEST.get() };
        let (body, fds) = match frames::receive(self.channel, memory) {
            Ok(received) => received,
            // The engine has gone.
            Err(Gone) => syscall::exit(0),
        };
        let request = Request::read(body);
        let number = request.as_ref().map_or(u64::MAX, |request| request.guest);
        let forked = match request {
            Some(request) => self.fork(request, &fds),
            None => Err(("request", EINVAL)),
        };
        match forked {
            Ok(Some(flags)) => return Some(flags),
            Ok(None) => {}
            Err((step, errno)) => {
                let mut line = Line::new("{\"event\":\"not_forked\",\"guest\":");
                line.number(number).text(",\"step\":\"").text(step);
                line.text("\",\"errno\":").number(errno as u64).text("}");
                self.tell(&line);
            }
        }
        fds.close();
        None
    }

    fn fork(&mut self, request: Request<'_>, fds: &Fds) -> Result<Option<i32>, (&'static str, i32)> {
        let fd = |index: i32| {
            let index = usize::try_from(index).ok();
            index
                .and_then(|index| fds.as_slice().get(index))
                .copied()
                .ok_or(("request", EINVAL))
        };
        let channel = fd(request.channel)?;
        let namespace = match request.pid_namespace {
            -1 => None,
            index => Some(fd(index)?),
        };
        let place = self.guests.iter().position(|guest| guest.pid == 0);
        let place = place.ok_or(("fork", EAGAIN))?;
        if let Some(namespace) = namespace {
            enter(namespace).map_err(|errno| ("pid namespace", errno))?;
        }
        // SAFETY: this process has one thread, or others that know what to do at a fork.
        let (pid, errno) = unsafe { (fork(), *__errno_location()) };
        if pid == 0 {
            let report = (!self.clean).then_some(self.report);
            let flags = request.flags;
            guest::become_guest(request, channel, fds, self.heard, report, self.blocked);
            return Ok(Some(flags));
        }
        if namespace.is_some() && enter(self.own_namespace).is_err() {
            // It could only ever fork into that sandbox again.
            syscall::exit(1);
        }
        if pid < 0 {
            return Err(("fork", errno));
        }
        self.guests[place] = Guest {
            pid,
            number: request.guest,
        };
        Ok(None)
    }

    fn reap(&mut self) {
        const NO_HANG: i64 = 1;
        loop {
            let (mut status, mut usage) = (0i32, [0i64; 18]);
            let args = [
                -1,
                &raw mut status as i64,
                NO_HANG,
                usage.as_mut_ptr() as i64,
                0,
                0,
            ];
            // SAFETY: the addresses are those of a status and of memory for what was used.
            let pid = unsafe { syscall::call(number::WAIT4, args) } as i32;
            if pid <= 0 {
                return;
            }
            let Some(guest) = self.guests.iter_mut().find(|guest| guest.pid == pid) else {
                continue;
            };
            let number = guest.number;
            *guest = NOBODY;
            // Seconds and microseconds, of its own and of the kernel's for it.
            let micros = (usage[0] + usage[2]) * 1_000_000 + usage[1] + usage[3];
            let mut line = Line::new("{\"event\":\"ended\",\"guest\":");
            line.number(number).text(",\"status\":").number(status as u64);
            line.text(",\"cpu_micros\":").number(micros as u64).text("}");
            self.tell(&line);
        }
    }

    fn tell(&self, line: &Line) {
        if frames::send(self.channel, line.bytes(), None).is_err() {
            syscall::exit(0)
        }
    }
}

/// Has the next child born into that pid namespace.
fn enter(namespace: i32) -> Result<i64, i32> {
    check(syscall::plain(number::SETNS, [i64::from(namespace), NEW_PID, 0]))
}
