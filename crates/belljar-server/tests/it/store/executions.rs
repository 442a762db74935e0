//! An execution begins once and ends once.

use belljar_core::SandboxStatus;
use belljar_server::store::{Begun, Kept, Place, Repeat, Store, StoreError};
use serde_json::json;

use super::{ENDLESS, NOON, begin, finish, finishing, record};
use crate::databases::on_each;

#[test]
fn what_began_is_under_way_until_its_record_is_there() {
    on_each(|database| async move {
        let store = database.open().await;
        let record = record("a", NOON);
        assert_eq!(begin(&store, &record, ENDLESS).await, Begun::Reserved);
        let under_way = store.unfinished(Some("a")).await.unwrap();
        assert_eq!(under_way.len(), 1);
        assert_eq!(under_way[0].record, record);
        assert!(store.unfinished(Some("b")).await.unwrap().is_empty());
        assert_eq!(store.record(&record.record_id).await.unwrap(), None);
        finish(&store, &record, 0.25).await;
        assert!(store.unfinished(None).await.unwrap().is_empty());
        let found = store.record(&record.record_id).await.unwrap().unwrap();
        assert_eq!(found["status"], "completed");
        assert_eq!(found["wall_time_seconds"], 0.25);
        assert_eq!(found["receipt"]["provider"], "native");
        assert_eq!(found["policy_hash"], json!(record.policy_hash));
        // What belongs to the record itself cannot be put in its place.
        let mut forged = finishing(&super::record("a", NOON), 1.0);
        forged.more = json!({ "status": "failed" });
        assert_eq!(begin(&store, &forged.record, ENDLESS).await, Begun::Reserved);
        let id = forged.record.record_id.clone();
        store.finish(forged).await.unwrap();
        assert_eq!(store.record(&id).await.unwrap().unwrap()["status"], "completed");
    });
}

/// A connection that is lost at the commit does not tell whether it took place: the same end may come twice.
#[test]
fn the_same_end_counts_once_and_another_is_refused() {
    on_each(|database| async move {
        let store = database.open().await;
        let record = record("a", NOON);
        begin(&store, &record, ENDLESS).await;
        finish(&store, &record, 0.25).await;
        finish(&store, &record, 0.25).await;
        assert_eq!(store.head().await.unwrap().seq, 1);
        let error = store.finish(finishing(&record, 7.0)).await.unwrap_err();
        assert!(matches!(error, StoreError::Closed), "{error}");
        let error = store
            .finish(finishing(&super::record("a", NOON), 1.0))
            .await
            .unwrap_err();
        assert!(matches!(error, StoreError::Closed), "{error}");
        assert!(store.verify(None).await.unwrap().is_ok());
    });
}

#[test]
fn what_is_refused_is_on_record_and_never_under_way() {
    on_each(|database| async move {
        let store = database.open().await;
        let mut record = record("a", NOON);
        record.status = SandboxStatus::Failed;
        record.error_message = Some("PolicyViolation: no".to_owned());
        store
            .refuse(record.clone(), json!({ "denial": { "code": "x" } }))
            .await
            .unwrap();
        assert!(store.unfinished(None).await.unwrap().is_empty());
        let found = store.record(&record.record_id).await.unwrap().unwrap();
        assert_eq!(found["denial"]["code"], "x");
        assert_eq!(found["completed_at"], json!(null));
    });
}

/// A request that the caller named is run once, and its result can be fetched for a while.
#[test]
fn a_request_of_the_same_name_runs_once() {
    on_each(|database| async move {
        let store = database.open().await;
        let ask = async |tenant: &str, key: &str, hash: &str, now: f64| {
            let record = record(tenant, now);
            let begin = super::Begin {
                record: record.clone(),
                server_id: String::new(),
                quotas: ENDLESS,
                repeat: Some(Repeat {
                    key: key.to_owned(),
                    request_hash: hash.to_owned(),
                    expires_at: now + 100.0,
                }),
                now,
            };
            (record, store.begin(begin).await.unwrap())
        };
        let (first, begun) = ask("a", "k", "h", NOON).await;
        assert_eq!(begun, Begun::Reserved);
        let execution_id = first.record_id.clone();
        let repeated = Begun::Repeated {
            execution_id: execution_id.clone(),
        };
        assert_eq!(ask("a", "k", "h", NOON + 1.0).await.1, repeated);
        assert_eq!(ask("a", "k", "other", NOON + 1.0).await.1, Begun::Mistaken);
        assert_eq!(ask("b", "k", "other", NOON + 1.0).await.1, Begun::Reserved);
        let mut end = finishing(&first, 1.0);
        end.result = Some(Kept {
            body: "{}".to_owned(),
            expires_at: NOON + 50.0,
        });
        store.finish(end).await.unwrap();
        assert_eq!(
            store.result(&execution_id, NOON + 49.0).await.unwrap().as_deref(),
            Some("{}")
        );
        assert_eq!(store.result(&execution_id, NOON + 50.0).await.unwrap(), None);
        store.tidy(NOON + 100.0).await.unwrap();
        assert_eq!(store.result(&execution_id, NOON).await.unwrap(), None);
        assert_eq!(ask("a", "k", "h", NOON + 100.0).await.1, Begun::Reserved);
        assert_eq!(store.head().await.unwrap().seq, 1);
    });
}

/// The many that are written together are each told on their own.
#[test]
fn one_that_cannot_be_written_takes_no_other_with_it() {
    on_each(|database| async move {
        let store = database.open().await;
        let record = record("a", NOON);
        begin(&store, &record, ENDLESS).await;
        let tasks: Vec<_> = (0..40)
            .map(|turn| {
                let store = store.clone();
                // Every fourth is under way already, which the table does not take.
                let record = match turn % 4 {
                    0 => record.clone(),
                    _ => super::record("a", NOON),
                };
                tokio::spawn(async move {
                    let begin = belljar_server::store::Begin {
                        record,
                        server_id: "srv-1".to_owned(),
                        quotas: ENDLESS,
                        repeat: None,
                        now: NOON,
                    };
                    store.begin(begin).await.is_ok()
                })
            })
            .collect();
        let mut begun = 0;
        for task in tasks {
            begun += usize::from(task.await.unwrap());
        }
        assert_eq!(begun, 30);
        assert_eq!(store.unfinished(None).await.unwrap().len(), 31);
    });
}

/// Disk and connection aside, a place can be wrong in other ways.
#[test]
fn a_place_that_cannot_be_used_says_why() {
    on_each(|database| async move {
        let store = database.open().await;
        store.close().await;
        let error = store.begin(super::Begin {
            record: record("a", NOON),
            server_id: String::new(),
            quotas: ENDLESS,
            repeat: None,
            now: NOON,
        });
        assert!(matches!(error.await, Err(StoreError::ShuttingDown)));
        database
            .tamper("INSERT INTO belljar_form (version) VALUES (1000)")
            .await;
        let error = Store::open(database.place.clone()).await.unwrap_err();
        assert!(error.to_string().contains("has form 1000"), "{error}");
        assert!(error.hint().is_some());
    });
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let error = |place: &str| runtime.block_on(Store::open(place.parse().unwrap())).unwrap_err();
    let gone = error("postgres://belljar@localhost/x?host=/nowhere/at/all");
    assert!(matches!(gone, StoreError::Unreachable(_)), "{gone}");
    assert!(matches!(error("/proc/none/belljar.db"), StoreError::File { .. }));
    assert!("mysql://x".parse::<Place>().is_err());
    // Not a database.
    let directory = crate::databases::TempDir::new();
    let file = directory.path().join("text.db");
    std::fs::write(&file, "nothing of that kind".repeat(100)).unwrap();
    let error = error(file.to_str().unwrap());
    assert!(error.to_string().contains("not a database"), "{error}");
}

#[test]
fn a_file_is_its_owners_alone_and_serves_one_server() {
    use std::os::unix::fs::PermissionsExt;
    let directory = crate::databases::TempDir::new();
    let path = directory.path().join("data/belljar.db");
    let place = Place::Sqlite(path.clone());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let store = runtime.block_on(Store::open(place.clone())).unwrap();
    runtime.block_on(store.check()).unwrap();
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    for entry in std::fs::read_dir(path.parent().unwrap()).unwrap() {
        let path = entry.unwrap().path();
        assert_eq!(mode(&path), 0o600, "{}", path.display());
    }
    assert_eq!(mode(path.parent().unwrap()), 0o700);
    let held = place.hold().unwrap();
    assert!(matches!(place.hold(), Err(StoreError::Held(_))));
    drop(held);
    assert!(place.hold().is_ok());
}
