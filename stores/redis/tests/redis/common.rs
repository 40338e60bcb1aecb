use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use leasehold_redis::Redis;
use leasehold_store::{Key, Lane, Store, StoreError, Stored, Swap, Swapped, Version, Watch, WatchEvent};

/// Longer than anything here takes, so that a test that hangs fails instead.
pub(crate) const PLENTY: Duration = Duration::from_secs(90);

/// Runs a test on a runtime of its own, within bounds.
pub(crate) fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime for the test");
    runtime.block_on(async { tokio::time::timeout(PLENTY, test).await.expect("the test hangs") })
}

pub(crate) fn open(address: &str) -> Redis {
    Redis::open(address, "test").expect("the address is right")
}

pub(crate) fn key(text: &str) -> Key {
    text.parse().expect("a key")
}

pub(crate) fn put(at: &str, expect: Option<&Version>, value: &str) -> Swap {
    Swap { key: key(at), expect: expect.cloned(), value: Some(Arc::from(value.as_bytes())) }
}

pub(crate) async fn try_swap(store: &Redis, wish: Swap) -> Result<Swapped, StoreError> {
    try_swap_on(store, Lane::Work, wish).await
}

pub(crate) async fn try_swap_on(store: &Redis, lane: Lane, wish: Swap) -> Result<Swapped, StoreError> {
    let reply = store.swap(lane, &[wish]).await?;
    Ok(reply.outcomes.into_iter().next().expect("one outcome"))
}

/// Swaps and expects to win.
pub(crate) async fn applied(store: &Redis, wish: Swap) -> Version {
    match try_swap(store, wish).await {
        Ok(Swapped::Applied(version)) => version,
        other => panic!("not applied: {other:?}"),
    }
}

pub(crate) async fn read(store: &Redis, at: &str) -> Option<Stored> {
    store.read(&[key(at)]).await.expect("the read is answered").found.remove(0)
}

/// Tries until it succeeds, and says how long that took.
pub(crate) async fn until_ok<T, F: Future<Output = Result<T, StoreError>>>(mut call: impl FnMut() -> F) -> T {
    for _ in 0..600 {
        match call().await {
            Ok(done) => return done,
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
    panic!("it does not come back: {:?}", call().await.err());
}

pub(crate) async fn next(watch: &mut Watch) -> WatchEvent {
    tokio::time::timeout(Duration::from_secs(15), watch.next()).await.expect("an event").expect("no end")
}

/// The time, on a clock that only runs forward.
pub(crate) fn now() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
