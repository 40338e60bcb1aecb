use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold_core::{Moment, SessionId};
use leasehold_store::{
    Facts, Lane, LeaseState, Memory, MemoryServer, Registry, Store, StoreErrorKind, Swapped, WatchEvent,
};

use crate::support::{get, key, next, one, put, swap, text};

fn changed(event: Option<WatchEvent>) -> (String, Option<String>) {
    match event {
        Some(WatchEvent::Changed(mut changes)) if changes.len() == 1 => {
            let (key, stored) = changes.remove(0);
            (key.to_string(), stored.map(|s| String::from_utf8_lossy(&s.value).into_owned()))
        }
        other => panic!("not one change: {other:?}"),
    }
}

fn snapshot(event: Option<WatchEvent>) -> Vec<String> {
    match event {
        Some(WatchEvent::Snapshot(listing)) => {
            listing.entries.iter().map(|(key, _)| key.to_string()).collect()
        }
        other => panic!("no snapshot: {other:?}"),
    }
}

#[tokio::test]
async fn a_swap_applies_only_to_what_it_expects() {
    let store = MemoryServer::new().open("a");
    let first = put(&store, "meta", None, "1").await;
    let Swapped::Lost(Some(seen)) = one(&store, swap("meta", None, Some("2"))).await else { panic!() };
    assert_eq!(seen.version, first);
    let second = put(&store, "meta", Some(&first), "2").await;
    assert!(matches!(one(&store, swap("meta", Some(&first), None)).await, Swapped::Lost(Some(_))));
    assert!(matches!(one(&store, swap("meta", Some(&second), None)).await, Swapped::Applied(_)));
    assert_eq!(one(&store, swap("meta", Some(&second), Some("3"))).await, Swapped::Lost(None));
    assert_eq!(get(&store, "meta").await, None);
}

#[tokio::test]
async fn a_watch_begins_with_everything_and_goes_on_in_order() {
    let server = MemoryServer::new();
    let (store, other) = (server.open("a"), server.open("b"));
    put(&store, "nodes/n", None, "1").await;
    let mut watch = store.watch().await.unwrap().unwrap();
    let first = put(&store, "meta", None, "1").await;
    assert_eq!(snapshot(next(&mut watch).await), ["meta", "nodes/n"]);
    put(&other, "meta", None, "not yours").await;
    let second = put(&store, "meta", Some(&first), "2").await;
    one(&store, swap("meta", Some(&second), None)).await;
    assert_eq!(changed(next(&mut watch).await), ("meta".into(), Some("2".into())));
    assert_eq!(changed(next(&mut watch).await), ("meta".into(), None));
    assert_eq!(next(&mut watch).await, None);
}

#[tokio::test]
async fn a_watch_that_is_too_far_behind_starts_again() {
    let server = MemoryServer::new();
    server.set_watch_capacity(3);
    let store = server.open("a");
    let mut watch = store.watch().await.unwrap().unwrap();
    assert_eq!(snapshot(next(&mut watch).await), [] as [&str; 0]);
    for i in 0..4 {
        put(&store, &format!("nodes/{i}"), None, "1").await;
    }
    assert!(matches!(next(&mut watch).await, Some(WatchEvent::Interrupted(_))));
    assert_eq!(snapshot(next(&mut watch).await), ["nodes/0", "nodes/1", "nodes/2", "nodes/3"]);
    put(&store, "meta", None, "1").await;
    assert_eq!(changed(next(&mut watch).await).0, "meta");
}

#[tokio::test]
async fn the_levers_do_what_they_say() {
    let server = MemoryServer::new();
    let store = server.open("a");
    let kept = put(&store, "meta", None, "kept").await;
    let before = server.snapshot();
    let newer = put(&store, "meta", Some(&kept), "newer").await;
    server.put_raw("a", "nodes/n", *b"\xff{");
    server.put_raw("a", "something/else", *b"x");
    let listing = store.list().await.unwrap();
    assert_eq!(listing.entries.len(), 2);
    assert_eq!(listing.foreign, ["something/else"]);

    let mut watch = store.watch().await.unwrap().unwrap();
    snapshot(next(&mut watch).await);
    server.restore(&before);
    assert!(matches!(next(&mut watch).await, Some(WatchEvent::Interrupted(_))));
    assert_eq!(snapshot(next(&mut watch).await), ["meta"]);
    assert_eq!(text(&store, "meta").await.as_deref(), Some("kept"));
    assert!(store.list().await.unwrap().revision < listing.revision);
    assert_ne!(put(&store, "meta", Some(&kept), "again").await, newer, "no version comes twice");

    server.set_generation("another");
    assert_eq!(store.read(&[]).await.unwrap().generation, "another");
    server.remove_raw("a", "meta");
    assert_eq!(text(&store, "meta").await, None);
    put(&store, "meta", None, "1").await;
    server.wipe();
    assert_eq!(store.list().await.unwrap().entries, []);
    assert_eq!(server.get_raw("a", "meta"), None);

    while next(&mut watch).await.is_some() {}
    server.tell_process_gone("a", SessionId::from_bits(7));
    assert_eq!(next(&mut watch).await, Some(WatchEvent::ProcessGone(SessionId::from_bits(7))));
}

#[tokio::test]
async fn registered_keys_end_with_their_lease_by_the_clock_that_was_given() {
    let now = Arc::new(AtomicU64::new(0));
    let hands = now.clone();
    let server = MemoryServer::with_clock(move || Moment::from_millis(hands.load(Ordering::Relaxed)));
    let store = server.open("a");
    let lease = store.grant(Duration::from_millis(100)).await.unwrap();
    assert_eq!(store.put(&lease, "k", b"v").await, Ok(LeaseState::Alive));
    now.store(99, Ordering::Relaxed);
    assert_eq!(store.keep_alive(&lease).await, Ok(LeaseState::Alive));
    now.store(198, Ordering::Relaxed);
    assert_eq!(store.keys().await.unwrap(), [("k".to_owned(), b"v".to_vec())]);
    now.store(199, Ordering::Relaxed);
    assert_eq!(store.keys().await.unwrap(), []);
    assert_eq!(store.keep_alive(&lease).await, Ok(LeaseState::Gone));
    assert_eq!(store.put(&lease, "k", b"v").await, Ok(LeaseState::Gone));
}

#[tokio::test]
async fn it_keeps_to_the_facts_that_it_was_given() {
    let store = MemoryServer::new().open("a");
    let facts = Facts { watch: false, swaps_max: 1, removes: false, ..store.facts() };
    let store: Memory = store.with_facts(facts);
    assert!(store.watch().await.unwrap().is_none());
    let version = put(&store, "meta", None, "1").await;
    let refused = store.swap(Lane::Work, &[swap("meta", Some(&version), None)]).await.unwrap_err();
    assert_eq!(refused.kind, StoreErrorKind::Refused);
    let two = [swap("nodes/a", None, Some("1")), swap("nodes/b", None, Some("1"))];
    assert_eq!(store.swap(Lane::Work, &two).await.unwrap_err().kind, StoreErrorKind::Refused);
    assert_eq!(store.read(&[key("nodes/a")]).await.unwrap().found, [None], "nothing of it was tried");
}
