//! Clearing away sandboxes that are over, behind the back of whoever waits for a result.
//!
//! When a run's result is told, every process of its guest is dead; what is left is an empty init, its
//! namespaces and its group, which take the kernel longer to take down than many a run.

use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;

use tokio::sync::oneshot;

use super::group::SandboxGroup;

/// How many may wait. Beyond that, whoever brings the next one clears it away.
const MOST: usize = 64;

/// A sandbox whose init was killed.
#[derive(Debug)]
pub(crate) struct Remains {
    /// Resolves when nothing of it is alive.
    pub ended: Option<oneshot::Receiver<()>>,
    pub group: Option<SandboxGroup>,
}

impl Remains {
    /// Waits until nothing of it is alive, and removes its group.
    fn clear(self) {
        let _ = self.ended.map(oneshot::Receiver::blocking_recv);
        // What cannot be removed now is removed with the engine, or swept by the next.
        let _ = self.group.map(SandboxGroup::remove);
    }
}

/// The thread that does it.
#[derive(Debug, Default)]
pub(crate) struct Undertaker(Mutex<Option<(SyncSender<Remains>, JoinHandle<()>)>>);

impl Undertaker {
    /// Takes it, unless there is too much to do already: then it is given back.
    pub(crate) fn take(&self, remains: Remains) -> Option<Remains> {
        let mut running = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if running.is_none() {
            let (sender, receiver) = sync_channel::<Remains>(MOST);
            let thread = std::thread::Builder::new()
                .name("belljar-clear".to_owned())
                .spawn(move || receiver.into_iter().for_each(Remains::clear));
            *running = thread.ok().map(|thread| (sender, thread));
        }
        match &*running {
            None => Some(remains),
            Some((sender, _)) => match sender.try_send(remains) {
                Ok(()) => None,
                Err(TrySendError::Full(remains) | TrySendError::Disconnected(remains)) => Some(remains),
            },
        }
    }

    /// Waits until all is cleared away.
    pub(crate) fn finish(&self) {
        let running = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some((sender, thread)) = running {
            drop(sender);
            let _ = thread.join();
        }
    }
}
