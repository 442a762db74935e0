//! R15, R16: records are found by who, what and when, in pages; and figures over them.

use belljar_core::SandboxStatus;
use belljar_server::store::{RecordFilter, Stats, StatsFilter};
use serde_json::json;

use super::{ENDLESS, NOON, begin, finish, record, run};
use crate::databases::on_each;

#[test]
fn records_are_found_by_what_they_are() {
    on_each(|database| async move {
        let store = database.open().await;
        for turn in 0..7 {
            run(
                &store,
                if turn % 2 == 0 { "a" } else { "b" },
                NOON + f64::from(turn),
            )
            .await;
        }
        let mut refused = record("a", NOON + 7.0);
        refused.status = SandboxStatus::Failed;
        refused.user_id = Some("ada".to_owned());
        store.refuse(refused.clone(), json!({})).await.unwrap();
        let count = async |filter: RecordFilter| store.records(&filter, 100).await.unwrap().records.len();
        let text = |text: &str| Some(text.to_owned());
        assert_eq!(count(RecordFilter::default()).await, 8);
        assert_eq!(
            count(RecordFilter {
                tenant_id: text("a"),
                ..RecordFilter::default()
            })
            .await,
            5
        );
        assert_eq!(
            count(RecordFilter {
                user_id: text("ada"),
                ..RecordFilter::default()
            })
            .await,
            1
        );
        assert_eq!(
            count(RecordFilter {
                run_id: text("run-1"),
                ..RecordFilter::default()
            })
            .await,
            8
        );
        assert_eq!(
            count(RecordFilter {
                run_id: text("run-2"),
                ..RecordFilter::default()
            })
            .await,
            0
        );
        assert_eq!(
            count(RecordFilter {
                language: text("python"),
                ..RecordFilter::default()
            })
            .await,
            8
        );
        let failed = RecordFilter {
            status: Some(SandboxStatus::Failed),
            ..RecordFilter::default()
        };
        assert_eq!(count(failed).await, 1);
        let within = RecordFilter {
            since: Some(NOON + 2.0),
            until: Some(NOON + 5.0),
            ..RecordFilter::default()
        };
        assert_eq!(count(within).await, 3);
        let both = RecordFilter {
            tenant_id: text("b"),
            since: Some(NOON + 2.0),
            ..RecordFilter::default()
        };
        assert_eq!(count(both).await, 2);
        assert_eq!(
            count(RecordFilter {
                tenant_id: text("a' OR '1'='1"),
                ..RecordFilter::default()
            })
            .await,
            0
        );
    });
}

#[test]
fn pages_follow_one_another_while_records_are_added() {
    on_each(|database| async move {
        let store = database.open().await;
        for turn in 0..5 {
            run(&store, "a", NOON + f64::from(turn)).await;
        }
        let mut filter = RecordFilter::default();
        let mut seen = Vec::new();
        loop {
            let page = store.records(&filter, 2).await.unwrap();
            seen.extend(page.records.iter().map(|(seq, _)| *seq));
            run(&store, "a", NOON + 60.0).await;
            match page.next {
                Some(next) => filter.before = Some(next),
                None => break,
            }
        }
        assert_eq!(seen, [5, 4, 3, 2, 1]);
    });
}

/// R16: the five keys, zeros when empty.
#[test]
fn figures_are_zeros_at_first_and_then_count() {
    on_each(|database| async move {
        let store = database.open().await;
        let empty = store.stats(&StatsFilter::default()).await.unwrap();
        assert_eq!(empty, Stats::default());
        let value = json!(empty);
        for key in [
            "total_executions",
            "by_status",
            "by_language",
            "by_policy",
            "avg_wall_time_seconds",
        ] {
            assert!(value.get(key).is_some(), "{key}");
        }
        for turn in 1..=100 {
            let record = record("a", NOON + f64::from(turn));
            begin(&store, &record, ENDLESS).await;
            finish(&store, &record, f64::from(turn) / 100.0).await;
        }
        store.refuse(record("b", NOON), json!({})).await.unwrap();
        let filter = StatsFilter {
            bucket: Some(60),
            ..StatsFilter::default()
        };
        let stats = store.stats(&filter).await.unwrap();
        assert_eq!(stats.total_executions, 101);
        assert_eq!(stats.by_status["completed"], 100);
        assert_eq!(stats.by_language["python"], 101);
        assert_eq!(stats.by_policy["standard"], 101);
        assert!((stats.avg_wall_time_seconds - 0.505).abs() < 1e-9);
        let percentiles: Vec<_> = stats.wall_time_seconds.into_iter().collect();
        assert_eq!(
            percentiles,
            [("max", 1.0), ("p50", 0.5), ("p90", 0.9), ("p99", 0.99)]
        );
        let buckets = stats.buckets.unwrap();
        let counts: Vec<_> = buckets
            .iter()
            .map(|bucket| (bucket.start - NOON, bucket.executions))
            .collect();
        assert_eq!(counts, [(0.0, 60), (60.0, 41)]);
        let of_b = RecordFilter {
            tenant_id: Some("b".to_owned()),
            ..RecordFilter::default()
        };
        let stats = store
            .stats(&StatsFilter {
                records: of_b,
                bucket: None,
            })
            .await
            .unwrap();
        assert_eq!((stats.total_executions, stats.avg_wall_time_seconds), (1, 0.0));
        assert!(stats.wall_time_seconds.is_empty() && stats.buckets.is_none());
    });
}
