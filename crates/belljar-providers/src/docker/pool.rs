//! Containers that wait: a run is then a word to an agent that is there already. Each is used once and removed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use belljar_core::request::Workspace;
use belljar_core::{Control, Plan, ProviderError};

use super::Shared;
use super::connect::Connection;
use super::container::Shape;
use super::place::Raised;
use crate::agent::Made;
use crate::background::Background;

/// How long a kind of container is kept ready after it was last asked for.
const IDLE: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(super) struct Pool {
    stock: usize,
    shelves: Mutex<HashMap<Shape, Shelf>>,
}

#[derive(Debug)]
struct Shelf {
    ready: Vec<Raised>,
    /// How many are on their way.
    coming: usize,
    asked: Instant,
}

impl Pool {
    pub(super) fn new(stock: usize) -> Self {
        Self {
            stock,
            shelves: Mutex::default(),
        }
    }

    /// A container for `plan`: one that waits, else one that is made now.
    pub(super) async fn take(
        shared: &Arc<Shared>,
        connection: &Arc<Connection>,
        image: &str,
        id: &str,
        plan: &Plan,
    ) -> Result<Made, ProviderError> {
        if let Workspace::Directory(_) = plan.workspace() {
            return Err(ProviderError::ControlMissing {
                control: Control::PrivateRoot,
                why: "a container's work directory is its own".to_owned(),
                fix: "mount the directory somewhere else, or use the native provider".to_owned(),
            });
        }
        let known = {
            let (shared, connection, image) = (Arc::clone(shared), Arc::clone(connection), image.to_owned());
            let background = shared.background.clone();
            let acquainted =
                background.run(async move { Ok(shared.images.acquaint(&shared, &connection, &image).await) });
            acquainted.await.map_err(broken)??
        };
        let shape = Shape::new(&known.derived, plan, shared.settings.runtime.as_deref());
        if !shape.can_wait() || shared.pool.stock == 0 {
            return Ok(raise(shared, connection, &shape, id)
                .await?
                .into_made("made on demand"));
        }
        let waiting = shared.pool.pick(&shape);
        Self::refill(shared, connection, &shape);
        match waiting {
            Some(raised) => Ok(raised.into_made("container started ahead")),
            None => Ok(raise(shared, connection, &shape, id)
                .await?
                .into_made("made on demand")),
        }
    }

    /// One that waits and whose agent is still there.
    fn pick(&self, shape: &Shape) -> Option<Raised> {
        let mut shelves = self.shelves.lock().unwrap_or_else(PoisonError::into_inner);
        let shelf = shelves.entry(shape.clone()).or_insert_with(|| Shelf {
            ready: Vec::new(),
            coming: 0,
            asked: Instant::now(),
        });
        shelf.asked = Instant::now();
        while let Some(raised) = shelf.ready.pop() {
            if raised.line().is_open() {
                return Some(raised);
            }
        }
        None
    }

    /// Has as many made as are missing, in the background.
    fn refill(shared: &Arc<Shared>, connection: &Arc<Connection>, shape: &Shape) {
        let Ok(runtime) = shared.background.handle() else {
            return;
        };
        let missing = {
            let mut shelves = shared.pool.shelves.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(shelf) = shelves.get_mut(shape) else {
                return;
            };
            let missing = shared.pool.stock.saturating_sub(shelf.ready.len() + shelf.coming);
            shelf.coming += missing;
            missing
        };
        for _ in 0..missing {
            let (weak, connection, shape) = (Arc::downgrade(shared), Arc::clone(connection), shape.clone());
            runtime.spawn(async move {
                let Some(shared) = weak.upgrade() else { return };
                let raised = Raised::raise(&shared, &connection, &shape, &fresh_name()).await;
                // One that could not be made is made on demand, and says why.
                let late = shared.pool.put(&shape, raised.ok());
                drop(shared);
                if let Some(late) = late {
                    late.close().await;
                    return;
                }
                tokio::time::sleep(IDLE).await;
                if let Some(shared) = weak.upgrade() {
                    let idle = shared.pool.idle();
                    drop(shared);
                    for raised in idle {
                        raised.close().await;
                    }
                }
            });
        }
    }

    /// Takes in one that was on its way; gives it back where nobody waits for it any more.
    fn put(&self, shape: &Shape, raised: Option<Raised>) -> Option<Raised> {
        let mut shelves = self.shelves.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(shelf) = shelves.get_mut(shape) else {
            return raised;
        };
        shelf.coming = shelf.coming.saturating_sub(1);
        shelf.ready.extend(raised);
        None
    }

    /// Those that nobody has asked for in a while.
    fn idle(&self) -> Vec<Raised> {
        let mut shelves = self.shelves.lock().unwrap_or_else(PoisonError::into_inner);
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

    /// Removes all that wait, and waits for that.
    pub(super) fn close(&self, background: &Background) {
        let mut shelves = self.shelves.lock().unwrap_or_else(PoisonError::into_inner);
        let all: Vec<Raised> = shelves.drain().flat_map(|(_, shelf)| shelf.ready).collect();
        drop(shelves);
        if all.is_empty() {
            return;
        }
        let _ = background.wait(async move {
            futures_util::future::join_all(all.into_iter().map(Raised::close)).await;
        });
    }
}

/// Made where lines are read and written.
async fn raise(
    shared: &Arc<Shared>,
    connection: &Arc<Connection>,
    shape: &Shape,
    id: &str,
) -> Result<Raised, ProviderError> {
    let (work, connection, shape, id) = (
        Arc::clone(shared),
        Arc::clone(connection),
        shape.clone(),
        id.to_owned(),
    );
    let raising = shared
        .background
        .run(async move { Ok(Raised::raise(&work, &connection, &shape, &id).await) });
    raising.await.map_err(broken)?
}

fn broken(source: std::io::Error) -> ProviderError {
    ProviderError::Io {
        operation: "make",
        object: "a container".to_owned(),
        source,
    }
}

/// A name for a container that has no sandbox yet.
fn fresh_name() -> String {
    let mut bytes = [0u8; 8];
    let _ = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    format!("bj-{:016x}", u64::from_ne_bytes(bytes))
}
