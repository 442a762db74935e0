//! Taking in a guest that a warm interpreter forks into this sandbox.
//!
//! The fork reads what it has to do from a channel, does it, and answers. Until then it has seen
//! nothing of a tenant, so its answer is taken at its word like that of init's own forks.

use std::io;
use std::os::fd::OwnedFd;

use super::calls;
use super::plan::Plan;
use crate::sys::calls::list;
use crate::wire::{self, GuestSpec, Note, StepFailure};

/// A guest that is on its way in.
#[derive(Debug)]
pub(super) struct Adoption {
    pub channel: OwnedFd,
    pub spec: Box<GuestSpec>,
    /// Whether a process stands beside it.
    pub held: bool,
    pub notes: Vec<Note>,
    /// Of the calls that it was told to make.
    steps: Vec<&'static str>,
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

impl Adoption {
    /// Tells the fork what it has to do.
    pub(super) fn begin(
        channel: OwnedFd,
        spec: Box<GuestSpec>,
        held: bool,
        plan: Plan,
        streams: &[OwnedFd],
    ) -> io::Result<Self> {
        wire::send_bytes(&channel, &calls::encode(&plan.calls), &plan.fds(streams))?;
        Ok(Self {
            channel,
            spec,
            held,
            notes: plan.notes,
            steps: plan.calls.into_iter().map(|call| call.step).collect(),
        })
    }

    /// Hears the fork's answer, which has begun to arrive: its pid, its holder's, the call that failed and how.
    pub(super) fn finish(&self) -> Result<Arrival, StepFailure> {
        let at = |error: io::Error| StepFailure::new("Adopt", error);
        let (answer, fds) = wire::receive_bytes(&self.channel).map_err(at)?;
        let mut words = answer
            .chunks_exact(4)
            .map(|word| word.try_into().map_or(0, i32::from_le_bytes));
        let (Some(pid), Some(holder), Some(failed), Some(errno)) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            return Err(at(io::ErrorKind::InvalidData.into()));
        };
        if let Ok(call) = usize::try_from(failed) {
            return Err(StepFailure {
                step: self.step(call).to_owned(),
                errno,
            });
        }
        if pid <= 1 {
            return Err(at(io::ErrorKind::InvalidData.into()));
        }
        Ok(Arrival {
            pid,
            holder: (holder > 1).then_some(holder),
            listener: fds.into_iter().next(),
        })
    }

    /// The step of a call that failed. Beyond init's own list are the one that took the fork in here, and what it sees then.
    fn step(&self, call: usize) -> &str {
        match call / list::MOST {
            0 => self.steps.get(call).copied().unwrap_or("Adopt"),
            1 => "EnterShell",
            _ => "SharedMemory",
        }
    }
}
