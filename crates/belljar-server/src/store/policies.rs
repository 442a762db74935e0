//! Policies that somebody defined. A version that was once there stays: records name it by its hash.

use std::sync::Arc;

use belljar_core::Policy;
use belljar_engine::fresh_id;
use serde::Serialize;
use serde_json::json;
use sqlx::Row;
use sqlx::any::AnyRow;

use super::Store;
use super::chain::EntryKind;
use super::error::{During, StoreError};
use super::writer::{Tx, Write};

/// One version of a policy.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StoredPolicy {
    #[serde(flatten)]
    pub policy: Arc<Policy>,
    pub version: i64,
    pub hash: String,
    pub created_at: f64,
}

struct Define {
    policy: Policy,
    by: String,
    now: f64,
}

impl Write for Define {
    type Output = StoredPolicy;

    async fn write(&mut self, tx: &mut Tx<'_>) -> Result<StoredPolicy, StoreError> {
        const OPERATION: &str = "define a policy";
        let id = self.policy.policy_id.clone();
        let hash = self.policy.hash();
        let latest = sqlx::query("SELECT * FROM policies WHERE policy_id = $1 ORDER BY version DESC LIMIT 1")
            .bind(id.clone())
            .fetch_optional(&mut *tx.connection)
            .await
            .during(OPERATION)?;
        let mut version = 1;
        if let Some(row) = &latest {
            let deleted: Option<f64> = row.try_get("deleted_at").during(OPERATION)?;
            let found = stored(row)?;
            if found.hash == hash && deleted.is_none() {
                return Ok(found);
            }
            version = found.version + 1;
        }
        sqlx::query(
            "INSERT INTO policies (policy_id, version, hash, body, created_at) VALUES ($1, $2, $3, $4, $5)",
        )
        .bind(id.clone())
        .bind(version)
        .bind(hash.clone())
        .bind(self.policy.to_toml())
        .bind(self.now)
        .execute(&mut *tx.connection)
        .await
        .during(OPERATION)?;
        let body = json!({
            "record_id": fresh_id("aud"), "created_at": self.now, "action": "defined", "by": self.by,
            "policy_id": id, "version": version, "policy_hash": hash,
        });
        tx.append(EntryKind::Policy, &body).await?;
        Ok(StoredPolicy {
            policy: Arc::new(self.policy.clone()),
            version,
            hash,
            created_at: self.now,
        })
    }
}

struct Delete {
    policy_id: String,
    by: String,
    now: f64,
}

impl Write for Delete {
    type Output = bool;

    async fn write(&mut self, tx: &mut Tx<'_>) -> Result<bool, StoreError> {
        let done =
            sqlx::query("UPDATE policies SET deleted_at = $1 WHERE policy_id = $2 AND deleted_at IS NULL")
                .bind(self.now)
                .bind(self.policy_id.clone())
                .execute(&mut *tx.connection)
                .await
                .during("delete a policy")?;
        if done.rows_affected() == 0 {
            return Ok(false);
        }
        let body = json!({
            "record_id": fresh_id("aud"), "created_at": self.now, "action": "deleted", "by": self.by,
            "policy_id": self.policy_id,
        });
        tx.append(EntryKind::Policy, &body).await?;
        Ok(true)
    }
}

impl Store {
    /// Makes this the policy of its id from now on. The same one again is no new version.
    pub async fn define_policy(
        &self,
        policy: Policy,
        by: &str,
        now: f64,
    ) -> Result<StoredPolicy, StoreError> {
        let by = by.to_owned();
        self.write(Define { policy, by, now }).await
    }

    /// False if there is none of that id.
    pub async fn delete_policy(&self, policy_id: &str, by: &str, now: f64) -> Result<bool, StoreError> {
        let (policy_id, by) = (policy_id.to_owned(), by.to_owned());
        self.write(Delete { policy_id, by, now }).await
    }

    /// The policy of that id as it is now.
    pub async fn policy(&self, policy_id: &str) -> Result<Option<StoredPolicy>, StoreError> {
        let row = sqlx::query(
            "SELECT * FROM policies WHERE policy_id = $1 AND deleted_at IS NULL ORDER BY version DESC LIMIT 1",
        )
        .bind(policy_id.to_owned())
        .fetch_optional(&self.readers)
        .await
        .during("look a policy up")?;
        row.as_ref().map(stored).transpose()
    }

    /// The hash of the policy of that id as it is now.
    pub async fn policy_hash(&self, policy_id: &str) -> Result<Option<String>, StoreError> {
        let row = sqlx::query(
            "SELECT hash FROM policies WHERE policy_id = $1 AND deleted_at IS NULL ORDER BY version DESC LIMIT 1",
        )
        .bind(policy_id.to_owned())
        .fetch_optional(&self.readers)
        .await
        .during("look a policy up")?;
        row.map(|row| row.try_get(0))
            .transpose()
            .during("look a policy up")
    }

    /// The policy that had this hash, whatever became of it since.
    pub async fn policy_of_hash(&self, hash: &str) -> Result<Option<StoredPolicy>, StoreError> {
        let row = sqlx::query("SELECT * FROM policies WHERE hash = $1 ORDER BY version DESC LIMIT 1")
            .bind(hash.to_owned())
            .fetch_optional(&self.readers)
            .await
            .during("look a policy up")?;
        row.as_ref().map(stored).transpose()
    }

    /// All policies as they are now, by their ids.
    pub async fn policies(&self) -> Result<Vec<StoredPolicy>, StoreError> {
        let rows = sqlx::query(
            "SELECT * FROM policies AS p WHERE deleted_at IS NULL AND version =
                 (SELECT MAX(version) FROM policies AS q WHERE q.policy_id = p.policy_id)
             ORDER BY policy_id",
        )
        .fetch_all(&self.readers)
        .await
        .during("list policies")?;
        rows.iter().map(stored).collect()
    }
}

fn stored(row: &AnyRow) -> Result<StoredPolicy, StoreError> {
    let read = || -> Result<(String, i64, String, f64), sqlx::Error> {
        Ok((
            row.try_get("body")?,
            row.try_get("version")?,
            row.try_get("hash")?,
            row.try_get("created_at")?,
        ))
    };
    let (body, version, hash, created_at) = read().during("read a policy")?;
    let policy =
        Policy::from_toml(&body, "policy").map_err(|error| StoreError::Unreadable(error.to_string()))?;
    Ok(StoredPolicy {
        policy: Arc::new(policy),
        version,
        hash,
        created_at,
    })
}
