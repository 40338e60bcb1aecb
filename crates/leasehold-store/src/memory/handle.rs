use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::store::{
    Facts, Freshness, Key, Lane, Listing, Safety, StoreError, StoreErrorKind, Swap, Swapped,
};

use super::server::{MemoryServer, Server};
use super::watch::Watching;
use crate::{Extensions, LeaseId, LeaseState, Reading, Registry, Store, SwapReply, Watch, values_among};

/// One namespace of a [`MemoryServer`], as one client sees it. Clones are the same client.
#[derive(Clone, Debug)]
pub struct Memory {
    server: MemoryServer,
    namespace: Arc<str>,
    facts: Facts,
}

impl Memory {
    pub(super) fn new(server: MemoryServer, namespace: &str) -> Self {
        Memory { server, namespace: namespace.into(), facts: default_facts() }
    }

    /// The same store with other facts. It keeps to them: without `watch` there is no watch, without `removes` a
    /// removal is refused, and so are more than `swaps_max` swaps at once.
    pub fn with_facts(mut self, facts: Facts) -> Self {
        self.facts = facts;
        self
    }

    /// The server behind it, with the levers.
    pub fn server(&self) -> &MemoryServer {
        &self.server
    }

    /// The namespace that it was opened on.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    fn check(&self, swaps: &[Swap]) -> Result<(), StoreError> {
        let refuse = |message| Err(StoreError::new(StoreErrorKind::Refused, message));
        if swaps.len() > self.facts.swaps_max {
            return refuse(format!(
                "{} swaps in one call; at most {} are allowed. None was tried: send fewer at once",
                swaps.len(),
                self.facts.swaps_max
            ));
        }
        if !self.facts.removes && swaps.iter().any(|swap| swap.value.is_none()) {
            return refuse(
                "this store cannot remove records conditionally. None of the swaps was tried".to_owned(),
            );
        }
        Ok(())
    }
}

fn default_facts() -> Facts {
    Facts {
        kind: "memory",
        watch: true,
        poll_every: Duration::from_secs(1),
        write_every_min: Duration::ZERO,
        swaps_max: 128,
        reads: Freshness::Newest,
        removes: true,
        safety: Safety::Strict,
        ttl_default: Duration::from_secs(10),
    }
}

#[async_trait]
impl Store for Memory {
    fn facts(&self) -> Facts {
        self.facts.clone()
    }

    async fn read(&self, keys: &[Key]) -> Result<Reading, StoreError> {
        let mut server = self.server.lock();
        let generation = server.generation.clone();
        let space = server.space(&self.namespace);
        let found = keys.iter().map(|key| space.get(&key.to_string())).collect();
        Ok(Reading { found, generation })
    }

    async fn list(&self) -> Result<Listing, StoreError> {
        Ok(self.server.lock().listing(&self.namespace))
    }

    async fn list_nodes(&self) -> Result<Listing, StoreError> {
        Ok(self.server.lock().nodes(&self.namespace))
    }

    async fn swap(&self, _lane: Lane, swaps: &[Swap]) -> Result<SwapReply, StoreError> {
        self.check(swaps)?;
        let mut server = self.server.lock();
        let outcomes = swaps.iter().map(|swap| try_swap(&mut server, &self.namespace, swap)).collect();
        Ok(SwapReply { outcomes, generation: server.generation.clone() })
    }

    async fn watch(&self) -> Result<Option<Watch>, StoreError> {
        if !self.facts.watch {
            return Ok(None);
        }
        Ok(Some(Box::pin(Watching::begin(&self.server, &self.namespace))))
    }

    async fn generation(&self) -> Result<String, StoreError> {
        Ok(self.server.lock().generation.clone())
    }

    fn extensions(&self) -> Extensions<'_> {
        Extensions { death_proofs: None, administration: None, registry: Some(self) }
    }
}

fn try_swap(server: &mut Server, namespace: &str, swap: &Swap) -> Swapped {
    let key = swap.key.to_string();
    let current = server.space(namespace).get(&key);
    if current.as_ref().map(|stored| &stored.version) != swap.expect.as_ref() {
        return Swapped::Lost(current);
    }
    Swapped::Applied(server.write(namespace, &key, swap.value.clone()))
}

#[async_trait]
impl Registry for Memory {
    async fn grant(&self, ttl: Duration) -> Result<LeaseId, StoreError> {
        let now = self.server.now();
        let mut server = self.server.lock();
        let lease = server.next_lease();
        server.space(&self.namespace).leases.grant(now, lease.clone(), ttl);
        Ok(lease)
    }

    async fn keep_alive(&self, lease: &LeaseId) -> Result<LeaseState, StoreError> {
        let now = self.server.now();
        Ok(self.server.lock().space(&self.namespace).leases.keep_alive(now, lease))
    }

    async fn put(&self, lease: &LeaseId, key: &str, value: &[u8]) -> Result<LeaseState, StoreError> {
        let now = self.server.now();
        Ok(self.server.lock().space(&self.namespace).leases.put(now, lease, key, value))
    }

    async fn remove(&self, lease: &LeaseId, key: &str) -> Result<(), StoreError> {
        let now = self.server.now();
        self.server.lock().space(&self.namespace).leases.remove(now, lease, key);
        Ok(())
    }

    async fn revoke(&self, lease: &LeaseId) -> Result<(), StoreError> {
        self.server.lock().space(&self.namespace).leases.revoke(lease);
        Ok(())
    }

    async fn keys(&self) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        let now = self.server.now();
        Ok(self.server.lock().space(&self.namespace).leases.keys(now))
    }

    async fn values(&self, keys: &[String]) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        Ok(values_among(self.keys().await?, keys))
    }
}
