//! Clearing away sandboxes that are over, behind the back of whoever waits for a result.
//!
//! When a run's result is told, every process of its guest is dead; what is left is an empty init, its
//! namespaces and its group, which take the kernel longer to take down than many a run.

use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::oneshot;

use super::group::SandboxGroup;
use super::shell::Shell;

/// How many may wait. Beyond that, whoever brings the next one clears it away.
const MOST: usize = 64;

/// How long they wait: whoever is told the result at this moment needs the processor more.
const LULL: Duration = Duration::from_millis(1);

/// A sandbox that is over.
#[derive(Debug)]
pub(crate) struct Remains {
    pub shell: Shell,
    pub group: Option<SandboxGroup>,
}

/// Clears away whatever comes.
fn clear(remains: &Receiver<Remains>) {
    while let Ok(first) = remains.recv() {
        std::thread::sleep(LULL);
        // Dying takes longer than killing, so all of them do it at once.
        let dying: Vec<_> = [first]
            .into_iter()
            .chain(remains.try_iter())
            .map(|Remains { mut shell, group }| {
                let ended = shell.ended();
                drop(shell);
                (ended, group)
            })
            .collect();
        for (ended, group) in dying {
            let _ = ended.map(oneshot::Receiver::blocking_recv);
            // What cannot be removed now is removed with the engine, or swept by the next.
            let _ = group.map(SandboxGroup::remove);
        }
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
                .spawn(move || clear(&receiver));
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
