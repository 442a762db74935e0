//! Whose turn it is. So many run at once; whoever comes then waits in their tenant's queue, and the tenants have their
//! turns one after the other, however long the queue of one is. No tenant can have all places to itself.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use super::error::ServiceError;

/// How many places there are.
#[derive(Clone, Copy, Debug)]
pub struct GateSettings {
    /// Executions that run at the same time.
    pub places: usize,
    /// How many of them one tenant may have.
    pub share: usize,
    /// Requests of one tenant that wait.
    pub queue: usize,
}

impl GateSettings {
    /// So many places, of which some stay free for others whenever one tenant has the rest.
    pub fn of(places: usize) -> Self {
        Self {
            places,
            share: (places - (places / 4).max(1).min(places)).max(1),
            queue: 1_000,
        }
    }
}

impl Default for GateSettings {
    /// Most programs wait for something some of the time, so there are more places than processors.
    fn default() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Self::of(processors * 8)
    }
}

/// The gate. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Gate {
    line: Arc<Mutex<Line>>,
}

#[derive(Debug)]
struct Line {
    settings: GateSettings,
    is_closed: bool,
    running: usize,
    tenants: HashMap<String, Queue>,
    /// Tenants with somebody who waits, the next one first.
    turns: VecDeque<String>,
}

#[derive(Debug, Default)]
struct Queue {
    running: usize,
    waiting: VecDeque<oneshot::Sender<Turn>>,
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
    line: Arc<Mutex<Line>>,
    tenant: String,
}

impl Gate {
    pub fn new(settings: GateSettings) -> Self {
        let line = Line {
            settings,
            is_closed: false,
            running: 0,
            tenants: HashMap::new(),
            turns: VecDeque::new(),
        };
        Self {
            line: Arc::new(Mutex::new(line)),
        }
    }

    /// A place in the tenant's queue, or a refusal at once.
    pub fn enter(&self, tenant: &str) -> Result<Ticket, ServiceError> {
        let mut line = lock(&self.line);
        if line.is_closed {
            return Err(ServiceError::ShuttingDown);
        }
        let most = line.settings.queue;
        let queue = line.tenants.entry(tenant.to_owned()).or_default();
        // Those who gave up take nobody's place.
        queue.waiting.retain(|waiting| !waiting.is_closed());
        if queue.waiting.len() >= most {
            return Err(ServiceError::Busy { waiting: most });
        }
        let (sender, turn) = oneshot::channel();
        queue.waiting.push_back(sender);
        if queue.waiting.len() == 1 && !line.turns.iter().any(|name| name == tenant) {
            line.turns.push_back(tenant.to_owned());
        }
        advance(&self.line, line);
        Ok(Ticket { turn })
    }

    /// How many run and how many wait.
    pub fn load(&self) -> (usize, usize) {
        let line = lock(&self.line);
        let waiting = line.tenants.values().map(|queue| queue.waiting.len()).sum();
        (line.running, waiting)
    }

    pub fn is_closed(&self) -> bool {
        lock(&self.line).is_closed
    }

    /// Lets nobody in any more. Those who wait keep their place.
    pub fn close(&self) {
        lock(&self.line).is_closed = true;
    }
}

impl Ticket {
    /// Waits for the turn.
    pub async fn turn(self) -> Result<Turn, ServiceError> {
        self.turn.await.map_err(|_| ServiceError::ShuttingDown)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut line = lock(&self.line);
        line.running -= 1;
        if let Some(queue) = line.tenants.get_mut(&self.tenant) {
            queue.running -= 1;
        }
        advance(&self.line, line);
    }
}

/// Gives places to whoever is next, as long as there are some.
fn advance(shared: &Arc<Mutex<Line>>, mut line: MutexGuard<'_, Line>) {
    let mut given = Vec::new();
    // Every tenant is looked at once for each place that is given away.
    let mut looked = 0;
    while line.running < line.settings.places && looked < line.turns.len() {
        let Some(tenant) = line.turns.pop_front() else {
            break;
        };
        let share = line.settings.share;
        let Some(queue) = line.tenants.get_mut(&tenant) else {
            continue;
        };
        queue.waiting.retain(|waiting| !waiting.is_closed());
        if queue.waiting.is_empty() {
            continue;
        }
        if queue.running >= share {
            looked += 1;
            line.turns.push_back(tenant);
            continue;
        }
        if let Some(waiting) = queue.waiting.pop_front() {
            queue.running += 1;
            let waits = !queue.waiting.is_empty();
            line.running += 1;
            let turn = Turn {
                line: Arc::clone(shared),
                tenant: tenant.clone(),
            };
            given.push((waiting, turn));
            if waits {
                line.turns.push_back(tenant);
            }
            looked = 0;
        }
    }
    line.tenants
        .retain(|_, queue| queue.running > 0 || !queue.waiting.is_empty());
    drop(line);
    // One who gave up at this moment gives the place back, which takes the lock again.
    for (waiting, turn) in given {
        drop(waiting.send(turn));
    }
}

fn lock(line: &Mutex<Line>) -> MutexGuard<'_, Line> {
    line.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate(places: usize, share: usize, queue: usize) -> Gate {
        Gate::new(GateSettings { places, share, queue })
    }

    async fn has_turn(ticket: Ticket) -> Result<Turn, Ticket> {
        let mut ticket = ticket;
        match ticket.turn.try_recv() {
            Ok(turn) => Ok(turn),
            Err(_) => Err(ticket),
        }
    }

    #[tokio::test]
    async fn tenants_take_turns_however_long_ones_queue_is() {
        let gate = gate(1, 1, 100);
        let first = gate.enter("a").unwrap().turn().await.unwrap();
        let mut waiting: Vec<_> = (0..10).map(|_| gate.enter("a").unwrap()).collect();
        let other = gate.enter("b").unwrap();
        drop(first);
        // One more of `a` was there before `b`; then it is `b`'s turn.
        let second = has_turn(waiting.remove(0)).await.unwrap();
        let other = has_turn(other).await.unwrap_err();
        drop(second);
        let other = has_turn(other).await.unwrap();
        drop(other);
        assert!(has_turn(waiting.remove(0)).await.is_ok());
    }

    #[test]
    fn of_several_places_one_stays_free() {
        for places in 2..100 {
            let share = GateSettings::of(places).share;
            assert!((1..places).contains(&share), "{share} of {places}");
        }
        assert_eq!(GateSettings::of(1).share, 1);
    }

    #[tokio::test]
    async fn no_tenant_has_all_places() {
        let gate = gate(4, 3, 100);
        let mut turns = Vec::new();
        for _ in 0..3 {
            turns.push(gate.enter("a").unwrap().turn().await.unwrap());
        }
        let fourth = has_turn(gate.enter("a").unwrap()).await.unwrap_err();
        let other = has_turn(gate.enter("b").unwrap()).await.unwrap();
        assert_eq!(gate.load(), (4, 1));
        turns.pop();
        let fourth = has_turn(fourth).await.unwrap();
        drop((turns, other, fourth));
        assert_eq!(gate.load(), (0, 0));
        assert!(lock(&gate.line).tenants.is_empty());
    }

    #[tokio::test]
    async fn a_full_queue_refuses_and_others_are_let_in() {
        let gate = gate(1, 1, 2);
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

    /// Whatever comes and goes, every place is free again at the end.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn no_place_is_lost() {
        let gate = gate(3, 2, 1000);
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
