//! How busy the processors are, watched while somebody waits for that.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::sync::Weak;
use std::time::{Duration, Instant};

use super::Service;

/// How long a measure takes.
const MEASURE: Duration = Duration::from_millis(50);
/// Where sandboxes use less than this of the processors, it is others who keep these busy, and fewer sandboxes would not
/// help anybody.
const OURS: f64 = 0.3;

/// Tells the gate, as long as there is a service.
pub(super) async fn watch_use(service: Weak<Service>) {
    while let Some(gate) = service.upgrade().map(|service| service.gate.clone()) {
        // Comes back now and then, for a service that is gone has nobody who waits.
        if tokio::time::timeout(Duration::from_secs(5), gate.busy())
            .await
            .is_err()
        {
            continue;
        }
        let before = Reading::take(&service);
        tokio::time::sleep(MEASURE).await;
        if let Some(service) = service.upgrade() {
            gate.saw_use(before.used_since(&service));
        }
    }
}

/// What was read at one moment.
#[derive(Debug)]
struct Reading {
    at: Instant,
    /// The processor time of all sandboxes.
    sandboxes: Option<Duration>,
    /// Time in which a processor had nothing to do.
    idle: Option<Duration>,
}

impl Reading {
    fn take(service: &Weak<Service>) -> Self {
        Self {
            at: Instant::now(),
            sandboxes: service.upgrade().and_then(|service| service.engine.cpu_used()),
            idle: idle(),
        }
    }

    /// How much of the processors was used since, 1.0 being all of it. Where nobody counts, nobody is kept waiting for it.
    fn used_since(&self, service: &Service) -> f64 {
        let whole = self.at.elapsed().as_secs_f64() * service.settings.gate.processors as f64;
        let part = |before: Option<Duration>, after: Option<Duration>| {
            let (before, after) = before.zip(after)?;
            Some(after.saturating_sub(before).as_secs_f64() / whole)
        };
        let sandboxes = part(self.sandboxes, service.engine.cpu_used()).unwrap_or_default();
        match part(self.idle, idle()) {
            Some(idle) if sandboxes > OURS => sandboxes.max(1.0 - idle),
            _ => sandboxes,
        }
    }
}

/// How long processors have had nothing to do, all together.
fn idle() -> Option<Duration> {
    let mut line = String::new();
    BufReader::with_capacity(512, File::open("/proc/stat").ok()?)
        .read_line(&mut line)
        .ok()?;
    // cpu user nice system idle iowait ..., in hundredths of a second.
    let fields = line.split_whitespace().skip(4);
    let ticks: u64 = fields.take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    Some(Duration::from_millis(ticks * 10))
}
