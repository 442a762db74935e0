//! Figures over many records (R16).

use std::collections::BTreeMap;

use serde::Serialize;
use sqlx::Row;

use super::Store;
use super::error::{During, StoreError};
use super::records::{Bound, RecordFilter, bind};

/// Which records, and how to divide their time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StatsFilter {
    pub records: RecordFilter,
    /// The length of a bucket in seconds; none: no buckets.
    pub bucket: Option<u32>,
}

/// Document 000's five figures, and ours after them.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Stats {
    pub total_executions: i64,
    pub by_status: BTreeMap<String, i64>,
    pub by_language: BTreeMap<String, i64>,
    pub by_policy: BTreeMap<String, i64>,
    /// Of those that ran; 0 where none did.
    pub avg_wall_time_seconds: f64,
    /// `p50`, `p90`, `p99` and `max`; empty where nothing ran.
    pub wall_time_seconds: BTreeMap<&'static str, f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub buckets: Option<Vec<Bucket>>,
}

/// What began within one stretch of time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Bucket {
    /// When it begins.
    pub start: f64,
    pub executions: i64,
    pub avg_wall_time_seconds: f64,
}

const OPERATION: &str = "count records";
const PERCENTILES: [(&str, f64); 4] = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("max", 1.0)];
/// The most buckets that are told, the newest.
const MOST_BUCKETS: usize = 1_000;

impl Store {
    /// Figures over the records that the filter lets through; zeros where there are none.
    pub async fn stats(&self, filter: &StatsFilter) -> Result<Stats, StoreError> {
        let (conditions, bounds) = filter.records.conditions();
        let whole = format!(
            "SELECT COUNT(*), COUNT(wall_time_seconds), COALESCE(AVG(wall_time_seconds), 0.0)
             FROM audit WHERE {conditions}"
        );
        let row = bind(sqlx::query(&whole), &bounds)
            .fetch_one(&self.readers)
            .await
            .during(OPERATION)?;
        let read = || -> Result<(i64, i64, f64), sqlx::Error> {
            Ok((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?))
        };
        let (total_executions, timed, avg_wall_time_seconds) = read().during(OPERATION)?;
        let mut stats = Stats {
            total_executions,
            by_status: self.count_by("status", &conditions, &bounds).await?,
            by_language: self.count_by("language", &conditions, &bounds).await?,
            by_policy: self.count_by("policy_id", &conditions, &bounds).await?,
            avg_wall_time_seconds,
            ..Stats::default()
        };
        for (name, share) in PERCENTILES.into_iter().filter(|_| timed > 0) {
            let rank = ((timed as f64 * share).ceil() as i64 - 1).max(0);
            let text = format!(
                "SELECT wall_time_seconds FROM audit WHERE {conditions} AND wall_time_seconds IS NOT NULL
                 ORDER BY wall_time_seconds LIMIT 1 OFFSET {rank}"
            );
            let value: Option<f64> = bind(sqlx::query(&text), &bounds)
                .fetch_optional(&self.readers)
                .await
                .and_then(|row| row.map(|row| row.try_get(0)).transpose())
                .during(OPERATION)?;
            stats.wall_time_seconds.extend(value.map(|value| (name, value)));
        }
        if let Some(length) = filter.bucket {
            stats.buckets = Some(self.buckets(length.max(1), &conditions, &bounds).await?);
        }
        Ok(stats)
    }

    async fn count_by(
        &self,
        column: &'static str,
        conditions: &str,
        bounds: &[Bound],
    ) -> Result<BTreeMap<String, i64>, StoreError> {
        let text = format!(
            "SELECT {column}, COUNT(*) FROM audit WHERE {conditions} AND {column} IS NOT NULL GROUP BY {column}"
        );
        let rows = bind(sqlx::query(&text), bounds)
            .fetch_all(&self.readers)
            .await
            .during(OPERATION)?;
        rows.iter()
            .map(|row| Ok((row.try_get(0)?, row.try_get(1)?)))
            .collect::<Result<_, sqlx::Error>>()
            .during(OPERATION)
    }

    async fn buckets(
        &self,
        length: u32,
        conditions: &str,
        bounds: &[Bound],
    ) -> Result<Vec<Bucket>, StoreError> {
        let text = format!(
            "SELECT slot, COUNT(*), COALESCE(AVG(wall_time_seconds), 0.0) FROM
                 (SELECT CAST(created_at AS BIGINT) / {length} AS slot, wall_time_seconds
                  FROM audit WHERE {conditions}) AS timed
             GROUP BY slot ORDER BY slot DESC LIMIT {MOST_BUCKETS}"
        );
        let rows = bind(sqlx::query(&text), bounds)
            .fetch_all(&self.readers)
            .await
            .during(OPERATION)?;
        let bucket = |row: &sqlx::any::AnyRow| -> Result<Bucket, sqlx::Error> {
            Ok(Bucket {
                start: row.try_get::<i64, _>(0)? as f64 * f64::from(length),
                executions: row.try_get(1)?,
                avg_wall_time_seconds: row.try_get(2)?,
            })
        };
        // The newest were kept; they are told in their order.
        rows.iter()
            .rev()
            .map(bucket)
            .collect::<Result<_, _>>()
            .during(OPERATION)
    }
}
