//! S1, S8: what a server left unfinished is ended by the next one, and a store that comes back is used again.

use std::time::Duration;

use belljar_server::store::{Begin, Place, Store};

use super::{ENDLESS, NOON, finishing, record, run};
use crate::databases::on_each;

const ONE: &str = "srv-00000000000000a1";
const TWO: &str = "srv-00000000000000a2";

async fn begin(store: &Store, server: &str) -> belljar_core::Record {
    let record = record("a", NOON);
    let begin = Begin {
        record: record.clone(),
        server_id: server.to_owned(),
        quotas: ENDLESS,
        repeat: None,
        now: NOON,
    };
    store.begin(begin).await.unwrap();
    record
}

#[test]
fn what_a_dead_server_left_ends_as_killed() {
    on_each(|database| async move {
        let dead = database.open().await;
        dead.attend(ONE).await.unwrap();
        let left = begin(&dead, ONE).await;
        // As if its process were gone: its connections close, and nothing is told.
        dead.close().await;
        let store = database.open().await;
        store.attend(TWO).await.unwrap();
        let own = begin(&store, TWO).await;
        assert_eq!(store.recover(TWO, NOON + 60.0).await.unwrap(), 1);
        let found = store.record(&left.record_id).await.unwrap().unwrap();
        assert_eq!(found["status"], "killed");
        assert_eq!(found["completed_at"], NOON + 60.0);
        assert!(
            found["error_message"]
                .as_str()
                .unwrap()
                .starts_with("Killed: the service")
        );
        let under_way = store.unfinished(None).await.unwrap();
        assert_eq!(under_way.len(), 1);
        assert_eq!(under_way[0].record, own);
        assert_eq!(store.recover(TWO, NOON + 61.0).await.unwrap(), 0);
        // One that was taken for dead cannot put its own end in the place of that.
        assert!(store.finish(finishing(&left, 1.0)).await.is_err());
        assert!(store.verify(None).await.unwrap().is_ok());
    });
}

/// On PostgreSQL several servers are there at once: what a living one runs is left alone.
#[test]
fn what_a_living_server_runs_is_left_alone() {
    on_each(|database| async move {
        if !database.place.is_postgres() {
            return;
        }
        let (one, two) = (database.open().await, database.open().await);
        one.attend(ONE).await.unwrap();
        two.attend(TWO).await.unwrap();
        begin(&one, ONE).await;
        assert_eq!(two.recover(TWO, NOON).await.unwrap(), 0);
        one.close().await;
        // The database notices when it looks at the connection.
        let mut ended = 0;
        for _ in 0..100 {
            ended += two.recover(TWO, NOON).await.unwrap();
            if ended > 0 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert_eq!(ended, 1);
    });
}

/// A connection that is cut is made anew, and what must be written is written.
#[test]
fn a_lost_connection_loses_no_record() {
    on_each(|database| async move {
        if !database.place.is_postgres() {
            return;
        }
        let store = database.open().await;
        store.attend(ONE).await.unwrap();
        let records = [begin(&store, ONE).await, begin(&store, ONE).await];
        for record in &records {
            database
                .tamper(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                     WHERE datname = current_database() AND pid <> pg_backend_pid()",
                )
                .await;
            store.finish(finishing(record, 1.0)).await.unwrap();
        }
        assert!(store.unfinished(None).await.unwrap().is_empty());
        assert!(store.verify(None).await.unwrap().is_ok());
        // It is still there for others.
        let begun = begin(&store, ONE).await;
        let other = Store::open(database.place.clone()).await.unwrap();
        assert_eq!(other.recover(TWO, NOON).await.unwrap(), 0);
        store.finish(finishing(&begun, 1.0)).await.unwrap();
    });
}

/// SQLite's file is the whole of it: a copy of it and of its log is a store.
#[test]
fn a_copy_of_the_files_is_a_store() {
    on_each(|database| async move {
        let Place::Sqlite(path) = &database.place else {
            return;
        };
        let store = database.open().await;
        run(&store, "a", NOON).await;
        let directory = crate::databases::TempDir::new();
        for ending in ["", "-wal"] {
            let name = |path: &std::path::Path| format!("{}{ending}", path.display());
            std::fs::copy(name(path), name(&directory.path().join("belljar.db"))).unwrap();
        }
        let copy = Store::open(Place::Sqlite(directory.path().join("belljar.db")))
            .await
            .unwrap();
        assert_eq!(copy.verify(None).await.unwrap().unwrap().entries, 1);
    });
}
