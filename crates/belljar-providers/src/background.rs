//! A thread for what goes on whoever waits for it: lines to agents, engines' connections.
//!
//! Sandboxes outlive the runtime of the moment, and what reads and writes for them must as well.

use std::io;
use std::sync::{Arc, OnceLock};

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// The runtime of one provider. Ends when the last who holds it lets go.
#[derive(Clone, Debug, Default)]
pub(crate) struct Background {
    running: Arc<OnceLock<Running>>,
}

#[derive(Debug)]
struct Running {
    handle: Handle,
    /// Dropping it ends the thread.
    _end: oneshot::Sender<()>,
}

impl Background {
    /// Its runtime; started when it is first needed.
    pub(crate) fn handle(&self) -> io::Result<Handle> {
        if let Some(running) = self.running.get() {
            return Ok(running.handle.clone());
        }
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (end, ended) = oneshot::channel::<()>();
        std::thread::Builder::new()
            .name("belljar-places".to_owned())
            .spawn(move || {
                let _ = runtime.block_on(ended);
            })?;
        let running = Running { handle, _end: end };
        // Another thread may have been quicker; then this one ends again.
        Ok(self.running.get_or_init(|| running).handle.clone())
    }

    /// Has it done there, and blocks until it is.
    pub(crate) fn wait<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> io::Result<T> {
        let (answer, answered) = std::sync::mpsc::channel();
        self.handle()?.spawn(async move {
            let _ = answer.send(work.await);
        });
        answered.recv().map_err(|_| io::Error::other("it broke off"))
    }

    /// Has it done there, and waits for it in whatever runtime this is.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = io::Result<T>> + Send + 'static,
    ) -> io::Result<T> {
        let task = self.handle()?.spawn(work);
        task.await
            .unwrap_or_else(|_| Err(io::Error::other("it broke off")))
    }
}
