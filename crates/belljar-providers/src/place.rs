//! Where an agent is.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;

use belljar_core::egress::Ports;
use belljar_core::provider::{BoxFuture, Doors, Ended};
use belljar_core::receipt::Observed;
use belljar_core::{Control, Limits, ProviderError, Weight};

/// A place that a provider made, with an agent in it. Dropping it ends everything in it.
pub(crate) trait Place: Send + Sync + Debug {
    /// From now on everything in it together has these limits, where the place can set them.
    fn limit(&mut self, limits: &Limits) -> Result<(), ProviderError>;

    /// What it weighs from now on beside others.
    fn weigh(&mut self, weight: Weight) {
        let _ = weight;
    }

    /// What has been used so far, as seen from outside; none where that is not to be seen.
    fn used(&self) -> Option<Used>;

    /// The processor time of everything in it, the wall's own included, where the agent cannot be the one to count: guests can
    /// hide from it what their children used.
    fn cpu(&self) -> Option<Duration> {
        None
    }

    /// Has its network lead to doors on these ports, and opens them.
    fn open_doors(&mut self, ports: Ports) -> BoxFuture<'_, Result<Doors, ProviderError>> {
        let _ = ports;
        Box::pin(std::future::ready(Err(no_doors("it has no network of its own"))))
    }

    /// Ends everything in it, whatever that is doing, and waits until nothing is left. May be called again.
    fn end(&mut self) -> BoxFuture<'_, Result<(), ProviderError>>;

    /// The same without waiting for what takes longer than a result should: no guest is alive any more.
    fn discard(mut self: Box<Self>) -> BoxFuture<'static, Result<(), ProviderError>>
    where
        Self: 'static,
    {
        Box::pin(async move { self.end().await })
    }

    /// Why it has gone, although nobody here ended it.
    fn why_gone(&mut self) -> BoxFuture<'_, Ended>;

    /// What holds in it, as observed, beside what every guest of an agent has.
    fn controls(&self) -> BTreeMap<Control, Observed>;

    /// What of the host is to be seen in it.
    fn shown(&self) -> Vec<String>;

    /// How it came to be.
    fn origin(&self) -> String;
}

/// Why a place can have no doors.
pub(crate) fn no_doors(why: impl std::fmt::Display) -> ProviderError {
    ProviderError::ControlMissing {
        control: Control::NetworkNamespace,
        why: format!("nobody can stand between its network and the world: {why}"),
        fix: "use the native provider, or run belljar as the user whom the engine belongs to".to_owned(),
    }
}

/// What has been used so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Used {
    pub cpu: Duration,
    /// The most memory so far, where that is counted.
    pub memory_peak: Option<u64>,
    /// The memory of the moment.
    pub memory: Option<u64>,
    /// How often the kernel has killed something for want of memory.
    pub kills: u64,
    pub processes: u32,
}
