//! Takes a fork of the zygote into its jail and restricts it there.

use super::calls::{self, Failed};
use super::frames::{self, Buffer, Fds};
use super::holder;
use super::maps;
use super::report;
use super::syscall::{self, number};

/// The runner's control channel.
const CHANNEL: i32 = 3;
const EPERM: i32 = 1;
/// Of a request's flags: the memory is to be held. The others are Python's.
const HOLD: i32 = 4;

/// What the zygote is asked for: this, then the calls that take the fork into its sandbox.
pub struct Request<'a> {
    pub guest: u64,
    /// Indices of descriptors; -1 where there is none.
    pub channel: i32,
    pub pid_namespace: i32,
    /// What it is for.
    pub flags: i32,
    calls: &'a mut [u8],
}

impl<'a> Request<'a> {
    pub fn read(body: &'a mut [u8]) -> Option<Self> {
        let (head, calls) = body.split_at_mut_checked(24)?;
        let (guest, words) = head.split_first_chunk::<8>()?;
        let word = |at: usize| Some(i32::from_le_bytes(*words.get(at..)?.first_chunk()?));
        Some(Self {
            guest: u64::from_le_bytes(*guest),
            channel: word(0)?,
            pid_namespace: word(4)?,
            flags: word(8)?,
            calls,
        })
    }
}

/// Does all that a fork has to do before Python goes on. Returns only if all of it was done.
///
/// `unwritable` is a descriptor that nobody can write to. Where nobody has looked yet whether the zygote's forks share
/// memory, this one does, and says on `report` that they do not.
pub fn become_guest(
    request: Request<'_>,
    channel: i32,
    fds: &Fds,
    unwritable: i32,
    report: Option<i32>,
    blocked: u64,
) {
    // The descriptor of the zygote's own channel will be another. Until then it must stay taken: a runner whose calls forgot to
    // replace it must not speak to the engine in the zygote's name.
    if syscall::plain(number::DUP3, [i64::from(unwritable), i64::from(CHANNEL), 0]) < 0 {
        syscall::exit(127);
    }
    syscall::block_signals(blocked);
    let mut done = enter(request.calls, channel, fds, report);
    let holder = if done.is_ok() && request.flags & HOLD != 0 {
        holder::hold()
    } else {
        0
    };
    let (pid, fd, failed) = match &done {
        Ok(entered) => (syscall::plain(number::GETPID, [0; 3]) as i32, entered.sent, None),
        Err(failed) => (0, None, Some(*failed)),
    };
    let (call, errno) = failed.map_or((-1, 0), |failed| (failed.call as i32, failed.errno));
    let mut answer = [0u8; 16];
    for (place, word) in answer.chunks_exact_mut(4).zip([pid, holder, call, errno]) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    let sent = frames::send(channel, &answer, fd);
    if sent.is_err() || !done.as_mut().is_ok_and(Entered::finish) || !close_others() {
        if holder > 0 {
            // Or it would hold our descriptors as well, and nobody would see that we have gone.
            const SIGKILL: i64 = 9;
            syscall::plain(number::KILL, [i64::from(holder), SIGKILL, 0]);
        }
        syscall::exit(127);
    }
}

/// A fork that has performed both lists, but for the late calls of init's.
struct Entered {
    list: &'static mut [u8],
    /// A descriptor for init.
    sent: Option<i32>,
}

impl Entered {
    /// Performs the late calls.
    fn finish(&mut self) -> bool {
        // SAFETY: the sandbox's own init made this list for its guest. No late call takes a descriptor.
        unsafe { calls::perform_late(self.list, &[]) }.is_ok()
    }
}

/// Performs the zygote's list, then init's.
fn enter(calls: &mut [u8], channel: i32, fds: &Fds, report: Option<i32>) -> Result<Entered, Failed> {
    // SAFETY: the engine made this list for a fork of this zygote.
    unsafe { calls::perform(calls, fds.as_slice()) }.map_err(|failed| Failed {
        // Not of init's list.
        call: failed.call + calls::MOST,
        ..failed
    })?;
    static LIST: Buffer<{ 64 << 10 }> = Buffer::new();
    // SAFETY: this is its only user, in a process of one thread.
    let body = unsafe { LIST.get() };
    let Ok((list, further)) = frames::receive(channel, body) else {
        // Init has gone, or sent nonsense.
        syscall::exit(127)
    };
    // SAFETY: the sandbox's own init made this list for its guest.
    let sent = unsafe { calls::perform(list, further.as_slice()) }?;
    if let Some(pipe) = report {
        if maps::are_shared() {
            return Err(Failed {
                call: 2 * calls::MOST,
                errno: EPERM,
            });
        }
        report::tell(pipe);
    }
    Ok(Entered { list, sent })
}

/// Whether a fork will be able to close what is not its own.
pub fn can_close() -> bool {
    let nobodys = i64::from(i32::MAX);
    syscall::plain(number::CLOSE_RANGE, [nobodys, nobodys, 0]) == 0
}

/// Closes all but the streams and the runner's channel, which programs that the guest starts have no use for.
fn close_others() -> bool {
    const SET_FLAGS: i64 = 2;
    const CLOSE_ON_EXEC: i64 = 1;
    let after = i64::from(CHANNEL) + 1;
    syscall::plain(number::FCNTL, [i64::from(CHANNEL), SET_FLAGS, CLOSE_ON_EXEC]) == 0
        && syscall::plain(number::CLOSE_RANGE, [after, i64::from(u32::MAX), 0]) == 0
}
