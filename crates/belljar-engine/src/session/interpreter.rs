//! Having an interpreter: starting one, starting another, and finding out that one is gone.

use std::sync::Arc;

use belljar_core::provider::{Heard, Interpreting, NoSink};
use belljar_core::{Limits, StageKind, StateLost};

use super::error::SessionError;
use super::keeper::Keeper;
use super::message::{self, Said};
use crate::judge::judge;
use crate::tools::Tools;

/// How much of what an interpreter printed before it was ready is told when it fails.
const LAST_WORDS: usize = 2_000;
/// How many things that a guest did between executions are looked at before the next one.
const BETWEEN: usize = 256;

impl Keeper {
    /// Sees to it that a sandbox with an interpreter is there.
    pub(super) async fn prepare(&mut self) -> Result<(), SessionError> {
        if self.interpreting {
            self.look_after().await?;
        }
        if self.interpreting {
            return Ok(());
        }
        if self.sandbox.is_none() {
            self.raise().await?;
            let files = interpreting(&mut self.sandbox).and_then(|interpreting| interpreting.files());
            self.shared.set_files(files);
        }
        if self.programs {
            return Ok(());
        }
        let started = self.start().await;
        if started.is_err() {
            // Whatever is left of it is of no use.
            self.sandbox = None;
            self.shared.set_files(None);
        }
        started
    }

    /// Makes the sandbox.
    pub(super) async fn raise(&mut self) -> Result<(), SessionError> {
        let mut sandbox = self
            .engine
            .raise(&self.policy, &self.request, Arc::clone(&self.plan))
            .await?;
        if sandbox.interpreting().is_none() {
            let provider = self.plan.provider().word();
            return Err(SessionError::NoSessions { provider });
        }
        self.sandbox = Some(sandbox);
        Ok(())
    }

    /// Starts an interpreter and tells it what it is for, while `limits` hold.
    pub(super) async fn begin(&mut self, limits: &Limits) -> Result<(), SessionError> {
        let plan = Arc::clone(&self.plan);
        let (Some(stage), Some(interpreting)) = (plan.stages().last(), interpreting(&mut self.sandbox))
        else {
            return Err(SessionError::Closed);
        };
        interpreting.start(stage).await?;
        interpreting.begin(limits)?;
        interpreting.say(&self.setup);
        Ok(())
    }

    async fn start(&mut self) -> Result<(), SessionError> {
        let plan = Arc::clone(&self.plan);
        let Some(stage) = plan.stages().last() else {
            return Err(SessionError::Closed);
        };
        self.begin(stage.limits()).await?;
        let Some(interpreting) = interpreting(&mut self.sandbox) else {
            return Err(SessionError::Closed);
        };
        let mut words = Vec::new();
        loop {
            let why = match interpreting.hear().await? {
                Heard::Message(message) => match message::head(message) {
                    Ok(Said::Ready) => break,
                    Ok(_) => continue,
                    Err(error) => error.to_string(),
                },
                Heard::Output(_, bytes) => {
                    let room = LAST_WORDS.saturating_sub(words.len());
                    words.extend_from_slice(&bytes[..bytes.len().min(room)]);
                    continue;
                }
                Heard::Broken(why) => why,
                Heard::Ended(ended) => {
                    let (.., failure) = judge(StageKind::Interpreter, stage.limits(), &ended);
                    failure.map_or_else(|| "it ended at once".to_owned(), |failure| failure.message)
                }
            };
            let words = String::from_utf8_lossy(&words);
            let why = format!("{why} {}", words.trim()).trim().to_owned();
            return Err(SessionError::CannotStart { why });
        }
        interpreting.finish(&mut NoSink);
        self.interpreting = true;
        self.last_call = 0;
        Ok(())
    }

    /// Looks at what the guest did since the last execution: what it printed goes to the log, and that it
    /// ended is noticed.
    async fn look_after(&mut self) -> Result<(), SessionError> {
        for _ in 0..BETWEEN {
            let Some(interpreting) = interpreting(&mut self.sandbox) else {
                return Ok(());
            };
            // What has arrived by now is known once the runtime has looked. A timer would do that too, but the
            // shortest there is takes a millisecond.
            let heard = tokio::select! {
                biased;
                heard = interpreting.hear() => heard,
                () = tokio::task::yield_now() => return Ok(()),
            };
            match heard {
                Ok(Heard::Output(stream, bytes)) => self.shared.log().push(stream, &bytes),
                // Nobody is executing anything, so there is nothing it could be about.
                Ok(Heard::Message(_)) => {}
                Ok(Heard::Ended(_) | Heard::Broken(_)) | Err(_) => {
                    self.stop().await;
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Ends the interpreter, notes what is lost with it, and tells it as well.
    pub(super) async fn stop(&mut self) -> StateLost {
        self.interpreting = false;
        let files_stay = match interpreting(&mut self.sandbox) {
            Some(interpreting) => interpreting.stop().await,
            None => false,
        };
        let lost = if files_stay {
            StateLost::Variables
        } else {
            self.shared.set_files(None);
            if let Some(sandbox) = self.sandbox.take() {
                // What is wrong with a sandbox that is gone is no news.
                let _ = sandbox.close().await;
            }
            StateLost::VariablesAndFiles
        };
        // Files that are lost stay lost, whatever happened to variables since.
        self.lost = self.lost.max(Some(lost));
        lost
    }

    pub(super) async fn reset(&mut self) -> Result<(), SessionError> {
        self.brought = Tools::default();
        // Programs leave nothing but files, which a reset keeps.
        if self.programs {
            return self.prepare().await;
        }
        if self.sandbox.is_some() && self.stop().await == StateLost::Variables {
            // That was asked for.
            self.lost = None;
        }
        self.prepare().await
    }
}

/// The sandbox of the moment as a place with an interpreter.
pub(super) fn interpreting(
    sandbox: &mut Option<Box<dyn belljar_core::provider::Sandbox>>,
) -> Option<&mut dyn Interpreting> {
    sandbox.as_mut()?.interpreting()
}
