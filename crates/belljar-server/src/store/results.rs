//! Results that somebody comes for later, and requests that may be repeated.

use belljar_core::Record;
use sqlx::Row;

use super::Store;
use super::error::{During, StoreError};
use super::executions::{Begun, Kept, Repeat};
use super::writer::{Tx, Write};

impl Tx<'_> {
    /// What came of this request when it was asked for before, if it was.
    pub(super) async fn repeated(
        &mut self,
        tenant: &str,
        repeat: &Repeat,
        now: f64,
    ) -> Result<Option<Begun>, StoreError> {
        const OPERATION: &str = "look for the same request";
        let row = sqlx::query(
            "SELECT request_hash, execution_id FROM repeats
             WHERE tenant_id = $1 AND repeat_key = $2 AND expires_at > $3",
        )
        .bind(tenant.to_owned())
        .bind(repeat.key.clone())
        .bind(now)
        .fetch_optional(&mut *self.connection)
        .await
        .during(OPERATION)?;
        let Some(row) = row else {
            return Ok(None);
        };
        let read = || -> Result<(String, String), sqlx::Error> { Ok((row.try_get(0)?, row.try_get(1)?)) };
        let (request_hash, execution_id) = read().during(OPERATION)?;
        Ok(Some(if request_hash == repeat.request_hash {
            Begun::Repeated { execution_id }
        } else {
            Begun::Mistaken
        }))
    }

    pub(super) async fn remember(&mut self, record: &Record, repeat: &Repeat) -> Result<(), StoreError> {
        sqlx::query(
            "INSERT INTO repeats (tenant_id, repeat_key, request_hash, execution_id, expires_at)
             VALUES ($1, $2, $3, $4, $5)
             ON CONFLICT (tenant_id, repeat_key) DO UPDATE SET request_hash = excluded.request_hash,
                 execution_id = excluded.execution_id, expires_at = excluded.expires_at",
        )
        .bind(record.tenant_id.clone().unwrap_or_default())
        .bind(repeat.key.clone())
        .bind(repeat.request_hash.clone())
        .bind(record.record_id.clone())
        .bind(repeat.expires_at)
        .execute(&mut *self.connection)
        .await
        .during("remember a request")
        .map(drop)
    }

    pub(super) async fn keep(&mut self, record: &Record, result: &Kept) -> Result<(), StoreError> {
        sqlx::query("INSERT INTO results (execution_id, tenant_id, body, expires_at) VALUES ($1, $2, $3, $4)")
            .bind(record.record_id.clone())
            .bind(record.tenant_id.clone().unwrap_or_default())
            .bind(result.body.clone())
            .bind(result.expires_at)
            .execute(&mut *self.connection)
            .await
            .during("keep a result")
            .map(drop)
    }
}

/// Forgets what is kept no longer.
struct Tidy {
    now: f64,
}

impl Write for Tidy {
    type Output = ();

    async fn write(&mut self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        for statement in [
            "DELETE FROM results WHERE expires_at <= $1",
            "DELETE FROM repeats WHERE expires_at <= $1",
        ] {
            sqlx::query(statement)
                .bind(self.now)
                .execute(&mut *tx.connection)
                .await
                .during("forget results")?;
        }
        tx.forget_uses(self.now).await
    }
}

impl Store {
    /// The result that was kept of an execution, as JSON.
    pub async fn result(&self, execution_id: &str, now: f64) -> Result<Option<String>, StoreError> {
        let row = sqlx::query("SELECT body FROM results WHERE execution_id = $1 AND expires_at > $2")
            .bind(execution_id.to_owned())
            .bind(now)
            .fetch_optional(&self.readers)
            .await
            .during("look a result up")?;
        row.map(|row| row.try_get(0))
            .transpose()
            .during("look a result up")
    }

    /// Forgets results, requests and uses that count for nothing any more.
    pub async fn tidy(&self, now: f64) -> Result<(), StoreError> {
        self.write(Tidy { now }).await
    }
}
