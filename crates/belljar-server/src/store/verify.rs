//! Whether the chain is whole: no entry changed, removed or moved.

use serde_json::Value;
use sqlx::Row;

use super::Store;
use super::chain::{Columns, Entry, EntryKind, Head, link};
use super::error::{During, StoreError};

/// How many entries are read at a time.
const PAGE: i64 = 1_000;

/// A chain that is whole.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Verified {
    /// How many entries were read.
    pub entries: u64,
    /// Up to where retention removed them; 0 where it did not.
    pub removed: i64,
    pub head: Head,
}

/// The first thing that is wrong with a chain.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    #[error("entry {0} is not there")]
    Missing(i64),
    #[error("entry {0} was changed, or the one before it was")]
    Changed(i64),
    #[error("entry {0} is listed with something else than it holds")]
    Listed(i64),
    #[error("the chain ends at entry {found} and not at entry {expected}")]
    Cut { found: i64, expected: i64 },
    #[error("entries up to {0} were removed, and no entry says so")]
    Unaccounted(i64),
    #[error("entry {0} is not the one that was expected there")]
    NotExpected(i64),
    #[error("entry {0} was removed by retention, so that nothing can be said of it; keep a later head")]
    Forgotten(i64),
    #[error("entry {0} is no part of the chain")]
    Surplus(i64),
}

impl Broken {
    /// The entry it is about.
    pub const fn seq(&self) -> i64 {
        match self {
            Self::Missing(seq)
            | Self::Changed(seq)
            | Self::Listed(seq)
            | Self::Unaccounted(seq)
            | Self::NotExpected(seq)
            | Self::Forgotten(seq)
            | Self::Surplus(seq) => *seq,
            Self::Cut { expected, .. } => *expected,
        }
    }
}

impl Store {
    /// Reads the whole chain. `expected` is a head that was kept elsewhere: it must be part of it.
    pub async fn verify(&self, expected: Option<&Head>) -> Result<Result<Verified, Broken>, StoreError> {
        let (end, removed) = self.ends().await?;
        if let Some(broken) = expected.and_then(|expected| before_the_first(expected, &removed)) {
            return Ok(Err(broken));
        }
        let mut last = removed.clone();
        let mut walk = Walk {
            accounted: removed.seq == 0,
            removed,
            expected,
            entries: 0,
        };
        loop {
            let rows = sqlx::query("SELECT * FROM audit WHERE seq > $1 ORDER BY seq LIMIT $2")
                .bind(last.seq)
                .bind(PAGE)
                .fetch_all(&self.readers)
                .await
                .during("read the chain")?;
            if rows.is_empty() {
                break;
            }
            for row in &rows {
                let columns = Columns::of_row(row).during("read an entry")?;
                last = match walk.step(
                    &last,
                    row.try_get("seq").during("read an entry")?,
                    Entry::of_row(row),
                    &columns,
                ) {
                    Ok(head) => head,
                    Err(broken) => return Ok(Err(broken)),
                };
                // What was added since the head was read is not ours to judge.
                if last.seq == end.seq {
                    break;
                }
            }
            if last.seq >= end.seq {
                break;
            }
        }
        let whole = walk.end(last, &end);
        match (whole, self.surplus().await?) {
            (Ok(_), Some(seq)) => Ok(Err(Broken::Surplus(seq))),
            (whole, _) => Ok(whole),
        }
    }

    /// An entry that stands where the chain has none: before what is left of it, or after its end.
    async fn surplus(&self) -> Result<Option<i64>, StoreError> {
        // One statement sees one moment, whatever is written meanwhile.
        let row = sqlx::query(
            "SELECT (SELECT MIN(audit.seq) FROM audit, chain
                     WHERE chain.id = 1 AND (audit.seq <= chain.removed_seq OR audit.seq > chain.seq))",
        )
        .fetch_one(&self.readers)
        .await
        .during("read the chain")?;
        row.try_get(0).during("read the chain")
    }

    async fn ends(&self) -> Result<(Head, Head), StoreError> {
        let row = sqlx::query("SELECT seq, hash, removed_seq, removed_hash FROM chain WHERE id = 1")
            .fetch_one(&self.readers)
            .await
            .during("read the chain's head")?;
        let head = |seq, hash| -> Result<Head, sqlx::Error> {
            Ok(Head {
                seq: row.try_get(seq)?,
                hash: row.try_get(hash)?,
            })
        };
        let ends = || Ok((head("seq", "hash")?, head("removed_seq", "removed_hash")?));
        ends().during("read the chain's head")
    }
}

/// What is wrong with a head that was kept elsewhere and is not among the entries that are left.
fn before_the_first(expected: &Head, removed: &Head) -> Option<Broken> {
    match expected.seq {
        seq if seq < 1 => Some(Broken::NotExpected(seq)),
        seq if seq < removed.seq => Some(Broken::Forgotten(seq)),
        seq if seq == removed.seq && expected.hash != removed.hash => Some(Broken::NotExpected(seq)),
        _ => None,
    }
}

struct Walk<'a> {
    removed: Head,
    /// Whether an entry says what was removed.
    accounted: bool,
    expected: Option<&'a Head>,
    entries: u64,
}

impl Walk<'_> {
    fn step(
        &mut self,
        before: &Head,
        seq: i64,
        entry: Result<Entry, StoreError>,
        columns: &Columns,
    ) -> Result<Head, Broken> {
        if seq != before.seq + 1 {
            return Err(Broken::Missing(before.seq + 1));
        }
        let entry = entry.map_err(|_| Broken::Changed(seq))?;
        if link(&before.hash, seq, entry.kind.word(), &entry.body) != entry.hash {
            return Err(Broken::Changed(seq));
        }
        let body: Value = serde_json::from_str(&entry.body).map_err(|_| Broken::Changed(seq))?;
        if Columns::of(&body).as_ref() != Some(columns) {
            return Err(Broken::Listed(seq));
        }
        if entry.kind == EntryKind::Retention {
            self.accounted =
                body["removed_seq"] == self.removed.seq && body["removed_hash"] == *self.removed.hash;
        }
        if self
            .expected
            .is_some_and(|expected| expected.seq == seq && expected.hash != entry.hash)
        {
            return Err(Broken::NotExpected(seq));
        }
        self.entries += 1;
        Ok(Head {
            seq,
            hash: entry.hash,
        })
    }

    fn end(self, last: Head, end: &Head) -> Result<Verified, Broken> {
        if last != *end {
            return Err(Broken::Cut {
                found: last.seq,
                expected: end.seq,
            });
        }
        if !self.accounted {
            return Err(Broken::Unaccounted(self.removed.seq));
        }
        if let Some(expected) = self.expected.filter(|expected| expected.seq > last.seq) {
            return Err(Broken::Cut {
                found: last.seq,
                expected: expected.seq,
            });
        }
        Ok(Verified {
            entries: self.entries,
            removed: self.removed.seq,
            head: last,
        })
    }
}
