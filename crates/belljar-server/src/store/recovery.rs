//! What a server that died left unfinished: its executions end as `killed`, with that reason.

use belljar_core::SandboxStatus;
use serde_json::json;
use sqlx::Row;

use super::Store;
use super::chain::EntryKind;
use super::error::{During, StoreError};
use super::executions::{body, unfinished};
use super::writer::{Tx, Write};

/// Ends what servers left that are no longer there.
struct Recover {
    /// Who recovers; its own executions are under way.
    server_id: String,
    is_postgres: bool,
    now: f64,
}

impl Write for Recover {
    type Output = u64;

    async fn write(&mut self, tx: &mut Tx<'_>) -> Result<u64, StoreError> {
        const OPERATION: &str = "end what was left unfinished";
        let servers = sqlx::query("SELECT DISTINCT server_id FROM unfinished WHERE server_id <> $1")
            .bind(self.server_id.clone())
            .fetch_all(&mut *tx.connection)
            .await
            .during(OPERATION)?;
        let mut ended = 0;
        for row in servers {
            let server: String = row.try_get(0).during(OPERATION)?;
            if self.is_postgres && is_alive(tx, &server).await? {
                continue;
            }
            let left = sqlx::query(
                "SELECT server_id, body FROM unfinished WHERE server_id = $1 ORDER BY created_at",
            )
            .bind(server)
            .fetch_all(&mut *tx.connection)
            .await
            .during(OPERATION)?;
            for row in &left {
                let mut record = unfinished(row)?.record;
                record.status = SandboxStatus::Killed;
                record.completed_at = Some(self.now);
                record.error_message = Some("Killed: the service that ran it ended before it did".to_owned());
                tx.end(&record.record_id).await?;
                tx.withdraw(&record.record_id, self.now).await?;
                tx.append(EntryKind::Execution, &body(&record, &json!({})))
                    .await?;
                ended += 1;
            }
        }
        Ok(ended)
    }
}

impl Tx<'_> {
    /// Nobody waits for the answers any more.
    async fn withdraw(&mut self, execution_id: &str, now: f64) -> Result<(), StoreError> {
        sqlx::query(
            "UPDATE approvals SET state = 'withdrawn', decided_at = $1, held = NULL
             WHERE execution_id = $2 AND state = 'pending'",
        )
        .bind(now)
        .bind(execution_id.to_owned())
        .execute(&mut *self.connection)
        .await
        .during("withdraw an approval")
        .map(drop)
    }
}

/// A server holds a lock for as long as its connection is there, however it goes.
async fn is_alive(tx: &mut Tx<'_>, server: &str) -> Result<bool, StoreError> {
    let free: i64 = sqlx::query("SELECT CAST(CAST(pg_try_advisory_xact_lock($1) AS INT) AS BIGINT)")
        .bind(lock_of(server))
        .fetch_one(&mut *tx.connection)
        .await
        .and_then(|row| row.try_get(0))
        .during("see whether another server is there")?;
    Ok(free == 0)
}

/// The number of a server's lock: the digits of its name.
pub(super) fn lock_of(server: &str) -> i64 {
    let digits = server.rsplit('-').next().unwrap_or_default();
    u64::from_str_radix(digits, 16).unwrap_or(0).cast_signed()
}

impl Store {
    /// Says that this server is there, until its process ends or loses the store.
    pub async fn attend(&self, server_id: &str) -> Result<(), StoreError> {
        if !self.place.is_postgres() {
            return Ok(());
        }
        self.writer.attend(lock_of(server_id)).await
    }

    /// Ends what servers left unfinished that are no longer there; how many executions.
    pub async fn recover(&self, server_id: &str, now: f64) -> Result<u64, StoreError> {
        self.write(Recover {
            server_id: server_id.to_owned(),
            is_postgres: self.place.is_postgres(),
            now,
        })
        .await
    }
}
