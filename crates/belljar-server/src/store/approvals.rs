//! What waits for somebody's word. The code is held until the decision and no longer.

use std::fmt;
use std::str::FromStr;

use belljar_core::{Quotas, Record, SandboxStatus};
use belljar_engine::fresh_id;
use serde_json::{Value, json};
use sqlx::Row;
use sqlx::any::AnyRow;

use super::Store;
use super::chain::EntryKind;
use super::error::{During, StoreError};
use super::executions::{Begun, Repeat, text};
use super::writer::{Tx, Write};

/// How an approval stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ApprovalState {
    Pending,
    Granted,
    Denied,
    /// Nobody decided in time.
    Expired,
    /// Whoever asked does not want it any more.
    Withdrawn,
}

impl ApprovalState {
    pub const ALL: [Self; 5] = [
        Self::Pending,
        Self::Granted,
        Self::Denied,
        Self::Expired,
        Self::Withdrawn,
    ];

    pub const fn word(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Granted => "granted",
            Self::Denied => "denied",
            Self::Expired => "expired",
            Self::Withdrawn => "withdrawn",
        }
    }
}

impl fmt::Display for ApprovalState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for ApprovalState {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let known = || Self::ALL.map(Self::word).join(", ");
        Self::ALL
            .into_iter()
            .find(|state| state.word() == word)
            .ok_or_else(|| format!("is not known; use one of {}", known()))
    }
}

/// What is to be approved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApprovalKind {
    /// That something runs.
    Execution,
    /// One call of a host tool.
    Tool,
}

impl ApprovalKind {
    pub const fn word(self) -> &'static str {
        match self {
            Self::Execution => "execution",
            Self::Tool => "tool",
        }
    }
}

/// One question and its answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Approval {
    pub approval_id: String,
    pub execution_id: String,
    pub tenant_id: String,
    /// `execution` or `tool`.
    pub kind: String,
    pub state: ApprovalState,
    pub created_at: f64,
    pub expires_at: f64,
    pub decided_at: Option<f64>,
    pub decided_by: Option<String>,
    pub reason: Option<String>,
    /// What the approver sees, without the code.
    pub summary: Value,
    /// What was asked for, with the code, until the decision.
    pub held: Option<Value>,
}

/// A question.
#[derive(Clone, Debug)]
pub struct Ask {
    pub approval_id: String,
    pub kind: ApprovalKind,
    /// The execution that waits; on the list of those under way with this state.
    pub record: Record,
    /// Who waits for the answer. None: the execution is on the list already.
    pub server_id: Option<String>,
    pub summary: Value,
    pub held: Value,
    /// By what the caller knows it again.
    pub repeat: Option<Repeat>,
    /// How many of the tenant's may wait.
    pub most: i64,
    pub expires_at: f64,
    pub now: f64,
}

/// An answer.
#[derive(Clone, Debug)]
pub struct Decision {
    pub approval_id: String,
    pub state: ApprovalState,
    pub by: String,
    pub reason: Option<String>,
    pub now: f64,
}

impl Write for Ask {
    type Output = Begun;

    async fn write(&mut self, tx: &mut Tx<'_>) -> Result<Begun, StoreError> {
        const OPERATION: &str = "ask for approval";
        let record = &self.record;
        let tenant = record.tenant_id.clone().unwrap_or_default();
        let waiting: i64 =
            sqlx::query("SELECT COUNT(*) FROM approvals WHERE tenant_id = $1 AND state = 'pending'")
                .bind(tenant.clone())
                .fetch_one(&mut *tx.connection)
                .await
                .and_then(|row| row.try_get(0))
                .during(OPERATION)?;
        if waiting >= self.most {
            let waiting = usize::try_from(waiting).unwrap_or(usize::MAX);
            return Ok(Begun::Full { waiting });
        }
        if let Some(repeat) = &self.repeat {
            if let Some(begun) = tx.repeated(&tenant, repeat, self.now).await? {
                return Ok(begun);
            }
            tx.remember(record, repeat).await?;
        }
        if let Some(server) = &self.server_id {
            tx.put_under_way(record, server).await?;
        }
        sqlx::query(
            "INSERT INTO approvals (approval_id, execution_id, tenant_id, kind, state, created_at, expires_at,
                                    summary, held)
             VALUES ($1, $2, $3, $4, 'pending', $5, $6, $7, $8)",
        )
        .bind(self.approval_id.clone())
        .bind(record.record_id.clone())
        .bind(tenant)
        .bind(self.kind.word())
        .bind(self.now)
        .bind(self.expires_at)
        .bind(self.summary.to_string())
        .bind(self.held.to_string())
        .execute(&mut *tx.connection)
        .await
        .during(OPERATION)?;
        let body = json!({
            "record_id": fresh_id("aud"), "created_at": self.now, "action": "asked",
            "approval_id": self.approval_id, "execution_id": record.record_id, "kind": self.kind.word(),
            "tenant_id": record.tenant_id, "user_id": record.user_id, "run_id": record.run_id,
            "policy_id": record.policy_id, "code_hash": record.code_hash,
        });
        tx.append(EntryKind::Approval, &body).await?;
        Ok(Begun::Reserved)
    }
}

impl Write for Decision {
    type Output = bool;

    async fn write(&mut self, tx: &mut Tx<'_>) -> Result<bool, StoreError> {
        const OPERATION: &str = "decide";
        let row = sqlx::query(
            "UPDATE approvals SET state = $1, decided_at = $2, decided_by = $3, reason = $4, held = NULL
             WHERE approval_id = $5 AND state = 'pending'
             RETURNING execution_id, tenant_id, kind",
        )
        .bind(self.state.word())
        .bind(self.now)
        .bind(self.by.clone())
        .bind(self.reason.clone())
        .bind(self.approval_id.clone())
        .fetch_optional(&mut *tx.connection)
        .await
        .during(OPERATION)?;
        let Some(row) = row else {
            return Ok(false);
        };
        let read = || -> Result<[String; 3], sqlx::Error> {
            Ok([row.try_get(0)?, row.try_get(1)?, row.try_get(2)?])
        };
        let [execution_id, tenant_id, kind] = read().during(OPERATION)?;
        let body = json!({
            "record_id": fresh_id("aud"), "created_at": self.now, "action": self.state.word(), "by": self.by,
            "reason": self.reason, "approval_id": self.approval_id, "execution_id": execution_id,
            "tenant_id": tenant_id, "kind": kind,
        });
        tx.append(EntryKind::Approval, &body).await?;
        Ok(true)
    }
}

/// An execution that was approved takes its place in the quota.
struct Proceed {
    record: Record,
    quotas: Quotas,
    now: f64,
}

impl Write for Proceed {
    type Output = Begun;

    async fn write(&mut self, tx: &mut Tx<'_>) -> Result<Begun, StoreError> {
        let tenant = self.record.tenant_id.clone().unwrap_or_default();
        let reserved = tx
            .reserve(&tenant, &self.record.policy_id, &self.quotas, self.now)
            .await?;
        if let Err(exceeded) = reserved {
            return Ok(Begun::Exceeded(exceeded));
        }
        self.record.status = SandboxStatus::Running;
        sqlx::query("UPDATE unfinished SET body = $1, is_pending = 0 WHERE execution_id = $2")
            .bind(text(&self.record)?)
            .bind(self.record.record_id.clone())
            .execute(&mut *tx.connection)
            .await
            .during("begin an execution")?;
        Ok(Begun::Reserved)
    }
}

impl Store {
    /// Puts a question. Whoever may answer finds it. Nothing is asked where the same was asked before.
    pub async fn ask(&self, ask: Ask) -> Result<Begun, StoreError> {
        self.write(ask).await
    }

    /// Answers a question. False if it was answered already, or is not there.
    pub async fn decide(&self, decision: Decision) -> Result<bool, StoreError> {
        self.write(decision).await
    }

    /// Has an execution that was approved begin, if there is room in its quota.
    pub async fn proceed(&self, record: &Record, quotas: Quotas, now: f64) -> Result<Begun, StoreError> {
        let record = record.clone();
        self.write(Proceed { record, quotas, now }).await
    }

    pub async fn approval(&self, approval_id: &str) -> Result<Option<Approval>, StoreError> {
        let row = sqlx::query("SELECT * FROM approvals WHERE approval_id = $1")
            .bind(approval_id.to_owned())
            .fetch_optional(&self.readers)
            .await
            .during("look an approval up")?;
        row.as_ref().map(approval).transpose()
    }

    /// Approvals, of one tenant or of all, in one state or in any, the newest first; at most 1000.
    pub async fn approvals(
        &self,
        tenant: Option<&str>,
        state: Option<ApprovalState>,
    ) -> Result<Vec<Approval>, StoreError> {
        let rows = sqlx::query(
            "SELECT * FROM approvals WHERE ($1 = 1 OR tenant_id = $2) AND ($3 = 1 OR state = $4)
             ORDER BY created_at DESC, approval_id LIMIT 1000",
        )
        .bind(i64::from(tenant.is_none()))
        .bind(tenant.unwrap_or_default().to_owned())
        .bind(i64::from(state.is_none()))
        .bind(state.map_or("", ApprovalState::word))
        .fetch_all(&self.readers)
        .await
        .during("list approvals")?;
        rows.iter().map(approval).collect()
    }
}

fn approval(row: &AnyRow) -> Result<Approval, StoreError> {
    const OPERATION: &str = "read an approval";
    let unreadable = |error: serde_json::Error| StoreError::Unreadable(error.to_string());
    let text = |name: &str| row.try_get::<String, _>(name).during(OPERATION);
    let maybe = |name: &str| row.try_get::<Option<String>, _>(name).during(OPERATION);
    let held = maybe("held")?;
    Ok(Approval {
        approval_id: text("approval_id")?,
        execution_id: text("execution_id")?,
        tenant_id: text("tenant_id")?,
        kind: text("kind")?,
        state: text("state")?
            .parse()
            .map_err(|_| StoreError::Unreadable("an approval's state".to_owned()))?,
        created_at: row.try_get("created_at").during(OPERATION)?,
        expires_at: row.try_get("expires_at").during(OPERATION)?,
        decided_at: row.try_get("decided_at").during(OPERATION)?,
        decided_by: maybe("decided_by")?,
        reason: maybe("reason")?,
        summary: serde_json::from_str(&text("summary")?).map_err(unreadable)?,
        held: held
            .map(|held| serde_json::from_str(&held))
            .transpose()
            .map_err(unreadable)?,
    })
}
