//! What outlives the process: records, tenants, keys, policies, and what was used.
//!
//! One file of SQLite, or a PostgreSQL that several servers share. Everything is written by one task
//! (`writer`), many writes in one transaction, and nobody is told that something was written before it is durable.
//! Times are seconds since the epoch and always the caller's: the store has no clock.

mod approvals;
mod chain;
mod error;
mod executions;
mod keys;
mod place;
mod policies;
mod quota;
mod records;
mod recovery;
mod results;
mod retention;
mod schema;
mod stats;
mod verify;
mod writer;

use std::sync::Arc;

use sqlx::AnyPool;
use sqlx::any::AnyPoolOptions;

pub use approvals::{Approval, ApprovalKind, ApprovalState, Ask, Decision};
pub use chain::{Entry, EntryKind, Head};
pub use error::StoreError;
pub use executions::{Begin, Begun, Finish, Kept, Repeat, Unfinished};
pub use keys::{Key, KeyRow, Role, Tenant};
pub use place::Place;
pub use policies::StoredPolicy;
pub use quota::{Exceeded, QuotaKind};
pub use records::{RecordFilter, RecordPage};
pub use stats::{Bucket, Stats, StatsFilter};
pub use verify::{Broken, Verified};

use writer::{Write, Writer};

/// How many connections read at the same time.
const READERS: u32 = 4;

/// A store that is open. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Store {
    place: Arc<Place>,
    readers: AnyPool,
    writer: Writer,
}

impl Store {
    /// Opens the store, makes it where there is none, and brings it up to date.
    pub async fn open(place: Place) -> Result<Self, StoreError> {
        sqlx::any::install_default_drivers();
        place.make_ready()?;
        let place = Arc::new(place);
        let mut connection = place.connect().await?;
        schema::migrate(&mut connection, &place).await?;
        let pragmas = place.pragmas();
        let readers = AnyPoolOptions::new()
            .max_connections(READERS)
            .acquire_timeout(std::time::Duration::from_secs(10))
            .after_connect(move |connection, _| {
                Box::pin(async move {
                    for pragma in pragmas {
                        sqlx::query(pragma).execute(&mut *connection).await?;
                    }
                    Ok(())
                })
            })
            .connect_lazy(&place.url())
            .map_err(|error| StoreError::of("open", error))?;
        let writer = Writer::start(connection, Arc::clone(&place));
        Ok(Self {
            place,
            readers,
            writer,
        })
    }

    pub fn place(&self) -> &Place {
        &self.place
    }

    /// Whether it can be read and written at the moment.
    pub async fn check(&self) -> Result<(), StoreError> {
        self.write(writer::Touch).await?;
        self.head().await.map(drop)
    }

    /// Waits until everything that was asked for is written, and lets go of the store.
    pub async fn close(&self) {
        self.writer.close().await;
        self.readers.close().await;
    }

    async fn write<W: Write>(&self, write: W) -> Result<W::Output, StoreError> {
        self.writer.write(write).await
    }
}
