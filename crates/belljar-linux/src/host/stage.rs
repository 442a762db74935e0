//! Running one stage to its end: a program that is started, or one that a waiting interpreter runs.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use belljar_core::outcome::Capture;
use belljar_core::plan::Script;
use belljar_core::provider::{Ended, StageEnd, StageIo, StageStdin, Stream};
use belljar_core::{ProviderError, Stage};
use serde_json::json;

use super::channel::{Channel, Incoming};
use super::guest::{Fate, Told};
use super::kernel_state::start_timeout;
use super::output::Output;
use super::sandbox::{NativeSandbox, failed};
use super::stdin::Pump;
use super::watch::Watch;
use super::{spec, stdin};
use crate::wire::InitRequest;

/// A program on its way: our ends of its streams.
struct Started {
    output: Output,
    fate: Fate,
    /// Whether init has still to report that it runs.
    starts: bool,
    /// Of one that is no descendant of init.
    pidfd: Option<OwnedFd>,
    /// Kept while it runs.
    _pump: Pump,
    /// Kept while it runs: an interpreter that loses its channel takes that for the end.
    channel: Option<Channel>,
}

impl NativeSandbox {
    pub(super) async fn run_stage(
        &mut self,
        stage: &Stage,
        io: StageIo<'_>,
    ) -> Result<StageEnd, ProviderError> {
        if let Some(group) = &mut self.group {
            group.limit(stage.limits())?;
        }
        let script = stage.warm().and_then(|warm| warm.script());
        if script.is_none() {
            self.dismiss().await?;
        }
        self.is_empty = false;
        let began = Instant::now();
        let cap = stage.limits().output().get();
        let (mut stdout, mut stderr) = (Capture::new(cap), Capture::new(cap));
        let mut watch = Watch::new(
            stage.limits(),
            began,
            self.group.as_ref(),
            self.machine.memory_accounted,
        );
        let started = match (self.waiting.is_some(), script) {
            (true, Some(script)) => self.hand_over(stage, script, io.stdin)?,
            _ => self.start(stage, io.stdin).await?,
        };
        let Some(mut started) = started else {
            return Ok(StageEnd {
                ended: self.why_gone(Some(&watch)).await,
                usage: watch.usage(self.group.as_ref(), None, began.elapsed()),
                stdout: stdout.into_captured(),
                stderr: stderr.into_captured(),
            });
        };
        let mut cpu_reported = None;
        let roots = if watch.adds_up() {
            self.shell.roots(started.pidfd.as_ref())
        } else {
            Vec::new()
        };
        let sink = io.sink;
        let mut keep = |stream, bytes: &[u8]| {
            let kept = match stream {
                Stream::Stdout => stdout.keep(bytes),
                Stream::Stderr => stderr.keep(bytes),
            };
            if !kept.is_empty() {
                sink.write(stream, kept);
            }
        };
        let mut stop = io.stop.unwrap_or_else(|| Box::pin(std::future::pending()));
        let start_deadline = tokio::time::Instant::now() + start_timeout();
        let ended = loop {
            tokio::select! {
                // Limits come before output: a guest that never stops printing must not outrun them.
                biased;
                reason = watch.trip(self.group.as_ref(), &roots) => {
                    self.end_all().await;
                    break reason;
                }
                () = &mut stop => {
                    self.end_all().await;
                    break Ended::Stopped;
                }
                () = tokio::time::sleep_until(start_deadline), if started.starts => {
                    return Err(self.not_started());
                }
                told = started.fate.next(&mut self.shell) => match told {
                    Ok(Told::Started(notes)) => {
                        started.starts = false;
                        self.observe(notes);
                    }
                    Ok(Told::NotStarted(failure)) => break self.cannot_start(stage, &failure)?,
                    Ok(Told::Ended(end)) => {
                        self.is_empty = true;
                        cpu_reported = Some(end.cpu);
                        break self.judge(end.status, Some(&watch));
                    }
                    Ok(Told::ZygoteLost) => break self.zygote_lost().await,
                    Ok(Told::OutOfTurn) => {
                        return Err(ProviderError::Protocol("init said something out of turn".to_owned()));
                    }
                    Err(_) => break self.why_gone(Some(&watch)).await,
                },
                () = finish_saying(&mut started.channel) => {}
                bytes = started.output.next() => {
                    let (stream, bytes) = bytes.map_err(|error| failed("read", "output", error))?;
                    keep(stream, bytes);
                }
            }
        };
        self.check_dead()?;
        // Everything that could write is dead by now, so all it wrote is in the pipes.
        started.output.drain(&mut keep);
        Ok(StageEnd {
            ended,
            usage: watch.usage(self.group.as_ref(), cpu_reported, began.elapsed()),
            stdout: stdout.into_captured(),
            stderr: stderr.into_captured(),
        })
    }

    /// Has init start the program; `None` where init is gone.
    async fn start(&mut self, stage: &Stage, stdin: StageStdin) -> Result<Option<Started>, ProviderError> {
        let (output, [stdout, stderr]) = Output::new().map_err(|error| failed("make", "a pipe", error))?;
        let (stdin, pump) = stdin::connect(stdin).map_err(|error| failed("connect", "stdin", error))?;
        let request = InitRequest::Exec(Box::new(spec::guest(&self.plan, stage, self.machine)));
        let fds = [stdin.as_fd(), stdout.as_fd(), stderr.as_fd()];
        let sent = self.shell.send(&request, &fds).await;
        Ok(sent.is_ok().then(|| Started {
            output,
            fate: Fate::default(),
            starts: true,
            pidfd: None,
            _pump: pump,
            channel: None,
        }))
    }

    /// Gives the program to the interpreter that waits.
    fn hand_over(
        &mut self,
        stage: &Stage,
        script: &Script,
        stdin: StageStdin,
    ) -> Result<Option<Started>, ProviderError> {
        let Some(mut guest) = self.waiting.take() else {
            return Ok(None);
        };
        let pump = match guest.stdin.take() {
            Some(pipe) => stdin::feed(stdin, pipe),
            None => Ok(Pump::default()),
        };
        let pump = pump.map_err(|error| failed("connect", "stdin", error))?;
        let wall = stage.limits().wall_time().duration().as_millis();
        self.shell.tell(&InitRequest::Backstop {
            wall_millis: wall.try_into().unwrap_or(u64::MAX),
        });
        // What is usual is left out: an interpreter that finds nothing else has nothing to take apart.
        let mut message = json!({ "op": "program", "path": script.path() });
        if !script.args().is_empty() {
            message["args"] = json!(script.args());
        }
        if stage.warm().is_none_or(|warm| warm.env() != stage.env()) {
            message["env"] = json!(stage.env());
        }
        guest.channel.say(message.to_string().as_bytes());
        Ok(Some(Started {
            output: guest.output,
            fate: guest.fate,
            starts: false,
            pidfd: guest.pidfd,
            _pump: pump,
            channel: Some(guest.channel),
        }))
    }
}

/// Says the rest of what an interpreter was told, where that did not fit at once. Never ends otherwise.
async fn finish_saying(channel: &mut Option<Channel>) {
    match channel {
        Some(channel) if channel.unsaid() > 0 => {
            // What it says itself is of no interest; its end is heard elsewhere.
            if !matches!(channel.next().await, Incoming::Message(_)) {
                std::future::pending::<()>().await;
            }
        }
        _ => std::future::pending().await,
    }
}
