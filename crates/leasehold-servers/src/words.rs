//! Short words for what tests of every store do: one record at a time, and it must succeed.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use leasehold_store::{Key, Lane, Store, Stored, Swap, Swapped, Version, Watch, WatchEvent};

/// Longer than any watch takes to tell something.
const EVENT_WITHIN: Duration = Duration::from_secs(15);

/// Runs a test on a runtime of its own, within bounds: one that hangs fails instead.
pub fn run_within<T>(bound: Duration, test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime for the test");
    runtime.block_on(async { tokio::time::timeout(bound, test).await.expect("the test hangs") })
}

/// The time, on a clock that only runs forward.
pub fn now() -> Duration {
    let time = nix::time::clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME).expect("a boot clock");
    Duration::from(time)
}

/// The key of this name.
pub fn key(text: &str) -> Key {
    text.parse().expect("a key")
}

/// The wish to write a record over this version of it.
pub fn put(at: &str, expect: Option<&Version>, value: impl AsRef<[u8]>) -> Swap {
    Swap { key: key(at), expect: expect.cloned(), value: Some(Arc::from(value.as_ref())) }
}

/// The wish to remove this version of a record.
pub fn remove(at: &str, expect: &Version) -> Swap {
    Swap { key: key(at), expect: Some(expect.clone()), value: None }
}

/// Tries one swap, which must be answered.
pub async fn swap(store: &dyn Store, wish: Swap) -> Swapped {
    let reply = store.swap(Lane::Work, &[wish]).await.expect("the swap is answered");
    reply.outcomes.into_iter().next().expect("one outcome")
}

/// Swaps, and expects to win.
pub async fn applied(store: &dyn Store, wish: Swap) -> Version {
    match swap(store, wish).await {
        Swapped::Applied(version) => version,
        other => panic!("not applied: {other:?}"),
    }
}

/// Reads one record.
pub async fn read(store: &dyn Store, at: &str) -> Option<Stored> {
    store.read(&[key(at)]).await.expect("the read is answered").found.remove(0)
}

/// The next thing that a watch tells.
pub async fn next(watch: &mut Watch) -> WatchEvent {
    let event = tokio::time::timeout(EVENT_WITHIN, watch.next()).await.expect("the watch tells something");
    event.expect("a watch never ends")
}

/// Looks again and again until something holds; panics if it does not within that time.
#[track_caller]
pub fn until(what: &str, within: Duration, mut holds: impl FnMut() -> bool) -> impl Future<Output = ()> {
    let asked_at = std::panic::Location::caller();
    async move {
        let began_at = now();
        while !holds() {
            assert!(now() - began_at < within, "{asked_at}: not within {within:?}: {what}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}
