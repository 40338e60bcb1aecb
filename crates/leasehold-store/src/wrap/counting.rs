use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

use futures::StreamExt;
use leasehold_core::store::{Key, Lane, Listing, StoreError, Swap, Swapped, WatchEvent};

use super::around::{Around, Call};
use crate::{Reading, Store, SwapReply, Watch};

/// A store that counts its calls, for tests and benchmarks of the load that a node causes.
pub struct Counting {
    inner: Arc<dyn Store>,
    counts: Arc<Mutex<Counts>>,
}

/// What a [`Counting`] store has counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Calls of each kind, as they were made.
    pub calls: BTreeMap<Call, u64>,
    /// Calls that failed.
    pub failed: u64,
    /// The kinds of calls whose last one failed, and why.
    pub failing: BTreeMap<Call, StoreError>,
    /// Swaps of node records, as they were asked for. At rest these are the renewals.
    pub node_swaps: u64,
    /// Swaps of shard records.
    pub shard_swaps: u64,
    /// Swaps of `meta`, `control` and groups.
    pub other_swaps: u64,
    /// Calls with swaps in the lane of renewals.
    pub renewal_calls: u64,
    /// Swaps that applied.
    pub applied: u64,
    /// Swaps that lost.
    pub lost: u64,
    /// Swaps whose outcome stayed unknown, those of failed calls included.
    pub unknown: u64,
    /// Bytes of values that swaps carried to the store.
    pub bytes_out: u64,
    /// Bytes of values that reads, listings, lost swaps and watches carried back.
    pub bytes_in: u64,
    /// Records that listings carried back.
    pub listed: u64,
    /// Events that watches delivered.
    pub watch_events: u64,
}

impl Counts {
    /// Calls of this kind.
    pub fn of(&self, call: Call) -> u64 {
        self.calls.get(&call).copied().unwrap_or(0)
    }

    /// Swaps in all.
    pub fn swaps(&self) -> u64 {
        self.node_swaps + self.shard_swaps + self.other_swaps
    }
}

impl Counting {
    /// Starts to count the calls of a store.
    pub fn new(inner: Arc<dyn Store>) -> Self {
        Counting { inner, counts: Arc::default() }
    }

    /// What was counted so far.
    pub fn counts(&self) -> Counts {
        self.note(|counts| counts.clone())
    }

    /// What was counted so far; counting begins again at zero.
    pub fn take(&self) -> Counts {
        self.note(std::mem::take)
    }

    fn note<T>(&self, write: impl FnOnce(&mut Counts) -> T) -> T {
        note(&self.counts, write)
    }
}

fn note<T>(counts: &Mutex<Counts>, write: impl FnOnce(&mut Counts) -> T) -> T {
    write(&mut counts.lock().unwrap_or_else(PoisonError::into_inner))
}

impl Around for Counting {
    fn inner(&self) -> &Arc<dyn Store> {
        &self.inner
    }

    async fn around<T: Send>(
        &self,
        call: Call,
        sent: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        self.note(|counts| *counts.calls.entry(call).or_default() += 1);
        let answer = sent.await;
        self.note(|counts| match &answer {
            Ok(_) => drop(counts.failing.remove(&call)),
            Err(error) => {
                counts.failed += 1;
                counts.failing.insert(call, error.clone());
            }
        });
        answer
    }

    async fn swapping(&self, lane: Lane, swaps: &[Swap]) -> Result<SwapReply, StoreError> {
        self.note(|counts| counts.note_asked(lane, swaps));
        let answer = self.around(Call::Swap, self.inner.swap(lane, swaps)).await;
        self.note(|counts| match &answer {
            Ok(reply) => reply.outcomes.iter().for_each(|outcome| counts.note_outcome(outcome)),
            Err(_) => counts.unknown += swaps.len() as u64,
        });
        answer
    }

    fn note_reading(&self, reading: &Reading) {
        let bytes: usize = reading.found.iter().flatten().map(|stored| stored.value.len()).sum();
        self.note(|counts| counts.bytes_in += bytes as u64);
    }

    fn note_listing(&self, call: Call, listing: &Listing) {
        self.note(|counts| {
            if call == Call::List {
                counts.listed += listing.entries.len() as u64;
            }
            counts.bytes_in += listing_bytes(listing);
        });
    }

    fn around_another(&self, inner: Arc<dyn Store>) -> Arc<dyn Store> {
        Arc::new(Counting { inner, counts: self.counts.clone() })
    }

    fn watching(&self, watch: Watch) -> Watch {
        let counts = self.counts.clone();
        Box::pin(watch.inspect(move |event| {
            note(&counts, |counts| {
                counts.watch_events += 1;
                counts.bytes_in += event_bytes(event);
            });
        }))
    }
}

impl Counts {
    fn note_asked(&mut self, lane: Lane, swaps: &[Swap]) {
        if lane == Lane::Renewal {
            self.renewal_calls += 1;
        }
        for swap in swaps {
            match swap.key {
                Key::Node(_) => self.node_swaps += 1,
                Key::Shard(_) => self.shard_swaps += 1,
                Key::Meta | Key::Control | Key::Group(_) => self.other_swaps += 1,
            }
            self.bytes_out += swap.value.as_ref().map_or(0, |value| value.len() as u64);
        }
    }

    fn note_outcome(&mut self, outcome: &Swapped) {
        match outcome {
            Swapped::Applied(_) => self.applied += 1,
            Swapped::Lost(found) => {
                self.lost += 1;
                self.bytes_in += found.as_ref().map_or(0, |stored| stored.value.len() as u64);
            }
            Swapped::Unknown => self.unknown += 1,
        }
    }
}

fn listing_bytes(listing: &Listing) -> u64 {
    listing.entries.iter().map(|(_, stored)| stored.value.len() as u64).sum()
}

fn event_bytes(event: &WatchEvent) -> u64 {
    match event {
        WatchEvent::Snapshot(listing) => listing_bytes(listing),
        WatchEvent::Changed(changes) => {
            changes.iter().filter_map(|(_, stored)| stored.as_ref()).map(|s| s.value.len() as u64).sum()
        }
        WatchEvent::Interrupted(_) | WatchEvent::ProcessGone(_) => 0,
    }
}
