//! Broken ways to list nodes, and to read in the wrong order.

use leasehold_store::{Key, Listing, Reading, Store, StoreError, Stored};

use super::Broken;
use crate::flaw::Flaw;

impl Broken {
    pub(super) async fn broken_nodes(&self) -> Result<Listing, StoreError> {
        let mut listing = match self.flaw {
            Flaw::NodesAreListedWithShards => Listing { newest: true, ..self.inner.list().await? },
            Flaw::MetaListedBeforeNodes => self.meta_first().await?.nodes_only(),
            Flaw::NodesListedFromACache => self.cached_nodes().await?,
            _ => self.inner.list_nodes().await?,
        };
        listing.newest = self.flaw != Flaw::NodeListsMayLag;
        listing.generation = match self.flaw {
            Flaw::NodeListsHaveNoGeneration => "of nodes".to_owned(),
            _ => self.generation().await?,
        };
        match self.flaw {
            Flaw::ListsOnePage => listing.entries.truncate(100),
            Flaw::NodeListsForgetMeta => listing.entries.retain(|(key, _)| *key != Key::Meta),
            _ => {}
        }
        for (_, stored) in &mut listing.entries {
            stored.version = self.shown(stored);
        }
        Ok(listing)
    }

    /// Everything, with `meta` as it was before the rest was read.
    pub(super) async fn meta_first(&self) -> Result<Listing, StoreError> {
        let meta = self.now(&Key::Meta);
        tokio::task::yield_now().await;
        let mut listing = Listing { newest: true, ..self.inner.list().await? };
        listing.entries.retain(|(key, _)| *key != Key::Meta);
        listing.entries.extend(meta.map(|meta| (Key::Meta, meta)));
        Ok(listing)
    }

    pub(super) async fn last_key_first(&self, keys: &[Key]) -> Result<Reading, StoreError> {
        let last = keys.last().map(|key| self.now(key));
        tokio::task::yield_now().await;
        let mut found: Vec<Option<Stored>> = keys.iter().map(|key| self.now(key)).collect();
        if let (Some(slot), Some(last)) = (found.last_mut(), last) {
            *slot = last;
        }
        Ok(Reading { found, generation: self.generation().await? })
    }

    /// The nodes as they were when each was first seen.
    async fn cached_nodes(&self) -> Result<Listing, StoreError> {
        let mut listing = self.inner.list_nodes().await?;
        let mut cache = self.cache.lock().unwrap();
        for (key, stored) in &mut listing.entries {
            let first = cache.entry(key.clone()).or_insert_with(|| Some(stored.clone())).clone();
            *stored = first.unwrap_or_else(|| stored.clone());
        }
        Ok(listing)
    }
}
