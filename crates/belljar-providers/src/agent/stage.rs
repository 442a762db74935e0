//! Running one stage to its end.

use belljar_core::outcome::Capture;
use belljar_core::provider::{Ended, StageEnd, StageIo, Stream};
use belljar_core::{ProviderError, Stage};
use belljar_linux::agent::wire::ask;

use super::feed::Feed;
use super::sandbox::AgentSandbox;
use super::told::Told;
use super::watch::{self, Watch};

impl AgentSandbox {
    pub(super) async fn run_stage(
        &mut self,
        stage: &Stage,
        io: StageIo<'_>,
    ) -> Result<StageEnd, ProviderError> {
        self.place.limit(stage.limits())?;
        let cap = stage.limits().output().get();
        let (mut stdout, mut stderr) = (Capture::new(cap), Capture::new(cap));
        let mut feed = Feed::new(io.stdin).map_err(|source| ProviderError::Io {
            operation: "connect",
            object: "stdin".to_owned(),
            source,
        })?;
        let before = watch::now(&self.line, &*self.place, &self.counters).await;
        let mut watch = Watch::new(stage.limits(), self.held, before);
        let start = self.start_guest(stage, false);
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
        let (mut cpu, mut peak) = (None, None);
        let ended = loop {
            tokio::select! {
                // Limits come before output: a guest that never stops printing must not outrun them.
                biased;
                reason = watch.trip(&self.line, &*self.place, &self.counters) => {
                    self.end_all().await;
                    break reason;
                }
                () = &mut stop => {
                    self.end_all().await;
                    break Ended::Stopped;
                }
                told = self.guests.recv() => match told {
                    Some(Told::Output(stream, bytes)) => {
                        keep(stream, &bytes);
                        self.listened_to(bytes.len());
                    }
                    Some(Told::InputTaken(count)) => feed.taken(count),
                    Some(Told::NotStarted { step, errno }) => {
                        break Self::cannot_start(stage, start.step(step), errno)?;
                    }
                    Some(Told::Ended { status, cpu: told, memory_peak }) => {
                        (cpu, peak) = (Some(told), Some(memory_peak));
                        watch.saw(watch::now(&self.line, &*self.place, &self.counters).await);
                        break Self::judge(status, Some(&watch));
                    }
                    Some(_) => {}
                    None => {
                        let ended = self.place.why_gone().await;
                        self.end_all().await;
                        break ended;
                    }
                },
                piece = feed.next() => match &piece[..] {
                    [] => self.line.tell(ask::INPUT_END, &[]),
                    piece => self.line.tell(ask::INPUT, piece),
                },
            }
        };
        // What it wrote before it was ended may still be on its way.
        while let Some(told) = self.guests.try_recv() {
            if let Told::Output(stream, bytes) = told {
                keep(stream, &bytes);
            }
        }
        Ok(StageEnd {
            ended,
            usage: watch.usage(cpu, peak),
            stdout: stdout.into_captured(),
            stderr: stderr.into_captured(),
        })
    }
}
