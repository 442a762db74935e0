//! S6: keys are known by their hash, open what they should and nothing after they are revoked.

use std::collections::BTreeSet;

use belljar_server::store::{Key, KeyRow, Place, Role, Tenant};

use super::NOON;
use crate::databases::on_each;

fn rights(tenant: Option<&str>) -> KeyRow {
    KeyRow {
        key_id: String::new(),
        name: "ci".to_owned(),
        tenant_id: tenant.map(str::to_owned),
        roles: [Role::Run, Role::Read].into(),
        policies: Some(BTreeSet::from(["standard".to_owned()])),
        created_at: NOON,
        expires_at: Some(NOON + 100.0),
        revoked_at: None,
    }
}

#[test]
fn a_key_opens_until_it_is_revoked_or_over() {
    on_each(|database| async move {
        let store = database.open().await;
        let (key, row) = store.add_key(rights(Some("a")), "admin").await.unwrap();
        let brought = Key::parse(&key.reveal()).unwrap();
        let found = store.key(&brought).await.unwrap().unwrap();
        assert_eq!(found, row);
        assert!(found.is_valid(NOON + 99.0) && !found.is_valid(NOON + 100.0));
        assert!(found.may(Role::Run) && !found.may(Role::Approve));
        // A key of the same id with another secret, and one of no id.
        let wrong = format!("bj_{}_{}", key.id(), "0".repeat(64));
        assert_eq!(store.key(&Key::parse(&wrong).unwrap()).await.unwrap(), None);
        let unknown = format!("bj_{}_{}", "0".repeat(16), "0".repeat(64));
        assert_eq!(store.key(&Key::parse(&unknown).unwrap()).await.unwrap(), None);
        // Another tenant cannot revoke it.
        assert!(!store.revoke_key(key.id(), Some("b"), "b", NOON).await.unwrap());
        assert!(
            store
                .revoke_key(key.id(), Some("a"), "a", NOON + 1.0)
                .await
                .unwrap()
        );
        assert!(!store.key(&brought).await.unwrap().unwrap().is_valid(NOON + 2.0));
        assert!(!store.revoke_key(key.id(), None, "a", NOON + 3.0).await.unwrap());
        assert_eq!(store.keys(Some("a")).await.unwrap().len(), 1);
        assert_eq!(store.keys(Some("b")).await.unwrap().len(), 0);
        assert_eq!(store.head().await.unwrap().seq, 2);
        let endless = KeyRow {
            expires_at: None,
            policies: None,
            ..rights(None)
        };
        let (_, endless) = store.add_key(endless, "admin").await.unwrap();
        assert!(endless.is_valid(f64::MAX));
        assert!(store.keys(None).await.unwrap().contains(&endless));
    });
}

#[test]
fn what_is_no_key_is_not_looked_up() {
    let good = format!("bj_{}_{}", "a".repeat(16), "b".repeat(64));
    assert!(Key::parse(&good).is_some());
    for bad in [
        "",
        "bj_",
        "bj__",
        "Bearer x",
        &good[1..],
        &format!("{good}0"),
        &good.replace('b', "g"),
    ] {
        assert!(Key::parse(bad).is_none(), "{bad}");
    }
}

/// S6: neither the store nor a printed key gives the secret away.
#[test]
fn a_secret_is_nowhere_to_be_found() {
    on_each(|database| async move {
        let store = database.open().await;
        let (key, _) = store.add_key(rights(None), "admin").await.unwrap();
        let text = key.reveal();
        let secret = text.rsplit('_').next().unwrap();
        assert!(!format!("{key:?}").contains(secret));
        for entry in store.entries(0, 10).await.unwrap() {
            assert!(!entry.body.contains(secret));
        }
        store.close().await;
        if let Place::Sqlite(path) = &database.place {
            for entry in std::fs::read_dir(path.parent().unwrap()).unwrap() {
                let bytes = std::fs::read(entry.unwrap().path()).unwrap();
                let found = bytes
                    .windows(secret.len())
                    .any(|window| window == secret.as_bytes());
                assert!(!found);
            }
        }
    });
}

#[test]
fn a_tenant_is_added_once() {
    on_each(|database| async move {
        let store = database.open().await;
        let tenant = Tenant {
            tenant_id: "a".to_owned(),
            name: "Team A".to_owned(),
            created_at: NOON,
        };
        assert!(store.add_tenant(tenant.clone(), "admin").await.unwrap());
        assert!(!store.add_tenant(tenant.clone(), "admin").await.unwrap());
        assert_eq!(store.tenant("a").await.unwrap(), Some(tenant.clone()));
        assert_eq!(store.tenant("b").await.unwrap(), None);
        assert_eq!(store.tenants().await.unwrap(), [tenant]);
    });
}
