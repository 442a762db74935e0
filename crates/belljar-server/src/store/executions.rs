//! An execution in the store: it begins with a place in its quota, and ends with a record, once.

use belljar_core::{Quotas, Record, SandboxStatus};
use serde::Serialize;
use serde_json::{Value, json};
use sqlx::Row;
use sqlx::any::AnyRow;

use super::Store;
use super::chain::EntryKind;
use super::error::{During, StoreError};
use super::quota::Exceeded;
use super::writer::{Tx, Write};

/// An execution that is about to begin.
#[derive(Clone, Debug)]
pub struct Begin {
    pub record: Record,
    /// The server that runs it.
    pub server_id: String,
    pub quotas: Quotas,
    /// By what the caller knows it again.
    pub repeat: Option<Repeat>,
    pub now: f64,
}

/// A caller's own name for a request, so that asking twice runs it once.
#[derive(Clone, Debug, PartialEq)]
pub struct Repeat {
    pub key: String,
    /// Tells whether it is the same request.
    pub request_hash: String,
    pub expires_at: f64,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq)]
pub enum Begun {
    /// It has its place and may run.
    Reserved,
    /// It may not; that is on record.
    Exceeded(Exceeded),
    /// The caller asked for this before: it is that execution.
    Repeated { execution_id: String },
    /// The caller asked for something else by that name.
    Mistaken,
    /// So many of the tenant's wait for approval already.
    Full { waiting: usize },
}

/// An execution that is over.
#[derive(Clone, Debug)]
pub struct Finish {
    pub record: Record,
    /// What the record holds beyond its fields: an object.
    pub more: Value,
    pub bytes_out: u64,
    /// The result, where somebody will come for it later.
    pub result: Option<Kept>,
    pub now: f64,
}

/// A result that is kept for a while.
#[derive(Clone, Debug, PartialEq)]
pub struct Kept {
    /// JSON.
    pub body: String,
    pub expires_at: f64,
}

/// An execution of which no end is known.
#[derive(Clone, Debug, PartialEq)]
pub struct Unfinished {
    pub server_id: String,
    pub record: Record,
}

impl Write for Begin {
    type Output = Begun;

    async fn write(&mut self, tx: &mut Tx<'_>) -> Result<Begun, StoreError> {
        let tenant = self.record.tenant_id.clone().unwrap_or_default();
        if let Some(repeat) = &self.repeat
            && let Some(begun) = tx.repeated(&tenant, repeat, self.now).await?
        {
            return Ok(begun);
        }
        let reserved = tx
            .reserve(&tenant, &self.record.policy_id, &self.quotas, self.now)
            .await?;
        if let Err(exceeded) = reserved {
            let record = Record {
                status: SandboxStatus::Failed,
                completed_at: Some(self.now),
                error_message: Some(format!("QuotaExceeded: {exceeded}")),
                ..self.record.clone()
            };
            tx.append(EntryKind::Denial, &body(&record, &json!({}))).await?;
            return Ok(Begun::Exceeded(exceeded));
        }
        tx.put_under_way(&self.record, &self.server_id).await?;
        if let Some(repeat) = &self.repeat {
            tx.remember(&self.record, repeat).await?;
        }
        Ok(Begun::Reserved)
    }
}

impl Write for Finish {
    type Output = Result<(), Closed>;
    const INSISTS: bool = true;

    async fn write(&mut self, tx: &mut Tx<'_>) -> Result<Self::Output, StoreError> {
        let record = &self.record;
        let body = body(record, &self.more);
        if !tx.end(&record.record_id).await? {
            // A connection that was lost at the commit does not tell whether that took place.
            let written = tx.is_written(&record.record_id, &body).await?;
            return Ok(if written { Ok(()) } else { Err(Closed) });
        }
        tx.append(EntryKind::Execution, &body).await?;
        let tenant = record.tenant_id.as_deref().unwrap_or_default();
        let cpu = record.usage.map_or(0.0, |usage| usage.cpu_seconds);
        tx.spend(tenant, &record.policy_id, cpu, self.bytes_out, self.now)
            .await?;
        if let Some(result) = &self.result {
            tx.keep(record, result).await?;
        }
        Ok(Ok(()))
    }
}

/// Another server took this one for dead and closed the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Closed;

/// A record of something that never began.
struct Refuse {
    record: Record,
    more: Value,
}

impl Write for Refuse {
    type Output = ();

    async fn write(&mut self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        let body = body(&self.record, &self.more);
        tx.append(EntryKind::Denial, &body).await.map(drop)
    }
}

impl Tx<'_> {
    /// Puts an execution on the list of those that are under way.
    pub(super) async fn put_under_way(&mut self, record: &Record, server_id: &str) -> Result<(), StoreError> {
        sqlx::query(
            "INSERT INTO unfinished (execution_id, server_id, tenant_id, policy_id, is_pending, created_at, body)
             VALUES ($1, $2, $3, $4, $5, $6, $7)",
        )
        .bind(record.record_id.clone())
        .bind(server_id.to_owned())
        .bind(record.tenant_id.clone().unwrap_or_default())
        .bind(record.policy_id.clone())
        .bind(i64::from(record.status == SandboxStatus::Pending))
        .bind(record.created_at)
        .bind(text(record)?)
        .execute(&mut *self.connection)
        .await
        .during("begin an execution")
        .map(drop)
    }

    /// Takes an execution off the list; false if it was not on it.
    pub(super) async fn end(&mut self, execution_id: &str) -> Result<bool, StoreError> {
        sqlx::query("DELETE FROM unfinished WHERE execution_id = $1")
            .bind(execution_id.to_owned())
            .execute(&mut *self.connection)
            .await
            .during("end an execution")
            .map(|done| done.rows_affected() == 1)
    }

    async fn is_written(&mut self, record_id: &str, body: &Value) -> Result<bool, StoreError> {
        let row = sqlx::query("SELECT body FROM audit WHERE record_id = $1")
            .bind(record_id.to_owned())
            .fetch_optional(&mut *self.connection)
            .await
            .during("look for a record")?;
        let found: Option<String> = row
            .map(|row| row.try_get(0))
            .transpose()
            .during("look for a record")?;
        let body = body.to_string();
        Ok(found.is_some_and(|found| found == body))
    }
}

impl Store {
    /// Takes a place in the quota and puts the execution on the list of those that are under way.
    pub async fn begin(&self, begin: Begin) -> Result<Begun, StoreError> {
        self.write(begin).await
    }

    /// Puts the execution's record into the chain. It is durable when this returns; where the store cannot take
    /// it, this goes on trying, also when nobody waits for it any more.
    pub async fn finish(&self, finish: Finish) -> Result<(), StoreError> {
        self.write(finish).await?.map_err(|Closed| StoreError::Closed)
    }

    /// Records what was refused. `more` is an object.
    pub async fn refuse(&self, record: Record, more: Value) -> Result<(), StoreError> {
        self.write(Refuse { record, more }).await
    }

    /// One execution that is under way.
    pub async fn unfinished_one(&self, execution_id: &str) -> Result<Option<Unfinished>, StoreError> {
        let row = sqlx::query("SELECT server_id, body FROM unfinished WHERE execution_id = $1")
            .bind(execution_id.to_owned())
            .fetch_optional(&self.readers)
            .await
            .during("look for what is under way")?;
        row.as_ref().map(unfinished).transpose()
    }

    /// What is under way, the oldest first, of one tenant or of all.
    pub async fn unfinished(&self, tenant: Option<&str>) -> Result<Vec<Unfinished>, StoreError> {
        let rows = match tenant {
            Some(tenant) => {
                sqlx::query("SELECT server_id, body FROM unfinished WHERE tenant_id = $1 ORDER BY created_at")
                    .bind(tenant.to_owned())
            }
            None => sqlx::query("SELECT server_id, body FROM unfinished ORDER BY created_at"),
        };
        let rows = rows
            .fetch_all(&self.readers)
            .await
            .during("list what is under way")?;
        rows.iter().map(unfinished).collect()
    }
}

pub(super) fn unfinished(row: &AnyRow) -> Result<Unfinished, StoreError> {
    let read =
        || -> Result<(String, String), sqlx::Error> { Ok((row.try_get("server_id")?, row.try_get("body")?)) };
    let (server_id, body) = read().during("list what is under way")?;
    let record = serde_json::from_str(&body).map_err(|error| StoreError::Unreadable(error.to_string()))?;
    Ok(Unfinished { server_id, record })
}

/// A record as the chain holds it.
pub(super) fn body(record: &Record, more: &Value) -> Value {
    let mut body = json!(record);
    if let (Some(body), Some(more)) = (body.as_object_mut(), more.as_object()) {
        for (name, value) in more {
            body.entry(name).or_insert_with(|| value.clone());
        }
    }
    body
}

pub(super) fn text(value: &impl Serialize) -> Result<String, StoreError> {
    serde_json::to_string(value).map_err(|error| StoreError::Unreadable(error.to_string()))
}
