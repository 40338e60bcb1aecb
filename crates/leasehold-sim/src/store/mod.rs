//! The simulated store: one namespace with its whole history, so that it can be behind, be rolled back and be watched.
//! [`shape`] says what sets each kind of real store apart.

pub(crate) mod impairment;
mod reading;
pub(crate) mod shape;
mod watch;

use std::collections::BTreeMap;
use std::sync::Arc;

use leasehold_core::store::{Key, Listing, Stored, Swap, Swapped, Version};

use crate::rng::Rng;
use crate::store::shape::{Generations, Shape, StoreKind, Versions};
use crate::world::clock::Instant;

/// One namespace on a simulated store.
#[derive(Debug)]
pub(crate) struct SimStore {
    shape: Shape,
    records: BTreeMap<Key, Stored>,
    log: Vec<Entry>,
    revision: u64,
    generations: u32,
    generation: String,
    /// The generation before this one, and until when it had that.
    former: (Instant, String),
    behind: [Replica; 2],
    /// Other namespaces. No node here sees them; they only use up revisions.
    neighbours: Option<Rng>,
}

/// One change of one record.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) at: Instant,
    pub(crate) key: Key,
    pub(crate) stored: Option<Stored>,
}

/// A copy that is behind the store: what it holds, and how much of the log it has seen.
#[derive(Clone, Debug, Default)]
struct Replica {
    records: BTreeMap<Key, Stored>,
    seen: usize,
}

/// Whether a store that lost something gets another generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Generation {
    /// It keeps the one that it had.
    Kept,
    /// It gets another one.
    New,
}

impl SimStore {
    pub(crate) fn new(kind: StoreKind) -> Self {
        let shape = kind.shape();
        let mut store = SimStore {
            shape,
            records: BTreeMap::new(),
            log: Vec::with_capacity(4096),
            revision: 0,
            generations: 0,
            generation: String::new(),
            former: (0, String::new()),
            behind: Default::default(),
            neighbours: None,
        };
        store.next_generation(0);
        store
    }

    /// The same store, with other namespaces on it.
    pub(crate) fn with_neighbours(self, neighbours: Option<Rng>) -> Self {
        SimStore { neighbours, ..self }
    }

    fn others_wrote(&mut self, at_most: u64) -> u64 {
        self.neighbours.as_mut().map_or(0, |rng| rng.below(at_most + 1))
    }

    fn next_generation(&mut self, at: Instant) {
        if self.shape.generation == Generations::OnRestore {
            self.former = (at, std::mem::take(&mut self.generation));
            self.generations += 1;
            self.generation = format!("g{}", self.generations);
        }
    }

    /// How often the store has become another one.
    pub(crate) fn generations(&self) -> u32 {
        self.generations
    }

    pub(crate) fn generation(&self) -> &str {
        &self.generation
    }

    /// Its generation as it was at that instant, or before the last change of it.
    pub(crate) fn generation_at(&self, at: Instant) -> &str {
        if at < self.former.0 { &self.former.1 } else { &self.generation }
    }

    pub(crate) fn get(&self, key: &Key) -> Option<&Stored> {
        self.records.get(key)
    }

    pub(crate) fn records(&self) -> &BTreeMap<Key, Stored> {
        &self.records
    }

    /// Compare and swap, at once.
    pub(crate) fn swap(&mut self, at: Instant, swap: &Swap) -> Swapped {
        let there = self.records.get(&swap.key);
        if there.map(|stored| &stored.version) != swap.expect.as_ref() {
            return Swapped::Lost(there.cloned());
        }
        Swapped::Applied(self.put(at, swap.key.clone(), swap.value.clone()))
    }

    /// Writes without a condition.
    pub(crate) fn put(&mut self, at: Instant, key: Key, value: Option<Arc<[u8]>>) -> Version {
        self.revision += 1 + self.others_wrote(4);
        let version = match self.shape.versions {
            Versions::ComeAgain => Version::new(self.revision.to_string()),
            Versions::Unique => Version::new(format!("{}.{}", self.generations, self.revision)),
        };
        let stored = value.map(|value| Stored { version: version.clone(), value });
        match &stored {
            Some(stored) => self.records.insert(key.clone(), stored.clone()),
            None => self.records.remove(&key),
        };
        self.log.push(Entry { at, key, stored });
        version
    }

    /// Everything that is there now.
    pub(crate) fn list(&self) -> Listing {
        self.listing(&self.records)
    }

    /// What a copy shows that is `lag` behind. The copies never go back by themselves, but one may be behind the other.
    pub(crate) fn list_behind(&mut self, at: Instant, lag: Instant, which: usize) -> Listing {
        let upto = at.saturating_sub(lag);
        let replica = &mut self.behind[which % 2];
        while let Some(entry) = self.log.get(replica.seen).filter(|entry| entry.at <= upto) {
            match &entry.stored {
                Some(stored) => replica.records.insert(entry.key.clone(), stored.clone()),
                None => replica.records.remove(&entry.key),
            };
            replica.seen += 1;
        }
        let records = std::mem::take(&mut self.behind[which % 2].records);
        let listing = self.listing(&records);
        self.behind[which % 2].records = records;
        listing
    }

    /// What was under a key at that instant.
    pub(crate) fn get_at(&self, key: &Key, at: Instant) -> Option<&Stored> {
        let known = self.changes_by(at);
        if !self.log[known..].iter().any(|entry| entry.key == *key) {
            return self.get(key);
        }
        self.log[..known].iter().rfind(|entry| entry.key == *key).and_then(|entry| entry.stored.as_ref())
    }

    /// How many changes there had been at that instant.
    pub(crate) fn changes_by(&self, at: Instant) -> usize {
        self.log.partition_point(|entry| entry.at <= at)
    }

    /// How much of the log the copy that answers stale listings has seen: where a watch from its snapshot begins.
    pub(crate) fn seen_behind(&self, which: usize) -> usize {
        self.behind[which % 2].seen
    }

    fn listing(&self, records: &BTreeMap<Key, Stored>) -> Listing {
        let revision = self.shape.revision.then(|| {
            let newest = records.values().filter_map(|stored| revision_of(&stored.version)).max();
            if std::ptr::eq(records, &self.records) { self.revision } else { newest.unwrap_or(0) }
        });
        Listing {
            entries: records.iter().map(|(key, stored)| (key.clone(), stored.clone())).collect(),
            foreign: Vec::new(),
            unreadable: Vec::new(),
            generation: self.generation.clone(),
            revision,
            newest: false,
        }
    }

    /// Whether anything changed after that instant.
    pub(crate) fn changed_since(&self, at: Instant) -> bool {
        self.log.last().is_some_and(|entry| entry.at > at)
    }

    /// How many changes there were.
    pub(crate) fn changes(&self) -> usize {
        self.log.len()
    }

    /// The changes from number `from` on.
    pub(crate) fn changes_since(&self, from: usize) -> &[Entry] {
        &self.log[from.min(self.log.len())..]
    }

    /// Everything is gone.
    pub(crate) fn empty(&mut self, at: Instant, generation: Generation) {
        self.become_as(at, BTreeMap::new());
        if generation == Generation::New {
            self.next_generation(at);
            self.forget_revision(0);
            self.catch_up();
        }
    }

    /// Everything is as it was at an earlier instant, and the store knows that it is another one. A restored store
    /// that passes for the same one is outside of what Leasehold promises, because a new node cannot know of it.
    pub(crate) fn roll_back(&mut self, at: Instant, to: Instant) {
        let mut records = BTreeMap::new();
        for entry in self.log.iter().take_while(|entry| entry.at <= to) {
            match &entry.stored {
                Some(stored) => records.insert(entry.key.clone(), stored.clone()),
                None => records.remove(&entry.key),
            };
        }
        let newest = records.values().filter_map(|stored| revision_of(&stored.version)).max();
        self.become_as(at, records);
        self.next_generation(at);
        self.forget_revision(newest.unwrap_or(0));
        self.catch_up();
    }

    /// Another store has other copies: none of them shows what was before.
    fn catch_up(&mut self) {
        let copy = Replica { records: self.records.clone(), seen: self.log.len() };
        self.behind = [copy.clone(), copy];
    }

    fn forget_revision(&mut self, to: u64) {
        if self.shape.versions == Versions::ComeAgain {
            // The revision may be higher than before, although writes were lost.
            self.revision = to + self.others_wrote(3000);
        }
    }

    fn become_as(&mut self, at: Instant, records: BTreeMap<Key, Stored>) {
        let gone: Vec<Key> = self.records.keys().filter(|key| !records.contains_key(key)).cloned().collect();
        for key in gone {
            self.log.push(Entry { at, key, stored: None });
        }
        for (key, stored) in &records {
            if self.records.get(key) != Some(stored) {
                self.log.push(Entry { at, key: key.clone(), stored: Some(stored.clone()) });
            }
        }
        self.records = records;
    }
}

fn revision_of(version: &Version) -> Option<u64> {
    version.as_str().rsplit('.').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(text: &str) -> Option<Arc<[u8]>> {
        Some(text.as_bytes().into())
    }

    #[test]
    fn swaps_only_what_is_expected() {
        let mut store = SimStore::new(StoreKind::Etcd);
        let create = Swap { key: Key::Meta, expect: None, value: bytes("a") };
        let Swapped::Applied(version) = store.swap(1, &create) else { panic!("created") };
        assert!(matches!(store.swap(2, &create), Swapped::Lost(Some(_))));
        let next = Swap { key: Key::Meta, expect: Some(version), value: bytes("b") };
        assert!(matches!(store.swap(3, &next), Swapped::Applied(_)));
        assert!(matches!(store.swap(4, &next), Swapped::Lost(Some(_))));
        assert_eq!(store.changes_since(1).len(), 1);
    }

    #[test]
    fn copies_are_behind() {
        let mut store = SimStore::new(StoreKind::Kubernetes);
        store.put(10, Key::Meta, bytes("a"));
        store.put(20, Key::Control, bytes("b"));
        assert_eq!(store.list_behind(25, 10, 0).entries.len(), 1);
        assert_eq!(store.list_behind(25, 0, 1).entries.len(), 2);
        assert_eq!(store.list_behind(25, 12, 0).entries.len(), 1, "the other copy is still behind");
        assert_eq!(store.list().entries.len(), 2);
    }

    #[test]
    fn rolled_back_it_is_another_store() {
        let mut store = SimStore::new(StoreKind::Etcd);
        let before = store.put(10, Key::Meta, bytes("a"));
        store.put(20, Key::Meta, bytes("b"));
        store.put(21, Key::Control, bytes("c"));
        let generation = store.generation().to_owned();
        store.roll_back(30, 15);
        assert_eq!(store.get(&Key::Meta).unwrap().version, before);
        assert!(store.get(&Key::Control).is_none());
        assert_ne!(store.generation(), generation);
        assert_eq!(store.list().revision, Some(1));
    }

    #[test]
    fn emptied_it_may_pass_for_the_same() {
        let mut store = SimStore::new(StoreKind::Redis);
        store.put(10, Key::Meta, bytes("a"));
        let generation = store.generation().to_owned();
        store.empty(20, Generation::Kept);
        assert!(store.records().is_empty());
        assert_eq!(store.generation(), generation);
        assert_eq!(store.changes(), 2);
    }
}
