//! What was found out a moment ago, and is believed for a while.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

#[derive(Debug)]
pub(crate) struct Believed<T> {
    long: Duration,
    found: Mutex<Option<(Instant, T)>>,
}

impl<T: Clone> Believed<T> {
    /// Believes what is found for that long.
    pub(crate) const fn new(long: Duration) -> Self {
        Self {
            long,
            found: Mutex::new(None),
        }
    }

    /// What was found, or is found now: `find` is told what it was before. Whoever comes meanwhile waits.
    pub(crate) fn get(&self, find: impl FnOnce(Option<T>) -> T) -> T {
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        match found.take() {
            Some((when, thing)) if when.elapsed() < self.long => {
                *found = Some((when, thing.clone()));
                thing
            }
            before => {
                let thing = find(before.map(|(_, thing)| thing));
                *found = Some((Instant::now(), thing.clone()));
                thing
            }
        }
    }
}
