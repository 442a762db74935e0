//! A sandbox whose interpreter stays: starting it, hearing it, ending it.

use std::collections::VecDeque;
use std::sync::Arc;

use belljar_core::frame::FrameReader;
use belljar_core::provider::{BoxFuture, Ended, Heard, Interpreting, OutputSink, WorkFiles};
use belljar_core::{Limits, ProviderError, Stage, Usage};
use belljar_linux::agent::wire::{PIECE, WINDOW, ask};

use super::files::AgentFiles;
use super::sandbox::AgentSandbox;
use super::told::Told;
use super::watch::{self, Watch};
use crate::place::Used;

/// An interpreter that stays.
#[derive(Debug, Default)]
pub(crate) struct Interpreter {
    /// What it said, as far as it is no whole message.
    incoming: FrameReader,
    broken: bool,
    /// What it is still to be told.
    outgoing: VecDeque<u8>,
    on_its_way: usize,
    watch: Option<Watch>,
    /// What had been used when the last execution ended.
    before: Used,
}

impl Interpreter {
    /// The next piece that it may be told.
    fn piece(&mut self) -> Option<Vec<u8>> {
        let room = (WINDOW - self.on_its_way.min(WINDOW)).min(PIECE);
        let count = room.min(self.outgoing.len());
        if count == 0 {
            return None;
        }
        self.on_its_way += count;
        Some(self.outgoing.drain(..count).collect())
    }
}

impl AgentSandbox {
    async fn start_interpreter(&mut self, stage: &Stage) -> Result<(), ProviderError> {
        self.place.limit(stage.limits())?;
        self.leftovers.clear();
        let start = self.start_guest(stage, true);
        match self.guests.recv().await {
            Some(Told::Started) => {}
            Some(Told::NotStarted { step, errno }) => {
                let why = match Self::cannot_start(stage, start.step(step), errno)? {
                    Ended::CannotStart(why) => why,
                    _ => String::new(),
                };
                return Err(ProviderError::Setup {
                    step: "the interpreter".to_owned(),
                    source: std::io::Error::other(why),
                });
            }
            _ => return Err(ProviderError::Protocol("the agent is gone".to_owned())),
        }
        self.line.tell(ask::INPUT_END, &[]);
        let before = watch::now(&self.line, &*self.place, &self.counters).await;
        self.interpreter = Some(Interpreter {
            before,
            ..Interpreter::default()
        });
        Ok(())
    }

    fn send_pieces(&mut self) {
        let Some(interpreter) = &mut self.interpreter else {
            return;
        };
        while let Some(piece) = interpreter.piece() {
            self.line.tell(ask::SAY, &piece);
        }
    }

    async fn hear_interpreter(&mut self) -> Result<Heard, ProviderError> {
        loop {
            if let Some(heard) = self.leftovers.pop_front() {
                return Ok(heard);
            }
            let Some(interpreter) = &mut self.interpreter else {
                return Err(ProviderError::Protocol("no interpreter is running".to_owned()));
            };
            if !interpreter.broken {
                match interpreter.incoming.next_message() {
                    Ok(Some(message)) => return Ok(Heard::Message(message)),
                    Ok(None) => {}
                    Err(why) => {
                        interpreter.broken = true;
                        interpreter.incoming = FrameReader::default();
                        return Ok(Heard::Broken(why));
                    }
                }
            }
            let (line, place, counters) = (&self.line, &*self.place, &self.counters);
            let trip = async {
                match &mut interpreter.watch {
                    Some(watch) => watch.trip(line, place, counters).await,
                    None => std::future::pending().await,
                }
            };
            let told = tokio::select! {
                // Limits come first: an interpreter that never stops talking must not outrun them.
                biased;
                reason = trip => Err(reason),
                told = self.guests.recv() => Ok(told),
            };
            match told {
                Ok(Some(Told::Said(bytes))) => {
                    if !interpreter.broken {
                        interpreter.incoming.push(&bytes);
                    }
                    self.listened_to(bytes.len());
                }
                Ok(Some(Told::Output(stream, bytes))) => {
                    self.listened_to(bytes.len());
                    return Ok(Heard::Output(stream, bytes.to_vec()));
                }
                Ok(Some(Told::SayingTaken(count))) => {
                    interpreter.on_its_way = interpreter.on_its_way.saturating_sub(count);
                    self.send_pieces();
                }
                Ok(Some(Told::Silent)) if !interpreter.broken => {
                    interpreter.broken = true;
                    interpreter.outgoing.clear();
                    return Ok(Heard::Broken("it closed its channel".to_owned()));
                }
                Ok(Some(Told::Ended { status, .. })) => {
                    let now = watch::now(&self.line, &*self.place, &self.counters).await;
                    let watch = self.interpreter.as_mut().and_then(|interpreter| {
                        let watch = interpreter.watch.as_mut()?;
                        watch.saw(now);
                        Some(&*watch)
                    });
                    let ended = Self::judge(status, watch);
                    self.is_over(ended);
                }
                Ok(Some(_)) => {}
                Ok(None) => {
                    let ended = self.place.why_gone().await;
                    self.end_all().await;
                    self.is_over(ended);
                }
                Err(reason) => {
                    self.end_all().await;
                    while let Some(told) = self.guests.try_recv() {
                        if let Told::Output(stream, bytes) = told {
                            self.leftovers.push_back(Heard::Output(stream, bytes.to_vec()));
                        }
                    }
                    self.is_over(reason);
                }
            }
        }
    }

    /// The interpreter has ended; what it printed comes first, then its end.
    fn is_over(&mut self, ended: Ended) {
        if let Some(watch) = self.interpreter.take().and_then(|interpreter| interpreter.watch) {
            self.used = watch.usage(None, None);
        }
        self.leftovers.push_back(Heard::Ended(ended));
    }

    async fn stop_interpreter(&mut self) -> bool {
        self.leftovers.clear();
        if self.interpreter.take().is_none() {
            // It has ended: by itself, which leaves the place as it is, or with it.
            return !self.guests.is_closed();
        }
        if self.end_guest().await {
            return true;
        }
        self.end_all().await;
        false
    }
}

impl Interpreting for AgentSandbox {
    fn start<'a>(&'a mut self, stage: &'a Stage) -> BoxFuture<'a, Result<(), ProviderError>> {
        Box::pin(self.start_interpreter(stage))
    }

    fn begin(&mut self, limits: &Limits) -> Result<(), ProviderError> {
        let held = self.held;
        self.used = Usage::default();
        match &mut self.interpreter {
            Some(interpreter) => {
                let before = self.place.used().unwrap_or(interpreter.before);
                interpreter.watch = Some(Watch::new(limits, held, before));
                Ok(())
            }
            None => Err(ProviderError::Protocol("no interpreter is running".to_owned())),
        }
    }

    fn say(&mut self, message: &[u8]) {
        if let Some(interpreter) = &mut self.interpreter {
            let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
            interpreter.outgoing.extend(length.to_le_bytes());
            interpreter.outgoing.extend(message);
        }
        self.send_pieces();
    }

    fn unsaid(&self) -> usize {
        let said = |interpreter: &Interpreter| interpreter.outgoing.len() + interpreter.on_its_way;
        self.interpreter.as_ref().map_or(0, said)
    }

    fn hear(&mut self) -> BoxFuture<'_, Result<Heard, ProviderError>> {
        Box::pin(self.hear_interpreter())
    }

    fn finish(&mut self, sink: &mut dyn OutputSink) -> Usage {
        let Some(mut interpreter) = self.interpreter.take() else {
            return std::mem::take(&mut self.used);
        };
        // What is there already belongs to the execution that wrote it.
        let mut rest = VecDeque::new();
        while let Some(told) = self.guests.try_recv() {
            match told {
                Told::Output(stream, bytes) => {
                    sink.write(stream, &bytes);
                    self.listened_to(bytes.len());
                }
                other => rest.push_back(other),
            }
        }
        for told in rest {
            self.keep_for_later(&mut interpreter, told);
        }
        let used = match interpreter.watch.take() {
            Some(watch) => {
                interpreter.before = watch.seen();
                watch.usage(None, None)
            }
            None => Usage::default(),
        };
        if self.leftovers.is_empty() || !matches!(self.leftovers.back(), Some(Heard::Ended(_))) {
            self.interpreter = Some(interpreter);
        }
        used
    }

    fn stop_clock(&mut self) {
        if let Some(watch) = self.interpreter.as_mut().and_then(|it| it.watch.as_mut()) {
            watch.stop_clock();
        }
    }

    fn start_clock(&mut self) {
        if let Some(watch) = self.interpreter.as_mut().and_then(|it| it.watch.as_mut()) {
            watch.start_clock();
        }
    }

    fn interrupt(&mut self) {
        self.line.tell(ask::SIGNAL, &libc::SIGINT.to_le_bytes());
    }

    fn stop(&mut self) -> BoxFuture<'_, bool> {
        Box::pin(self.stop_interpreter())
    }

    fn files(&self) -> Option<WorkFiles> {
        Some(WorkFiles::Asked(Arc::new(AgentFiles {
            line: Arc::clone(&self.line),
            largest: self.plan.limits().disk().get(),
        })))
    }
}

impl AgentSandbox {
    /// Something other than output that came after an execution was over.
    fn keep_for_later(&mut self, interpreter: &mut Interpreter, told: Told) {
        match told {
            Told::Said(bytes) => {
                if !interpreter.broken {
                    interpreter.incoming.push(&bytes);
                }
                self.listened_to(bytes.len());
            }
            Told::SayingTaken(count) => {
                interpreter.on_its_way = interpreter.on_its_way.saturating_sub(count);
            }
            Told::Silent if !interpreter.broken => {
                interpreter.broken = true;
                self.leftovers
                    .push_back(Heard::Broken("it closed its channel".to_owned()));
            }
            Told::Ended { status, .. } => {
                let ended = Self::judge(status, interpreter.watch.as_ref());
                self.leftovers.push_back(Heard::Ended(ended));
            }
            _ => {}
        }
    }
}
