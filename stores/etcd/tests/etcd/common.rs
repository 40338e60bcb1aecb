//! What the tests share.

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
