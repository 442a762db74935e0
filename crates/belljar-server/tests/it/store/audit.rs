//! S4: the chain shows whatever was done to it.

use belljar_server::store::{Broken, EntryKind, Head};

use super::{NOON, run};
use crate::databases::on_each;

#[test]
fn a_chain_of_whatever_happened_is_whole() {
    on_each(|database| async move {
        let store = database.open().await;
        let empty = store.verify(None).await.unwrap().unwrap();
        assert_eq!((empty.entries, empty.head), (0, Head::default()));
        for turn in 0..5 {
            run(&store, "a", NOON + f64::from(turn)).await;
        }
        store.close().await;
        let store = database.open().await;
        let whole = store.verify(None).await.unwrap().unwrap();
        assert_eq!((whole.entries, whole.head.seq), (5, 5));
        assert_eq!(whole.head, store.head().await.unwrap());
        assert!(
            store
                .entries(0, 9)
                .await
                .unwrap()
                .iter()
                .all(|entry| entry.kind == EntryKind::Execution)
        );
    });
}

/// S4. Seen failing with each of the checks taken out.
#[test]
fn whatever_is_done_to_an_entry_is_found_and_named() {
    type Found = fn(&Broken) -> bool;
    let tampering: [(&str, Found); 11] = [
        (
            "UPDATE audit SET body = REPLACE(body, '\"exit_code\":0', '\"exit_code\":1') WHERE seq = 3",
            |broken| *broken == Broken::Changed(3),
        ),
        ("UPDATE audit SET status = 'failed' WHERE seq = 3", |broken| {
            *broken == Broken::Listed(3)
        }),
        ("UPDATE audit SET created_at = 1 WHERE seq = 3", |broken| {
            *broken == Broken::Listed(3)
        }),
        ("UPDATE audit SET kind = 'denial' WHERE seq = 3", |broken| {
            *broken == Broken::Changed(3)
        }),
        ("UPDATE audit SET hash = '' WHERE seq = 3", |broken| {
            *broken == Broken::Changed(3)
        }),
        ("DELETE FROM audit WHERE seq = 3", |broken| {
            *broken == Broken::Missing(3)
        }),
        ("DELETE FROM audit WHERE seq = 5", |broken| {
            matches!(
                broken,
                Broken::Cut {
                    found: 4,
                    expected: 5
                }
            )
        }),
        // Two change places.
        (
            "UPDATE audit SET seq = CASE seq WHEN 2 THEN -3 WHEN 3 THEN -2 ELSE seq END",
            |broken| matches!(broken, Broken::Missing(2)),
        ),
        // The first ones go, and the chain is made to begin after them.
        (
            "UPDATE chain SET removed_seq = 2, removed_hash = (SELECT hash FROM audit WHERE seq = 2)",
            |broken| *broken == Broken::Unaccounted(2),
        ),
        // Entries that no link leads to, before the first and after the last.
        (
            "CREATE TABLE forged AS SELECT * FROM audit WHERE seq = 3; UPDATE forged SET seq = -7, record_id = 'exe-x';
             INSERT INTO audit SELECT * FROM forged; DROP TABLE forged",
            |broken| *broken == Broken::Surplus(-7),
        ),
        (
            "CREATE TABLE forged AS SELECT * FROM audit WHERE seq = 5; UPDATE forged SET seq = 6, record_id = 'exe-x';
             INSERT INTO audit SELECT * FROM forged; DROP TABLE forged",
            |broken| *broken == Broken::Surplus(6),
        ),
    ];
    on_each(|database| async move {
        for (statement, is_found) in tampering {
            let store = database.open().await;
            let entries = store.head().await.unwrap().seq;
            for turn in entries..5 {
                run(&store, "a", NOON + turn as f64).await;
            }
            assert!(store.verify(None).await.unwrap().is_ok(), "before {statement}");
            store.close().await;
            // A copy to put back.
            database.tamper("CREATE TABLE saved AS SELECT * FROM audit").await;
            database.tamper(statement).await;
            let store = database.open().await;
            let broken = store.verify(None).await.unwrap().expect_err(statement);
            assert!(is_found(&broken), "{statement}: {broken}");
            store.close().await;
            database.tamper("DELETE FROM audit").await;
            database.tamper("INSERT INTO audit SELECT * FROM saved").await;
            database.tamper("DROP TABLE saved").await;
            database
                .tamper("UPDATE chain SET removed_seq = 0, removed_hash = ''")
                .await;
        }
    });
}

/// Who cuts the end off and moves the head as well is found by a head that was kept elsewhere.
#[test]
fn a_head_that_was_kept_elsewhere_must_be_part_of_the_chain() {
    on_each(|database| async move {
        let store = database.open().await;
        for turn in 0..3 {
            run(&store, "a", NOON + f64::from(turn)).await;
        }
        let kept = store.head().await.unwrap();
        run(&store, "a", NOON + 9.0).await;
        assert!(store.verify(Some(&kept)).await.unwrap().is_ok());
        let other = Head {
            hash: "0".repeat(64),
            ..kept.clone()
        };
        assert_eq!(
            store.verify(Some(&other)).await.unwrap(),
            Err(Broken::NotExpected(3))
        );
        store.close().await;
        database.tamper("DELETE FROM audit WHERE seq > 2").await;
        let moved = "UPDATE chain SET seq = 2, hash = (SELECT hash FROM audit WHERE seq = 2)";
        database.tamper(moved).await;
        let store = database.open().await;
        assert!(
            store.verify(None).await.unwrap().is_ok(),
            "nothing in the store tells"
        );
        assert!(matches!(
            store.verify(Some(&kept)).await.unwrap(),
            Err(Broken::Cut {
                found: 2,
                expected: 3
            })
        ));
    });
}

/// Who puts an entry of retention in the place of everything is found by a head that was kept elsewhere.
#[test]
fn what_retention_is_said_to_have_removed_is_not_believed() {
    on_each(|database| async move {
        let store = database.open().await;
        for turn in 0..6 {
            run(&store, "a", NOON + 100.0 * f64::from(turn)).await;
        }
        let early = store.head().await.unwrap();
        run(&store, "a", NOON + 700.0).await;
        let last = store.head().await.unwrap();
        store.forget(NOON + 800.0, "me", NOON + 900.0).await.unwrap();
        assert!(
            store.verify(Some(&last)).await.unwrap().is_ok(),
            "it is where the rest begins"
        );
        assert_eq!(
            store.verify(Some(&early)).await.unwrap(),
            Err(Broken::Forgotten(6))
        );
        let other = Head {
            hash: "0".repeat(64),
            ..last
        };
        assert_eq!(
            store.verify(Some(&other)).await.unwrap(),
            Err(Broken::NotExpected(7))
        );
        let none = Head { seq: 0, ..other };
        assert_eq!(
            store.verify(Some(&none)).await.unwrap(),
            Err(Broken::NotExpected(0))
        );
    });
}

#[test]
fn old_entries_go_and_the_rest_stays_provable() {
    on_each(|database| async move {
        let store = database.open().await;
        for turn in 0..6 {
            run(&store, "a", NOON + 100.0 * f64::from(turn)).await;
        }
        let kept = store.head().await.unwrap();
        assert_eq!(store.forget(NOON - 1.0, "me", NOON + 900.0).await.unwrap(), 0);
        assert_eq!(store.forget(NOON + 250.0, "me", NOON + 900.0).await.unwrap(), 3);
        let whole = store.verify(Some(&kept)).await.unwrap().unwrap();
        // Three that ran and the one that says what was removed.
        assert_eq!((whole.entries, whole.removed), (4, 3));
        assert_eq!(store.forget(NOON + 350.0, "me", NOON + 901.0).await.unwrap(), 1);
        let whole = store.verify(Some(&kept)).await.unwrap().unwrap();
        assert_eq!((whole.entries, whole.removed), (4, 4));
        run(&store, "a", NOON + 2000.0).await;
        assert!(store.verify(None).await.unwrap().is_ok());
        store.close().await;
        // One more goes in silence.
        database.tamper("DELETE FROM audit WHERE seq = 5").await;
        let store = database.open().await;
        assert_eq!(store.verify(None).await.unwrap(), Err(Broken::Missing(5)));
    });
}
