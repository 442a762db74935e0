//! R17: policies round-trip, and every version that was used can be found again.

use belljar_core::Policy;

use super::NOON;
use crate::databases::on_each;

#[test]
fn a_policy_has_versions() {
    on_each(|database| async move {
        let store = database.open().await;
        let mut policy = Policy::builtin("standard").unwrap();
        policy.policy_id = "team".to_owned();
        assert_eq!(store.policy("team").await.unwrap(), None);
        let first = store.define_policy(policy.clone(), "admin", NOON).await.unwrap();
        assert_eq!((first.version, &first.hash), (1, &policy.hash()));
        let again = store
            .define_policy(policy.clone(), "admin", NOON + 1.0)
            .await
            .unwrap();
        assert_eq!(again, first);
        policy.keep_code = true;
        let second = store
            .define_policy(policy.clone(), "admin", NOON + 2.0)
            .await
            .unwrap();
        assert_eq!(second.version, 2);
        assert_eq!(*store.policy("team").await.unwrap().unwrap().policy, policy);
        assert_eq!(store.policies().await.unwrap(), std::slice::from_ref(&second));
        assert!(store.delete_policy("team", "admin", NOON + 3.0).await.unwrap());
        assert!(!store.delete_policy("team", "admin", NOON + 3.0).await.unwrap());
        assert_eq!(store.policy("team").await.unwrap(), None);
        assert!(store.policies().await.unwrap().is_empty());
        // A record may still name it.
        assert_eq!(store.policy_of_hash(&first.hash).await.unwrap(), Some(first));
        let third = store.define_policy(policy, "admin", NOON + 4.0).await.unwrap();
        assert_eq!(third.version, 3);
        assert_eq!(store.head().await.unwrap().seq, 4);
    });
}
