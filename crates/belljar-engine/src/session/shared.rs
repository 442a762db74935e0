//! What a session's handles and its keeper both look at.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use belljar_core::Bytes;
use belljar_core::provider::WorkFiles;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::error::{Expiry, SessionError};
use super::log::Log;

#[derive(Debug)]
pub(super) struct Shared {
    log: Mutex<Log>,
    /// The files of the sandbox of the moment.
    files: Mutex<Option<WorkFiles>>,
    expired: Mutex<Option<Expiry>>,
    last_used: Mutex<Instant>,
    executing: AtomicBool,
    interrupt: Notify,
}

impl Shared {
    pub(super) fn new(output: Bytes) -> Self {
        Self {
            log: Mutex::new(Log::new(usize::try_from(output.get()).unwrap_or(usize::MAX))),
            files: Mutex::new(None),
            expired: Mutex::new(None),
            last_used: Mutex::new(Instant::now()),
            executing: AtomicBool::new(false),
            interrupt: Notify::new(),
        }
    }

    pub(super) fn log(&self) -> MutexGuard<'_, Log> {
        held(&self.log)
    }

    pub(super) fn files(&self) -> Option<WorkFiles> {
        held(&self.files).clone()
    }

    pub(super) fn set_files(&self, files: Option<WorkFiles>) {
        *held(&self.files) = files;
    }

    pub(super) fn touch(&self) {
        *held(&self.last_used) = Instant::now();
    }

    pub(super) fn last_used(&self) -> Instant {
        *held(&self.last_used)
    }

    pub(super) fn expire(&self, expiry: Expiry) {
        *held(&self.expired) = Some(expiry);
    }

    /// Why there is no keeper any more.
    pub(super) fn why_over(&self) -> SessionError {
        match *held(&self.expired) {
            Some(expiry) => SessionError::Expired(expiry),
            None => SessionError::Closed,
        }
    }

    /// An execution begins. An interrupt that came too late for the one before is forgotten.
    pub(super) fn begin(&self) {
        let stale = self.interrupt.notified();
        let mut stale = std::pin::pin!(stale);
        stale.as_mut().enable();
        self.executing.store(true, Ordering::SeqCst);
    }

    pub(super) fn end(&self) {
        self.executing.store(false, Ordering::SeqCst);
        self.touch();
    }

    pub(super) fn interrupt(&self) -> bool {
        let executing = self.executing.load(Ordering::SeqCst);
        if executing {
            self.interrupt.notify_one();
        }
        executing
    }

    /// Resolves when somebody wants an interrupt. Cancel-safe.
    pub(super) async fn interrupted(&self) {
        self.interrupt.notified().await;
    }
}

/// A lock whose holder cannot leave things half done.
fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
