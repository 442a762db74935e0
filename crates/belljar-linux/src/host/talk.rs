//! A sandbox whose interpreter stays: starting it, hearing it, ending it.

use std::os::fd::AsFd;
use std::sync::Arc;

use belljar_core::provider::{
    BoxFuture, Ended, Heard, Interpreting, NoSink, OutputSink, StageStdin, WorkFiles,
};
use belljar_core::{Limits, ProviderError, Stage, Usage};

use super::channel::Channel;
use super::guest::{Fate, Guest, Told};
use super::interpreter::{Interpreter, Next};
use super::kernel_state::start_timeout;
use super::output::Output;
use super::sandbox::{NativeSandbox, failed};
use super::{probe, spec, stdin};
use crate::wire::InitRequest;

impl NativeSandbox {
    async fn start_interpreter(&mut self, stage: &Stage) -> Result<(), ProviderError> {
        if let Some(group) = &mut self.group {
            group.limit(stage.limits())?;
        }
        self.leftovers.clear();
        let guest = match self.waiting.take() {
            Some(guest) => guest,
            None => self.start_fresh(stage).await?,
        };
        self.interpreter = Some(Interpreter::new(guest));
        Ok(())
    }

    async fn start_fresh(&mut self, stage: &Stage) -> Result<Guest, ProviderError> {
        let made = |error| failed("make", "a pipe", error);
        let (output, [stdout, stderr]) = Output::new().map_err(made)?;
        let (channel, theirs) = Channel::new().map_err(made)?;
        let (stdin, _) = stdin::connect(StageStdin::Empty).map_err(made)?;
        let mut spec = spec::guest(&self.plan, stage, self.machine);
        // Executions have clocks of their own.
        spec.wall_millis = u64::MAX;
        let request = InitRequest::Exec(Box::new(spec));
        let fds = [stdin.as_fd(), stdout.as_fd(), stderr.as_fd(), theirs.as_fd()];
        let not_started = |error| failed("start", "an interpreter", error);
        self.shell.send(&request, &fds).await.map_err(not_started)?;
        let mut fate = Fate::default();
        let started = tokio::time::timeout(start_timeout(), fate.next(&mut self.shell)).await;
        let Ok(started) = started else {
            return Err(self.not_started());
        };
        match started.map_err(not_started)? {
            Told::Started(notes) => self.observe(notes),
            Told::NotStarted(failure) => return Err(probe::explain(&failure)),
            _ => {
                return Err(ProviderError::Protocol(
                    "init said something out of turn".to_owned(),
                ));
            }
        }
        Ok(Guest {
            stdin: None,
            output,
            channel,
            fate,
            pidfd: None,
        })
    }

    async fn hear_interpreter(&mut self) -> Result<Heard, ProviderError> {
        loop {
            if let Some(heard) = self.leftovers.pop_front() {
                return Ok(heard);
            }
            let Some(interpreter) = &mut self.interpreter else {
                return Err(ProviderError::Protocol("no interpreter is running".to_owned()));
            };
            let next = interpreter.next(&mut self.shell, self.group.as_ref()).await;
            let ended = match next {
                Next::Nothing => continue,
                Next::Heard(heard) => return Ok(heard),
                Next::Limit(reason) => {
                    self.end_all().await;
                    reason
                }
                Next::Told(Ok(Told::Ended(end))) => {
                    let execution = self.interpreter.as_ref().and_then(Interpreter::watch);
                    self.judge(end.status, execution)
                }
                Next::Told(Ok(Told::ZygoteLost)) => self.zygote_lost().await,
                Next::Told(Ok(_)) => {
                    return Err(ProviderError::Protocol(
                        "init said something out of turn".to_owned(),
                    ));
                }
                Next::Told(Err(_)) => self.init_gone().await,
            };
            self.check_dead()?;
            // What it printed comes first, then its end.
            if let Some(mut interpreter) = self.interpreter.take() {
                let words = interpreter.last_words().into_iter();
                self.leftovers
                    .extend(words.map(|(stream, bytes)| Heard::Output(stream, bytes)));
                self.used = interpreter.finish(self.group.as_ref(), &mut NoSink);
            }
            self.leftovers.push_back(Heard::Ended(ended));
        }
    }

    async fn init_gone(&mut self) -> Ended {
        // Borrowed apart: the watch is part of the interpreter, the group is not.
        let interpreter = self.interpreter.take();
        let ended = self
            .why_gone(interpreter.as_ref().and_then(Interpreter::watch))
            .await;
        self.interpreter = interpreter;
        ended
    }

    async fn stop_interpreter(&mut self) -> bool {
        self.leftovers.clear();
        let Some(mut interpreter) = self.interpreter.take() else {
            return self.shell.is_alive();
        };
        self.shell.tell(&InitRequest::EndGuest);
        loop {
            match interpreter.guest.fate.next(&mut self.shell).await {
                Ok(Told::Ended(_)) => return true,
                Ok(Told::ZygoteLost) | Err(_) => {
                    self.end_all().await;
                    return false;
                }
                Ok(_) => {}
            }
        }
    }
}

impl Interpreting for NativeSandbox {
    fn start<'a>(&'a mut self, stage: &'a Stage) -> BoxFuture<'a, Result<(), ProviderError>> {
        Box::pin(self.start_interpreter(stage))
    }

    fn begin(&mut self, limits: &Limits) -> Result<(), ProviderError> {
        if let Some(group) = &mut self.group {
            group.limit(limits)?;
        }
        if let Some(interpreter) = &mut self.interpreter {
            let accounted = self.machine.memory_accounted;
            interpreter.begin(limits, &self.shell, self.group.as_ref(), accounted);
        }
        Ok(())
    }

    fn say(&mut self, message: &[u8]) {
        if let Some(interpreter) = &mut self.interpreter {
            interpreter.guest.channel.say(message);
        }
    }

    fn unsaid(&self) -> usize {
        self.interpreter
            .as_ref()
            .map_or(0, |interpreter| interpreter.guest.channel.unsaid())
    }

    fn hear(&mut self) -> BoxFuture<'_, Result<Heard, ProviderError>> {
        Box::pin(self.hear_interpreter())
    }

    fn finish(&mut self, sink: &mut dyn OutputSink) -> Usage {
        match &mut self.interpreter {
            Some(interpreter) => interpreter.finish(self.group.as_ref(), sink),
            None => std::mem::take(&mut self.used),
        }
    }

    fn stop_clock(&mut self) {
        if let Some(watch) = self.interpreter.as_mut().and_then(Interpreter::watch_mut) {
            watch.stop_clock();
        }
    }

    fn start_clock(&mut self) {
        if let Some(watch) = self.interpreter.as_mut().and_then(Interpreter::watch_mut) {
            watch.start_clock();
        }
    }

    fn interrupt(&mut self) {
        self.shell.tell(&InitRequest::Interrupt);
    }

    fn stop(&mut self) -> BoxFuture<'_, bool> {
        Box::pin(self.stop_interpreter())
    }

    fn files(&self) -> Option<WorkFiles> {
        let directory = self.shell.work_dir.try_clone().ok()?;
        Some(WorkFiles::Directory(Arc::new(directory)))
    }
}
