//! Sandboxes that are raised before anybody asks for them.
//!
//! Each shape of sandbox that is asked for more than once gets a small stock, which a thread of its own keeps
//! up. What is taken out is used by one plan and never comes back. A shape that nobody asks for any more
//! loses its stock after a while.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::cgroup::GroupLimits;
use super::raise::{self, Raised, Wanted};
use super::shared::Shared;
use super::shown::Shown;
use super::zygote::Purpose;
use crate::wire::{GuestSpec, ShellSpec};

/// How sandboxes are kept ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolSettings {
    /// How many of one shape wait at once; none switches the pool off. Where that is too few, more of them do.
    pub stock: usize,
    /// How many wait in all.
    pub most: usize,
    /// Nothing is raised ahead where the machine has less memory than this left, in bytes.
    pub spare_memory: u64,
    /// How often a shape must be asked for before it gets a stock.
    pub after: u32,
    /// Modules that Python's warm interpreter of the host imports beforehand.
    pub preload: Vec<String>,
    /// Whether warm interpreters are used at all.
    pub warm: bool,
    /// How long a stock is kept that nobody takes from.
    pub idle: Duration,
}

impl Default for PoolSettings {
    fn default() -> Self {
        Self {
            stock: 4,
            most: 32,
            spare_memory: 256 << 20,
            after: 2,
            preload: Vec::new(),
            warm: true,
            idle: Duration::from_secs(60),
        }
    }
}

impl PoolSettings {
    /// Every sandbox made on demand, every interpreter fresh.
    pub fn off() -> Self {
        Self {
            stock: 0,
            most: 0,
            warm: false,
            ..Self::default()
        }
    }
}

/// How long after a stock did not suffice nothing is done that only saves somebody's time: it takes some of everybody's.
const HURRY: Duration = Duration::from_secs(1);
/// How long a stock that is more than half full waits before it is filled up: raising the next sandbox would get in the way of
/// the run that has just taken one.
const LULL: Duration = Duration::from_millis(3);
/// How long to wait after something could not be raised.
const SULK: Duration = Duration::from_secs(1);

/// What two sandboxes must have in common to be interchangeable.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Shape {
    pub shows: Vec<Shown>,
    pub shell: ShellSpec,
    pub limits: GroupLimits,
    /// The guest that waits in it, what it has imported, and what it is ready for.
    pub guest: Option<(GuestSpec, Vec<String>, Purpose)>,
}

#[derive(Debug, Default)]
pub(crate) struct Pool {
    state: Mutex<State>,
    wanted: Condvar,
    filled: Condvar,
}

#[derive(Debug, Default)]
struct State {
    stocks: HashMap<Shape, Stock>,
    keeper: Option<JoinHandle<()>>,
    closed: bool,
}

#[derive(Debug)]
struct Stock {
    ready: VecDeque<Raised>,
    asked: u32,
    last_asked: Instant,
    /// How many to keep.
    target: usize,
    /// When somebody last came in vain.
    missed: Option<Instant>,
    /// What to raise.
    recipe: Recipe,
    not_before: Instant,
    failure: Option<String>,
}

/// How one more of a shape is made: worked out anew each time, since nurseries come and go.
#[derive(Clone)]
pub(crate) struct Recipe(Arc<Make>);

/// Told whether somebody is waiting for it.
type Make = dyn Fn(&Arc<Shared>, bool) -> Option<Wanted> + Send + Sync;

impl Recipe {
    pub(crate) fn new(make: impl Fn(&Arc<Shared>, bool) -> Option<Wanted> + Send + Sync + 'static) -> Self {
        Self(Arc::new(make))
    }
}

impl std::fmt::Debug for Recipe {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Recipe")
    }
}

impl Pool {
    /// One of that shape, if there is one. Either way the demand is noted.
    pub(crate) fn take(
        self: &Arc<Self>,
        shared: &Arc<Shared>,
        shape: &Shape,
        recipe: impl FnOnce() -> Recipe,
    ) -> Option<Raised> {
        let settings = shared.pool_settings();
        if settings.stock == 0 {
            return None;
        }
        let mut state = lock(&self.state);
        let stock = state
            .stocks
            .entry(shape.clone())
            .or_insert_with(|| Stock::new(recipe()));
        stock.asked = stock.asked.saturating_add(1);
        stock.last_asked = Instant::now();
        if stock.asked >= settings.after {
            stock.target = stock.target.max(settings.stock);
        }
        // What died while it waited is not for anybody. Cleared away below, when others can go on.
        let mut broken = Vec::new();
        let mut taken = stock.ready.pop_front();
        while let Some(raised) = taken.take_if(|raised| !raised.is_whole()) {
            broken.push(raised);
            taken = stock.ready.pop_front();
        }
        if taken.is_none() && broken.is_empty() && stock.target > 0 {
            stock.target = (stock.target * 2).min(settings.most);
            stock.missed = Some(stock.last_asked);
        }
        if taken.is_some() && stock.ready.len() > stock.target / 2 {
            stock.not_before = stock.not_before.max(stock.last_asked + LULL);
        }
        let short = stock.ready.len() < stock.target;
        if short {
            self.wake(&mut state, shared);
        }
        drop(state);
        drop(broken);
        taken
    }

    /// Whether those of that shape are taken faster than they come.
    pub(crate) fn is_short(&self, shape: &Shape) -> bool {
        lock(&self.state).stocks.get(shape).is_some_and(Stock::is_short)
    }

    /// Raises a whole stock of that shape now and waits for it, at most so long. What kept it from coming.
    pub(crate) fn prepare(
        self: &Arc<Self>,
        shared: &Arc<Shared>,
        shape: &Shape,
        recipe: Recipe,
        most: Duration,
    ) -> Result<(), String> {
        let settings = shared.pool_settings();
        let until = Instant::now() + most;
        let mut state = lock(&self.state);
        let stock = state
            .stocks
            .entry(shape.clone())
            .or_insert_with(|| Stock::new(recipe));
        stock.target = settings.stock;
        stock.last_asked = Instant::now();
        stock.asked = stock.asked.max(settings.after);
        self.wake(&mut state, shared);
        loop {
            let Some(stock) = state.stocks.get(shape) else {
                return Err("the pool was closed".to_owned());
            };
            if stock.ready.len() >= stock.target {
                return Ok(());
            }
            if let Some(failure) = &stock.failure {
                return Err(failure.clone());
            }
            if memory_left() < settings.spare_memory {
                return Err("the machine has too little memory left to raise sandboxes ahead".to_owned());
            }
            let Some(left) = until.checked_duration_since(Instant::now()) else {
                return Err("it took too long".to_owned());
            };
            let wait = self.filled.wait_timeout(state, left);
            state = wait.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn wake(self: &Arc<Self>, state: &mut State, shared: &Arc<Shared>) {
        if state.keeper.is_none() && !state.closed {
            let (pool, shared) = (Arc::clone(self), Arc::downgrade(shared));
            let thread = std::thread::Builder::new()
                .name("belljar-pool".to_owned())
                .spawn(move || pool.keep_up(&shared));
            // Where no thread can be had, everything is made on demand.
            state.keeper = thread.ok();
        }
        self.wanted.notify_all();
    }

    /// Ends every sandbox that waits, and what was about to join them.
    pub(crate) fn close(&self) {
        let mut state = lock(&self.state);
        state.closed = true;
        let (stocks, keeper) = (std::mem::take(&mut state.stocks), state.keeper.take());
        drop(state);
        self.wanted.notify_all();
        self.filled.notify_all();
        drop(stocks);
        // The keeper itself may be the last to let go of the provider.
        let own = std::thread::current().id();
        if let Some(keeper) = keeper.filter(|keeper| keeper.thread().id() != own) {
            let _ = keeper.join();
        }
    }

    /// Whether nothing more is to be raised.
    pub(crate) fn is_closed(&self) -> bool {
        lock(&self.state).closed
    }

    /// Keeps the stocks up until the provider is gone.
    fn keep_up(&self, shared: &Weak<Shared>) {
        let mut count = 0u64;
        loop {
            let (shape, recipe, missing, hurry) = match self.next_job(shared) {
                Job::Raise(shape, recipe, missing, hurry) => (shape, recipe, missing, hurry),
                Job::Drop(stale) => {
                    drop(stale);
                    continue;
                }
                Job::Nothing => continue,
                Job::End => return,
            };
            let Some(shared) = shared.upgrade() else { return };
            // All at once: the work is done by other processes, and they overlap.
            let rising: Vec<_> = (0..missing)
                .map(|_| {
                    count += 1;
                    let wanted =
                        recipe.0(&shared, hurry).ok_or_else(|| "no interpreter is ready".to_owned())?;
                    raise::begin(&shared, wanted, &format!("pool{count}")).map_err(|error| error.to_string())
                })
                .collect();
            let filling: Vec<_> = rising
                .into_iter()
                .map(|rising| rising?.tell().map_err(|error| error.to_string()))
                .collect();
            for filling in filling {
                let raised = filling.and_then(|filling| filling.wait().map_err(|error| error.to_string()));
                self.store(&shape, raised);
            }
        }
    }

    fn store(&self, shape: &Shape, raised: Result<Raised, String>) {
        let mut state = lock(&self.state);
        if state.closed {
            return;
        }
        if let Some(stock) = state.stocks.get_mut(shape) {
            match raised {
                Ok(raised) => {
                    stock.failure = None;
                    stock.ready.push_back(raised);
                }
                Err(failure) => {
                    stock.failure = Some(failure);
                    stock.not_before = Instant::now() + SULK;
                }
            }
        }
        drop(state);
        self.filled.notify_all();
    }

    /// What to do next; waits for something.
    fn next_job(&self, shared: &Weak<Shared>) -> Job {
        let mut state = lock(&self.state);
        if state.closed {
            return Job::End;
        }
        let (most, spare, idle) = match shared.upgrade() {
            Some(shared) => {
                let settings = shared.pool_settings();
                (settings.most, settings.spare_memory, settings.idle)
            }
            None => return Job::End,
        };
        let now = Instant::now();
        let mut stale = Vec::new();
        state.stocks.retain(|_, stock| {
            let keep = now.duration_since(stock.last_asked) < idle;
            if !keep {
                stale.extend(stock.ready.drain(..));
            }
            keep
        });
        if !stale.is_empty() {
            return Job::Drop(stale);
        }
        let room = most.saturating_sub(state.stocks.values().map(|stock| stock.ready.len()).sum());
        let short = state
            .stocks
            .iter()
            .filter(|(_, stock)| stock.ready.len() < stock.target && stock.not_before <= now)
            // Who was asked last has what is needed next.
            .max_by_key(|(_, stock)| stock.last_asked);
        if let Some((shape, stock)) = short
            && room > 0
            && memory_left() >= spare
        {
            let missing = (stock.target - stock.ready.len()).min(room);
            return Job::Raise(
                Box::new(shape.clone()),
                stock.recipe.clone(),
                missing,
                stock.is_short(),
            );
        }
        if let Some((_, stock)) = short {
            let (missing, asked) = (stock.target - stock.ready.len(), stock.last_asked);
            let given_up = give_up(&mut state.stocks, missing, asked);
            if !given_up.is_empty() {
                return Job::Drop(given_up);
            }
        }
        let waits = |stock: &&Stock| stock.ready.len() < stock.target;
        let next = state
            .stocks
            .values()
            .filter(waits)
            .map(|stock| stock.not_before)
            .min();
        let wait = match next {
            // What could not be raised for want of room or memory has no time of its own.
            Some(next) if next > now => next.duration_since(now).min(SULK),
            Some(_) => SULK,
            None if state.stocks.is_empty() => idle,
            None => SULK,
        };
        drop(self.wanted.wait_timeout(state, wait));
        Job::Nothing
    }
}

/// Makes room for what was asked for at `asked`: at most so many of the stock that was asked for longest before
/// that. It does not get them back at the cost of younger ones, so nobody takes turns.
fn give_up(stocks: &mut HashMap<Shape, Stock>, most: usize, asked: Instant) -> Vec<Raised> {
    let oldest = stocks
        .values_mut()
        .filter(|stock| stock.last_asked < asked && !stock.ready.is_empty())
        .min_by_key(|stock| stock.last_asked);
    oldest.map_or_else(Vec::new, |stock| {
        let count = most.min(stock.ready.len());
        stock.target = stock.ready.len() - count;
        stock.ready.drain(..count).collect()
    })
}

enum Job {
    Raise(Box<Shape>, Recipe, usize, bool),
    Drop(Vec<Raised>),
    Nothing,
    End,
}

impl Stock {
    fn new(recipe: Recipe) -> Self {
        Self {
            ready: VecDeque::new(),
            asked: 0,
            last_asked: Instant::now(),
            target: 0,
            missed: None,
            recipe,
            not_before: Instant::now(),
            failure: None,
        }
    }

    /// Whether they are taken faster than they come.
    fn is_short(&self) -> bool {
        self.missed.is_some_and(|missed| missed.elapsed() < HURRY)
    }
}

/// What the machine could give without swapping; all there is where it does not say.
fn memory_left() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kibibytes = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kibibytes.map_or(u64::MAX, |count| count << 10)
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
