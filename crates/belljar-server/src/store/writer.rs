//! The one task that writes. It takes whatever waits into one transaction, so that the disk is waited for once for
//! many, and answers when that is durable.
//!
//! Every transaction begins by locking the head of the chain. So writers follow one another, those of other
//! processes too: what a write reads stays true until it is committed.

use std::fmt;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use belljar_core::provider::BoxFuture;
use sqlx::{AnyConnection, Connection, Row};
use tokio::sync::{mpsc, oneshot};

use super::chain::{self, Head};
use super::error::{During, StoreError};
use super::place::Place;

/// The most writes in one transaction.
const MOST: usize = 256;
/// The most writes that wait.
const WAITING: usize = 8192;
/// How long to wait before a write that must not be lost is tried again.
const AGAIN: Duration = Duration::from_millis(250);

/// How long a connection may take to be let go.
const CLOSING: Duration = Duration::from_secs(1);

/// A transaction under way.
pub(crate) struct Tx<'c> {
    pub connection: &'c mut AnyConnection,
    pub head: Head,
}

/// Something to write. It may be tried more than once.
pub(crate) trait Write: Send + 'static {
    type Output: Send + 'static;
    /// Whether it must be written however long that takes: what it tells has happened.
    const INSISTS: bool = false;

    fn write(&mut self, tx: &mut Tx<'_>) -> impl Future<Output = Result<Self::Output, StoreError>> + Send;
}

/// Nothing, but as hard to write as anything else.
pub(crate) struct Touch;

impl Write for Touch {
    type Output = ();

    async fn write(&mut self, _: &mut Tx<'_>) -> Result<(), StoreError> {
        Ok(())
    }
}

/// Takes a lock that lasts as long as the connection.
struct Attend(i64);

impl Write for Attend {
    type Output = ();

    async fn write(&mut self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        attend(tx.connection, self.0).await
    }
}

async fn attend(connection: &mut AnyConnection, lock: i64) -> Result<(), StoreError> {
    const OPERATION: &str = "say that this server is there";
    let taken: i64 = sqlx::query("SELECT CAST(CAST(pg_try_advisory_lock($1) AS INT) AS BIGINT)")
        .bind(lock)
        .fetch_one(connection)
        .await
        .and_then(|row| row.try_get(0))
        .during(OPERATION)?;
    // A connection of ours that was lost may have it for a moment more. Without it others would take us for dead.
    match taken {
        0 => Err(StoreError::Held(
            "the database still sees a connection that was lost".to_owned(),
        )),
        _ => Ok(()),
    }
}

/// A write with whoever waits for it.
struct Waiting<W: Write> {
    write: W,
    output: Option<W::Output>,
    tell: oneshot::Sender<Result<W::Output, StoreError>>,
}

trait Job: Send {
    fn write<'a>(&'a mut self, tx: &'a mut Tx<'_>) -> BoxFuture<'a, Result<(), StoreError>>;
    fn insists(&self) -> bool;
    fn tell(self: Box<Self>, result: Result<(), StoreError>);
}

impl<W: Write> Job for Waiting<W> {
    fn write<'a>(&'a mut self, tx: &'a mut Tx<'_>) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            self.output = Some(self.write.write(tx).await?);
            Ok(())
        })
    }

    fn insists(&self) -> bool {
        W::INSISTS
    }

    fn tell(self: Box<Self>, result: Result<(), StoreError>) {
        let Self { output, tell, .. } = *self;
        // Nobody need wait any more.
        let _ = tell.send(result.and_then(|()| output.ok_or(StoreError::ShuttingDown)));
    }
}

type Jobs = mpsc::Sender<Box<dyn Job>>;

/// Hands writes to the task. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Writer {
    /// The lock that every connection takes, or 0.
    attended: Arc<AtomicI64>,
    /// None once the store is closed.
    jobs: Arc<Mutex<Option<Jobs>>>,
    task: Arc<tokio::sync::Mutex<Option<tokio::task::JoinHandle<()>>>>,
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer").finish_non_exhaustive()
    }
}

impl Writer {
    pub(crate) fn start(connection: AnyConnection, place: Arc<Place>) -> Self {
        let (jobs, receiver) = mpsc::channel(WAITING);
        let attended = Arc::new(AtomicI64::new(0));
        let scribe = Scribe {
            connection: Some(connection),
            place,
            attended: Arc::clone(&attended),
        };
        let task = tokio::spawn(scribe.work(receiver));
        Self {
            attended,
            jobs: Arc::new(Mutex::new(Some(jobs))),
            task: Arc::new(tokio::sync::Mutex::new(Some(task))),
        }
    }

    pub(crate) async fn write<W: Write>(&self, write: W) -> Result<W::Output, StoreError> {
        let (tell, told) = oneshot::channel();
        let job = Box::new(Waiting {
            write,
            output: None,
            tell,
        });
        let jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let jobs = jobs.ok_or(StoreError::ShuttingDown)?;
        jobs.send(job).await.map_err(|_| StoreError::ShuttingDown)?;
        told.await.unwrap_or(Err(StoreError::ShuttingDown))
    }

    /// Holds a lock of PostgreSQL by that number, with whatever connection writes.
    pub(crate) async fn attend(&self, lock: i64) -> Result<(), StoreError> {
        self.attended.store(lock, Ordering::Relaxed);
        self.write(Attend(lock)).await
    }

    /// Takes nothing more, and waits until the rest is written.
    pub(crate) async fn close(&self) {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(task) = self.task.lock().await.take() {
            let _ = task.await;
        }
    }
}

struct Scribe {
    connection: Option<AnyConnection>,
    place: Arc<Place>,
    attended: Arc<AtomicI64>,
}

impl Scribe {
    async fn work(mut self, mut jobs: mpsc::Receiver<Box<dyn Job>>) {
        // What could not be written yet and must be.
        let mut owed: Vec<Box<dyn Job>> = Vec::new();
        loop {
            let mut batch = std::mem::take(&mut owed);
            if batch.is_empty() {
                match jobs.recv().await {
                    Some(job) => batch.push(job),
                    None => break,
                }
            } else {
                tokio::time::sleep(AGAIN).await;
            }
            while batch.len() < MOST
                && let Ok(job) = jobs.try_recv()
            {
                batch.push(job);
            }
            owed = self.write_all(batch).await;
            if !owed.is_empty() && jobs.is_closed() {
                // Told to stop, and the store does not take it: the next start ends what is unfinished.
                break;
            }
        }
        if let Some(connection) = self.connection.take() {
            let _ = connection.close().await;
        }
    }

    /// Writes a batch and tells everyone in it. What must be written and could not is given back.
    async fn write_all(&mut self, mut batch: Vec<Box<dyn Job>>) -> Vec<Box<dyn Job>> {
        match self.commit(&mut batch).await {
            Ok(()) => {
                for job in batch {
                    job.tell(Ok(()));
                }
                return Vec::new();
            }
            Err(error) if batch.len() == 1 || error.is_lost() => return refuse(batch, &error),
            Err(_) => {}
        }
        // One of them is at fault: each by itself.
        let mut owed = Vec::new();
        for job in batch {
            let mut alone = vec![job];
            match self.commit(&mut alone).await {
                Ok(()) => alone.into_iter().for_each(|job| job.tell(Ok(()))),
                Err(error) => owed.extend(refuse(alone, &error)),
            }
        }
        owed
    }

    async fn commit(&mut self, batch: &mut [Box<dyn Job>]) -> Result<(), StoreError> {
        let connection = match &mut self.connection {
            Some(connection) => connection,
            empty => {
                let mut connection = self.place.connect().await?;
                let lock = self.attended.load(Ordering::Relaxed);
                if lock != 0 {
                    attend(&mut connection, lock).await?;
                }
                empty.insert(connection)
            }
        };
        let done = transact(connection, batch).await;
        if done.is_err() {
            // What state a connection is in whose commit failed is anybody's guess, and one with a transaction still open
            // would take everything after it for a part of that, and write none of it.
            if let Some(connection) = self.connection.take() {
                let _ = tokio::time::timeout(CLOSING, connection.close()).await;
            }
        }
        done
    }
}

async fn transact(connection: &mut AnyConnection, batch: &mut [Box<dyn Job>]) -> Result<(), StoreError> {
    const OPERATION: &str = "write to the store";
    let mut transaction = connection.begin().await.during(OPERATION)?;
    let head = chain::lock(&mut transaction).await?;
    let mut tx = Tx {
        connection: &mut transaction,
        head: head.clone(),
    };
    for job in batch {
        job.write(&mut tx).await?;
    }
    let Tx { head: now, .. } = tx;
    if now != head {
        chain::set(&mut transaction, &now).await?;
    }
    transaction.commit().await.during(OPERATION)
}

/// Tells those who can be told, and gives the others back.
fn refuse(batch: Vec<Box<dyn Job>>, error: &StoreError) -> Vec<Box<dyn Job>> {
    let (owed, told): (Vec<_>, Vec<_>) = batch
        .into_iter()
        .partition(|job| error.is_lost() && job.insists());
    for job in told {
        job.tell(Err(error.clone()));
    }
    owed
}
