//! One sandbox of a workspace: a directory, and the states it goes through (R50).

use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use belljar_core::lifecycle::IllegalTransition;
use belljar_core::provider::BoxFuture;
use belljar_core::request::Workspace;
use belljar_core::{Lifecycle, Policy, Request, WorkspaceId};
use tokio::sync::watch;

use super::directory::{Base, c_name};
use super::{WorkspaceError, off_the_reactor};
use crate::execute::{Engine, EngineError, ExecuteIo, Execution};

/// A directory in which scripts run. Dropping it removes the directory, at once and on this thread;
/// [`WorkspaceSandbox::teardown`] also tells whether that worked.
#[derive(Debug)]
pub struct WorkspaceSandbox {
    engine: Engine,
    policy: Policy,
    place: Place,
    root: PathBuf,
    live: Arc<Live>,
    removed: bool,
}

impl WorkspaceSandbox {
    pub(super) fn new(engine: Engine, policy: Policy, place: Place) -> Self {
        let root = place.base.join(place.workspace.as_str()).join(&place.id);
        let live = Live {
            phase: watch::Sender::new(Phase {
                state: Lifecycle::Setup,
                ending: false,
            }),
        };
        live.go(Lifecycle::Ready);
        Self {
            engine,
            policy,
            place,
            root,
            live: Arc::new(live),
            removed: false,
        }
    }

    /// Different for every set-up (R46).
    pub fn id(&self) -> &str {
        &self.place.id
    }

    /// The directory that scripts run in, on the host.
    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn state(&self) -> Lifecycle {
        self.live.phase.borrow().state
    }

    /// Runs one request with this sandbox's directory as its work directory (R48).
    ///
    /// A script that fails is an outcome and leaves the sandbox ready for the next; so does a
    /// request that was refused. After any other error only teardown is left.
    pub async fn run_script(&mut self, request: Request) -> Result<Execution, WorkspaceError> {
        self.run_script_with(request, ExecuteIo::default()).await
    }

    /// [`WorkspaceSandbox::run_script`], connected to its caller while it runs.
    pub async fn run_script_with(
        &mut self,
        mut request: Request,
        io: ExecuteIo<'_>,
    ) -> Result<Execution, WorkspaceError> {
        let run = Run::start(&self.live)?;
        request.workspace = Workspace::Directory(self.root.clone());
        let io = ExecuteIo {
            stop: Some(either(io.stop, self.live.ending())),
            ..io
        };
        let result = self.engine.execute(&self.policy, &request, io).await;
        run.finish(match &result {
            Ok(_) | Err(EngineError::Denied { .. }) => Lifecycle::Ready,
            // Nothing ran, and what is missing may be made.
            Err(EngineError::Environment(_)) => Lifecycle::Ready,
            Err(EngineError::Provider(_) | EngineError::NotReady(_) | EngineError::MadeWithout { .. }) => {
                Lifecycle::Error
            }
        });
        Ok(result?)
    }

    /// Removes the directory with everything in it.
    pub async fn teardown(mut self) -> Result<(), WorkspaceError> {
        self.live.end().await;
        self.removed = true;
        let place = self.place.clone();
        off_the_reactor(move || place.remove()).await
    }

    pub(super) fn live(&self) -> Weak<Live> {
        Arc::downgrade(&self.live)
    }
}

impl Drop for WorkspaceSandbox {
    fn drop(&mut self) {
        if !self.removed {
            self.live.go(Lifecycle::Teardown);
            // There is nobody to tell; what stays is a leftover for the workspace's teardown.
            let _ = self.place.remove();
        }
    }
}

/// Where a sandbox's directory is.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) base: PathBuf,
    pub(super) workspace: WorkspaceId,
    pub(super) id: String,
}

impl Place {
    fn remove(&self) -> Result<(), WorkspaceError> {
        match Base::open(&self.base)? {
            Some(base) => base.remove(&self.workspace, &[c_name(&self.id)]),
            None => Ok(()),
        }
    }
}

/// The part of a sandbox that its manager sees as well.
#[derive(Debug)]
pub(super) struct Live {
    phase: watch::Sender<Phase>,
}

#[derive(Clone, Copy, Debug)]
struct Phase {
    state: Lifecycle,
    /// Somebody wants it torn down: what runs is to stop, and nothing more may start.
    ending: bool,
}

impl Live {
    /// Stops what runs in it, waits for that, and lets nothing run any more.
    pub(super) async fn end(&self) {
        let mut phase = self.phase.subscribe();
        self.phase.send_modify(|phase| {
            phase.ending = true;
            if phase.state != Lifecycle::Running {
                let _ = phase.state.go(Lifecycle::Teardown);
            }
        });
        // Fails only when the sender is gone, and that is `self`.
        let _ = phase.wait_for(|phase| phase.state == Lifecycle::Teardown).await;
    }

    /// Resolves when it is to end.
    fn ending(&self) -> BoxFuture<'static, ()> {
        let mut phase = self.phase.subscribe();
        Box::pin(async move {
            let _ = phase.wait_for(|phase| phase.ending).await;
        })
    }

    /// Goes to `to` where that is a legal step.
    fn go(&self, to: Lifecycle) {
        self.phase.send_modify(|phase| {
            let _ = phase.state.go(to);
        });
    }
}

/// A sandbox while it runs something. Dropping it early, with the future of the run, is an error.
struct Run<'a> {
    live: &'a Live,
}

impl<'a> Run<'a> {
    fn start(live: &'a Live) -> Result<Self, IllegalTransition> {
        let mut result = Ok(());
        live.phase.send_modify(|phase| {
            result = if phase.ending {
                Err(IllegalTransition {
                    from: phase.state,
                    to: Lifecycle::Running,
                })
            } else {
                phase.state.go(Lifecycle::Running)
            };
        });
        result.map(|()| Self { live })
    }

    fn finish(self, next: Lifecycle) {
        self.live.phase.send_modify(|phase| {
            let _ = phase.state.go(next);
        });
        // `drop` comes next, and finds the state already changed.
    }
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        self.live.phase.send_modify(|phase| {
            if phase.state == Lifecycle::Running {
                let _ = phase.state.go(Lifecycle::Error);
            }
            if phase.ending {
                let _ = phase.state.go(Lifecycle::Teardown);
            }
        });
    }
}

/// Resolves with the first of both.
fn either<'a>(stop: Option<BoxFuture<'a, ()>>, ending: BoxFuture<'a, ()>) -> BoxFuture<'a, ()> {
    match stop {
        None => ending,
        Some(stop) => Box::pin(async move {
            tokio::select! {
                () = stop => {}
                () = ending => {}
            }
        }),
    }
}
