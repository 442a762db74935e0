//! How many run at once.

use std::time::Duration;

/// Places for each processor: most programs wait for something some of the time.
const PLACES: usize = 8;
/// Three times what a processor takes to start and end a sandbox on a slow machine.
const START: Duration = Duration::from_millis(15);

/// How many places there are.
#[derive(Clone, Copy, Debug)]
pub struct GateSettings {
    /// Executions that run at the same time.
    pub places: usize,
    /// How many of them one tenant may have.
    pub share: usize,
    /// Requests of one tenant that wait.
    pub queue: usize,
    /// The processors that all of them have.
    pub processors: usize,
    /// How long one processor is left alone after it has started something for a tenant who wants many, while others are
    /// about.
    pub start: Duration,
}

impl GateSettings {
    /// So many places, of which some stay free for others whenever one tenant has the rest.
    pub fn of(places: usize) -> Self {
        Self {
            places,
            share: (places - (places / 4).max(1).min(places)).max(1),
            queue: 1_000,
            processors: processors(),
            start: START,
        }
    }

    /// The time between two starts for tenants who want many.
    pub(super) fn pace(&self) -> Duration {
        self.start / u32::try_from(self.processors.max(1)).unwrap_or(u32::MAX)
    }
}

impl Default for GateSettings {
    fn default() -> Self {
        Self::of(processors() * PLACES)
    }
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_several_places_one_stays_free() {
        for places in 2..100 {
            let share = GateSettings::of(places).share;
            assert!((1..places).contains(&share), "{share} of {places}");
        }
        assert_eq!(GateSettings::of(1).share, 1);
    }
}
