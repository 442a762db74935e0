//! Forgetting old entries in a way that can be proved: the chain begins after the last one that was removed, and
//! an entry of its own says which that was.

use belljar_engine::fresh_id;
use serde_json::json;
use sqlx::Row;

use super::Store;
use super::chain::EntryKind;
use super::error::{During, StoreError};
use super::writer::{Tx, Write};

struct Forget {
    before: f64,
    by: String,
    now: f64,
}

impl Write for Forget {
    type Output = u64;

    async fn write(&mut self, tx: &mut Tx<'_>) -> Result<u64, StoreError> {
        const OPERATION: &str = "remove old entries";
        // Only a beginning of the chain can go, so the first that is young enough keeps all after it.
        let last = sqlx::query(
            "SELECT seq, hash FROM audit
             WHERE seq < COALESCE((SELECT MIN(seq) FROM audit WHERE created_at >= $1), $2)
             ORDER BY seq DESC LIMIT 1",
        )
        .bind(self.before)
        .bind(i64::MAX)
        .fetch_optional(&mut *tx.connection)
        .await
        .during(OPERATION)?;
        let Some(last) = last else {
            return Ok(0);
        };
        let seq: i64 = last.try_get(0).during(OPERATION)?;
        let hash: String = last.try_get(1).during(OPERATION)?;
        let removed = sqlx::query("DELETE FROM audit WHERE seq <= $1")
            .bind(seq)
            .execute(&mut *tx.connection)
            .await
            .during(OPERATION)?
            .rows_affected();
        sqlx::query("UPDATE chain SET removed_seq = $1, removed_hash = $2 WHERE id = 1")
            .bind(seq)
            .bind(&hash)
            .execute(&mut *tx.connection)
            .await
            .during(OPERATION)?;
        let body = json!({
            "record_id": fresh_id("aud"),
            "created_at": self.now,
            "action": "removed",
            "by": self.by,
            "removed": removed,
            "removed_seq": seq,
            "removed_hash": hash,
        });
        tx.append(EntryKind::Retention, &body).await?;
        Ok(removed)
    }
}

impl Store {
    /// Removes the entries that are older than `before`, up to the first that is not; how many.
    pub async fn forget(&self, before: f64, by: &str, now: f64) -> Result<u64, StoreError> {
        let by = by.to_owned();
        self.write(Forget { before, by, now }).await
    }
}
