//! Looking records up (R15).

use belljar_core::SandboxStatus;
use serde_json::Value;
use sqlx::Row;

use super::Store;
use super::error::{During, StoreError};

/// Which records; what is unset does not matter.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RecordFilter {
    pub tenant_id: Option<String>,
    pub user_id: Option<String>,
    pub run_id: Option<String>,
    pub policy_id: Option<String>,
    pub language: Option<String>,
    pub status: Option<SandboxStatus>,
    /// Created at this time or later.
    pub since: Option<f64>,
    /// Created before this time.
    pub until: Option<f64>,
    /// Those before this place in the chain.
    pub before: Option<i64>,
}

/// Records, the newest first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RecordPage {
    /// Each with its place in the chain.
    pub records: Vec<(i64, Value)>,
    /// Where the next page begins, if there is one.
    pub next: Option<i64>,
}

/// The executions and denials among the entries.
const RECORDS: &str = "kind IN ('execution', 'denial')";

/// A value to compare a column with.
#[derive(Clone, Debug)]
pub(super) enum Bound {
    Text(String),
    Number(i64),
    Real(f64),
}

impl RecordFilter {
    /// The conditions and their values. They begin at `$1`.
    pub(super) fn conditions(&self) -> (String, Vec<Bound>) {
        let text = |value: &Option<String>| value.clone().map(Bound::Text);
        let all = [
            ("tenant_id =", text(&self.tenant_id)),
            ("user_id =", text(&self.user_id)),
            ("run_id =", text(&self.run_id)),
            ("policy_id =", text(&self.policy_id)),
            ("language =", text(&self.language)),
            (
                "status =",
                self.status.map(|status| Bound::Text(status.word().to_owned())),
            ),
            ("created_at >=", self.since.map(Bound::Real)),
            ("created_at <", self.until.map(Bound::Real)),
            ("seq <", self.before.map(Bound::Number)),
        ];
        let mut conditions = RECORDS.to_owned();
        let mut bounds = Vec::new();
        for (condition, bound) in all {
            if let Some(bound) = bound {
                bounds.push(bound);
                conditions += &format!(" AND {condition} ${}", bounds.len());
            }
        }
        (conditions, bounds)
    }
}

/// Binds what a filter's conditions are about.
pub(super) fn bind<'q>(
    mut query: sqlx::query::Query<'q, sqlx::Any, sqlx::any::AnyArguments<'q>>,
    bounds: &[Bound],
) -> sqlx::query::Query<'q, sqlx::Any, sqlx::any::AnyArguments<'q>> {
    for bound in bounds {
        query = match bound {
            Bound::Text(text) => query.bind(text.clone()),
            Bound::Number(number) => query.bind(*number),
            Bound::Real(number) => query.bind(*number),
        };
    }
    query
}

impl Store {
    /// One page of records, at most so many.
    pub async fn records(&self, filter: &RecordFilter, most: usize) -> Result<RecordPage, StoreError> {
        let (conditions, bounds) = filter.conditions();
        let most = most.clamp(1, 1_000);
        // One more than wanted tells whether there is another page.
        let text = format!(
            "SELECT seq, body FROM audit WHERE {conditions} ORDER BY seq DESC LIMIT {}",
            most + 1
        );
        let rows = bind(sqlx::query(&text), &bounds)
            .fetch_all(&self.readers)
            .await
            .during("look records up")?;
        let mut records = Vec::with_capacity(rows.len());
        for row in &rows {
            let read = || -> Result<(i64, String), sqlx::Error> { Ok((row.try_get(0)?, row.try_get(1)?)) };
            let (seq, body) = read().during("look records up")?;
            records.push((seq, parsed(&body)?));
        }
        let more = records.len() > most;
        records.truncate(most);
        let next = records.last().filter(|_| more).map(|(seq, _)| *seq);
        Ok(RecordPage { records, next })
    }

    /// The record of that id, of an execution that is over or of a denial.
    pub async fn record(&self, record_id: &str) -> Result<Option<Value>, StoreError> {
        let text = format!("SELECT body FROM audit WHERE record_id = $1 AND {RECORDS}");
        let row = sqlx::query(&text)
            .bind(record_id.to_owned())
            .fetch_optional(&self.readers)
            .await
            .during("look a record up")?;
        let body: Option<String> = row
            .map(|row| row.try_get(0))
            .transpose()
            .during("look a record up")?;
        body.map(|body| parsed(&body)).transpose()
    }
}

fn parsed(body: &str) -> Result<Value, StoreError> {
    serde_json::from_str(body).map_err(|error| StoreError::Unreadable(error.to_string()))
}
