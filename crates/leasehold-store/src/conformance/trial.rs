use std::sync::Arc;
use std::time::Duration;

use leasehold_core::store::{Key, Lane, Listing, Stored, Swap, Swapped, Version};

use super::{Fixture, Scale, Unmet};
use crate::{Reading, Store, SwapReply};

/// One property at work: a fresh namespace with two independent clients.
pub(super) struct Trial<'a> {
    pub(super) fixture: &'a dyn Fixture,
    pub(super) scale: Scale,
    pub(super) namespace: String,
    pub(super) a: Arc<dyn Store>,
    pub(super) b: Arc<dyn Store>,
}

impl<'a> Trial<'a> {
    pub(super) async fn begin(fixture: &'a dyn Fixture, hint: &str) -> Result<Self, Unmet> {
        let namespace = fixture.fresh_namespace(hint);
        let (a, b) = (fixture.open(&namespace).await?, fixture.open(&namespace).await?);
        Ok(Trial { fixture, scale: fixture.scale(), namespace, a, b })
    }

    /// One more client of the same namespace.
    pub(super) async fn open(&self) -> Result<Arc<dyn Store>, Unmet> {
        Ok(self.fixture.open(&self.namespace).await?)
    }

    /// How long to go on trying what must happen by itself.
    pub(super) fn patience(&self) -> Patience {
        Patience { left: self.scale.patience }
    }

    /// Lists until the listing is as wanted, and gives the last one if patience ends before.
    pub(super) async fn list_until(
        &self,
        store: &dyn Store,
        wanted: impl Fn(&Listing) -> bool,
    ) -> Result<Listing, Unmet> {
        let mut patience = self.patience();
        loop {
            let listing = store.list().await?;
            if wanted(&listing) || patience.wait().await == Waited::Enough {
                return Ok(listing);
            }
        }
    }
}

/// Waits a little at a time, but not forever.
pub(super) struct Patience {
    left: Duration,
}

/// Whether it makes sense to try once more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waited {
    /// Yes.
    More,
    /// No: patience is at its end.
    Enough,
}

impl Patience {
    pub(super) async fn wait(&mut self) -> Waited {
        const PAUSE: Duration = Duration::from_millis(20);
        let Some(left) = self.left.checked_sub(PAUSE) else { return Waited::Enough };
        self.left = left;
        tokio::time::sleep(PAUSE).await;
        Waited::More
    }
}

/// The key of a shard of the group that the tests use.
pub(super) fn shard(name: impl std::fmt::Display) -> Key {
    parse(&format!("shards/conformance/{name}"))
}

pub(super) fn parse(key: &str) -> Key {
    key.parse().expect("the suite's own keys are valid")
}

pub(super) fn wish(key: &Key, expect: Option<&Version>, value: Option<&[u8]>) -> Swap {
    Swap { key: key.clone(), expect: expect.cloned(), value: value.map(Arc::from) }
}

/// Sends the swaps and checks the shape of the reply.
pub(super) async fn swap_all(store: &dyn Store, swaps: &[Swap]) -> Result<SwapReply, Unmet> {
    let reply = store.swap(Lane::Work, swaps).await?;
    if reply.outcomes.len() != swaps.len() {
        return Err(Unmet::failed(
            format!("one outcome for each of {} swaps", swaps.len()),
            format!("{} outcomes", reply.outcomes.len()),
            "outcomes are matched to swaps by their place: a missing one credits a node with another's write",
        ));
    }
    Ok(reply)
}

pub(super) async fn swap_one(store: &dyn Store, swap: Swap) -> Result<Swapped, Unmet> {
    Ok(swap_all(store, std::slice::from_ref(&swap)).await?.outcomes.remove(0))
}

/// Writes, which must succeed.
pub(super) async fn put(
    store: &dyn Store,
    key: &Key,
    expect: Option<&Version>,
    value: &[u8],
) -> Result<Version, Unmet> {
    applied(swap_one(store, wish(key, expect, Some(value))).await?, key)
}

/// Removes, which must succeed.
pub(super) async fn remove(store: &dyn Store, key: &Key, expect: &Version) -> Result<Version, Unmet> {
    applied(swap_one(store, wish(key, Some(expect), None)).await?, key)
}

fn applied(outcome: Swapped, key: &Key) -> Result<Version, Unmet> {
    match outcome {
        Swapped::Applied(version) => Ok(version),
        other => Err(Unmet::failed(
            format!("a swap of {key} that expects exactly what is there to be applied"),
            format!("{other:?}"),
            "a node whose right swaps don't apply can never claim, renew or release",
        )),
    }
}

pub(super) async fn get(store: &dyn Store, key: &Key) -> Result<Option<Stored>, Unmet> {
    Ok(read_all(store, std::slice::from_ref(key)).await?.found.remove(0))
}

/// Reads and checks the shape of the reply.
pub(super) async fn read_all(store: &dyn Store, keys: &[Key]) -> Result<Reading, Unmet> {
    let reading = store.read(keys).await?;
    if reading.found.len() != keys.len() {
        return Err(Unmet::failed(
            format!("one answer for each of {} keys", keys.len()),
            format!("{} answers", reading.found.len()),
            "answers are matched to keys by their place: a missing one shows a record under another's key",
        ));
    }
    Ok(reading)
}

/// What a listing has under a key; fails if it has the key twice.
pub(super) fn listed<'l>(listing: &'l Listing, key: &Key) -> Result<Option<&'l Stored>, Unmet> {
    let mut found = listing.entries.iter().filter(|(listed, _)| listed == key).map(|(_, stored)| stored);
    let first = found.next();
    if found.next().is_some() {
        return Err(Unmet::failed(
            format!("{key} once in a listing"),
            "it more than once",
            "two states of one record in one listing leave open who holds the shard",
        ));
    }
    Ok(first)
}

/// Bytes for people, cut short.
pub(super) fn show(bytes: &[u8]) -> String {
    let start: String = String::from_utf8_lossy(bytes).chars().take(40).collect();
    format!("{start:?} ({} bytes)", bytes.len())
}
