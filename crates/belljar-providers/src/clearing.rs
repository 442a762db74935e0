//! What is cleared away after a result was told; whoever made it waits for that at its own end.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::background::Background;

/// How long it is waited for at the end.
const LATE: Duration = Duration::from_secs(30);

/// How much is under way.
#[derive(Clone, Debug, Default)]
pub(crate) struct Clearing(Arc<AtomicUsize>);

/// Counts while it is held.
#[derive(Debug)]
pub(crate) struct UnderWay(Arc<AtomicUsize>);

impl Clearing {
    pub(crate) fn begin(&self) -> UnderWay {
        self.0.fetch_add(1, Ordering::SeqCst);
        UnderWay(Arc::clone(&self.0))
    }

    /// Waits until nothing is under way any more, or it has taken too long. Blocks.
    pub(crate) fn finish(&self, background: &Background) {
        if self.0.load(Ordering::SeqCst) == 0 {
            return;
        }
        let left = Arc::clone(&self.0);
        let _ = background.wait(async move {
            let began = Instant::now();
            while left.load(Ordering::SeqCst) > 0 && began.elapsed() < LATE {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        });
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}
