use std::time::Duration;

use leasehold_local::Local;
use leasehold_store::{LeaseId, LeaseState, Registry, StoreExt};

use crate::common::*;

fn named(keys: &[(String, Vec<u8>)]) -> Vec<(&str, &[u8])> {
    keys.iter().map(|(key, value)| (key.as_str(), value.as_slice())).collect()
}

#[test]
fn keys_live_as_long_as_their_lease() {
    run(async {
        let folder = Folder::new();
        let (store, other) = (folder.open(), Local::open(folder.file(), "other").expect("it opens"));
        let registry = store.registry().expect("there is one");
        let long = registry.grant(Duration::from_secs(3600)).await.expect("granted");
        let short = registry.grant(Duration::from_millis(400)).await.expect("granted");
        assert_eq!(registry.put(&long, "b", b"\xff\0").await, Ok(LeaseState::Alive));
        assert_eq!(registry.put(&long, "a/ü", b"").await, Ok(LeaseState::Alive));
        assert_eq!(registry.put(&short, "c", b"3").await, Ok(LeaseState::Alive));
        let keys = registry.keys().await.expect("listed");
        assert_eq!(named(&keys), [("a/ü", &b""[..]), ("b", b"\xff\0"), ("c", b"3")]);
        assert_eq!(other.keys().await.expect("listed"), []);

        for _ in 0..4 {
            tokio::time::sleep(Duration::from_millis(150)).await;
            assert_eq!(registry.keep_alive(&short).await, Ok(LeaseState::Alive));
        }
        // Nobody renews it any more.
        let since = now();
        while registry.keys().await.expect("listed").len() > 2 {
            assert!(now() - since < PLENTY, "it does not expire");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert!(now() - since >= Duration::from_millis(250), "it expired early");
        assert_eq!(registry.put(&short, "d", b"4").await, Ok(LeaseState::Gone));
        assert_eq!(registry.keep_alive(&short).await, Ok(LeaseState::Gone));
        assert_eq!(registry.keep_alive(&LeaseId("unknown".to_owned())).await, Ok(LeaseState::Gone));
    });
}

#[test]
fn a_key_belongs_to_the_lease_that_wrote_it_last() {
    run(async {
        let folder = Folder::new();
        let store = folder.open();
        let first = store.grant(Duration::from_secs(60)).await.expect("granted");
        let second = store.grant(Duration::from_secs(60)).await.expect("granted");
        store.put(&first, "k", b"1").await.expect("put");
        store.put(&second, "k", b"2").await.expect("put");
        store.remove(&first, "k").await.expect("answered");
        assert_eq!(named(&store.keys().await.expect("listed")), [("k", &b"2"[..])]);
        store.revoke(&first).await.expect("revoked");
        assert_eq!(store.keys().await.expect("listed").len(), 1);
        store.revoke(&second).await.expect("revoked");
        assert_eq!(store.keys().await.expect("listed"), []);
        assert_eq!(store.keep_alive(&second).await, Ok(LeaseState::Gone));
    });
}

#[test]
fn a_lease_of_another_boot_has_expired() {
    run(async {
        let folder = Folder::new();
        let store = folder.open();
        let lease = store.grant(Duration::from_secs(3600)).await.expect("granted");
        store.put(&lease, "k", b"1").await.expect("put");
        let shell = rusqlite::Connection::open(folder.file()).expect("opened");
        shell.execute("UPDATE leases SET boot = 'an earlier one'", []).expect("written");
        assert_eq!(store.keys().await.expect("listed"), []);
        assert_eq!(store.put(&lease, "k", b"2").await, Ok(LeaseState::Gone));
        let fresh = store.grant(Duration::from_secs(60)).await.expect("granted");
        let left: i64 =
            shell.query_row("SELECT count(*) FROM leases", [], |row| row.get(0)).expect("counted");
        assert_eq!(left, 1, "what has expired is removed");
        store.revoke(&fresh).await.expect("revoked");
    });
}
