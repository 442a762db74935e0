//! The streams of a guest that is started ahead of its program.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use belljar_core::ProviderError;

use super::output;
use super::raise::{Waiting, WantedGuest};
use super::sandbox::failed;
use crate::wire::{self, InitRequest};

/// The streams of a guest: its ends, and ours.
#[derive(Debug)]
pub(super) struct Streams {
    guest: [OwnedFd; 4],
    stdin: OwnedFd,
    stdout: OwnedFd,
    stderr: OwnedFd,
    channel: OwnedFd,
}

impl Streams {
    pub(super) fn new() -> io::Result<Self> {
        let (stdin_guest, stdin) = output::pipe()?;
        let (stdout, stdout_guest) = output::pipe()?;
        let (stderr, stderr_guest) = output::pipe()?;
        let (channel, channel_guest) = wire::pair()?;
        Ok(Self {
            guest: [stdin_guest, stdout_guest, stderr_guest, channel_guest],
            stdin,
            stdout,
            stderr,
            channel,
        })
    }

    /// Starts a guest in the shell of an init; whether it gets there is heard from that.
    pub(super) fn start(
        self,
        init: &OwnedFd,
        namespaces: &[OwnedFd],
        guest: WantedGuest,
        groups: &[OwnedFd],
    ) -> Result<Waiting, ProviderError> {
        let streams = self.guest.each_ref().map(AsFd::as_fd);
        let spec = Box::new(guest.spec);
        let tell = |request: &InitRequest, fds: &[BorrowedFd<'_>]| {
            wire::send(init, request, fds).map_err(|error| failed("start", "an interpreter", error))
        };
        let ended = match guest.zygote {
            None => {
                tell(&InitRequest::Exec(spec), &streams)?;
                None
            }
            Some((zygote, errand)) => {
                let (to_fork, to_init) = wire::pair().map_err(|error| failed("make", "a pipe", error))?;
                let fds: Vec<_> = [to_fork.as_fd()].into_iter().chain(streams).collect();
                let held = errand.hold;
                tell(&InitRequest::Adopt { spec, held }, &fds)?;
                let ended = zygote.fork(namespaces, to_init.as_fd(), groups, errand);
                Some(ended.map_err(|error| failed("fork", "an interpreter", error))?)
            }
        };
        Ok(Waiting {
            stdin: self.stdin,
            stdout: self.stdout,
            stderr: self.stderr,
            channel: self.channel,
            ended,
            pidfd: None,
        })
    }
}
