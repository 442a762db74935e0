//! Whose turn it is. So many run at once; whoever comes then waits in their tenant's queue, and the tenants have their
//! turns one after the other, however long the queue of one is. No tenant can have all places to itself.
//!
//! A machine that does as much as it can keeps everybody waiting at each step, those too who want but one. So those who
//! want many get no more running than the processors can do, unless these wait for something; and while other tenants are
//! about, theirs are started at a pace that leaves the others time.

mod line;
mod settings;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use belljar_core::Weight;
use tokio::sync::{Notify, oneshot};

use self::line::{Line, Next, Patient};
pub use self::settings::GateSettings;
use super::error::ServiceError;

/// The gate. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Gate {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    line: Mutex<Line<Waiting>>,
    /// Told when somebody waits because the processors had enough to do.
    busy: Notify,
}

type Waiting = oneshot::Sender<Turn>;

impl Patient for Waiting {
    fn is_gone(&self) -> bool {
        self.is_closed()
    }
}

/// A place in the queue.
#[derive(Debug)]
#[must_use = "a place that is dropped is given up"]
pub struct Ticket {
    turn: oneshot::Receiver<Turn>,
}

/// A place to run. Dropping it gives it to the next.
#[derive(Debug)]
pub struct Turn {
    shared: Arc<Shared>,
    tenant: String,
    weight: Weight,
}

impl Gate {
    pub fn new(settings: GateSettings) -> Self {
        Self {
            shared: Arc::new(Shared {
                line: Mutex::new(Line::new(settings, Instant::now())),
                busy: Notify::new(),
            }),
        }
    }

    /// A place in the tenant's queue, or a refusal at once.
    pub fn enter(&self, tenant: &str) -> Result<Ticket, ServiceError> {
        let mut line = lock(&self.shared.line);
        if line.is_closed {
            return Err(ServiceError::ShuttingDown);
        }
        let (sender, turn) = oneshot::channel();
        if line.enter(tenant, sender, Instant::now()).is_err() {
            let waiting = line.settings.queue;
            return Err(ServiceError::Busy { waiting });
        }
        advance(&self.shared, line);
        Ok(Ticket { turn })
    }

    /// How many run and how many wait.
    pub fn load(&self) -> (usize, usize) {
        lock(&self.shared.line).load()
    }

    pub fn is_closed(&self) -> bool {
        lock(&self.shared.line).is_closed
    }

    /// Lets nobody in any more. Those who wait keep their place.
    pub fn close(&self) {
        lock(&self.shared.line).is_closed = true;
    }

    /// Resolves while it matters how busy the processors are: then [`Gate::saw_use`] lets somebody in, or not.
    pub async fn busy(&self) {
        while !lock(&self.shared.line).wants_measure() {
            self.shared.busy.notified().await;
        }
    }

    /// How much of the processors sandboxes have used lately, 1.0 being all of it.
    pub fn saw_use(&self, part: f64) {
        let mut line = lock(&self.shared.line);
        line.saw_use(part);
        advance(&self.shared, line);
    }
}

impl Ticket {
    /// Waits for the turn.
    pub async fn turn(self) -> Result<Turn, ServiceError> {
        self.turn.await.map_err(|_| ServiceError::ShuttingDown)
    }
}

impl Turn {
    /// What it weighs: the more a tenant has, the less each of them that comes.
    pub const fn weight(&self) -> Weight {
        self.weight
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut line = lock(&self.shared.line);
        line.leave(&self.tenant);
        advance(&self.shared, line);
    }
}

/// Gives places to whoever is next, as long as there are some.
fn advance(shared: &Arc<Shared>, mut line: MutexGuard<'_, Line<Waiting>>) {
    let now = Instant::now();
    let mut given = Vec::new();
    let until = loop {
        match line.next(now) {
            Next::Turn {
                tenant,
                waiting,
                weight,
            } => {
                let shared = Arc::clone(shared);
                given.push((
                    waiting,
                    Turn {
                        shared,
                        tenant,
                        weight,
                    },
                ));
            }
            Next::Nobody { until } => break until,
        }
    };
    if line.wants_measure() {
        shared.busy.notify_one();
    }
    if let Some(until) = until.filter(|until| line.awaited.is_none_or(|awaited| *until < awaited)) {
        line.awaited = Some(until);
        come_back(shared, until);
    }
    drop(line);
    // One who gave up at this moment gives the place back, which takes the lock again.
    for (waiting, turn) in given {
        drop(waiting.send(turn));
    }
}

/// Has somebody look again at that time.
fn come_back(shared: &Arc<Shared>, until: Instant) {
    let shared = Arc::clone(shared);
    tokio::spawn(async move {
        tokio::time::sleep_until(until.into()).await;
        let mut line = lock(&shared.line);
        if line.awaited == Some(until) {
            line.awaited = None;
            advance(&shared, line);
        }
    });
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate(settings: GateSettings) -> Gate {
        Gate::new(settings)
    }

    fn one_place() -> GateSettings {
        GateSettings {
            places: 1,
            share: 1,
            queue: 2,
            ..GateSettings::default()
        }
    }

    #[tokio::test]
    async fn a_full_queue_refuses_and_others_are_let_in() {
        let gate = gate(one_place());
        let _turn = gate.enter("a").unwrap().turn().await.unwrap();
        let first = gate.enter("a").unwrap();
        let _second = gate.enter("a").unwrap();
        assert!(matches!(gate.enter("a"), Err(ServiceError::Busy { waiting: 2 })));
        assert!(gate.enter("b").is_ok());
        drop(first);
        assert!(gate.enter("a").is_ok());
        gate.close();
        assert!(matches!(gate.enter("c"), Err(ServiceError::ShuttingDown)));
    }

    /// Those who are paced start by themselves when their time has come.
    #[tokio::test]
    async fn nobody_is_forgotten_for_being_early() {
        let gate = gate(GateSettings {
            processors: 1,
            ..GateSettings::of(100)
        });
        drop(gate.enter("other").unwrap().turn().await.unwrap());
        let tickets: Vec<_> = (0..10).map(|_| gate.enter("flood").unwrap()).collect();
        for ticket in tickets {
            ticket.turn().await.unwrap();
        }
        assert_eq!(gate.load(), (0, 0));
    }

    /// Those who wait for idle processors are let in when these are.
    #[tokio::test]
    async fn whoever_measures_is_told_that_somebody_waits_for_it() {
        let gate = gate(GateSettings {
            processors: 1,
            ..GateSettings::of(100)
        });
        let tickets: Vec<_> = (0..10).map(|_| gate.enter("a").unwrap()).collect();
        assert_eq!(gate.load(), (4, 6));
        for _ in 0..6 {
            gate.busy().await;
            gate.saw_use(0.0);
        }
        assert_eq!(gate.load(), (10, 0));
        drop(tickets);
    }

    /// Whatever comes and goes, every place is free again at the end.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn no_place_is_lost() {
        let gate = gate(GateSettings {
            places: 3,
            share: 2,
            ..GateSettings::default()
        });
        let tasks: Vec<_> = (0..300)
            .map(|turn| {
                let gate = gate.clone();
                tokio::spawn(async move {
                    let ticket = gate.enter(["a", "b", "c"][turn % 3]).unwrap();
                    if turn % 5 == 0 {
                        return;
                    }
                    let _turn = ticket.turn().await.unwrap();
                    tokio::task::yield_now().await;
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        // What was given to one who had just given up comes back when it is noticed.
        drop(gate.enter("a").unwrap());
        assert_eq!(gate.load().0, 0);
    }
}
