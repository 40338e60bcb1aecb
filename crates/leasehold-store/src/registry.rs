use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::store::StoreError;

/// Identifies a lease of registered keys in its store.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LeaseId(pub String);

/// Whether a lease was still there when it was renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseState {
    /// It is alive.
    Alive,
    /// It is gone, with all its keys.
    Gone,
}

/// Keys that other programs read, kept alive with the store's own expiry. Never used for ownership.
#[async_trait]
pub trait Registry: Send + Sync {
    /// Makes a lease that lives for `ttl` after each renewal.
    async fn grant(&self, ttl: Duration) -> Result<LeaseId, StoreError>;
    /// Renews a lease.
    async fn keep_alive(&self, lease: &LeaseId) -> Result<LeaseState, StoreError>;
    /// Writes a key under a lease, over whatever is there.
    async fn put(&self, lease: &LeaseId, key: &str, value: &[u8]) -> Result<LeaseState, StoreError>;
    /// Removes a key if it is under this lease.
    async fn remove(&self, lease: &LeaseId, key: &str) -> Result<(), StoreError>;
    /// Ends a lease and removes all its keys.
    async fn revoke(&self, lease: &LeaseId) -> Result<(), StoreError>;
    /// All registered keys that are alive, ordered by key.
    async fn keys(&self) -> Result<Vec<(String, Vec<u8>)>, StoreError>;
    /// The values of these keys, no matter who wrote them; `None` for missing ones. Called at every renewal, so that a key
    /// which was removed or overwritten is noticed.
    async fn values(&self, keys: &[String]) -> Result<Vec<Option<Vec<u8>>>, StoreError>;
}

/// The [`values`](Registry::values) of these keys, for a registry that has no quicker way than to list all of them.
pub fn values_among(all: Vec<(String, Vec<u8>)>, keys: &[String]) -> Vec<Option<Vec<u8>>> {
    let mut all: BTreeMap<String, Vec<u8>> = all.into_iter().collect();
    keys.iter().map(|key| all.remove(key)).collect()
}
