//! Rules of the order in which records are read, where they are not read as of one moment.
//!
//! A writer writes one record and then all others, over and over. A reader that reads that one last can never see one of the
//! others ahead of it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::FutureExt;
use leasehold_core::store::{Freshness, Key, Listing, Stored, Version};
use tokio::sync::Mutex;
use tokio::task::JoinSet;

use super::fixture::Step;
use super::trial::{Trial, parse, put, read_all, shard, swap_all, wish};
use super::verdict::ensure;
use super::{Fixture, Note, Unmet, Verdict};
use crate::{Store, Swapped};

/// How many times it is read during writes: at random, and between any two requests.
const ROUNDS: (usize, usize) = (30, 3);

/// A listing that is not of one moment reads `meta` after everything else.
pub async fn lists_read_meta_last(fixture: &dyn Fixture) -> Verdict {
    let trial = Trial::begin(fixture, "meta-last").await?;
    let race = Race::begin(&trial, Key::Meta, some_of_all_kinds()).await?;
    let (mut checked, lags) = (0, trial.a.facts().reads == Freshness::ListsMayLag);
    for _ in 0..4 * race.rounds {
        let listing = race.reader.list().await?;
        // A listing that may be behind vouches for nothing.
        if listing.newest || !lags {
            race.expect_last(&found_in(listing))?;
            checked += 1;
        }
        if checked == race.rounds {
            break;
        }
    }
    race.end().await
}

/// A listing of nodes reads `meta` after all nodes.
pub async fn node_lists_read_meta_last(fixture: &dyn Fixture) -> Verdict {
    let trial = Trial::begin(fixture, "nodes-first").await?;
    let nodes = (0..10).map(|i| parse(&format!("nodes/n{i}"))).collect();
    let race = Race::begin(&trial, Key::Meta, nodes).await?;
    for _ in 0..race.rounds {
        race.expect_last(&found_in(race.reader.list_nodes().await?))?;
    }
    race.end().await
}

/// A read of several records that is not of one moment reads the last one last.
pub async fn reads_end_with_the_last_key(fixture: &dyn Fixture) -> Verdict {
    let mut note = Note::default();
    for last in [Key::Meta, shard("last"), parse("nodes/a")] {
        let trial = Trial::begin(fixture, "last-key").await?;
        let race = Race::begin(&trial, last.clone(), some_of_all_kinds()).await?;
        let keys: Vec<Key> = race.others.iter().chain([&last]).cloned().collect();
        for _ in 0..race.rounds {
            let found = read_all(&*race.reader, &keys).await?.found;
            let found = keys.iter().cloned().zip(found);
            race.expect_last(&found.filter_map(|(key, stored)| Some((key, stored?))).collect())?;
        }
        note = race.end().await?;
    }
    Ok(note)
}

/// Enough that stores which read in parts have several.
fn some_of_all_kinds() -> Vec<Key> {
    let nodes = (0..3).map(|i| parse(&format!("nodes/n{i}")));
    (0..15).map(shard).chain(nodes).chain(["control", "groups/conformance"].map(parse)).collect()
}

fn found_in(listing: Listing) -> BTreeMap<Key, Stored> {
    listing.entries.into_iter().collect()
}

/// A writer at work, and a client that reads meanwhile.
struct Race {
    last: Key,
    others: Vec<Key>,
    reader: Arc<dyn Store>,
    rounds: usize,
    writer: Arc<Mutex<Writer>>,
    /// A writer that writes all the time, as long as it is not told to end.
    by_chance: JoinSet<()>,
    done: Arc<AtomicBool>,
}

impl Race {
    /// Writes between any two requests of the reader if the fixture can do that, and all the time otherwise.
    async fn begin(trial: &Trial<'_>, last: Key, others: Vec<Key>) -> Result<Self, Unmet> {
        let (store, versions) = (trial.a.clone(), BTreeMap::new());
        let mut first = Writer { store, last: last.clone(), others, versions, count: 0, failed: None };
        first.write().await?;
        let others = first.others.clone();
        let writer = Arc::new(Mutex::new(first));
        let steps = writer.clone();
        let step: Step = Arc::new(move || {
            let steps = steps.clone();
            async move { steps.lock().await.go_on().await }.boxed()
        });
        let (mut by_chance, done) = (JoinSet::new(), Arc::new(AtomicBool::new(false)));
        let (reader, rounds) = match trial.fixture.open_stepped(&trial.namespace, step).await {
            Some(reader) => (reader?, ROUNDS.1),
            None => {
                let (ended, goes_on) = (done.clone(), writer.clone());
                by_chance.spawn(async move {
                    while !ended.load(Ordering::Relaxed) {
                        goes_on.lock().await.go_on().await;
                        tokio::task::yield_now().await;
                    }
                });
                (trial.b.clone(), ROUNDS.0)
            }
        };
        Ok(Race { last, others, reader, rounds, writer, by_chance, done })
    }

    fn expect_last(&self, found: &BTreeMap<Key, Stored>) -> Result<(), Unmet> {
        let count = |key: &Key| found.get(key).and_then(number);
        let last = count(&self.last);
        for key in &self.others {
            let seen = count(key);
            ensure!(
                seen.is_some() && seen <= last,
                format!("{} at least as far as {key}, before which it was written", self.last),
                format!("{} at {last:?} and {key} at {seen:?}", self.last),
                "a record of a store that was emptied counts as one of before, and its shard runs twice",
            );
        }
        Ok(())
    }

    async fn end(mut self) -> Verdict {
        self.done.store(true, Ordering::Relaxed);
        while let Some(ended) = self.by_chance.join_next().await {
            ended.expect("no writer panics");
        }
        let mut writer = self.writer.lock().await;
        match writer.failed.take() {
            Some(unmet) => Err(unmet),
            None => Ok(Note(format!("read {} times during {} rounds of writes", self.rounds, writer.count))),
        }
    }
}

fn number(stored: &Stored) -> Option<u64> {
    String::from_utf8_lossy(&stored.value).parse().ok()
}

struct Writer {
    store: Arc<dyn Store>,
    last: Key,
    others: Vec<Key>,
    versions: BTreeMap<Key, Version>,
    count: u64,
    failed: Option<Unmet>,
}

impl Writer {
    async fn go_on(&mut self) {
        if self.failed.is_none() {
            self.failed = self.write().await.err();
        }
    }

    /// One round: the record that is to be read last, and then all others.
    async fn write(&mut self) -> Result<(), Unmet> {
        self.count += 1;
        let value = self.count.to_string();
        let version = put(&*self.store, &self.last, self.versions.get(&self.last), value.as_bytes()).await?;
        self.versions.insert(self.last.clone(), version);
        for some in self.others.chunks(self.store.facts().swaps_max.max(1)) {
            let swap = |key| wish(key, self.versions.get(key), Some(value.as_bytes()));
            let swaps: Vec<_> = some.iter().map(swap).collect();
            let outcomes = swap_all(&*self.store, &swaps).await?.outcomes;
            for (key, outcome) in some.iter().zip(outcomes) {
                match outcome {
                    Swapped::Applied(version) => drop(self.versions.insert(key.clone(), version)),
                    other => {
                        let why = "a node whose right swaps don't apply can never claim, renew or release";
                        return Err(Unmet::failed(format!("{key} to be written"), format!("{other:?}"), why));
                    }
                }
            }
        }
        Ok(())
    }
}
