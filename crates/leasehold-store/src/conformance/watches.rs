//! Rules of the watch.

use std::collections::BTreeMap;
use std::sync::Arc;

use leasehold_core::store::{Key, Stored, WatchEvent};
use tokio::task::JoinSet;

use super::trial::{Trial, get, put, remove, shard};
use super::verdict::ensure;
use super::watching::{WatchedState, Watching, needed_watch, next, no_watch};
use super::{Fixture, Note, Unmet, Verdict};
use crate::Store;

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

/// Every change of every record arrives, no matter who made it: the last state of each key always, and the states of one
/// key in the order in which they came to be. States that were replaced at once may be left out.
pub async fn watches_tell_every_change_in_order(fixture: &dyn Fixture) -> Verdict {
    const KEYS: usize = 10;
    let trial = Trial::begin(fixture, "order").await?;
    let mut watching = Watching::begin(&*trial.b, &trial).await?.ok_or_else(no_watch)?;
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
    let arrived = |seen: &WatchedState| {
        seen.records.len() == last.len()
            && last.iter().all(|(key, version)| seen.records.get(key).is_some_and(|s| s.version == *version))
    };
    watching.until(&trial, arrived).await?;
    watching.drain().await;
    let seen = &watching.seen;
    ensure!(
        seen.backwards.is_none(),
        "the states of each record in the order in which they came to be",
        seen.backwards.clone().unwrap_or_default(),
        "an older state after a newer one looks like a rolled-back store, or hands a shard back to its old holder",
    );
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
    Ok(Note::default())
}

/// Nothing is lost between the snapshot and the changes: a reader that applies them all has what a listing shows.
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
        let mut watching = Watching::unread(needed_watch(&*trial.b).await?);
        while let Some(written) = writers.join_next().await {
            written.expect("no writer panics")?;
        }
        let keys: Vec<Key> =
            (0..=round).flat_map(|round| (0..4).map(move |writer| name(round, writer))).collect();
        let found = super::trial::read_all(&*trial.a, &keys).await?.found;
        let there: BTreeMap<Key, Stored> =
            keys.into_iter().zip(found).filter_map(|(key, stored)| Some((key, stored?))).collect();
        watching.until(&trial, |seen| seen.records == there).await?;
        let seen = &watching.seen;
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
    let mut other = Watching::begin(&*trial.a, &trial).await?.ok_or_else(no_watch)?;
    let old = put(&*trial.a, &shard(0), None, b"1").await?;
    drop(Watching::begin(&*trial.b, &trial).await?);
    put(&*trial.a, &shard(0), Some(&old), b"2").await?;
    put(&*trial.a, &shard(1), None, b"1").await?;
    let again = Watching::begin(&*trial.b, &trial).await?.ok_or_else(no_watch)?;
    let now = get(&*trial.a, &shard(0)).await?;
    ensure!(
        again.seen.snapshots == 1
            && again.seen.records.len() == 2
            && again.seen.records.get(&shard(0)) == now.as_ref(),
        "a snapshot with what changed while no watch was open",
        format!("{:?}", again.seen),
        "a node that was cut off must not plan with what it saw before",
    );
    other
        .until(&trial, |seen| seen.records.get(&shard(0)) == now.as_ref() && seen.records.len() == 2)
        .await?;
    ensure!(
        other.seen.records.len() == 2,
        "a watch to go on after another one was dropped",
        format!("{} of 2 records", other.seen.records.len()),
        "two users of one store, such as a node and its status page, must not disturb each other",
    );
    Ok(Note::default())
}

/// A watch that broke says so, and goes on by itself with a snapshot that has what changed meanwhile.
pub async fn a_broken_watch_resumes_with_a_snapshot(fixture: &dyn Fixture) -> Verdict {
    let trial = Trial::begin(fixture, "gap").await?;
    let mut watching = Watching::begin(&*trial.b, &trial).await?.ok_or_else(no_watch)?;
    if trial.fixture.break_watches(&trial.namespace).await.is_none() {
        return Err(Unmet::no_lever("break a watch"));
    }
    let version = put(&*trial.a, &shard(0), None, b"during the gap").await?;
    watching.until(&trial, |seen| seen.records.len() == 1 && seen.snapshots > 1).await?;
    let seen = &watching.seen;
    ensure!(
        seen.interrupted && seen.snapshots > 1,
        "an interruption and then a snapshot",
        format!("interrupted: {}, snapshots in all: {}", seen.interrupted, seen.snapshots),
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

/// A watch that is not read for a while neither blocks writers nor lies afterwards: it delivers all changes, or says
/// that it was interrupted and goes on with a snapshot.
pub async fn a_slow_reader_sees_the_truth(fixture: &dyn Fixture) -> Verdict {
    let trial = Trial::begin(fixture, "slow").await?;
    let mut watching = Watching::begin(&*trial.b, &trial).await?.ok_or_else(no_watch)?;
    let mut versions = BTreeMap::new();
    for key in (0..40).map(shard) {
        let mut version = None;
        for _ in 0..50 {
            version = Some(put(&*trial.a, &key, version.as_ref(), b"1").await?);
        }
        versions.insert(key, version.expect("it was written"));
    }
    let right = |seen: &WatchedState| {
        versions
            .iter()
            .filter(|(key, version)| seen.records.get(key).is_some_and(|s| s.version == **version))
            .count()
    };
    watching.until(&trial, |seen| right(seen) == versions.len()).await?;
    let seen = &watching.seen;
    ensure!(
        right(seen) == versions.len(),
        format!("the last state of all {} records", versions.len()),
        format!("that of {}", right(seen)),
        "a node that was busy must not go on with records that it never sees again",
    );
    Ok(Note(format!("2000 changes unread, {} snapshots in all", seen.snapshots)))
}
