//! Rules of reading and listing.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use futures::{StreamExt, stream};
use leasehold_core::store::{Freshness, Key, Listing, Stored, Version};
use tokio::task::JoinSet;

use super::stopwatch::Stopwatch;
use super::trial::{Trial, Waited, get, listed, put, remove, shard, swap_all, wish};
use super::verdict::ensure;
use super::{Fixture, Note, Unmet, Verdict};
use crate::Store;

/// How many times one client writes and another looks.
const ROUNDS: u64 = 30;

/// A read shows at least everything that was applied before it was issued, by whichever client.
pub async fn reads_are_never_stale(fixture: &dyn Fixture) -> Verdict {
    let trial = Trial::begin(fixture, "fresh").await?;
    let key = shard(0);
    let mut version = None;
    for round in 0..ROUNDS {
        let (writer, reader) = if round % 2 == 0 { (&trial.a, &trial.b) } else { (&trial.b, &trial.a) };
        let value = round.to_string();
        version = Some(put(&**writer, &key, version.as_ref(), value.as_bytes()).await?);
        let found = get(&**reader, &key).await?;
        ensure!(
            found.as_ref().map(|stored| &stored.version) == version.as_ref(),
            format!("a read after write {round} to show {version:?}"),
            format!("{found:?}"),
            "a session is fenced when a read shows that it was not renewed: a stale read fences the living",
        );
    }
    Ok(Note::default())
}

/// A listing shows what was applied before it was issued: what was created is in it, what was removed is not. Stores
/// whose listings may lag must get there in time.
pub async fn lists_show_what_was_applied(fixture: &dyn Fixture) -> Verdict {
    let trial = Trial::begin(fixture, "list").await?;
    let lags = trial.a.facts().reads == Freshness::ListsMayLag;
    for round in 0..10 {
        let key = shard(round);
        let version = put(&*trial.a, &key, None, b"1").await?;
        expect_listed(&trial, &key, Some(&version), lags).await?;
        if round % 2 == 0 && trial.a.facts().removes {
            remove(&*trial.a, &key, &version).await?;
            expect_listed(&trial, &key, None, lags).await?;
        }
    }
    Ok(Note(if lags { "listings may lag, and came in time".to_owned() } else { String::new() }))
}

async fn expect_listed(
    trial: &Trial<'_>,
    key: &Key,
    version: Option<&Version>,
    lags: bool,
) -> Result<(), Unmet> {
    let shown = |listing: &Listing| listed(listing, key).map(|found| found.map(|s| s.version.clone()));
    let as_wanted = |listing: &Listing| !lags || shown(listing).is_ok_and(|seen| seen.as_ref() == version);
    let seen = shown(&trial.list_until(&*trial.b, as_wanted).await?)?;
    ensure!(
        seen.as_ref() == version,
        format!("a listing to show {key} as it is, {version:?}"),
        format!("{seen:?}"),
        "a node stops a shard whose record does not name it, and takes one that seems to be free",
    );
    Ok(())
}

/// Listings that are made while others write have each record that exists all along once, never in a state older than
/// one that was applied before the listing was issued.
pub async fn lists_are_whole_while_others_write(fixture: &dyn Fixture) -> Verdict {
    const KEYS: u64 = 5;
    let trial = Trial::begin(fixture, "busy-list").await?;
    for i in 0..KEYS {
        put(&*trial.a, &shard(i), None, b"0").await?;
    }
    let done = Arc::new(AtomicBool::new(false));
    let applied: Arc<Vec<AtomicU64>> = Arc::new((0..KEYS).map(|_| AtomicU64::new(0)).collect());
    let mut writers = JoinSet::new();
    for i in 0..KEYS {
        let (store, done, applied) = (trial.a.clone(), done.clone(), applied.clone());
        writers.spawn(async move { count_up(&*store, i, &done, &applied[i as usize]).await });
    }
    let checked = check_lists(&trial, &applied).await;
    done.store(true, Ordering::Relaxed);
    while let Some(writer) = writers.join_next().await {
        writer.expect("no writer panics")?;
    }
    checked?;
    let writes: u64 = applied.iter().map(|count| count.load(Ordering::Relaxed)).sum();
    Ok(Note(format!("{ROUNDS} listings during {writes} writes")))
}

async fn count_up(store: &dyn Store, i: u64, done: &AtomicBool, applied: &AtomicU64) -> Result<(), Unmet> {
    let key = shard(i);
    let mut version = get(store, &key).await?.map(|stored| stored.version);
    let mut count = 0;
    while !done.load(Ordering::Relaxed) {
        count += 1;
        version = Some(put(store, &key, version.as_ref(), u64::to_string(&count).as_bytes()).await?);
        applied.store(count, Ordering::Relaxed);
        tokio::task::yield_now().await;
    }
    Ok(())
}

async fn check_lists(trial: &Trial<'_>, applied: &[AtomicU64]) -> Result<(), Unmet> {
    let lags = trial.a.facts().reads == Freshness::ListsMayLag;
    for _ in 0..ROUNDS {
        tokio::task::yield_now().await;
        let before: Vec<u64> = applied.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        let listing = trial.b.list().await?;
        for (i, before) in before.into_iter().enumerate() {
            let seen = listed(&listing, &shard(i))?.map(number);
            ensure!(
                seen.is_some_and(|seen| lags || seen >= before),
                format!("{} in a listing, with at least {before}, which was applied before it", shard(i)),
                format!("{seen:?}"),
                "a record that a listing misses looks like a shard without a holder",
            );
        }
    }
    Ok(())
}

fn number(stored: &Stored) -> u64 {
    String::from_utf8_lossy(&stored.value).parse().unwrap_or(0)
}

/// Many shards are all listed, each once, with their own values.
pub async fn large_lists_are_whole(fixture: &dyn Fixture) -> Verdict {
    let trial = Trial::begin(fixture, "large").await?;
    let count = trial.scale.shards;
    let keys: Vec<Key> = (0..count).map(shard).collect();
    let writing = Stopwatch::start();
    let chunks = keys.chunks(trial.a.facts().swaps_max.clamp(1, 1000)).map(<[Key]>::to_vec);
    let creations: Vec<_> = chunks.map(|chunk| create(trial.a.clone(), chunk)).collect();
    let mut written = stream::iter(creations).buffer_unordered(16);
    while let Some(created) = written.next().await {
        created?;
    }
    let wrote_in = writing.elapsed();
    let mut patience = trial.patience();
    let (seen, listed_in) = loop {
        let listing = Stopwatch::start();
        let entries = trial.b.list().await?.entries;
        let listed_in = listing.elapsed();
        let seen = (entries.len(), count_missing(&keys, &entries));
        let lags = trial.a.facts().reads == Freshness::ListsMayLag;
        if seen == (count, 0) || !lags || patience.wait().await == Waited::Enough {
            break (seen, listed_in);
        }
    };
    ensure!(
        seen == (count, 0),
        format!("{count} records, each once and with its own value"),
        format!("{} entries; {} records missing or with a wrong value", seen.0, seen.1),
        "a lost or repeated page hides shards, so that another node takes them, or none does",
    );
    Ok(Note(format!("{count} shards written in {wrote_in:.1?}, listed in {listed_in:.1?}")))
}

async fn create(store: Arc<dyn Store>, keys: Vec<Key>) -> Result<(), Unmet> {
    let swaps: Vec<_> = keys.iter().map(|key| wish(key, None, Some(key.to_string().as_bytes()))).collect();
    swap_all(&*store, &swaps).await.map(drop)
}

fn count_missing(keys: &[Key], entries: &[(Key, Stored)]) -> usize {
    let right: BTreeSet<&Key> = entries
        .iter()
        .filter(|(key, stored)| *stored.value == *key.to_string().as_bytes())
        .map(|(key, _)| key)
        .collect();
    keys.iter().filter(|key| !right.contains(key)).count()
}
