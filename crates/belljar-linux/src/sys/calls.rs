//! Performs lists of system calls in this process.

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

/// A call that failed: its step and its error.
#[derive(Debug)]
pub(crate) struct Failed {
    pub step: &'static str,
    pub errno: i32,
}

/// A list of calls whose late ones are still to be made.
#[derive(Debug)]
pub(crate) struct Performed<'a> {
    calls: &'a [Call],
    list: Vec<u8>,
    fds: Vec<i32>,
    /// The descriptor that a call returned to be sent, if there is one.
    pub sent: Option<OwnedFd>,
}

/// Performs `calls` in order, but for the late ones.
pub(crate) fn perform<'a>(calls: &'a [Call], fds: &[BorrowedFd<'_>]) -> Result<Performed<'a>, Failed> {
    let fds: Vec<i32> = fds.iter().map(AsRawFd::as_raw_fd).collect();
    let mut list = encode(calls);
    // SAFETY: the lists are made by `init::plan` and its like alone; each address among the arguments is of memory of
    // the size that the call reads or writes, which the plan's tests hold call by call.
    let sent = unsafe { list::perform(&mut list, &fds) }.map_err(|failed| named(calls, failed))?;
    Ok(Performed {
        calls,
        list,
        fds,
        // SAFETY: a call that is marked so returned a new descriptor, which nothing else owns.
        sent: sent.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }),
    })
}

impl Performed<'_> {
    /// Performs the late calls.
    pub(crate) fn finish(mut self) -> Result<(), Failed> {
        // SAFETY: as for `perform`, whose list this is.
        unsafe { list::perform_late(&mut self.list, &self.fds) }.map_err(|failed| named(self.calls, failed))
    }
}

fn named(calls: &[Call], failed: list::Failed) -> Failed {
    Failed {
        step: calls.get(failed.call).map_or("", |call| call.step),
        errno: failed.errno,
    }
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

    #[test]
    fn late_calls_are_made_later() {
        let pid = i64::from(std::process::id());
        let get = |wanted| Call::new("pid", libc::SYS_getpid, []).expect(wanted);
        let text = Call::new("cwd", libc::SYS_getcwd, [Arg::bytes([0; 4096]), 4096.into()]);
        let calls = [get(pid), text, get(pid + 1).late()];
        let performed = perform(&calls, &[]).unwrap();
        assert_eq!(performed.finish().unwrap_err().step, "pid");
        let calls = [get(pid), get(pid).late()];
        assert!(perform(&calls, &[]).unwrap().finish().is_ok());
    }
}
