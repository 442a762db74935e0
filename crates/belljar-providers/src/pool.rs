//! Places that wait: a run is then a word to an agent that is there already. Each is used once and taken away.

use std::collections::HashMap;
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use belljar_core::ProviderError;
use belljar_core::provider::BoxFuture;

use crate::background::Background;
use crate::clearing::Clearing;

/// How long a kind of place is kept ready after it was last asked for.
const IDLE: Duration = Duration::from_secs(60);

/// A place that can wait.
pub(crate) trait Waiting: Send + Debug + Sized + 'static {
    /// Whether its agent is still there.
    fn is_there(&self) -> bool;

    fn close(self) -> BoxFuture<'static, ()>;
}

/// Makes a place of that name.
pub(crate) type Make<W> = Arc<dyn Fn(String) -> BoxFuture<'static, Result<W, ProviderError>> + Send + Sync>;

/// Places by their shape: everything in which one differs from another, as far as it can be known before there is a request.
#[derive(Debug)]
pub(crate) struct Pool<S, W> {
    stock: usize,
    shelves: Arc<Mutex<HashMap<S, Shelf<W>>>>,
    /// How many are on their way, on whichever shelf.
    coming: Clearing,
}

#[derive(Debug)]
struct Shelf<W> {
    ready: Vec<W>,
    /// How many are on their way.
    coming: usize,
    asked: Instant,
}

impl<S: Clone + Eq + Hash + Send + 'static, W: Waiting> Pool<S, W> {
    /// Keeps so many of each shape that was asked for.
    pub(crate) fn new(stock: usize) -> Self {
        Self {
            stock,
            shelves: Arc::default(),
            coming: Clearing::default(),
        }
    }

    /// One of that shape, and whether it waited; made under that name where none did.
    pub(crate) async fn take(
        &self,
        background: &Background,
        shape: &S,
        name: &str,
        make: Make<W>,
    ) -> Result<(W, bool), ProviderError> {
        let waiting = self.pick(shape);
        self.refill(background, shape, &make);
        if let Some(place) = waiting {
            return Ok((place, true));
        }
        Ok((made(background, make(name.to_owned())).await?, false))
    }

    fn pick(&self, shape: &S) -> Option<W> {
        if self.stock == 0 {
            return None;
        }
        let mut shelves = self.shelves.lock().unwrap_or_else(PoisonError::into_inner);
        let shelf = shelves.entry(shape.clone()).or_insert_with(|| Shelf {
            ready: Vec::new(),
            coming: 0,
            asked: Instant::now(),
        });
        shelf.asked = Instant::now();
        while let Some(place) = shelf.ready.pop() {
            if place.is_there() {
                return Some(place);
            }
        }
        None
    }

    /// Has as many made as are missing, in the background.
    fn refill(&self, background: &Background, shape: &S, make: &Make<W>) {
        let Ok(runtime) = background.handle() else { return };
        let missing = {
            let mut shelves = self.shelves.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(shelf) = shelves.get_mut(shape) else {
                return;
            };
            let missing = self.stock.saturating_sub(shelf.ready.len() + shelf.coming);
            shelf.coming += missing;
            missing
        };
        for _ in 0..missing {
            let (shelves, making) = (Arc::downgrade(&self.shelves), make(fresh_name()));
            let under_way = self.coming.begin();
            let shape = shape.clone();
            runtime.spawn(async move {
                // One that could not be made is made on demand, and says why.
                let place = making.await.ok();
                let late = match shelves.upgrade() {
                    Some(shelves) => put(&shelves, &shape, place),
                    None => place,
                };
                if let Some(late) = late {
                    late.close().await;
                    return;
                }
                drop(under_way);
                tokio::time::sleep(IDLE).await;
                let idle = shelves.upgrade().map(|shelves| idle(&shelves));
                for place in idle.into_iter().flatten() {
                    place.close().await;
                }
            });
        }
    }

    /// Takes away all that wait, and waits for that.
    pub(crate) fn close(&self, background: &Background) {
        let mut shelves = self.shelves.lock().unwrap_or_else(PoisonError::into_inner);
        let all: Vec<W> = shelves.drain().flat_map(|(_, shelf)| shelf.ready).collect();
        drop(shelves);
        if !all.is_empty() {
            let _ = background.wait(futures_util::future::join_all(
                all.into_iter().map(Waiting::close),
            ));
        }
        // Those that are on their way find no shelf any more, and go again.
        self.coming.finish(background);
    }
}

/// Takes in one that was on its way; gives it back where nobody waits for it any more.
fn put<S: Eq + Hash, W>(shelves: &Mutex<HashMap<S, Shelf<W>>>, shape: &S, place: Option<W>) -> Option<W> {
    let mut shelves = shelves.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(shelf) = shelves.get_mut(shape) else {
        return place;
    };
    shelf.coming = shelf.coming.saturating_sub(1);
    shelf.ready.extend(place);
    None
}

/// Those that nobody has asked for in a while.
fn idle<S: Eq + Hash, W>(shelves: &Mutex<HashMap<S, Shelf<W>>>) -> Vec<W> {
    let mut shelves = shelves.lock().unwrap_or_else(PoisonError::into_inner);
    let mut idle = Vec::new();
    shelves.retain(|_, shelf| {
        if shelf.asked.elapsed() < IDLE || shelf.coming > 0 {
            return true;
        }
        idle.append(&mut shelf.ready);
        false
    });
    idle
}

/// Made where lines are read and written.
pub(crate) async fn made<W: Send + 'static>(
    background: &Background,
    making: BoxFuture<'static, Result<W, ProviderError>>,
) -> Result<W, ProviderError> {
    let made = background.run(async move { Ok(making.await) }).await;
    made.map_err(|source| ProviderError::Io {
        operation: "make",
        object: "a sandbox".to_owned(),
        source,
    })?
}

/// A name for a place that has no sandbox yet.
pub(crate) fn fresh_name() -> String {
    let mut bytes = [0u8; 8];
    // Where there is no randomness, a name that is taken is refused by whoever is asked to use it.
    let _ = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    format!("bj-{:016x}", u64::from_ne_bytes(bytes))
}
