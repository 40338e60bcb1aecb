//! What the tests share.

use std::time::Duration;

use leasehold_etcd::Etcd;
use leasehold_servers::Etcd as Server;
use leasehold_store::{Key, Lane, Store, StoreError, Swap, Swapped, Version};

/// A client of all members.
pub(crate) fn open(server: &Server, namespace: &str) -> Etcd {
    Etcd::open(&format!("etcd://{}/tests", server.hosts()), namespace).expect("the address is right")
}

pub(crate) fn key(text: &str) -> Key {
    text.parse().expect("a key")
}

/// Tries one swap.
pub(crate) async fn swap(
    store: &dyn Store,
    lane: Lane,
    name: &str,
    expect: Option<&Version>,
    value: &str,
) -> Result<Swapped, StoreError> {
    let swap = Swap { key: key(name), expect: expect.cloned(), value: Some(value.as_bytes().into()) };
    Ok(store.swap(lane, &[swap]).await?.outcomes.remove(0))
}

/// Writes, which must succeed.
pub(crate) async fn put(store: &dyn Store, name: &str, expect: Option<&Version>, value: &str) -> Version {
    match swap(store, Lane::Work, name, expect, value).await {
        Ok(Swapped::Applied(version)) => version,
        other => panic!("{name} was not written: {other:?}"),
    }
}

/// Writes over whatever is there, trying as a driver does until it is confirmed: each try for a second at most.
pub(crate) async fn put_patiently(store: &dyn Store, name: &str, value: &str) -> Version {
    let tries = async {
        loop {
            let _ = tokio::time::timeout(Duration::from_secs(1), async {
                let found = store.read(&[key(name)]).await?.found.remove(0);
                let expect = found.map(|stored| stored.version);
                swap(store, Lane::Work, name, expect.as_ref(), value).await
            })
            .await;
            let found = tokio::time::timeout(Duration::from_secs(1), store.read(&[key(name)])).await;
            if let Ok(Ok(reading)) = found
                && let Some(stored) = &reading.found[0]
                && *stored.value == *value.as_bytes()
            {
                return stored.version.clone();
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(20), tries).await.expect("it is written at last")
}

/// Measures how long something took.
pub(crate) struct Stopwatch(std::time::Instant);

impl Stopwatch {
    #[allow(clippy::disallowed_methods, reason = "tests measure what a person with a watch would")]
    pub(crate) fn start() -> Self {
        Stopwatch(std::time::Instant::now())
    }

    pub(crate) fn elapsed(&self) -> std::time::Duration {
        self.0.elapsed()
    }
}
