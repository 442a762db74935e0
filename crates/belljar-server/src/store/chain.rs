//! The chain of audit entries: each is bound to the one before it by a hash, so that none can be changed,
//! removed or moved without its being seen.

use belljar_core::record::code_hash;
use serde_json::Value;
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, Row};

use super::Store;
use super::error::{During, StoreError};
use super::writer::Tx;

/// What an entry tells of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// Something ran.
    Execution,
    /// Something was refused.
    Denial,
    /// Somebody was asked to approve something, or answered.
    Approval,
    Tenant,
    Key,
    Policy,
    /// Old entries were removed.
    Retention,
}

impl EntryKind {
    pub const ALL: [Self; 7] = [
        Self::Execution,
        Self::Denial,
        Self::Approval,
        Self::Tenant,
        Self::Key,
        Self::Policy,
        Self::Retention,
    ];

    pub const fn word(self) -> &'static str {
        match self {
            Self::Execution => "execution",
            Self::Denial => "denial",
            Self::Approval => "approval",
            Self::Tenant => "tenant",
            Self::Key => "key",
            Self::Policy => "policy",
            Self::Retention => "retention",
        }
    }

    pub(super) fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.word() == word)
    }
}

/// The last entry's place and hash: who keeps it can tell later that nothing before it was changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Head {
    pub seq: i64,
    pub hash: String,
}

/// One entry as it stands in the store.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    pub seq: i64,
    pub kind: EntryKind,
    pub hash: String,
    /// JSON, exactly as it was hashed.
    pub body: String,
}

/// A time that is none. PostgreSQL remembers which type a statement's value had, and a bare NULL has the wrong one.
pub(super) const NO_TIME: f64 = -1.0;

/// What of a body can be searched.
#[derive(Debug, PartialEq)]
pub(super) struct Columns {
    pub record_id: String,
    pub texts: [Option<String>; 6],
    pub created_at: f64,
    pub wall_time_seconds: Option<f64>,
}

/// The columns of [`Columns::texts`], by their names in the table and in the body.
pub(super) const TEXTS: [&str; 6] = [
    "tenant_id",
    "user_id",
    "run_id",
    "language",
    "policy_id",
    "status",
];

impl Columns {
    pub(super) fn of(body: &Value) -> Option<Self> {
        let text = |name: &str| body.get(name).and_then(Value::as_str).map(str::to_owned);
        Some(Self {
            record_id: text("record_id")?,
            texts: TEXTS.map(text),
            created_at: body.get("created_at")?.as_f64()?,
            wall_time_seconds: body.get("wall_time_seconds").and_then(Value::as_f64),
        })
    }

    pub(super) fn of_row(row: &AnyRow) -> Result<Self, sqlx::Error> {
        let mut texts = [const { None }; 6];
        for (text, name) in texts.iter_mut().zip(TEXTS) {
            *text = row.try_get(name)?;
        }
        Ok(Self {
            record_id: row.try_get("record_id")?,
            texts,
            created_at: row.try_get("created_at")?,
            wall_time_seconds: row.try_get("wall_time_seconds")?,
        })
    }
}

impl Entry {
    pub(super) fn of_row(row: &AnyRow) -> Result<Self, StoreError> {
        let read = || -> Result<_, sqlx::Error> {
            Ok((
                row.try_get("seq")?,
                row.try_get::<String, _>("kind")?,
                row.try_get("hash")?,
                row.try_get("body")?,
            ))
        };
        let (seq, kind, hash, body) = read().during("read an entry")?;
        let kind = EntryKind::from_word(&kind)
            .ok_or_else(|| StoreError::Unreadable(format!("entry {seq} is of an unknown kind")))?;
        Ok(Self {
            seq,
            kind,
            hash,
            body,
        })
    }
}

/// The hash that binds an entry to the one before it.
pub(super) fn link(before: &str, seq: i64, kind: &str, body: &str) -> String {
    code_hash(format!("{before}\n{seq}\n{kind}\n{body}").as_bytes())
}

/// The head, locked until the transaction ends.
pub(super) async fn lock(connection: &mut AnyConnection) -> Result<Head, StoreError> {
    let locking = sqlx::query("UPDATE chain SET id = id WHERE id = 1 RETURNING seq, hash");
    read_head(locking, connection).await
}

pub(super) async fn set(connection: &mut AnyConnection, head: &Head) -> Result<(), StoreError> {
    sqlx::query("UPDATE chain SET seq = $1, hash = $2 WHERE id = 1")
        .bind(head.seq)
        .bind(&head.hash)
        .execute(connection)
        .await
        .during("move the chain's head")
        .map(drop)
}

async fn read_head<'e, E>(
    query: sqlx::query::Query<'static, sqlx::Any, sqlx::any::AnyArguments<'static>>,
    executor: E,
) -> Result<Head, StoreError>
where
    E: sqlx::Executor<'e, Database = sqlx::Any>,
{
    let row = query.fetch_one(executor).await.during("read the chain's head")?;
    let head = (|| {
        Ok(Head {
            seq: row.try_get(0)?,
            hash: row.try_get(1)?,
        })
    })();
    head.during("read the chain's head")
}

impl Tx<'_> {
    /// Adds an entry to the chain. Its body has a `record_id` and a `created_at`.
    pub(super) async fn append(&mut self, kind: EntryKind, body: &Value) -> Result<i64, StoreError> {
        let columns =
            Columns::of(body).ok_or_else(|| StoreError::Unreadable("an entry without its id".to_owned()))?;
        let text = body.to_string();
        let seq = self.head.seq + 1;
        let hash = link(&self.head.hash, seq, kind.word(), &text);
        let mut adding = sqlx::query(
            "INSERT INTO audit (seq, kind, hash, body, record_id, created_at, wall_time_seconds,
                                tenant_id, user_id, run_id, language, policy_id, status)
             VALUES ($1, $2, $3, $4, $5, $6, NULLIF($7, -1.0), $8, $9, $10, $11, $12, $13)",
        )
        .bind(seq)
        .bind(kind.word())
        .bind(hash.clone())
        .bind(text)
        .bind(columns.record_id)
        .bind(columns.created_at)
        .bind(columns.wall_time_seconds.unwrap_or(NO_TIME));
        for text in columns.texts {
            adding = adding.bind(text);
        }
        adding
            .execute(&mut *self.connection)
            .await
            .during("add an entry")?;
        self.head = Head { seq, hash };
        Ok(seq)
    }
}

impl Store {
    /// The last entry of the chain.
    pub async fn head(&self) -> Result<Head, StoreError> {
        read_head(
            sqlx::query("SELECT seq, hash FROM chain WHERE id = 1"),
            &self.readers,
        )
        .await
    }

    /// Entries after `after`, in order, at most so many.
    pub async fn entries(&self, after: i64, most: i64) -> Result<Vec<Entry>, StoreError> {
        let rows =
            sqlx::query("SELECT seq, kind, hash, body FROM audit WHERE seq > $1 ORDER BY seq LIMIT $2")
                .bind(after)
                .bind(most)
                .fetch_all(&self.readers)
                .await
                .during("read the chain")?;
        rows.iter().map(Entry::of_row).collect()
    }
}
