//! The task that owns a session's sandbox and does what it is told, one thing after the other.
//!
//! Between executions it does not read what the guest sends: a guest that talks then only fills its own
//! pipes. What is there is looked at, in bounded portions, when the next execution begins.

use std::collections::BTreeMap;
use std::sync::Arc;

use belljar_core::provider::Sandbox;
use belljar_core::request::FileIn;
use belljar_core::{GuestPath, Plan, Policy, Request, Source, StateLost, Value};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::error::{Expiry, SessionError};
use super::event::Event;
use super::message::{DEEPEST_VALUE, Setup};
use super::shared::Shared;
use super::{Cell, Surroundings};
use crate::environment::Lease;
use crate::execute::{Engine, Execution};
use crate::tools::{Approver, Tools};

pub(super) type Answer<T> = oneshot::Sender<Result<T, SessionError>>;

/// What a keeper can be told.
#[derive(Debug)]
pub(super) enum Command {
    Execute {
        cell: Box<Cell>,
        events: mpsc::UnboundedSender<Event>,
        answer: Answer<Execution>,
    },
    Reset {
        answer: Answer<()>,
    },
    Put {
        files: BTreeMap<GuestPath, FileIn>,
        answer: Answer<()>,
    },
    End {
        answer: Answer<()>,
    },
}

/// How a session ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// Nothing is left afterwards.
    Close,
    /// Nothing runs any more, and the rest is cleared away.
    Discard,
}

#[derive(Debug)]
pub(super) struct Keeper {
    pub(super) engine: Engine,
    pub(super) policy: Policy,
    pub(super) request: Request,
    pub(super) plan: Arc<Plan>,
    /// Whether every execution is a program of its own.
    pub(super) programs: bool,
    pub(super) tools: Tools,
    /// Those that executions brought since the last reset.
    pub(super) brought: Tools,
    pub(super) approver: Option<Approver>,
    /// The `setup` message, the same for every interpreter of this session.
    pub(super) setup: Vec<u8>,
    pub(super) shared: Arc<Shared>,
    pub(super) sandbox: Option<Box<dyn Sandbox>>,
    /// Whether an interpreter is there and answers.
    pub(super) interpreting: bool,
    /// Whether one was started that has not said yet that it is ready.
    pub(super) starting: bool,
    /// What was lost since the last outcome.
    pub(super) lost: Option<StateLost>,
    pub(super) executions: u64,
    /// The highest tool call number of the interpreter of the moment.
    pub(super) last_call: u64,
    pub(super) opened: Instant,
    /// Keeps its environment from being removed.
    _lease: Option<Lease>,
}

impl Keeper {
    pub(super) fn new(
        engine: Engine,
        policy: Policy,
        request: Request,
        (plan, lease): (Arc<Plan>, Option<Lease>),
        surroundings: Surroundings,
        shared: Arc<Shared>,
    ) -> Result<Self, SessionError> {
        let Surroundings {
            tools,
            globals,
            approver,
        } = surroundings;
        check_depth(&globals)?;
        let no_env = BTreeMap::new();
        let env = plan.stages().last().map_or(&no_env, |stage| stage.session_env());
        let output = plan.limits().output().get();
        let setup = Setup::new(env, &globals, tools.names(), plan.session(), output);
        let setup = serde_json::to_vec(&setup).map_err(|error| SessionError::BadGlobal {
            name: globals.keys().next().cloned().unwrap_or_default(),
            why: error.to_string(),
        })?;
        if setup.len() > belljar_core::provider::LONGEST_MESSAGE {
            return Err(too_large(&globals));
        }
        Ok(Self {
            engine,
            policy,
            programs: !matches!(request.source, Source::Interpreter { .. }),
            request,
            plan,
            tools,
            brought: Tools::default(),
            approver,
            setup,
            shared,
            sandbox: None,
            interpreting: false,
            starting: false,
            lost: None,
            executions: 0,
            last_call: 0,
            opened: Instant::now(),
            _lease: lease,
        })
    }

    /// Does what it is told until the session is over, and leaves nothing behind.
    pub(super) async fn keep(mut self, mut commands: mpsc::Receiver<Command>) {
        loop {
            let (expiry, at) = self.expires();
            tokio::select! {
                command = commands.recv() => match command {
                    None => break,
                    Some(Command::End { answer }) => {
                        let _ = answer.send(self.end(Ending::Close).await);
                        return;
                    }
                    Some(command) => {
                        if self.obey(command).await {
                            self.shared.expire(Expiry::Age(self.plan.session().max_age));
                            break;
                        }
                    }
                },
                () = tokio::time::sleep_until(at) => {
                    // A file may have been asked for meanwhile, which is use as well.
                    if self.expires().1 <= Instant::now() {
                        self.shared.expire(expiry);
                        break;
                    }
                }
            }
        }
        commands.close();
        let _ = self.end(Ending::Close).await;
    }

    /// Carries a command out; true if the session is too old to go on.
    async fn obey(&mut self, command: Command) -> bool {
        match command {
            Command::Execute {
                cell,
                events,
                mut answer,
            } => {
                // A caller who gave up while waiting wants nothing executed.
                if !answer.is_closed() {
                    self.shared.begin();
                    let result = match self.programs {
                        true => self.run_program(*cell, events, &mut answer).await,
                        false => self.execute(*cell, events, &mut answer).await,
                    };
                    self.shared.end();
                    let told = result.is_ok();
                    // What nobody heard of is told with the next outcome.
                    if answer.send(result).is_ok() && told {
                        self.lost = None;
                    }
                }
            }
            Command::Reset { answer } => {
                let _ = answer.send(self.reset().await);
                self.shared.touch();
            }
            Command::Put { files, answer } => {
                let _ = answer.send(self.put(&files).await);
                self.shared.touch();
            }
            Command::End { answer, .. } => {
                let _ = answer.send(Ok(()));
            }
        }
        self.too_old() <= Instant::now()
    }

    async fn put(&mut self, files: &BTreeMap<GuestPath, FileIn>) -> Result<(), SessionError> {
        self.prepare().await?;
        match &mut self.sandbox {
            Some(sandbox) => Ok(sandbox.put(files).await?),
            None => Err(SessionError::Closed),
        }
    }

    /// When the session is over if nothing happens, and why.
    fn expires(&self) -> (Expiry, Instant) {
        let rules = self.plan.session();
        let idle = self.shared.last_used() + far(rules.max_idle);
        let age = self.too_old();
        if idle < age {
            (Expiry::Idle(rules.max_idle), idle)
        } else {
            (Expiry::Age(rules.max_age), age)
        }
    }

    pub(super) fn too_old(&self) -> Instant {
        self.opened + far(self.plan.session().max_age)
    }

    /// Ends everything.
    pub(super) async fn end(&mut self, ending: Ending) -> Result<(), SessionError> {
        self.shared.set_files(None);
        self.interpreting = false;
        match self.sandbox.take() {
            Some(sandbox) => match ending {
                Ending::Close => Ok(sandbox.close().await?),
                Ending::Discard => Ok(sandbox.discard().await?),
            },
            None => Ok(()),
        }
    }
}

/// Whether a message can hold them.
pub(super) fn check_depth(globals: &BTreeMap<String, Value>) -> Result<(), SessionError> {
    match globals
        .iter()
        .find(|(_, value)| !value.within_depth(DEEPEST_VALUE))
    {
        None => Ok(()),
        Some((name, _)) => Err(SessionError::BadGlobal {
            name: name.clone(),
            why: format!("it is nested deeper than {DEEPEST_VALUE}"),
        }),
    }
}

/// The complaint about globals that are too much, by the name of the largest.
pub(super) fn too_large(globals: &BTreeMap<String, Value>) -> SessionError {
    let length = |value: &Value| value.to_json().map_or(0, |json| json.len());
    let largest = globals.iter().max_by_key(|(_, value)| length(value));
    SessionError::BadGlobal {
        name: largest.map(|(name, _)| name.clone()).unwrap_or_default(),
        why: "all globals together are longer than 64 MiB; put such data into files".to_owned(),
    }
}

/// A time that can be added to a clock whatever a policy says.
fn far(seconds: belljar_core::Seconds) -> std::time::Duration {
    seconds
        .duration()
        .min(std::time::Duration::from_secs(86_400 * 365))
}
