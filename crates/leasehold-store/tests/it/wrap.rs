use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use leasehold_core::SessionId;
use leasehold_store::wrap::{Call, Counting, CutOff, Fault, Faulty, Latency, Link, Rates, Slow};
use leasehold_store::{
    Charged, Extensions, Facts, Finding, Key, Lane, LeaseState, Listing, MemoryServer, Reading, Store,
    StoreError, StoreErrorKind, StoreExt, Swap, SwapReply, Swapped, Throwaway, Watch, WatchEvent,
};
use tokio::time::{Instant, sleep, timeout};

use crate::support::{get, next, one, put, swap, text};

const SECOND: Duration = Duration::from_secs(1);

fn memory() -> (MemoryServer, Arc<dyn Store>) {
    let server = MemoryServer::new();
    let store = Arc::new(server.open("a"));
    (server, store)
}

/// How long something took on tokio's clock, which stands still unless a test waits.
async fn time<T>(what: impl Future<Output = T>) -> (T, Duration) {
    // The clock of the timers under test is the one to read here.
    #[allow(clippy::disallowed_methods)]
    let began_at = Instant::now();
    let result = what.await;
    (result, began_at.elapsed())
}

fn faulty(fault: Fault) -> (Arc<dyn Store>, Faulty) {
    let (_, inner) = memory();
    let faulty = Faulty::new(inner.clone(), Rates::default(), 1);
    faulty.inject(Call::Swap, fault);
    (inner, faulty)
}

#[tokio::test(start_paused = true)]
async fn an_error_before_changes_nothing() {
    let (inner, store) = faulty(Fault::ErrorBefore);
    let wish = swap("meta", None, Some("1"));
    let error = store.swap(Lane::Work, std::slice::from_ref(&wish)).await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Unreachable);
    sleep(SECOND).await;
    assert_eq!(get(&*inner, "meta").await, None);
    assert!(matches!(one(&store, wish).await, Swapped::Applied(_)), "the fault was used up");
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_leaves_the_write_in_place() {
    let (inner, store) = faulty(Fault::AnswerLost);
    let error = store.swap(Lane::Work, &[swap("meta", None, Some("1"))]).await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::TimedOut);
    assert_eq!(text(&*inner, "meta").await.as_deref(), Some("1"));
}

#[tokio::test(start_paused = true)]
async fn a_late_write_lands_after_the_error_and_only_if_it_still_fits() {
    let (inner, store) = faulty(Fault::LandsLate(SECOND));
    store.swap(Lane::Work, &[swap("meta", None, Some("late"))]).await.unwrap_err();
    assert_eq!(get(&*inner, "meta").await, None);
    sleep(SECOND * 2).await;
    assert_eq!(text(&*inner, "meta").await.as_deref(), Some("late"));

    let version = get(&*inner, "meta").await.unwrap().version;
    store.inject(Call::Swap, Fault::LandsLate(SECOND));
    store.swap(Lane::Work, &[swap("meta", Some(&version), Some("too late"))]).await.unwrap_err();
    put(&*inner, "meta", Some(&version), "past it").await;
    store.all_landed().await;
    assert_eq!(text(&*inner, "meta").await.as_deref(), Some("past it"));
}

#[tokio::test(start_paused = true)]
async fn a_doubled_create_can_land_again_once_the_record_is_gone() {
    let (inner, store) = faulty(Fault::Doubled(SECOND));
    let Swapped::Applied(version) = one(&store, swap("meta", None, Some("1"))).await else { panic!() };
    one(&*inner, swap("meta", Some(&version), None)).await;
    assert_eq!(get(&*inner, "meta").await, None);
    store.all_landed().await;
    assert_eq!(text(&*inner, "meta").await.as_deref(), Some("1"));
    assert_eq!(store.happened(), [(Call::Swap, Fault::Doubled(SECOND))]);
}

#[tokio::test(start_paused = true)]
async fn a_torn_call_and_unknown_outcomes_tell_the_truth() {
    let (inner, store) = faulty(Fault::Torn);
    let two = [swap("nodes/a", None, Some("1")), swap("nodes/b", None, Some("1"))];
    store.swap(Lane::Work, &two).await.unwrap_err();
    assert!(get(&*inner, "nodes/a").await.is_some());
    assert!(get(&*inner, "nodes/b").await.is_none());

    store.inject(Call::Swap, Fault::SomeUnknown);
    let reply = store.swap(Lane::Work, &two).await.unwrap();
    assert_eq!(reply.outcomes[0], Swapped::Unknown);
    assert!(matches!(reply.outcomes[1], Swapped::Applied(_)));
}

#[tokio::test(start_paused = true)]
async fn a_delay_takes_time_and_nothing_else() {
    let (inner, store) = faulty(Fault::Delayed(SECOND));
    let (outcome, took) = time(one(&store, swap("meta", None, Some("1")))).await;
    assert!(matches!(outcome, Swapped::Applied(_)));
    assert_eq!(took, SECOND);
    assert!(get(&*inner, "meta").await.is_some());
}

#[tokio::test(start_paused = true)]
async fn the_same_seed_makes_the_same_day() {
    async fn day(seed: u64) -> Vec<(Call, Fault)> {
        let (_, inner) = memory();
        let rates = Rates {
            error_before: 100,
            answer_lost: 100,
            lands_late: 100,
            doubled: 100,
            delayed: 100,
            torn: 50,
            some_unknown: 50,
            delay_max: SECOND,
            ..Rates::default()
        };
        let store = Faulty::new(inner, rates, seed);
        for i in 0..300 {
            let _ = store.swap(Lane::Work, &[swap(&format!("nodes/{i}"), None, Some("1"))]).await;
            let _ = store.list().await;
        }
        store.happened()
    }
    let first = day(7).await;
    assert!((250..450).contains(&first.len()), "about 60 % of 600 calls, and not {}", first.len());
    assert_eq!(first, day(7).await);
    assert_ne!(first, day(8).await);
}

#[tokio::test(start_paused = true)]
async fn a_faulty_watch_breaks_aloud() {
    let (_, inner) = memory();
    let store = Faulty::new(inner.clone(), Rates { watch_broken: 1000, ..Rates::default() }, 1);
    let mut watch = store.watch().await.unwrap().unwrap();
    assert!(matches!(next(&mut watch).await, Some(WatchEvent::Interrupted(_))));
    store.set_rates(Rates::default());
    assert!(matches!(next(&mut watch).await, Some(WatchEvent::Snapshot(_))));
}

#[tokio::test(start_paused = true)]
async fn a_slow_store_takes_its_time_both_ways() {
    let (_, inner) = memory();
    let store = Slow::new(inner.clone(), Latency::fixed(SECOND), 1);
    let call = one(&store, swap("meta", None, Some("1")));
    assert!(timeout(SECOND * 3 / 4, call).await.is_err());
    assert!(get(&*inner, "meta").await.is_some(), "the way back is what was too slow");
    let (_, took) = time(store.list()).await;
    assert_eq!(took, SECOND);

    let mut watch = store.watch().await.unwrap().unwrap();
    let (_, took) = time(watch.next()).await;
    assert_eq!(took, SECOND / 2);
    put(&*inner, "nodes/a", None, "1").await;
    put(&*inner, "nodes/b", None, "1").await;
    let ((first, second), took) = time(async { (watch.next().await, watch.next().await) }).await;
    assert_eq!(took, SECOND / 2, "both travel at once");
    let named = |event: Option<WatchEvent>| match event {
        Some(WatchEvent::Changed(changes)) => changes[0].0.to_string(),
        other => panic!("no change: {other:?}"),
    };
    assert_eq!((named(first), named(second)), ("nodes/a".into(), "nodes/b".into()));
}

#[tokio::test(start_paused = true)]
async fn jitter_stays_within_its_bounds() {
    let (_, inner) = memory();
    let bounds = Latency { least: SECOND, most: SECOND * 2 };
    let store = Slow::new(inner, bounds, 3);
    let mut seen = Vec::new();
    for _ in 0..50 {
        let (_, took) = time(store.generation()).await;
        assert!(took >= bounds.least && took <= bounds.most + Duration::from_millis(2), "{took:?}");
        seen.push(took);
    }
    seen.dedup();
    assert!(seen.len() > 10, "it varies");
}

#[tokio::test(start_paused = true)]
async fn a_cut_link_fails_at_once_and_sends_nothing() {
    let (_, inner) = memory();
    let store = CutOff::new(inner.clone());
    store.set(Link::Cut);
    store.swap(Lane::Work, &[swap("meta", None, Some("1"))]).await.unwrap_err();
    assert_eq!(get(&*inner, "meta").await, None);
    store.heal();
    put(&store, "meta", None, "1").await;
}

#[tokio::test(start_paused = true)]
async fn a_call_under_way_fails_when_the_link_is_cut() {
    let (_, inner) = memory();
    let store = Arc::new(CutOff::new(Arc::new(Slow::new(inner, Latency::fixed(SECOND * 10), 1))));
    let cut = async {
        sleep(SECOND).await;
        store.set(Link::Cut);
        store.heal();
    };
    let ((answer, ()), took) = time(async { tokio::join!(store.list(), cut) }).await;
    assert_eq!(answer.unwrap_err().kind, StoreErrorKind::Unreachable);
    assert_eq!(took, SECOND);
}

#[tokio::test(start_paused = true)]
async fn cut_answers_leave_writes_in_place() {
    let (_, inner) = memory();
    let store = CutOff::new(inner.clone());
    store.set(Link::AnswersCut);
    store.swap(Lane::Work, &[swap("meta", None, Some("1"))]).await.unwrap_err();
    assert!(get(&*inner, "meta").await.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_stalled_link_never_answers_until_it_heals() {
    let (_, inner) = memory();
    let store = CutOff::new(inner.clone());
    for (link, landed) in [(Link::Stalled, false), (Link::AnswersStalled, true)] {
        store.set(link);
        let key = format!("nodes/{landed}");
        assert!(timeout(SECOND * 1000, one(&store, swap(&key, None, Some("1")))).await.is_err());
        assert_eq!(get(&*inner, &key).await.is_some(), landed);
    }
    store.set(Link::Stalled);
    let heal = async {
        sleep(SECOND).await;
        store.heal();
    };
    let ((_, ()), took) = time(async { tokio::join!(put(&store, "meta", None, "1"), heal) }).await;
    assert_eq!(took, SECOND);
}

#[tokio::test(start_paused = true)]
async fn watches_break_with_the_link_and_come_back_with_a_snapshot() {
    let (_, inner) = memory();
    let store = CutOff::new(inner.clone());
    let mut watch = store.watch().await.unwrap().unwrap();
    assert!(matches!(next(&mut watch).await, Some(WatchEvent::Snapshot(_))));
    store.set(Link::Cut);
    assert!(matches!(next(&mut watch).await, Some(WatchEvent::Interrupted(_))));
    put(&*inner, "nodes/a", None, "1").await;
    assert_eq!(next(&mut watch).await, None);
    store.heal();
    let Some(WatchEvent::Snapshot(listing)) = next(&mut watch).await else { panic!() };
    assert_eq!(listing.entries.len(), 1);

    store.set(Link::AnswersCut);
    store.heal();
    assert!(matches!(next(&mut watch).await, Some(WatchEvent::Interrupted(_))), "however short the cut was");
    assert!(matches!(next(&mut watch).await, Some(WatchEvent::Snapshot(_))));

    store.set(Link::Stalled);
    put(&*inner, "nodes/b", None, "1").await;
    assert_eq!(next(&mut watch).await, None);
    store.heal();
    assert!(matches!(next(&mut watch).await, Some(WatchEvent::Changed(_))), "what was held back comes");
}

#[tokio::test]
async fn counting_knows_what_was_asked() {
    let (_, inner) = memory();
    let store = Counting::new(inner);
    let version = put(&store, "nodes/n", None, "12345").await;
    store.swap(Lane::Renewal, &[swap("nodes/n", Some(&version), Some("123"))]).await.unwrap();
    let three = [
        swap("meta", None, Some("1")),
        swap("shards/g/0", None, Some("1")),
        swap("nodes/n", None, Some("1")),
    ];
    store.swap(Lane::Work, &three).await.unwrap();
    store.list().await.unwrap();
    let counts = store.take();
    assert_eq!((counts.of(Call::Swap), counts.of(Call::List), counts.renewal_calls), (3, 1, 1));
    assert_eq!((counts.node_swaps, counts.shard_swaps, counts.other_swaps, counts.swaps()), (3, 1, 1, 5));
    assert_eq!((counts.applied, counts.lost, counts.unknown, counts.failed), (4, 1, 0, 0));
    assert_eq!((counts.bytes_out, counts.bytes_in, counts.listed), (11, 3 + 5, 3));
    assert_eq!(store.counts(), Default::default());
}

#[tokio::test(start_paused = true)]
async fn registered_keys_go_through_the_wrappers() {
    let (_, inner) = memory();
    let cut = Arc::new(CutOff::new(inner));
    let store = Counting::new(Arc::new(Faulty::new(cut.clone(), Rates::default(), 1)));
    let registry = store.registry().unwrap();
    let lease = registry.grant(SECOND).await.unwrap();
    assert_eq!(registry.put(&lease, "k", b"v").await, Ok(LeaseState::Alive));
    cut.set(Link::Cut);
    registry.keep_alive(&lease).await.unwrap_err();
    cut.heal();
    assert_eq!(registry.keys().await.unwrap().len(), 1);
    assert_eq!(store.counts().of(Call::Registry), 4);
}

/// A store that says of itself what it was asked.
struct Telling(std::sync::Mutex<Vec<String>>, Arc<dyn Store>);

impl Telling {
    fn tell(&self, what: &str) {
        self.0.lock().unwrap().push(what.to_owned());
    }
}

#[async_trait::async_trait]
impl Store for Telling {
    fn facts(&self) -> Facts {
        self.1.facts()
    }

    async fn read(&self, keys: &[Key]) -> Result<Reading, StoreError> {
        self.1.read(keys).await
    }

    async fn list(&self) -> Result<Listing, StoreError> {
        self.1.list().await
    }

    async fn list_nodes(&self) -> Result<Listing, StoreError> {
        self.tell("list_nodes");
        self.1.list_nodes().await
    }

    async fn swap(&self, lane: Lane, swaps: &[Swap]) -> Result<SwapReply, StoreError> {
        self.1.swap(lane, swaps).await
    }

    async fn generation(&self) -> Result<String, StoreError> {
        self.1.generation().await
    }

    async fn watch(&self) -> Result<Option<Watch>, StoreError> {
        self.1.watch().await
    }

    fn extensions(&self) -> Extensions<'_> {
        Extensions { death_proofs: Some(self), administration: Some(self), registry: None }
    }
}

#[async_trait::async_trait]
impl leasehold_store::DeathProofs for Telling {
    async fn claim_session(&self, _session: SessionId) -> Result<(), StoreError> {
        self.tell("claim_session");
        Ok(())
    }

    fn release_session(&self, _session: SessionId) {
        self.tell("release_session");
    }

    fn is_gone(&self, _session: SessionId) -> bool {
        true
    }
}

#[async_trait::async_trait]
impl leasehold_store::Administration for Telling {
    async fn vet(&self) -> Result<(), StoreError> {
        self.tell("vet");
        Ok(())
    }

    fn held_up_by(&self) -> Option<String> {
        Some("another process".to_owned())
    }

    async fn examine(&self) -> Vec<Finding> {
        vec![Finding::bad("examined", "")]
    }

    fn aside(&self, _throwaway: &Throwaway) -> Result<Option<Arc<dyn Store>>, StoreError> {
        self.tell("aside");
        Ok(Some(self.1.clone()))
    }

    fn charged(&self) -> Option<Charged> {
        Some(Charged { writes: 7, ..Charged::default() })
    }

    async fn discard(&self, _throwaway: &Throwaway) -> Result<(), StoreError> {
        self.tell("discard");
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn wrappers_take_nothing_from_the_store_inside() {
    type Wrap = fn(Arc<dyn Store>) -> Arc<dyn Store>;
    let wrappers: [(&str, Wrap); 4] = [
        ("Counting", |inner| Arc::new(Counting::new(inner))),
        ("CutOff", |inner| Arc::new(CutOff::new(inner))),
        ("Faulty", |inner| Arc::new(Faulty::new(inner, Rates::default(), 1))),
        ("Slow", |inner| Arc::new(Slow::new(inner, Latency::fixed(SECOND), 1))),
    ];
    let throwaway = Throwaway::new("test").unwrap();
    for (name, wrap) in wrappers {
        let (_, memory) = memory();
        let telling = Arc::new(Telling(std::sync::Mutex::default(), memory));
        let store = wrap(telling.clone());
        store.vet().await.unwrap();
        store.list_nodes().await.unwrap();
        store.claim_session(SessionId::from_bits(1)).await.unwrap();
        store.release_session(SessionId::from_bits(1));
        assert!(store.is_gone(SessionId::from_bits(1)), "{name}");
        assert_eq!(store.held_up_by().as_deref(), Some("another process"), "{name}");
        assert_eq!(store.examine().await.len(), 1, "{name}");
        assert_eq!(store.charged().map(|charged| charged.writes), Some(7), "{name}");
        assert!(store.aside(&throwaway).unwrap().is_some(), "{name}");
        store.discard(&throwaway).await.unwrap();
        let told = telling.0.lock().unwrap().clone();
        assert_eq!(
            told,
            ["vet", "list_nodes", "claim_session", "release_session", "aside", "discard"],
            "{name}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_set_aside_is_no_way_past_a_wrapper() {
    let (_, memory) = memory();
    let cut = CutOff::new(Arc::new(Telling(std::sync::Mutex::default(), memory)));
    let throwaway = Throwaway::new("test").unwrap();
    let aside = cut.aside(&throwaway).unwrap().unwrap();
    cut.set(Link::Cut);
    assert_eq!(aside.list().await.unwrap_err().kind, StoreErrorKind::Unreachable);
    assert_eq!(cut.discard(&throwaway).await.unwrap_err().kind, StoreErrorKind::Unreachable);
}

#[tokio::test(start_paused = true)]
async fn wrappers_add_nothing_to_the_store_inside() {
    let (_, memory) = memory();
    let store = Counting::new(Arc::new(CutOff::new(memory)));
    let extensions = store.extensions();
    assert!(extensions.death_proofs.is_none() && extensions.administration.is_none());
    assert!(extensions.registry.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_store_without_extensions_is_trusted_and_refuses_to_be_discarded() {
    let (_, memory) = memory();
    memory.vet().await.unwrap();
    memory.claim_session(SessionId::from_bits(1)).await.unwrap();
    assert!(!memory.is_gone(SessionId::from_bits(1)));
    assert!(memory.examine().await.is_empty());
    let throwaway = Throwaway::new("test").unwrap();
    assert_eq!(memory.discard(&throwaway).await.unwrap_err().kind, StoreErrorKind::Refused);
}
