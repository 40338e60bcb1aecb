//! Rules of the watch.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::StreamExt;
use leasehold_core::store::{Key, Stored, WatchEvent};
use tokio::task::JoinSet;

use super::trial::{Trial, get, put, remove, shard};
use super::verdict::ensure;
use super::{Fixture, Note, Unmet, Verdict};
use crate::{Store, Watch};

/// A watch begins with everything that is there.
pub async fn watches_begin_with_a_snapshot(fixture: &dyn Fixture) -> Verdict {
    let trial = Trial::begin(fixture, "snapshot").await?;
    let version = put(&*trial.a, &shard(0), None, b"1").await?;
    let mut watch = needed_watch(&*trial.b).await?;
    match next(&mut watch, &trial).await? {
        WatchEvent::Snapshot(listing)
            if listing.entries.len() == 1 && listing.entries[0].1.version == version => {}
        other => {
            return Err(Unmet::failed(
                "a snapshot of everything as the first event",
                format!("{other:?}"),
                "a node knows what does not exist only from a snapshot that is complete",
            ));
        }
    }
    Ok(Note::default())
}

/// Every change of every record arrives, whoever made it: the last state of each key always, and the states of one
/// key in the order in which they came to be. States that were replaced at once may be left out.
pub async fn watches_tell_every_change_in_order(fixture: &dyn Fixture) -> Verdict {
    const KEYS: usize = 10;
    let trial = Trial::begin(fixture, "order").await?;
    let watch = needed_watch(&*trial.b).await?;
    let mut last = BTreeMap::new();
    for round in 1..=5 {
        for i in 0..KEYS {
            let key = shard(i);
            let store = if (round + i) % 3 == 0 { &trial.b } else { &trial.a };
            let expect = last.get(&key);
            let version = put(&**store, &key, expect, round.to_string().as_bytes()).await?;
            last.insert(key, version);
        }
    }
    if trial.a.facts().removes {
        let key = shard(0);
        remove(&*trial.a, &key, &last[&key]).await?;
        last.remove(&key);
    }
    let arrived = |seen: &Seen| {
        seen.records.len() == last.len()
            && last.iter().all(|(key, version)| seen.records.get(key).is_some_and(|s| s.version == *version))
    };
    let seen = see_until(watch, &trial, arrived).await?;
    let missing: Vec<String> = last
        .iter()
        .filter(|(key, version)| seen.records.get(key).is_none_or(|stored| stored.version != **version))
        .map(|(key, _)| key.to_string())
        .chain(
            seen.records.keys().filter(|key| !last.contains_key(key)).map(|key| format!("{key} (removed)")),
        )
        .collect();
    ensure!(
        missing.is_empty(),
        "the last change of every record",
        format!("no word of {}", missing.join(", ")),
        "the successor of a vacated shard waits for the watch, and a missed change is a gap of a whole listing",
    );
    ensure!(
        seen.backwards.is_none(),
        "the states of each record in the order in which they came to be",
        seen.backwards.clone().unwrap_or_default(),
        "an older state after a newer one looks like a rolled-back store, or hands a shard back to its old holder",
    );
    Ok(Note::default())
}

/// Nothing is lost between the snapshot and the changes: whoever applies them all has what a listing shows.
pub async fn nothing_is_lost_after_the_snapshot(fixture: &dyn Fixture) -> Verdict {
    const ROUNDS: usize = 8;
    let trial = Trial::begin(fixture, "between").await?;
    drop(needed_watch(&*trial.b).await?);
    for round in 0..ROUNDS {
        let mut writers = JoinSet::new();
        for writer in 0..4 {
            let store = if writer % 2 == 0 { trial.a.clone() } else { trial.b.clone() };
            writers.spawn(async move { write_some(store, round, writer).await });
        }
        for _ in 0..round {
            tokio::task::yield_now().await;
        }
        let watch = needed_watch(&*trial.b).await?;
        while let Some(written) = writers.join_next().await {
            written.expect("no writer panics")?;
        }
        let keys: Vec<Key> =
            (0..=round).flat_map(|round| (0..4).map(move |writer| name(round, writer))).collect();
        let found = super::trial::read_all(&*trial.a, &keys).await?.found;
        let there: BTreeMap<Key, Stored> =
            keys.into_iter().zip(found).filter_map(|(key, stored)| Some((key, stored?))).collect();
        let seen = see_until(watch, &trial, |seen| seen.records == there).await?;
        ensure!(
            seen.records == there,
            format!("the {} records that are there, from snapshot and changes together", there.len()),
            format!("{} records, {} of them right", seen.records.len(), count_right(&seen.records, &there)),
            "a change that falls between snapshot and watch is not seen before the next listing",
        );
    }
    Ok(Note(format!("{ROUNDS} rounds")))
}

fn name(round: usize, writer: usize) -> Key {
    shard(format_args!("{round}-{writer}"))
}

fn count_right(seen: &BTreeMap<Key, Stored>, there: &BTreeMap<Key, Stored>) -> usize {
    there.iter().filter(|(key, stored)| seen.get(key) == Some(stored)).count()
}

async fn write_some(store: Arc<dyn Store>, round: usize, writer: usize) -> Result<(), Unmet> {
    let key = name(round, writer);
    let mut version = None;
    for value in 1..=6 {
        tokio::task::yield_now().await;
        version = Some(put(&*store, &key, version.as_ref(), i32::to_string(&value).as_bytes()).await?);
    }
    Ok(())
}

/// A watch that is dropped and opened again begins with what is there now, and other watches go on.
pub async fn watches_can_be_opened_again(fixture: &dyn Fixture) -> Verdict {
    let trial = Trial::begin(fixture, "again").await?;
    let mut other = needed_watch(&*trial.a).await?;
    next(&mut other, &trial).await?;
    let old = put(&*trial.a, &shard(0), None, b"1").await?;
    let first = needed_watch(&*trial.b).await?;
    drop(see_until(first, &trial, |seen| seen.records.len() == 1).await?);
    put(&*trial.a, &shard(0), Some(&old), b"2").await?;
    put(&*trial.a, &shard(1), None, b"1").await?;
    let mut second = needed_watch(&*trial.b).await?;
    let event = next(&mut second, &trial).await?;
    let mut seen = Seen::default();
    seen.take(&event);
    let now = get(&*trial.a, &shard(0)).await?;
    ensure!(
        matches!(event, WatchEvent::Snapshot(_))
            && seen.records.len() == 2
            && seen.records.get(&shard(0)) == now.as_ref(),
        "a snapshot with what changed while no watch was open",
        format!("{event:?}"),
        "a node that was cut off must not plan with what it saw before",
    );
    let seen = see_until(other, &trial, |seen| seen.records.len() == 2).await?;
    ensure!(
        seen.records.len() == 2,
        "a watch to go on after another one was dropped",
        format!("{} of 2 changes", seen.records.len()),
        "two users of one store, such as a node and its status page, must not disturb each other",
    );
    Ok(Note::default())
}

/// A watch that broke says so, and goes on by itself with a snapshot that has what changed meanwhile.
pub async fn a_broken_watch_resumes_with_a_snapshot(fixture: &dyn Fixture) -> Verdict {
    let trial = Trial::begin(fixture, "gap").await?;
    let mut watch = needed_watch(&*trial.b).await?;
    next(&mut watch, &trial).await?;
    if trial.fixture.break_watches(&trial.namespace).await.is_none() {
        return Err(Unmet::no_lever("break a watch"));
    }
    let version = put(&*trial.a, &shard(0), None, b"during the gap").await?;
    let seen = see_until(watch, &trial, |seen| seen.records.len() == 1).await?;
    ensure!(
        seen.interrupted && seen.snapshots > 0,
        "an interruption and then a snapshot",
        format!("interrupted: {}, snapshots: {}", seen.interrupted, seen.snapshots),
        "changes that were missed in the gap show only in a snapshot, removals above all",
    );
    ensure!(
        seen.records.get(&shard(0)).is_some_and(|stored| stored.version == version),
        "what changed during the gap",
        format!("{:?}", seen.records),
        "changes that were missed in the gap show only in a snapshot, removals above all",
    );
    Ok(Note::default())
}

/// A watch that nobody reads for a while neither blocks writers nor lies afterwards: it tells all changes, or says
/// that it was interrupted and goes on with a snapshot.
pub async fn a_slow_reader_sees_the_truth(fixture: &dyn Fixture) -> Verdict {
    let trial = Trial::begin(fixture, "slow").await?;
    let mut watch = needed_watch(&*trial.b).await?;
    next(&mut watch, &trial).await?;
    let mut versions = BTreeMap::new();
    for key in (0..40).map(shard) {
        let mut version = None;
        for _ in 0..50 {
            version = Some(put(&*trial.a, &key, version.as_ref(), b"1").await?);
        }
        versions.insert(key, version.expect("it was written"));
    }
    let right = |seen: &Seen| {
        versions
            .iter()
            .filter(|(key, version)| seen.records.get(key).is_some_and(|s| s.version == **version))
            .count()
    };
    let seen = see_until(watch, &trial, |seen| right(seen) == versions.len()).await?;
    ensure!(
        right(&seen) == versions.len(),
        format!("the last state of all {} records", versions.len()),
        format!("that of {}", right(&seen)),
        "a node that was busy must not go on with records that it never sees again",
    );
    Ok(Note(format!("2000 changes unread, {} snapshots after", seen.snapshots)))
}

/// What came out of a watch, put together.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) records: BTreeMap<Key, Stored>,
    pub(super) snapshots: usize,
    pub(super) interrupted: bool,
    /// A record whose number fell, if one did.
    pub(super) backwards: Option<String>,
    /// All values that were told of.
    pub(super) told: BTreeSet<Arc<[u8]>>,
}

impl Seen {
    fn take(&mut self, event: &WatchEvent) {
        match event {
            WatchEvent::Snapshot(listing) => {
                self.snapshots += 1;
                self.records.clear();
                listing.entries.iter().for_each(|(key, stored)| self.set(key, Some(stored)));
            }
            WatchEvent::Changed(changes) => {
                changes.iter().for_each(|(key, stored)| self.set(key, stored.as_ref()));
            }
            WatchEvent::Interrupted(_) => self.interrupted = true,
            WatchEvent::ProcessGone(_) => {}
        }
    }

    fn set(&mut self, key: &Key, stored: Option<&Stored>) {
        let Some(stored) = stored else {
            self.records.remove(key);
            return;
        };
        self.told.insert(stored.value.clone());
        if let Some(before) = self.records.insert(key.clone(), stored.clone())
            && let (Some(before), Some(after)) = (number(&before), number(stored))
            && after < before
        {
            self.backwards = Some(format!("{key}: {before}, then {after}"));
        }
    }
}

fn number(stored: &Stored) -> Option<u64> {
    std::str::from_utf8(&stored.value).ok()?.parse().ok()
}

/// Opens a watch; `None` if the store says that it has none.
pub(super) async fn open_watch(store: &dyn Store) -> Result<Option<Watch>, Unmet> {
    let watch = store.watch().await?;
    ensure!(
        watch.is_some() == store.facts().watch,
        format!("a watch if and only if facts().watch, which is {}", store.facts().watch),
        if watch.is_some() { "a watch" } else { "none" },
        "a node polls only if the facts say that there is no watch",
    );
    Ok(watch)
}

async fn needed_watch(store: &dyn Store) -> Result<Watch, Unmet> {
    open_watch(store).await?.ok_or_else(|| Unmet::Skipped("the store has no watch".to_owned()))
}

/// The next event, which must come.
pub(super) async fn next(watch: &mut Watch, trial: &Trial<'_>) -> Result<WatchEvent, Unmet> {
    let seen = match tokio::time::timeout(trial.scale.patience, watch.next()).await {
        Ok(Some(event)) => return Ok(event),
        Ok(None) => "the end of the watch".to_owned(),
        Err(_) => format!("nothing for {:?}", trial.scale.patience),
    };
    let why = "a node believes its watch, and would not hear of anything until the next listing";
    Err(Unmet::failed("another event from a watch, which never ends by itself", seen, why))
}

/// Reads a watch until what came is as wanted, or nothing more comes. A watch that ends is a failure.
pub(super) async fn see_until(
    mut watch: Watch,
    trial: &Trial<'_>,
    wanted: impl Fn(&Seen) -> bool,
) -> Result<Seen, Unmet> {
    let mut seen = Seen::default();
    while !wanted(&seen) {
        let Ok(event) = tokio::time::timeout(trial.scale.patience, watch.next()).await else { break };
        let Some(event) = event else {
            let why = "a node believes its watch, and would not hear of anything until the next listing";
            return Err(Unmet::failed("a watch that never ends by itself", "its end", why));
        };
        seen.take(&event);
    }
    Ok(seen)
}
