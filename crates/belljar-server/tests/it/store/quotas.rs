//! R10, R11, S7: what is permitted is had, and not one more.

use belljar_core::{Bytes, Quotas, Seconds};
use belljar_server::store::{Begun, Exceeded, QuotaKind, Store};

use super::{ENDLESS, NOON, begin, finish, record};
use crate::databases::on_each;

async fn reserves(store: &Store, tenant: &str, quotas: Quotas, now: f64) -> Result<(), Exceeded> {
    match begin(store, &record(tenant, now), quotas).await {
        Begun::Reserved => Ok(()),
        Begun::Exceeded(exceeded) => Err(exceeded),
        other => panic!("{other:?}"),
    }
}

/// R10: the eleventh in a minute, whenever it began; another tenant has its own ten.
#[test]
fn the_eleventh_in_a_minute_is_refused() {
    on_each(|database| async move {
        let store = database.open().await;
        let quotas = Quotas::default();
        for turn in 0..10 {
            reserves(&store, "a", quotas, NOON + 30.0 + f64::from(turn))
                .await
                .unwrap();
        }
        let refused = reserves(&store, "a", quotas, NOON + 40.0).await.unwrap_err();
        assert_eq!(refused.kind, QuotaKind::PerMinute);
        assert_eq!(refused.permitted, "10");
        // The first began at 30.0, so it counts until 90, and with its whole second until 91.
        assert_eq!(refused.retry_after, 51);
        reserves(&store, "b", quotas, NOON + 40.0).await.unwrap();
        // The next minute of the clock is no new minute.
        assert!(reserves(&store, "a", quotas, NOON + 61.0).await.is_err());
        assert!(reserves(&store, "a", quotas, NOON + 90.0).await.is_err());
        reserves(&store, "a", quotas, NOON + 91.0).await.unwrap();
        assert!(reserves(&store, "a", quotas, NOON + 91.0).await.is_err());
        // Each refusal is on record.
        assert_eq!(store.head().await.unwrap().seq, 4);
    });
}

/// R10: the hundred-and-first in an hour; and a restart forgets nothing.
#[test]
fn the_hundred_and_first_in_an_hour_is_refused() {
    on_each(|database| async move {
        let quotas = Quotas::default();
        let store = database.open().await;
        for minute in 0..10 {
            for _ in 0..10 {
                let now = NOON + 70.0 * f64::from(minute);
                reserves(&store, "a", quotas, now).await.unwrap();
            }
        }
        store.close().await;
        let store = database.open().await;
        let refused = reserves(&store, "a", quotas, NOON + 1800.0).await.unwrap_err();
        assert_eq!((refused.kind, &*refused.permitted), (QuotaKind::PerHour, "100"));
        assert!(
            refused.retry_after > 1700 && refused.retry_after <= 1860,
            "{refused:?}"
        );
        assert!(reserves(&store, "a", quotas, NOON + 3599.0).await.is_err());
        reserves(&store, "a", quotas, NOON + 3661.0).await.unwrap();
    });
}

/// S7, R11: two hundred at once, through two servers, and exactly ten are let in.
#[test]
fn two_hundred_at_once_cannot_have_more_than_ten() {
    on_each(|database| async move {
        let servers = [database.open().await, database.open().await];
        let tasks: Vec<_> = (0..200)
            .map(|turn| {
                let store = servers[turn % 2].clone();
                tokio::spawn(async move { reserves(&store, "a", Quotas::default(), NOON).await.is_ok() })
            })
            .collect();
        let mut had = 0;
        for task in tasks {
            had += usize::from(task.await.unwrap());
        }
        assert_eq!(had, 10);
        assert_eq!(servers[0].unfinished(Some("a")).await.unwrap().len(), 10);
        assert_eq!(servers[1].head().await.unwrap().seq, 190);
        assert!(servers[0].verify(None).await.unwrap().is_ok());
    });
}

#[test]
fn no_more_run_at_once_than_may() {
    on_each(|database| async move {
        let store = database.open().await;
        let quotas = Quotas {
            concurrent: Some(2),
            ..ENDLESS
        };
        let first = record("a", NOON);
        assert_eq!(begin(&store, &first, quotas).await, Begun::Reserved);
        reserves(&store, "a", quotas, NOON).await.unwrap();
        let refused = reserves(&store, "a", quotas, NOON).await.unwrap_err();
        assert_eq!((refused.kind, &*refused.permitted), (QuotaKind::Concurrent, "2"));
        finish(&store, &first, 0.1).await;
        reserves(&store, "a", quotas, NOON).await.unwrap();
    });
}

#[test]
fn a_days_cpu_time_and_output_are_counted_when_they_were_used() {
    on_each(|database| async move {
        let store = database.open().await;
        let cpu = Quotas {
            cpu_per_day: Some(Seconds::new(1.5).unwrap()),
            ..ENDLESS
        };
        let output = Quotas {
            output_per_day: Some(Bytes::from_mib(2)),
            ..ENDLESS
        };
        // Each uses a second of CPU time and gives one MiB.
        for (turn, quotas) in [(0, cpu), (1, cpu)] {
            let record = record("a", NOON + f64::from(turn));
            assert_eq!(begin(&store, &record, quotas).await, Begun::Reserved);
            finish(&store, &record, 2.0).await;
        }
        let refused = reserves(&store, "a", cpu, NOON + 9.0).await.unwrap_err();
        assert_eq!((refused.kind, &*refused.permitted), (QuotaKind::CpuPerDay, "1.5"));
        let refused = reserves(&store, "a", output, NOON + 9.0).await.unwrap_err();
        assert_eq!(
            (refused.kind, &*refused.permitted),
            (QuotaKind::OutputPerDay, "2")
        );
        reserves(&store, "b", cpu, NOON + 9.0).await.unwrap();
        assert!(reserves(&store, "a", cpu, NOON + 86_399.0).await.is_err());
        reserves(&store, "a", cpu, NOON + 25.0 * 3600.0).await.unwrap();
    });
}

/// S8: a clock that is set back gives nothing away.
#[test]
fn a_clock_that_is_set_back_gives_nothing_away() {
    on_each(|database| async move {
        let store = database.open().await;
        for _ in 0..10 {
            reserves(&store, "a", Quotas::default(), NOON).await.unwrap();
        }
        assert!(
            reserves(&store, "a", Quotas::default(), NOON - 3600.0)
                .await
                .is_err()
        );
    });
}

#[test]
fn nothing_is_permitted_where_the_quota_is_nothing() {
    on_each(|database| async move {
        let store = database.open().await;
        let quotas = Quotas {
            per_minute: 0,
            ..ENDLESS
        };
        let refused = reserves(&store, "a", quotas, NOON).await.unwrap_err();
        assert_eq!((refused.kind, refused.retry_after), (QuotaKind::PerMinute, 60));
    });
}
