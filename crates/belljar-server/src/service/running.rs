//! What this process runs at the moment, so that it can be cancelled and waited for.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The executions under way in this process.
#[derive(Debug, Default)]
pub(super) struct Running {
    by_id: Arc<Mutex<HashMap<String, CancellationToken>>>,
    pub(super) tasks: TaskTracker,
}

/// One of them, for as long as this is there.
#[derive(Debug)]
pub(super) struct Listed {
    by_id: Arc<Mutex<HashMap<String, CancellationToken>>>,
    execution_id: String,
}

impl Running {
    pub(super) fn list(&self, execution_id: &str, cancel: CancellationToken) -> Listed {
        lock(&self.by_id).insert(execution_id.to_owned(), cancel);
        Listed {
            by_id: Arc::clone(&self.by_id),
            execution_id: execution_id.to_owned(),
        }
    }

    /// False if it does not run here.
    pub(super) fn cancel(&self, execution_id: &str) -> bool {
        let found = lock(&self.by_id).get(execution_id).cloned();
        found.inspect(CancellationToken::cancel).is_some()
    }

    pub(super) fn cancel_all(&self) {
        for cancel in lock(&self.by_id).values() {
            cancel.cancel();
        }
    }

    /// Waits until nothing is left, but no longer than that.
    pub(super) async fn wait(&self, patience: Duration) {
        self.tasks.close();
        let _ = tokio::time::timeout(patience, self.tasks.wait()).await;
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        lock(&self.by_id).remove(&self.execution_id);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
