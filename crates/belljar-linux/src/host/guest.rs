//! The guest of the moment, as the engine holds it.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use super::channel::Channel;
use super::output::Output;
use super::raise::Waiting;
use super::shell::Shell;
use super::zygote::{self, GuestEnd};
use crate::wire::{InitEvent, Note, StepFailure};

/// Our side of a guest that waits, or waited, in a shell.
#[derive(Debug)]
pub(crate) struct Guest {
    pub stdin: Option<OwnedFd>,
    pub output: Output,
    pub channel: Channel,
    pub fate: Fate,
    /// Of a guest that is no descendant of init.
    pub pidfd: Option<OwnedFd>,
}

impl Guest {
    /// Takes over a guest that waits, for the runtime of the moment.
    pub(crate) fn take(waiting: Waiting) -> io::Result<Self> {
        Ok(Self {
            stdin: Some(waiting.stdin),
            output: Output::of(waiting.stdout, waiting.stderr)?,
            channel: Channel::of(waiting.channel)?,
            fate: Fate::new(waiting.ended),
            pidfd: waiting.pidfd,
        })
    }
}

/// How a guest ends: init sees that everything is gone, and who forked it knows its status.
#[derive(Debug, Default)]
pub(crate) struct Fate {
    forked: Option<zygote::Ended>,
    status: Option<GuestEnd>,
    cleared: bool,
}

/// What was told of a guest.
#[derive(Debug)]
pub(crate) enum Told {
    Started(Vec<Note>),
    NotStarted(StepFailure),
    Ended(GuestEnd),
    /// The zygote that it came from is gone, and its status with it.
    ZygoteLost,
    OutOfTurn,
}

impl Fate {
    pub(crate) const fn new(forked: Option<zygote::Ended>) -> Self {
        Self {
            forked,
            status: None,
            cleared: false,
        }
    }

    /// What is told next. An error means that init is gone. Cancel-safe.
    pub(crate) async fn next(&mut self, shell: &mut Shell) -> io::Result<Told> {
        loop {
            if let (true, Some(end)) = (self.cleared, self.status) {
                return Ok(Told::Ended(end));
            }
            let forked = async {
                match &mut self.forked {
                    Some(forked) => forked.await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                end = forked => {
                    self.forked = None;
                    match end {
                        Ok(end) => self.status = Some(end),
                        Err(_) => return Ok(Told::ZygoteLost),
                    }
                }
                event = shell.event() => match event? {
                    InitEvent::Started { notes } => return Ok(Told::Started(notes)),
                    InitEvent::NotStarted(failure) => return Ok(Told::NotStarted(failure)),
                    InitEvent::Ended { status: Some(status), cpu_micros } => {
                        let cpu = Duration::from_micros(cpu_micros);
                        return Ok(Told::Ended(GuestEnd { status, cpu }));
                    }
                    InitEvent::Ended { status: None, .. } => self.cleared = true,
                    _ => return Ok(Told::OutOfTurn),
                },
            }
        }
    }
}
