use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

/// How many unconfirmed writes are remembered one by one; beyond that every message counts as unconfirmed.
const UNCONFIRMED_MAX: usize = 10_000;

/// The last state that this client knows to be safe, so that the scripts can tell when it is lost; and those of its own
/// writes that are not known to be safe.
#[derive(Debug, Default)]
pub(crate) struct HighWater {
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    generation: String,
    revision: u64,
    unconfirmed: BTreeSet<String>,
}

impl HighWater {
    /// The generation, and the highest revision in it.
    pub(crate) fn latest(&self) -> (String, u64) {
        self.with(|known| (known.generation.clone(), known.revision))
    }

    /// A confirmed answer showed this.
    pub(crate) fn confirm(&self, generation: &str, revision: u64) {
        self.with(|known| {
            if known.generation != generation {
                known.generation = generation.to_owned();
                known.revision = 0;
            }
            known.revision = known.revision.max(revision);
        });
    }

    /// A write is about to be sent.
    pub(crate) fn sent(&self, tag: &str) {
        self.with(|known| {
            if known.unconfirmed.len() < UNCONFIRMED_MAX {
                known.unconfirmed.insert(tag.to_owned());
            }
        });
    }

    /// A write is in the store, and so is all that was there before it.
    pub(crate) fn confirmed(&self, tag: &str) {
        self.with(|known| known.unconfirmed.remove(tag));
    }

    /// Whether news of a write may be of one that we do not know to be safe.
    pub(crate) fn is_unconfirmed(&self, tag: &str) -> bool {
        self.with(|known| known.unconfirmed.len() >= UNCONFIRMED_MAX || known.unconfirmed.contains(tag))
    }

    fn with<T>(&self, work: impl FnOnce(&mut Known) -> T) -> T {
        work(&mut self.known.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
