//! Taking in a guest that a warm interpreter forks into this sandbox.
//!
//! The fork reads what it has to do from a channel, does it, and answers. Until then it has seen
//! nothing of a tenant, so its answer is taken at its word like that of init's own forks.

use std::io;
use std::os::fd::OwnedFd;

use serde::Deserialize;
use serde_json::json;

use super::calls;
use super::plan::Plan;
use crate::wire::{self, GuestSpec, Note, StepFailure};

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
    /// A process beside it that only holds its memory.
    pub holder: Option<i32>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Answer {
    Arrived {
        pid: i32,
        #[serde(default)]
        holder: i32,
    },
    Failed {
        failed: FailedCall,
    },
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
        let message = json!({ "calls": calls::to_json(&plan.calls) });
        wire::send_json(&channel, &message, &plan.fds(streams))?;
        Ok(Self {
            channel,
            spec,
            notes: plan.notes,
        })
    }

    /// Hears the fork's answer, which has begun to arrive.
    pub(super) fn finish(&self) -> Result<Arrival, StepFailure> {
        let at = |error: io::Error| StepFailure::new("Adopt", error);
        match wire::receive_json(&self.channel).map_err(at)? {
            (Answer::Arrived { pid, holder }, fds) if pid > 1 => Ok(Arrival {
                pid,
                holder: (holder > 1).then_some(holder),
                listener: fds.into_iter().next(),
            }),
            (Answer::Arrived { .. }, _) => Err(at(io::ErrorKind::InvalidData.into())),
            (Answer::Failed { failed }, _) => Err(StepFailure {
                step: failed.step,
                errno: failed.errno,
            }),
        }
    }
}
