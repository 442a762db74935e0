//! An interpreter that stays: its channel, its streams, and what may end it.

use std::io;
use std::time::Instant;

use belljar_core::provider::{Ended, Heard, OutputSink, Stream};
use belljar_core::{Limits, Usage};

use super::channel::Incoming;
use super::group::SandboxGroup;
use super::guest::{Guest, Told};
use super::shell::Shell;
use super::watch::Watch;

/// What the engine holds of an interpreter.
#[derive(Debug)]
pub(crate) struct Interpreter {
    pub guest: Guest,
    execution: Option<Execution>,
}

/// The execution of the moment.
#[derive(Debug)]
struct Execution {
    watch: Watch,
    started: Instant,
}

impl Interpreter {
    pub(crate) fn new(mut guest: Guest) -> Self {
        // Cells have input of their own; what is read here is at its end.
        guest.stdin = None;
        Self {
            guest,
            execution: None,
        }
    }

    pub(crate) fn watch(&self) -> Option<&Watch> {
        self.execution.as_ref().map(|execution| &execution.watch)
    }

    pub(crate) fn watch_mut(&mut self) -> Option<&mut Watch> {
        self.execution.as_mut().map(|execution| &mut execution.watch)
    }

    pub(crate) fn begin(
        &mut self,
        limits: &Limits,
        shell: &Shell,
        group: Option<&SandboxGroup>,
        memory_accounted: bool,
    ) {
        let started = Instant::now();
        let mut watch = Watch::new(limits, started, group, memory_accounted);
        // What it used before belongs to other executions.
        if watch.adds_up() {
            watch.forget_before(group, &shell.roots(self.guest.pidfd.as_ref()));
        }
        self.execution = Some(Execution { watch, started });
    }

    /// The limits no longer count; what was used while they did.
    pub(crate) fn finish(&mut self, group: Option<&SandboxGroup>, sink: &mut dyn OutputSink) -> Usage {
        self.guest.output.drain(|stream, bytes| sink.write(stream, bytes));
        match self.execution.take() {
            Some(execution) => execution.watch.usage(group, None, execution.started.elapsed()),
            None => Usage::default(),
        }
    }

    /// What it says or does next, or which limit it breaks. Cancel-safe.
    pub(crate) async fn next(&mut self, shell: &mut Shell, group: Option<&SandboxGroup>) -> Next {
        let Self { guest, execution } = self;
        let Guest {
            output,
            channel,
            fate,
            pidfd,
            ..
        } = guest;
        // Found out only where something has to be added up.
        let roots = match execution {
            Some(execution) if execution.watch.adds_up() => shell.roots(pidfd.as_ref()),
            _ => Vec::new(),
        };
        let trip = async {
            match execution {
                Some(execution) => execution.watch.trip(group, &roots).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            // Limits come first: an interpreter that never stops talking must not outrun them.
            biased;
            reason = trip => Next::Limit(reason),
            told = fate.next(shell) => Next::Told(told),
            message = channel.next() => Next::Heard(match message {
                Incoming::Message(message) => Heard::Message(message),
                Incoming::Broken(why) => Heard::Broken(why),
                Incoming::Closed => Heard::Broken("it closed its channel".to_owned()),
            }),
            output = output.next() => match output {
                // A stream that cannot be read any more says nothing.
                Ok((_, [])) | Err(_) => Next::Nothing,
                Ok((stream, bytes)) => Next::Heard(Heard::Output(stream, bytes.to_vec())),
            },
        }
    }

    /// Everything it printed before it ended.
    pub(crate) fn last_words(&mut self) -> Vec<(Stream, Vec<u8>)> {
        let mut words = Vec::new();
        let output = &mut self.guest.output;
        output.drain(|stream, bytes| words.push((stream, bytes.to_vec())));
        words
    }
}

/// What happened next.
#[derive(Debug)]
pub(crate) enum Next {
    Heard(Heard),
    /// Init or a zygote told something of it; an error means that init is gone.
    Told(io::Result<Told>),
    /// It must end for this reason.
    Limit(Ended),
    Nothing,
}
