//! Registered keys: one lease, faults, and coming back.

use std::sync::Arc;
use std::time::Duration;

use leasehold::registry::{Registry, RegistryOptions, RegistryState};
use leasehold::{Backoff, Error};
use leasehold_store::wrap::{Call, Counting, CutOff, Fault, Faulty, Link, Rates};
use leasehold_store::{Store, StoreExt};

use crate::bench::{Bench, until};

fn registry(store: Arc<dyn Store>) -> Registry {
    Registry::with_virtual_time(store, RegistryOptions::default()).unwrap()
}

async fn keys(bench: &Bench) -> Vec<String> {
    let store = bench.store();
    store.registry().unwrap().keys().await.unwrap().into_iter().map(|(key, _)| key).collect()
}

#[tokio::test(start_paused = true)]
async fn keys_live_as_long_as_their_registrant_under_one_shared_lease() {
    let bench = Bench::new();
    let counting = Arc::new(Counting::new(bench.store()));
    let store: Arc<dyn Store> = counting.clone();
    let (first, second) = (registry(store.clone()), registry(store.clone()));
    assert_eq!(first.health().state, RegistryState::Idle);
    assert_eq!(counting.counts().of(Call::Registry), 0, "nothing is asked of the store before first use");
    let lease = first.register("svc/a", "1").await.unwrap();
    assert_eq!(second.register("svc/b", "2").await.unwrap(), lease, "one lease per process and store");
    let other = first.with_ttl(Duration::from_secs(60)).unwrap();
    assert_ne!(other.register("svc/c", "3").await.unwrap(), lease, "but one per ttl");
    assert_eq!(keys(&bench).await, ["svc/a", "svc/b", "svc/c"]);
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_eq!(keys(&bench).await, ["svc/a", "svc/b", "svc/c"], "they are kept alive");
    assert_eq!((first.health().state, first.health().keys), (RegistryState::Healthy, 2));
    first.unregister("svc/b").await.unwrap();
    assert_eq!(keys(&bench).await.len(), 3, "one does not remove another's key");
    first.unregister("svc/a").await.unwrap();
    assert_eq!(keys(&bench).await, ["svc/b", "svc/c"]);
    drop(first);
    other.close().await;
    assert_eq!(keys(&bench).await, ["svc/b"]);
    second.close().await;
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert!(keys(&bench).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_lease_goes_with_its_last_key_and_a_new_key_gets_a_new_one() {
    let bench = Bench::new();
    let registry = registry(bench.store());
    let lease = registry.register("a", "1").await.unwrap();
    assert_eq!(registry.register("b", "2").await.unwrap(), lease);
    registry.unregister("a").await.unwrap();
    assert_eq!(registry.health().lease, Some(lease.clone()));
    registry.unregister("b").await.unwrap();
    assert_eq!((registry.health().state, registry.health().lease), (RegistryState::Idle, None));
    let state = bench.store().registry().unwrap().keep_alive(&lease).await.unwrap();
    assert_eq!(state, leasehold_store::LeaseState::Gone);
    assert_ne!(registry.register("a", "3").await.unwrap(), lease);
    assert_eq!(keys(&bench).await, ["a"]);
}

#[tokio::test(start_paused = true)]
async fn a_key_without_a_name_is_refused() {
    let bench = Bench::new();
    let registry = registry(bench.store());
    let error = registry.register("", "1").await.unwrap_err();
    assert!(error.to_string().contains("the key is empty; nothing was registered"), "{error}");
    assert!(keys(&bench).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn after_an_outage_everything_comes_back_but_what_was_unregistered() {
    let bench = Bench::new();
    for link_down in [Link::Cut, Link::Stalled, Link::AnswersCut] {
        let link = Arc::new(CutOff::new(bench.store()));
        let registry = registry(link.clone());
        for key in ["a", "b", "c"] {
            registry.register(key, key).await.unwrap();
        }
        link.set(link_down);
        until("it notices", 10, || registry.health().state == RegistryState::Failing).await;
        assert!(registry.health().error.is_some());
        assert!(matches!(registry.unregister("b").await, Err(Error::Store { .. })));
        assert!(matches!(registry.register("d", "d").await, Err(Error::Store { .. })));
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(registry.health().failures >= 5, "it goes on trying: {:?}", registry.health());
        link.heal();
        until("it is back", 12, || registry.health().state == RegistryState::Healthy).await;
        assert_eq!(registry.health().failures, 0);
        assert_eq!(keys(&bench).await, ["a", "c"], "{link_down:?}");
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(keys(&bench).await, ["a", "c"], "{link_down:?}");
        registry.close().await;
        tokio::time::sleep(Duration::from_millis(10)).await;
        assert!(keys(&bench).await.is_empty(), "{link_down:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_refused_registration_is_not_healed_by_having_nothing_to_keep() {
    let bench = Bench::new();
    for link_down in [Link::Cut, Link::AnswersCut] {
        let link = Arc::new(CutOff::new(bench.store()));
        let registry = registry(link.clone());
        link.set(link_down);
        for tries in 1..=3 {
            assert!(registry.register("a", "1").await.is_err());
            tokio::time::sleep(Duration::from_secs(60)).await;
            let health = registry.health();
            assert_eq!((health.state, health.keys), (RegistryState::Failing, 0), "{link_down:?}");
            assert!(health.failures >= tries && health.error.is_some(), "{link_down:?}: {health:?}");
        }
        link.heal();
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(registry.health().state, RegistryState::Failing, "nothing shows that it would be taken");
        registry.register("b", "1").await.unwrap();
        let health = registry.health();
        assert_eq!((health.state, health.failures, health.error), (RegistryState::Healthy, 0, None));
        registry.unregister("b").await.unwrap();
        link.set(link_down);
        assert!(registry.register("a", "1").await.is_err());
        link.heal();
        registry.unregister("a").await.unwrap();
        assert_eq!(registry.health().failures, 0, "nobody wants it any more");
        registry.close().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_overwrite_leaves_what_was_there() {
    let bench = Bench::new();
    let link = Arc::new(CutOff::new(bench.store()));
    let registry = registry(link.clone());
    registry.register("a", "1").await.unwrap();
    for link_down in [Link::Cut, Link::AnswersCut] {
        link.set(link_down);
        assert!(registry.register("a", "2").await.is_err(), "{link_down:?}");
        assert!(registry.register("a", "3").await.is_err(), "{link_down:?}");
        assert!(registry.register("b", "1").await.is_err(), "{link_down:?}");
        let health = registry.health();
        assert!(health.failing_since.is_some_and(|since| since <= bench.clock.now()), "{health:?}");
        link.heal();
        until("it is back", 12, || registry.health().state == RegistryState::Healthy).await;
        assert_eq!(registry.health().failing_since, None);
        let there = bench.store().registry().unwrap().keys().await.unwrap();
        assert_eq!(there, [("a".to_owned(), b"1".to_vec())], "{link_down:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_last_one_to_close_waits_until_the_lease_is_revoked() {
    let bench = Bench::new();
    let (first, second) = (registry(bench.store()), registry(bench.store()));
    let (mine, theirs) = (first.register("a", "1").await.unwrap(), second.register("b", "1").await.unwrap());
    assert_ne!(mine, theirs, "two handles of a store have a lease each");
    let third = first.clone();
    first.close().await;
    drop(third);
    let store = bench.store();
    let state = store.registry().unwrap().keep_alive(&mine).await.unwrap();
    assert_eq!(state, leasehold_store::LeaseState::Gone);
    assert_eq!(keys(&bench).await, ["b"]);
    second.close().await;
}

#[tokio::test(start_paused = true)]
async fn a_node_keeps_its_keys_as_it_is_told() {
    let bench = Bench::new();
    let link = Arc::new(CutOff::new(bench.store()));
    let options = RegistryOptions { ttl: Duration::from_secs(600), ..RegistryOptions::default() };
    let node = bench.node_on("a", link.clone()).registry(options).start().await.unwrap();
    node.register("svc/a", "1").await.unwrap();
    link.set(Link::Cut);
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_eq!(keys(&bench).await, ["svc/a"], "the ttl is the one that was asked for");
}

#[tokio::test(start_paused = true)]
async fn pauses_grow_as_configured_and_restart_after_success() {
    let bench = Bench::new();
    let link = Arc::new(CutOff::new(bench.store()));
    let registry = registry(link.clone());
    registry.register("a", "a").await.unwrap();
    for _ in 0..2 {
        link.set(Link::Cut);
        let mut seen = Vec::new();
        while seen.len() < 6 {
            let failures = registry.health().failures;
            if failures > seen.len() as u32 {
                seen.push(bench.clock.now());
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let gaps: Vec<u64> =
            seen.windows(2).map(|two| two[1].since(two[0]).as_millis() as u64 / 1000).collect();
        assert_eq!(gaps, [1, 2, 4, 8, 8]);
        link.heal();
        until("it is back", 12, || registry.health().state == RegistryState::Healthy).await;
    }
}

/// The last one to register a key has it, and its former owner is told.
#[tokio::test(start_paused = true)]
async fn a_key_that_was_removed_comes_back_and_one_that_was_taken_is_left_alone() {
    let bench = Bench::new();
    let (first, second) = (registry(bench.store()), registry(bench.store()));
    let value = async || {
        let keys = bench.store().registry().unwrap().keys().await.unwrap();
        keys.into_iter().find(|(key, _)| key == "a").map(|(_, value)| String::from_utf8(value).unwrap())
    };
    let lease = first.register("a", "mine").await.unwrap();
    first.register("b", "mine").await.unwrap();
    bench.store().registry().unwrap().remove(&lease, "a").await.unwrap();
    assert_eq!(value().await, None);
    until("it is back", 6, || first.health().state == RegistryState::Healthy).await;
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(value().await.as_deref(), Some("mine"));

    second.register("a", "theirs").await.unwrap();
    until("its former owner is told", 6, || first.health().state == RegistryState::Overwritten).await;
    assert_eq!((first.health().taken, second.health().taken), (vec!["a".to_owned()], Vec::new()));
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(value().await.as_deref(), Some("theirs"), "nobody fights over it");
    second.close().await;
    until("it is free", 6, || first.health().state == RegistryState::Healthy).await;
    assert_eq!(value().await.as_deref(), Some("mine"));
    assert!(first.health().taken.is_empty());

    // An outage changes nothing of that.
    let link = Arc::new(CutOff::new(bench.store()));
    let third = registry(link.clone());
    third.register("a", "third's").await.unwrap();
    link.set(Link::Cut);
    tokio::time::sleep(Duration::from_secs(30)).await;
    first.register("a", "mine again").await.unwrap();
    link.heal();
    until("it is told", 12, || third.health().state == RegistryState::Overwritten).await;
    assert_eq!(value().await.as_deref(), Some("mine again"));
    third.register("a", "third's").await.unwrap();
    assert_eq!(third.health().state, RegistryState::Healthy, "registering takes it");
    assert_eq!(value().await.as_deref(), Some("third's"));
}

/// A put that landed long after its key was given up must not bring it back.
#[tokio::test(start_paused = true)]
async fn a_late_write_does_not_bring_back_a_key() {
    let bench = Bench::new();
    let faulty = Arc::new(Faulty::new(bench.store(), Rates::default(), 1));
    let registry = registry(faulty.clone());
    registry.register("a", "a").await.unwrap();
    faulty.inject(Call::Registry, Fault::LandsLate(Duration::from_secs(30)));
    assert!(registry.register("b", "b").await.is_err());
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(keys(&bench).await, ["a"]);
    assert_eq!(registry.health().state, RegistryState::Healthy);
}

#[tokio::test(start_paused = true)]
async fn closing_is_bounded_when_the_store_is_away() {
    let bench = Bench::new();
    let link = Arc::new(CutOff::new(bench.store()));
    let registry = registry(link.clone());
    registry.register("a", "a").await.unwrap();
    link.set(Link::Stalled);
    let began_at = bench.clock.now();
    registry.close().await;
    assert!(bench.clock.now().since(began_at) <= Duration::from_secs(3));
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(keys(&bench).await.is_empty(), "the store expired it");
}

#[tokio::test(start_paused = true)]
async fn a_node_registers_and_its_keys_go_with_it() {
    let bench = Bench::new();
    let node = bench.node("a").start().await.unwrap();
    node.register("svc/a", "10.0.0.1").await.unwrap();
    assert_eq!(keys(&bench).await, ["svc/a"]);
    node.unregister("svc/a").await.unwrap();
    node.register("svc/b", "10.0.0.1").await.unwrap();
    node.leave().await;
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert!(keys(&bench).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn options_that_cannot_work_are_all_reported() {
    let bench = Bench::new();
    let wrong = RegistryOptions {
        ttl: Duration::from_millis(1),
        call_timeout: Duration::ZERO,
        retry: Backoff::Steps(Vec::new()),
        ..RegistryOptions::default()
    };
    let Err(Error::Config(problems)) = Registry::with_virtual_time(bench.store(), wrong.clone()) else {
        panic!("it began")
    };
    assert_eq!(problems.len(), 3, "{problems:#?}");
    let Err(Error::Config(at_start)) = bench.node("a").registry(wrong).start().await else {
        panic!("it started")
    };
    assert_eq!(at_start, problems);
    for (ttl, call_timeout, word) in [
        (Duration::ZERO, Duration::from_secs(2), "registry.ttl: 0ns"),
        (Duration::MAX, Duration::from_secs(2), "ttl"),
        (Duration::from_secs(3), Duration::from_secs(2), "2/3 of the registry's ttl (2s)"),
    ] {
        let options = RegistryOptions { ttl, call_timeout, ..RegistryOptions::default() };
        let error = options.check().unwrap_err().to_string();
        assert!(error.contains(word), "{error}");
    }
    assert!(registry(bench.store()).with_ttl(Duration::ZERO).is_err());
}
