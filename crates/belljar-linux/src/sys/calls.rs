//! Performing system calls that are data.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::init::calls::{Arg, Call};

/// A call that failed: its step, and how.
#[derive(Debug)]
pub(crate) struct Failed {
    pub step: String,
    pub errno: i32,
}

/// Performs `calls` in order and returns the descriptors that are to be sent.
pub(crate) fn perform(calls: &[Call], fds: &[BorrowedFd<'_>]) -> Result<Vec<OwnedFd>, Failed> {
    let mut results = Vec::with_capacity(calls.len());
    let mut sent = Vec::new();
    for call in calls {
        let failed = |error: &io::Error| Failed {
            step: call.step.clone(),
            errno: error.raw_os_error().unwrap_or(0),
        };
        let result = match perform_one(call, fds, &results) {
            Ok(result) => result,
            Err(_) if call.optional => -1,
            Err(error) => return Err(failed(&error)),
        };
        results.push(result);
        if call.send && result >= 0 {
            // SAFETY: a call that is marked so returned a new descriptor, which nothing else owns.
            sent.push(unsafe { OwnedFd::from_raw_fd(result as i32) });
        }
    }
    Ok(sent)
}

fn perform_one(call: &Call, fds: &[BorrowedFd<'_>], results: &[i64]) -> io::Result<i64> {
    let missing = || io::Error::from_raw_os_error(libc::EINVAL);
    // What the arguments point to; neither moves until the call is over.
    let mut memory: Vec<Vec<u8>> = Vec::new();
    let mut inner: Vec<Vec<u8>> = Vec::new();
    let mut words = [0i64; 6];
    let mut buffer_of = [None; 6];
    if call.args.len() > words.len() {
        return Err(missing());
    }
    for (index, arg) in call.args.iter().enumerate() {
        words[index] = match arg {
            Arg::Number(number) => *number,
            Arg::Fd(fd) => i64::from(fds.get(*fd).ok_or_else(missing)?.as_raw_fd()),
            Arg::Result(earlier) => *results.get(*earlier).ok_or_else(missing)?,
            Arg::Bytes(bytes, pointers) => {
                let mut bytes = bytes.clone();
                for (at, to) in pointers {
                    inner.push(to.clone());
                    let address = inner.last().map_or(0, |to| to.as_ptr() as u64);
                    bytes
                        .get_mut(*at..*at + 8)
                        .ok_or_else(missing)?
                        .copy_from_slice(&address.to_ne_bytes());
                }
                memory.push(bytes);
                buffer_of[index] = Some(memory.len() - 1);
                memory.last_mut().map_or(0, |bytes| bytes.as_mut_ptr() as i64)
            }
        };
    }
    let [a, b, c, d, e, f] = words;
    // SAFETY: the lists are made by `init::plan` alone; each pointer among the arguments is to a live
    // buffer of the size that the call reads or writes, which the plan's tests hold call by call.
    let result = unsafe { libc::syscall(call.number, a, b, c, d, e, f) };
    if result == -1 {
        return Err(io::Error::last_os_error());
    }
    if call.expect.is_some_and(|wanted| wanted != result) {
        return Err(io::Error::from_raw_os_error(libc::EPERM));
    }
    if let Some((index, wanted)) = &call.out {
        let left = buffer_of
            .get(*index)
            .copied()
            .flatten()
            .and_then(|buffer| memory.get(buffer));
        if left.is_none_or(|left| !left.starts_with(wanted)) {
            return Err(io::Error::from_raw_os_error(libc::EPERM));
        }
    }
    Ok(result)
}

#[cfg(test)]
mod tests {
    use super::*;

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
