//! Workspaces on disk: the sandbox manager of document 003 (R46-R51, R53).
//!
//! A workspace is a name; each set-up of it makes one directory of its own,
//! `base/<workspace>/<sandbox>`, in which scripts run one after the other. Every run gets a fresh
//! engine sandbox with that directory as its work directory, so only files pass from one to the
//! next. What is in the directory was written by guests: it is never read here, and it is removed
//! through directory handles that follow no link.

mod directory;
mod error;
pub(crate) mod remove;
mod sandbox;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use belljar_core::{Policy, WorkspaceId};

use crate::execute::Engine;
use crate::ident::fresh_id;

use directory::Base;
pub use error::WorkspaceError;
pub use sandbox::WorkspaceSandbox;
use sandbox::{Live, Place};

/// Makes and removes the directories of workspaces. Clones share their sandboxes.
///
/// One base directory belongs to one manager at a time: [`WorkspaceManager::teardown`] takes what it
/// does not know for left over by a process that died.
#[derive(Clone, Debug)]
pub struct WorkspaceManager {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    base: PathBuf,
    engine: Engine,
    policy: Policy,
    live: Mutex<LiveSandboxes>,
}

/// The sandboxes that are set up, by workspace and by their own id.
type LiveSandboxes = BTreeMap<WorkspaceId, BTreeMap<String, Weak<Live>>>;

impl WorkspaceManager {
    /// A manager of workspaces below `base`, which is made when it is first needed. Scripts run
    /// under `policy`.
    pub fn new(base: PathBuf, engine: Engine, policy: Policy) -> Self {
        Self {
            inner: Arc::new(Inner {
                // Later the process may be in another directory.
                base: std::path::absolute(&base).unwrap_or(base),
                engine,
                policy,
                live: Mutex::default(),
            }),
        }
    }

    /// Makes a sandbox with a directory of its own (R46).
    pub fn setup(&self, workspace: &WorkspaceId) -> Result<WorkspaceSandbox, WorkspaceError> {
        let inner = &self.inner;
        let base = Base::open_or_make(&inner.base)?;
        // Held until the directory is known as live, so that a teardown cannot take it for a leftover.
        let mut live = inner.live();
        let id = fresh_id("sb");
        base.make_sandbox(workspace, &id)?;
        let place = Place {
            // Walls follow no link, so the way there must have none.
            base: std::fs::canonicalize(&inner.base).unwrap_or_else(|_| inner.base.clone()),
            workspace: workspace.clone(),
            id,
        };
        let sandbox = WorkspaceSandbox::new(inner.engine.clone(), inner.policy.clone(), place);
        let known = live.entry(workspace.clone()).or_default();
        known.retain(|_, live| live.strong_count() > 0);
        known.insert(sandbox.id().to_owned(), sandbox.live());
        Ok(sandbox)
    }

    /// Removes everything of one workspace, and nothing of any other (R49).
    ///
    /// Scripts that are running in it are stopped first and waited for. A sandbox that is set up
    /// meanwhile is left alone.
    pub async fn teardown(&self, workspace: &WorkspaceId) -> Result<(), WorkspaceError> {
        let known = self.inner.live().remove(workspace).unwrap_or_default();
        for live in known.values().filter_map(Weak::upgrade) {
            live.end().await;
        }
        let inner = Arc::clone(&self.inner);
        let workspace = workspace.clone();
        off_the_reactor(move || inner.remove_workspace(&workspace)).await
    }

    /// Sets up a sandbox, lends it to `work`, and removes it whatever came of that (R49): success,
    /// an error, a panic, or the future being dropped.
    ///
    /// Only this sandbox is removed, so runs of one workspace may go on side by side.
    pub async fn with<T>(
        &self,
        workspace: &WorkspaceId,
        work: impl AsyncFnOnce(&mut WorkspaceSandbox) -> Result<T, WorkspaceError>,
    ) -> Result<T, WorkspaceError> {
        let mut sandbox = self.setup(workspace)?;
        let result = work(&mut sandbox).await;
        let removed = sandbox.teardown().await;
        match (result, removed) {
            (Ok(value), Ok(())) => Ok(value),
            (Ok(_), Err(error)) | (Err(error), Ok(())) => Err(error),
            (Err(error), Err(teardown)) => Err(WorkspaceError::Both {
                error: Box::new(error),
                teardown: Box::new(teardown),
            }),
        }
    }
}

impl Inner {
    fn live(&self) -> MutexGuard<'_, LiveSandboxes> {
        // Nothing that panics runs while it is held.
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn remove_workspace(&self, workspace: &WorkspaceId) -> Result<(), WorkspaceError> {
        let Some(base) = Base::open(&self.base)? else {
            return Ok(());
        };
        // Named under the lock: whatever is not live by then is nobody's, and names do not come twice.
        let leftovers = {
            let live = self.live();
            let known: BTreeSet<&str> = live
                .get(workspace)
                .into_iter()
                .flatten()
                .filter(|(_, live)| live.strong_count() > 0)
                .map(|(id, _)| id.as_str())
                .collect();
            base.entries(workspace, &known)?
        };
        base.remove(workspace, &leftovers)
    }
}

/// Runs `work` where it may block: removing millions of files must not stop every other task.
async fn off_the_reactor<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, WorkspaceError> + Send + 'static,
) -> Result<T, WorkspaceError> {
    if tokio::runtime::Handle::try_current().is_err() {
        return work();
    }
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(lost) => Err(WorkspaceError::Teardown {
            operation: "finish",
            object: "the removal".to_owned(),
            source: std::io::Error::other(lost),
        }),
    }
}
