//! Performing system calls that are data, in this process.

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::init::calls::{Call, encode};

/// Shared with the zygote's native part: what performs a list here performs it there.
#[path = "native/calls.rs"]
#[expect(unreachable_pub, reason = "the zygote's native part is another crate")]
pub(crate) mod list;
#[path = "native/syscall.rs"]
#[expect(
    dead_code,
    unreachable_pub,
    reason = "the zygote's native part is another crate"
)]
mod syscall;

/// A call that failed: its step, and how.
#[derive(Debug)]
pub(crate) struct Failed {
    pub step: &'static str,
    pub errno: i32,
}

/// Performs `calls` in order and returns the descriptor that is to be sent, if there is one.
pub(crate) fn perform(calls: &[Call], fds: &[BorrowedFd<'_>]) -> Result<Option<OwnedFd>, Failed> {
    let fds: Vec<i32> = fds.iter().map(AsRawFd::as_raw_fd).collect();
    // SAFETY: the lists are made by `init::plan` and its like alone; each address among the arguments is of memory of
    // the size that the call reads or writes, which the plan's tests hold call by call.
    let sent = unsafe { list::perform(&mut encode(calls), &fds) }.map_err(|failed| Failed {
        step: calls.get(failed.call).map_or("", |call| call.step),
        errno: failed.errno,
    })?;
    // SAFETY: a call that is marked so returned a new descriptor, which nothing else owns.
    Ok(sent.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::init::calls::Arg;

    #[test]
    fn calls_are_made_with_their_memory_and_checked() {
        let limit = |bytes: [u64; 2]| bytes.map(u64::to_ne_bytes).concat();
        let (mut now, max) = (0u64, u64::MAX);
        // Reading a limit leaves it in memory; what stands there is compared.
        let ask = |left: Vec<u8>| {
            Call::new(
                "ask",
                libc::SYS_prlimit64,
                [
                    0.into(),
                    i64::from(libc::RLIMIT_CORE).into(),
                    0.into(),
                    Arg::bytes(limit([now, max])),
                ],
            )
            .leaving(3, left)
        };
        assert!(perform(&[ask(Vec::new())], &[]).is_ok());
        assert!(perform(&[ask(vec![0xaa; 16])], &[]).is_err());
        now += 1;
        let _ = now;
        let pid = i64::from(std::process::id());
        let get = |wanted| Call::new("pid", libc::SYS_getpid, []).expect(wanted);
        assert!(perform(&[get(pid)], &[]).is_ok());
        let failed = perform(&[get(pid + 1)], &[]).unwrap_err();
        assert_eq!(failed.step, "pid");
        assert!(perform(&[get(pid + 1).optional()], &[]).is_ok());
        let missing = Call::new("fd", libc::SYS_close, [Arg::Fd(0)]);
        assert_eq!(perform(&[missing], &[]).unwrap_err().errno, libc::EINVAL);
    }
}
