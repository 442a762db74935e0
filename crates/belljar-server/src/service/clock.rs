//! The time, as the service tells it.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Seconds since the epoch, from where the machine's clock stood at the start and by a clock that nobody sets: a
/// machine whose time is changed gives no quota away and makes no record end before it began (S8).
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    started_at: f64,
    started: Instant,
}

impl Clock {
    pub fn start() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        Self {
            started_at: since.map_or(0.0, |since| since.as_secs_f64()),
            started: Instant::now(),
        }
    }

    pub fn now(&self) -> f64 {
        self.started_at + self.started.elapsed().as_secs_f64()
    }
}
