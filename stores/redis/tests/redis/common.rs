use std::future::Future;
use std::time::Duration;

use leasehold_redis::Redis;
use leasehold_servers::words;
pub(crate) use leasehold_servers::words::{applied, key, next, now, put, read};
use leasehold_store::{Lane, Store, StoreError, Swap, Swapped};

/// Longer than anything here takes, so that a test that hangs fails instead.
pub(crate) const PLENTY: Duration = Duration::from_secs(90);

pub(crate) fn run<T>(test: impl Future<Output = T>) -> T {
    words::run_within(PLENTY, test)
}

pub(crate) fn open(address: &str) -> Redis {
    Redis::open(address, "test").expect("the address is right")
}

pub(crate) async fn try_swap(store: &Redis, wish: Swap) -> Result<Swapped, StoreError> {
    try_swap_on(store, Lane::Work, wish).await
}

pub(crate) async fn try_swap_on(store: &Redis, lane: Lane, wish: Swap) -> Result<Swapped, StoreError> {
    let reply = store.swap(lane, &[wish]).await?;
    Ok(reply.outcomes.into_iter().next().expect("one outcome"))
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
