//! Taking in a guest that a warm interpreter forks into this sandbox.
//!
//! The fork reads what it has to do from a channel, does it, and answers. Until then it has seen
//! nothing of a tenant, so its answer is taken at its word like that of init's own forks.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};
use serde::Deserialize;
use serde_json::json;

use super::calls;
use super::plan::Plan;
use crate::wire::{GuestSpec, MAX_BODY, MAX_FDS, Note, StepFailure};

/// A guest that is on its way in.
#[derive(Debug)]
pub(super) struct Adoption {
    pub channel: OwnedFd,
    pub spec: Box<GuestSpec>,
    pub notes: Vec<Note>,
}

/// What the fork answered.
#[derive(Debug)]
pub(super) struct Arrival {
    /// As this pid namespace numbers it.
    pub pid: i32,
    pub listener: Option<OwnedFd>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Answer {
    Arrived { pid: i32 },
    Failed { failed: FailedCall },
}

#[derive(Deserialize)]
struct FailedCall {
    step: String,
    errno: i32,
}

impl Adoption {
    /// Tells the fork what it has to do.
    pub(super) fn begin(
        channel: OwnedFd,
        spec: Box<GuestSpec>,
        plan: Plan,
        streams: &[OwnedFd],
    ) -> io::Result<Self> {
        let body = json!({ "calls": calls::to_json(&plan.calls) }).to_string();
        let frame = [&(body.len() as u32).to_le_bytes(), body.as_bytes()].concat();
        let fds = plan.fds(streams);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(&fds));
        let mut rest = &frame[..];
        while !rest.is_empty() {
            let sent = rustix::io::retry_on_intr(|| {
                rustix::net::sendmsg(&channel, &[IoSlice::new(rest)], &mut control, SendFlags::NOSIGNAL)
            })?;
            rest = &rest[sent..];
            control.clear();
        }
        Ok(Self {
            channel,
            spec,
            notes: plan.notes,
        })
    }

    /// Hears the fork's answer, which has begun to arrive.
    pub(super) fn finish(&self) -> Result<Arrival, StepFailure> {
        let at = |step: &str, error: &io::Error| StepFailure {
            step: step.to_owned(),
            errno: error.raw_os_error().unwrap_or(0),
        };
        let (body, fds) = self.receive().map_err(|error| at("Adopt", &error))?;
        match serde_json::from_slice(&body) {
            Ok(Answer::Arrived { pid }) if pid > 1 => Ok(Arrival {
                pid,
                listener: fds.into_iter().next(),
            }),
            Ok(Answer::Failed { failed }) => Err(StepFailure {
                step: failed.step,
                errno: failed.errno,
            }),
            _ => Err(at("Adopt", &io::ErrorKind::InvalidData.into())),
        }
    }

    fn receive(&self) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
        let mut fds = Vec::new();
        let mut header = [0u8; 4];
        self.fill(&mut header, &mut fds)?;
        let length = u32::from_le_bytes(header) as usize;
        if length > MAX_BODY {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut body = vec![0; length];
        self.fill(&mut body, &mut fds)?;
        Ok((body, fds))
    }

    fn fill(&self, mut buffer: &mut [u8], fds: &mut Vec<OwnedFd>) -> io::Result<()> {
        while !buffer.is_empty() {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let received = rustix::io::retry_on_intr(|| {
                let into = &mut [IoSliceMut::new(buffer)];
                rustix::net::recvmsg(self.channel.as_fd(), into, &mut control, RecvFlags::CMSG_CLOEXEC)
            })?;
            for message in control.drain() {
                if let RecvAncillaryMessage::ScmRights(received) = message {
                    fds.extend(received);
                }
            }
            if received.bytes == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            buffer = &mut buffer[received.bytes..];
        }
        Ok(())
    }
}
