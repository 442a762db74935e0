//! What a tenant has used under a policy, and whether there is room for one more.
//!
//! Uses are counted in slots: seconds for the last minute, minutes for the last hour, hours for the last day. A slot
//! that lies only partly within the time counts fully, so no more than permitted ever fits into any such time.

use std::fmt;

use belljar_core::Quotas;
use sqlx::Row;

use super::error::{During, StoreError};
use super::writer::Tx;

const SECOND: i64 = 1;
const MINUTE: i64 = 60;
const HOUR: i64 = 3_600;
/// How many slots make up each time: 60 seconds, 60 minutes, 24 hours.
const WINDOWS: [(i64, i64); 3] = [(SECOND, 60), (MINUTE, 60), (HOUR, 24)];

/// Which quota there was no room in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaKind {
    PerMinute,
    PerHour,
    Concurrent,
    CpuPerDay,
    OutputPerDay,
}

impl QuotaKind {
    /// The policy's field.
    pub const fn field(self) -> &'static str {
        match self {
            Self::PerMinute => "max_executions_per_minute",
            Self::PerHour => "max_executions_per_hour",
            Self::Concurrent => "max_concurrent_executions",
            Self::CpuPerDay => "max_cpu_seconds_per_day",
            Self::OutputPerDay => "max_output_mb_per_day",
        }
    }
}

/// A quota that is used up.
#[derive(Clone, Debug, PartialEq)]
pub struct Exceeded {
    pub kind: QuotaKind,
    /// What is permitted, as the policy counts it.
    pub permitted: String,
    /// In how many seconds it may be worth trying again.
    pub retry_after: u64,
}

impl fmt::Display for Exceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let permitted = &self.permitted;
        match self.kind {
            QuotaKind::PerMinute => write!(
                f,
                "{permitted} executions in a minute are permitted, and were had"
            ),
            QuotaKind::PerHour => write!(f, "{permitted} executions in an hour are permitted, and were had"),
            QuotaKind::Concurrent => write!(
                f,
                "{permitted} executions at the same time are permitted, and run"
            ),
            QuotaKind::CpuPerDay => {
                write!(
                    f,
                    "{permitted} seconds of CPU time in a day are permitted, and were used"
                )
            }
            QuotaKind::OutputPerDay => write!(
                f,
                "{permitted} MiB of output in a day are permitted, and were had"
            ),
        }
    }
}

/// What lies within one window.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    runs: i64,
    cpu_ms: i64,
    bytes_out: i64,
    oldest: i64,
}

impl Tx<'_> {
    /// Counts one execution, or says what there is no room in. Nothing is counted then.
    pub(super) async fn reserve(
        &mut self,
        tenant: &str,
        policy: &str,
        quotas: &Quotas,
        now: f64,
    ) -> Result<Result<(), Exceeded>, StoreError> {
        let [minute, hour, day] = self.sums(tenant, policy, now).await?;
        let running = match quotas.concurrent {
            Some(_) => self.running(tenant, policy).await?,
            None => 0,
        };
        let cpu_ms = quotas.cpu_per_day.map(|cpu| (cpu.get() * 1e3) as i64);
        let output = quotas.output_per_day.map(|output| clamp(output.get()));
        let checks = [
            (
                QuotaKind::PerMinute,
                minute.runs,
                Some(i64::from(quotas.per_minute)),
                minute.oldest,
                0,
            ),
            (
                QuotaKind::PerHour,
                hour.runs,
                Some(i64::from(quotas.per_hour)),
                hour.oldest,
                1,
            ),
            (QuotaKind::CpuPerDay, day.cpu_ms, cpu_ms, day.oldest, 2),
            (QuotaKind::OutputPerDay, day.bytes_out, output, day.oldest, 2),
        ];
        for (kind, used, permitted, oldest, window) in checks {
            if let Some(permitted) = permitted.filter(|permitted| used >= *permitted) {
                let (span, slots) = WINDOWS[window];
                // Its oldest slot is out of the window once that many have begun after it.
                let free = if used > 0 {
                    (oldest + slots + 1) * span
                } else {
                    (now as i64) + slots * span
                };
                return Ok(Err(Exceeded {
                    kind,
                    permitted: shown(kind, permitted),
                    retry_after: (free as f64 - now).ceil().max(1.0) as u64,
                }));
            }
        }
        if let Some(permitted) = quotas
            .concurrent
            .filter(|permitted| running >= i64::from(*permitted))
        {
            return Ok(Err(Exceeded {
                kind: QuotaKind::Concurrent,
                permitted: permitted.to_string(),
                retry_after: 1,
            }));
        }
        for span in [SECOND, MINUTE] {
            self.count(
                tenant,
                policy,
                span,
                slot(now, span),
                Sum {
                    runs: 1,
                    ..Sum::default()
                },
            )
            .await?;
        }
        Ok(Ok(()))
    }

    /// Counts what an execution used.
    pub(super) async fn spend(
        &mut self,
        tenant: &str,
        policy: &str,
        cpu_seconds: f64,
        bytes_out: u64,
        now: f64,
    ) -> Result<(), StoreError> {
        let sum = Sum {
            cpu_ms: (cpu_seconds * 1e3).ceil() as i64,
            bytes_out: clamp(bytes_out),
            ..Sum::default()
        };
        self.count(tenant, policy, HOUR, slot(now, HOUR), sum).await
    }

    async fn count(
        &mut self,
        tenant: &str,
        policy: &str,
        span: i64,
        slot: i64,
        sum: Sum,
    ) -> Result<(), StoreError> {
        sqlx::query(
            "INSERT INTO used (tenant_id, policy_id, span, slot, runs, cpu_ms, bytes_out)
             VALUES ($1, $2, $3, $4, $5, $6, $7)
             ON CONFLICT (tenant_id, policy_id, span, slot) DO UPDATE SET
                 runs = used.runs + excluded.runs,
                 cpu_ms = used.cpu_ms + excluded.cpu_ms,
                 bytes_out = used.bytes_out + excluded.bytes_out",
        )
        .bind(tenant.to_owned())
        .bind(policy.to_owned())
        .bind(span)
        .bind(slot)
        .bind(sum.runs)
        .bind(sum.cpu_ms)
        .bind(sum.bytes_out)
        .execute(&mut *self.connection)
        .await
        .during("count an execution")
        .map(drop)
    }

    async fn sums(&mut self, tenant: &str, policy: &str, now: f64) -> Result<[Sum; 3], StoreError> {
        const OPERATION: &str = "look at a quota";
        let mut asking = sqlx::query(
            "SELECT span, CAST(SUM(runs) AS BIGINT), CAST(SUM(cpu_ms) AS BIGINT),
                    CAST(SUM(bytes_out) AS BIGINT), MIN(slot)
             FROM used WHERE tenant_id = $1 AND policy_id = $2
               AND ((span = 1 AND slot >= $3) OR (span = 60 AND slot >= $4) OR (span = 3600 AND slot >= $5))
             GROUP BY span",
        )
        .bind(tenant.to_owned())
        .bind(policy.to_owned());
        for (span, slots) in WINDOWS {
            // Slots of a clock that was ahead count as well: a clock that is set back gives nothing away.
            asking = asking.bind(slot(now, span) - slots);
        }
        let rows = asking.fetch_all(&mut *self.connection).await.during(OPERATION)?;
        let mut sums = [Sum::default(); 3];
        for row in rows {
            let read = || -> Result<(i64, Sum), sqlx::Error> {
                let sum = Sum {
                    runs: row.try_get(1)?,
                    cpu_ms: row.try_get(2)?,
                    bytes_out: row.try_get(3)?,
                    oldest: row.try_get(4)?,
                };
                Ok((row.try_get(0)?, sum))
            };
            let (span, sum) = read().during(OPERATION)?;
            if let Some(at) = WINDOWS.iter().position(|window| window.0 == span) {
                sums[at] = sum;
            }
        }
        Ok(sums)
    }

    async fn running(&mut self, tenant: &str, policy: &str) -> Result<i64, StoreError> {
        sqlx::query(
            "SELECT COUNT(*) FROM unfinished WHERE tenant_id = $1 AND policy_id = $2 AND is_pending = 0",
        )
        .bind(tenant.to_owned())
        .bind(policy.to_owned())
        .fetch_one(&mut *self.connection)
        .await
        .and_then(|row| row.try_get(0))
        .during("look at a quota")
    }

    /// Forgets slots that count for nothing any more.
    pub(super) async fn forget_uses(&mut self, now: f64) -> Result<(), StoreError> {
        for (span, slots) in WINDOWS {
            sqlx::query("DELETE FROM used WHERE span = $1 AND slot < $2")
                .bind(span)
                .bind(slot(now, span) - slots)
                .execute(&mut *self.connection)
                .await
                .during("forget what was used")?;
        }
        Ok(())
    }
}

fn slot(now: f64, span: i64) -> i64 {
    (now as i64).div_euclid(span)
}

fn shown(kind: QuotaKind, permitted: i64) -> String {
    match kind {
        QuotaKind::CpuPerDay => (permitted as f64 / 1e3).to_string(),
        QuotaKind::OutputPerDay => (permitted >> 20).to_string(),
        _ => permitted.to_string(),
    }
}

/// Databases count with signs.
fn clamp(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
