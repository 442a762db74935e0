//! Builds values of guests' messages, within a budget that all sessions of an engine share.
//!
//! Built, a value takes many times the memory of its JSON. So large messages are read on threads for such work, only so many at once
//! as the budget allows, and some time afterwards freed memory is returned to the system. Must never hold the budget longer than one
//! message takes to read: no session waits for the guest of another.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use belljar_core::provider::MAX_MESSAGE_BYTES;
use belljar_core::value::{JsonCaps, ValueError};
use tokio::sync::Semaphore;

use super::message::{self, Message, Said};

/// Messages from this size on are read on another thread, and count against the budget.
const LARGE: usize = 256 << 10;
/// How many bytes a value of a message may take while it is being built: itself, its text, and room that a list has to spare.
const BUILT_VALUE_BYTES: usize = 96;
/// How many bytes messages may take while they are being built: twice what the largest one can.
const BUDGET: usize = 2 * (MAX_MESSAGE_BYTES + JsonCaps::MESSAGE.items * BUILT_VALUE_BYTES);
/// The budget is counted in these, since a semaphore counts in 32 bits.
const UNIT: usize = 64 << 10;
/// When memory is returned after a large message: soon, and again once its values have probably been dropped.
const RELEASE_DELAYS: [Duration; 3] = [
    Duration::from_secs(1),
    Duration::from_secs(10),
    Duration::from_secs(60),
];

/// Builds messages for all sessions of an engine.
#[derive(Debug)]
pub(crate) struct MessageBuilder {
    budget: Arc<Semaphore>,
    release: Option<fn()>,
    delays: [Duration; 3],
    /// How many large messages there have been.
    large: AtomicU64,
    /// Whether a task is there that returns memory.
    releasing: AtomicBool,
}

impl MessageBuilder {
    /// `release` returns memory to the system.
    pub(crate) fn shared(release: Option<fn()>) -> Arc<Self> {
        Arc::new(Self::new(release, RELEASE_DELAYS))
    }

    fn new(release: Option<fn()>, delays: [Duration; 3]) -> Self {
        Self {
            budget: Arc::new(Semaphore::new(BUDGET / UNIT)),
            release,
            delays,
            large: AtomicU64::new(0),
            releasing: AtomicBool::new(false),
        }
    }

    /// Finds out what a message is about.
    pub(super) async fn head(self: &Arc<Self>, bytes: Vec<u8>) -> Result<Said, ValueError> {
        if bytes.len() < LARGE {
            return message::head(bytes);
        }
        self.release_later();
        on_a_thread(move || message::head(bytes)).await
    }

    /// Builds something of a message.
    pub(super) async fn build<T: Send + 'static>(
        self: &Arc<Self>,
        message: Message,
        build: fn(&[u8]) -> Result<T, ValueError>,
    ) -> Result<T, ValueError> {
        if message.bytes.len() < LARGE {
            return build(&message.bytes);
        }
        let cost = message.bytes.len() + message.values * BUILT_VALUE_BYTES;
        let units = u32::try_from(cost.min(BUDGET) / UNIT).unwrap_or(1).max(1);
        let granted = Arc::clone(&self.budget).acquire_many_owned(units).await;
        on_a_thread(move || {
            let built = build(&message.bytes);
            // The thread gives it back, as it goes on where nobody waits for it any more.
            drop((message, granted));
            built
        })
        .await
    }

    /// Returns memory to the system some time from now.
    fn release_later(self: &Arc<Self>) {
        self.large.fetch_add(1, Ordering::Relaxed);
        let Some(release) = self.release else { return };
        if self.releasing.swap(true, Ordering::AcqRel) {
            return;
        }
        let releasing = Releasing(Arc::clone(self));
        tokio::spawn(async move {
            let Self {
                large, delays: all, ..
            } = &*releasing.0;
            let mut delays = all.iter();
            let mut seen = large.load(Ordering::Relaxed);
            while let Some(delay) = delays.next() {
                tokio::time::sleep(*delay).await;
                let _ = tokio::task::spawn_blocking(release).await;
                let now = large.load(Ordering::Relaxed);
                if now != seen {
                    seen = now;
                    delays = all.iter();
                }
            }
        });
    }
}

/// Says that nobody returns memory any more, also where the runtime ends first.
struct Releasing(Arc<MessageBuilder>);

impl Drop for Releasing {
    fn drop(&mut self) {
        self.0.releasing.store(false, Ordering::Release);
    }
}

/// Runs this on a thread for work that takes long.
async fn on_a_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ValueError> + Send + 'static,
) -> Result<T, ValueError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => Err(ValueError::Unread(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn large() -> Message {
        let bytes = format!("[{}0]", "0,".repeat(400_000)).into_bytes();
        Message {
            values: JsonCaps::MESSAGE.items,
            bytes,
        }
    }

    fn run(work: impl Future<Output = ()>) {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
            .block_on(work);
    }

    /// P64: of many large messages only so many are built at once as the budget allows. Seen failing without the semaphore.
    #[test]
    fn p64_only_so_many_messages_are_built_at_once() {
        static NOW: AtomicU64 = AtomicU64::new(0);
        static PEAK: AtomicU64 = AtomicU64::new(0);
        fn build(_: &[u8]) -> Result<(), ValueError> {
            let now = NOW.fetch_add(1, Ordering::SeqCst) + 1;
            PEAK.fetch_max(now, Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(20));
            NOW.fetch_sub(1, Ordering::SeqCst);
            Ok(())
        }
        run(async {
            let builder = MessageBuilder::shared(None);
            let mut all = tokio::task::JoinSet::new();
            for _ in 0..16 {
                let builder = Arc::clone(&builder);
                all.spawn(async move { builder.build(large(), build).await });
            }
            while let Some(done) = all.join_next().await {
                done.unwrap().unwrap();
            }
        });
        assert!((1..=2).contains(&PEAK.load(Ordering::SeqCst)), "{PEAK:?}");
    }

    /// P64: memory is returned after large messages, and again later; small ones change nothing.
    #[test]
    fn p64_memory_is_returned_after_large_messages() {
        static RELEASED: AtomicU64 = AtomicU64::new(0);
        fn release() {
            RELEASED.fetch_add(1, Ordering::SeqCst);
        }
        run(async {
            let builder = Arc::new(MessageBuilder::new(Some(release), [Duration::from_millis(5); 3]));
            builder.head(b"{}".to_vec()).await.unwrap();
            assert!(!builder.releasing.load(Ordering::SeqCst));
            assert_eq!(RELEASED.load(Ordering::SeqCst), 0);
            for round in 1..=2 {
                builder.head(large().bytes).await.unwrap();
                while builder.releasing.load(Ordering::SeqCst) {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                assert_eq!(RELEASED.load(Ordering::SeqCst), 3 * round);
            }
        });
    }
}
