//! A store in memory: records with versions, swapped by comparison. A fault-free store is as simple as this.

use std::collections::BTreeMap;
use std::sync::Arc;

use leasehold_core::store::{Key, Listing, Stored, Swap, Swapped, Version};

/// What is in the store. Rolled back by putting an earlier clone in its place.
#[derive(Clone, Debug)]
pub(crate) struct MemoryStore {
    pub(crate) records: BTreeMap<Key, Stored>,
    pub(crate) revision: u64,
    pub(crate) generation: String,
}

impl MemoryStore {
    pub(crate) fn new() -> Self {
        MemoryStore { records: BTreeMap::new(), revision: 0, generation: "g1".into() }
    }

    pub(crate) fn put(&mut self, key: &Key, value: Option<Arc<[u8]>>) -> Option<Stored> {
        self.revision += 1;
        let stored = value.map(|value| Stored { version: Version::new(self.revision.to_string()), value });
        match &stored {
            Some(stored) => self.records.insert(key.clone(), stored.clone()),
            None => self.records.remove(key),
        };
        stored
    }

    pub(crate) fn swap(&mut self, swap: &Swap) -> Swapped {
        let current = self.records.get(&swap.key);
        if current.map(|stored| &stored.version) != swap.expect.as_ref() {
            return Swapped::Lost(current.cloned());
        }
        let stored = self.put(&swap.key, swap.value.clone());
        Swapped::Applied(stored.map_or_else(|| Version::new("gone"), |stored| stored.version))
    }

    pub(crate) fn listing(&self) -> Listing {
        Listing {
            entries: self.records.iter().map(|(key, stored)| (key.clone(), stored.clone())).collect(),
            foreign: Vec::new(),
            unreadable: Vec::new(),
            generation: self.generation.clone(),
            revision: Some(self.revision),
            newest: false,
        }
    }
}
