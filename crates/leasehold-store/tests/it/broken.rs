//! Stores that break the contract on purpose, one way each, to show that the suite notices.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures::{StreamExt, future, stream};
use leasehold_store::conformance::{Fixture, MemoryFixture, Saved, Scale};
use leasehold_store::{
    Extensions, Facts, Key, Lane, LeaseId, LeaseState, Listing, Memory, Reading, Registry, Store, StoreError,
    StoreErrorKind, Stored, Swap, SwapReply, Swapped, Version, Watch, WatchEvent,
};

use crate::flaw::Flaw;

mod nodes;

/// The memory store with one flaw.
pub(crate) struct BrokenFixture {
    flaw: Flaw,
    whole: MemoryFixture,
    shared: Arc<Shared>,
}

/// What all clients of a broken store share.
#[derive(Default)]
struct Shared {
    namespaces: Mutex<Vec<String>>,
    versions: Mutex<BTreeMap<Version, Version>>,
    owners: Mutex<BTreeMap<String, LeaseId>>,
    early: Mutex<Vec<Swap>>,
    calls: AtomicU64,
    watches: AtomicU64,
}

impl BrokenFixture {
    pub(crate) fn new(flaw: Flaw) -> Self {
        BrokenFixture { flaw, whole: MemoryFixture::default(), shared: Arc::default() }
    }
}

#[async_trait]
impl Fixture for BrokenFixture {
    async fn open(&self, namespace: &str) -> Result<Arc<dyn Store>, StoreError> {
        self.shared.namespaces.lock().unwrap().push(namespace.to_owned());
        let handle = self.shared.calls.fetch_add(1, Ordering::Relaxed);
        let inner = self.whole.server.open(namespace);
        Ok(Arc::new(Broken {
            flaw: self.flaw,
            inner,
            shared: self.shared.clone(),
            handle,
            cache: Mutex::default(),
        }))
    }

    async fn wipe(&self, namespace: &str) -> Option<()> {
        self.whole.wipe(namespace).await
    }

    async fn save(&self, namespace: &str) -> Option<Saved> {
        self.whole.save(namespace).await
    }

    async fn roll_back(&self, namespace: &str, saved: Saved) -> Option<()> {
        self.whole.roll_back(namespace, saved).await
    }

    async fn put_raw(&self, namespace: &str, key: &str, bytes: &[u8]) -> Option<()> {
        self.whole.put_raw(namespace, key, bytes).await
    }

    async fn break_watches(&self, namespace: &str) -> Option<()> {
        self.whole.break_watches(namespace).await
    }

    async fn restart(&self) -> Option<()> {
        if self.flaw == Flaw::ForgetsOnRestart {
            self.whole.server.wipe();
        }
        self.whole.restart().await
    }

    async fn let_pass(&self, time: Duration) {
        if self.flaw != Flaw::NeverExpires {
            self.whole.let_pass(time).await;
        }
    }

    fn scale(&self) -> Scale {
        Scale { shards: 1500, ..Scale::default() }
    }
}

struct Broken {
    flaw: Flaw,
    inner: Memory,
    shared: Arc<Shared>,
    handle: u64,
    cache: Mutex<BTreeMap<Key, Option<Stored>>>,
}

impl Broken {
    fn has(&self, flaw: Flaw) -> bool {
        self.flaw == flaw
    }

    /// Whether this is one of every `n` calls.
    fn every(&self, n: u64) -> bool {
        self.shared.calls.fetch_add(1, Ordering::Relaxed) % n == n - 1
    }

    fn now(&self, key: &Key) -> Option<Stored> {
        self.inner.server().get_raw(self.inner.namespace(), &key.to_string())
    }

    fn key(&self, key: &Key) -> Key {
        match self.flaw {
            Flaw::FoldsCase => key.to_string().to_lowercase().parse().unwrap(),
            _ => key.clone(),
        }
    }

    /// The version as the broken store shows it.
    fn shown(&self, stored: &Stored) -> Version {
        match self.flaw {
            Flaw::VersionsByContents => Version::new(String::from_utf8_lossy(&stored.value)),
            Flaw::VersionsByRevision => self.shared.versions.lock().unwrap()[&stored.version].clone(),
            _ => stored.version.clone(),
        }
    }

    fn show(&self, stored: Option<Stored>) -> Option<Stored> {
        stored.map(|stored| Stored { version: self.shown(&stored), value: stored.value })
    }

    async fn broken_swap(&self, lane: Lane, swap: &Swap) -> Result<Swapped, StoreError> {
        let mut swap = swap.clone();
        swap.key = self.key(&swap.key);
        let now = self.now(&swap.key);
        self.disguise(&mut swap, now.as_ref()).await;
        if self.has(Flaw::SwallowsReplacements) && swap.expect.is_some() && now.is_some() {
            return Ok(Swapped::Applied(Version::new("swallowed")));
        }
        if self.has(Flaw::AnswersEarly) && now.as_ref().map(|s| &s.version) == swap.expect.as_ref() {
            self.shared.early.lock().unwrap().push(swap);
            return Ok(Swapped::Applied(Version::new("early")));
        }
        let store = match (self.flaw, lane) {
            (Flaw::LanesApart, Lane::Renewal) => &self.inner.server().open("renewals"),
            _ => &self.inner,
        };
        let mut outcome = store.swap(lane, std::slice::from_ref(&swap)).await?.outcomes.remove(0);
        if self.has(Flaw::RetriesByItself) && self.every(5) {
            outcome = store.swap(lane, std::slice::from_ref(&swap)).await?.outcomes.remove(0);
        }
        Ok(self.report(&swap, outcome).await)
    }

    /// Changes a swap into what the broken store makes of it.
    async fn disguise(&self, swap: &mut Swap, now: Option<&Stored>) {
        let current = now.map(|stored| stored.version.clone());
        match self.flaw {
            Flaw::IgnoresExpect => swap.expect = current,
            Flaw::RemovesBlindly if swap.value.is_none() => swap.expect = current,
            Flaw::Resurrects if now.is_none() => swap.expect = None,
            Flaw::VersionsByContents | Flaw::VersionsByRevision
                if now.map(|stored| self.shown(stored)) == swap.expect =>
            {
                swap.expect = current;
            }
            Flaw::CutsValues => {
                swap.value = swap.value.as_ref().map(|value| value[..value.len().min(32 * 1024)].into());
            }
            Flaw::CreatesWithoutCondition | Flaw::ReplacesWithoutCondition => {
                let creates = self.has(Flaw::CreatesWithoutCondition);
                if current == swap.expect && creates == swap.expect.is_none() {
                    tokio::task::yield_now().await;
                    swap.expect = self.now(&swap.key).map(|stored| stored.version);
                }
            }
            Flaw::WritesInTwoSteps if current == swap.expect && now.is_some() => {
                let (namespace, key) = (self.inner.namespace(), swap.key.to_string());
                swap.expect = Some(self.inner.server().put_raw(namespace, &key, *b"half a"));
                tokio::task::yield_now().await;
            }
            _ => {}
        }
    }

    async fn report(&self, swap: &Swap, outcome: Swapped) -> Swapped {
        match (self.flaw, outcome) {
            (Flaw::LostWithoutCurrent, Swapped::Lost(_)) => Swapped::Lost(None),
            (Flaw::VersionsByRevision, Swapped::Applied(version)) => {
                let revision = self.inner.list().await.unwrap().revision.unwrap();
                let shown = Version::new(revision.to_string());
                self.shared.versions.lock().unwrap().insert(version, shown.clone());
                Swapped::Applied(shown)
            }
            (Flaw::VersionsByContents, Swapped::Applied(_)) => {
                let value = swap.value.clone().unwrap_or_default();
                Swapped::Applied(Version::new(String::from_utf8_lossy(&value)))
            }
            (_, Swapped::Lost(found)) => Swapped::Lost(self.show(found)),
            (_, other) => other,
        }
    }

    /// Writes what was answered before it was there.
    async fn flush(&self) {
        let early = std::mem::take(&mut *self.shared.early.lock().unwrap());
        for swap in early {
            let _ = self.inner.swap(Lane::Work, &[swap]).await;
        }
    }

    fn spoil(&self, listing: &mut Listing) -> Result<(), StoreError> {
        let spoilt = |what| Err(StoreError::new(StoreErrorKind::Damaged, what));
        let damaged = |stored: &Stored| stored.value.starts_with(b"{") && !stored.value.ends_with(b"}");
        match self.flaw {
            Flaw::ListedVersionsDiffer => {
                for (_, stored) in &mut listing.entries {
                    stored.version = Version::new(format!("listed {}", stored.version.as_str()));
                }
            }
            Flaw::ListMissesTheLast => drop(listing.entries.pop()),
            Flaw::ListFlickers if self.every(5) && !listing.entries.is_empty() => {
                listing.entries.remove(0);
            }
            Flaw::ListsOnePage => listing.entries.truncate(1000),
            Flaw::HidesForeignKeys => listing.foreign.clear(),
            Flaw::ForeignKeysSpoilTheListing if !listing.foreign.is_empty() => {
                return spoilt("what is this?");
            }
            Flaw::DamageSpoilsTheListing if listing.entries.iter().any(|(_, stored)| damaged(stored)) => {
                return spoilt("no JSON");
            }
            Flaw::NamespaceIsAPrefix => {
                let mut names = self.shared.namespaces.lock().unwrap().clone();
                names.dedup();
                for name in names.iter().filter(|name| name.starts_with(self.inner.namespace())) {
                    let stored = self.inner.server().get_raw(name, "meta");
                    if *name != self.inner.namespace() {
                        listing.entries.extend(stored.map(|stored| (Key::Meta, stored)));
                    }
                }
            }
            _ => {}
        }
        for (_, stored) in &mut listing.entries {
            stored.version = self.shown(stored);
        }
        Ok(())
    }
}

#[async_trait]
impl Store for Broken {
    fn facts(&self) -> Facts {
        Facts { removes: self.flaw != Flaw::RemovesBlindly, ..self.inner.facts() }
    }

    async fn read(&self, keys: &[Key]) -> Result<Reading, StoreError> {
        let mut reading = Reading { found: Vec::new(), generation: self.generation().await? };
        if self.has(Flaw::LastKeyReadFirst) {
            return self.last_key_first(keys).await;
        }
        for key in keys {
            let now = self.show(self.now(&self.key(key)));
            reading.found.push(match self.flaw {
                Flaw::StaleReads => self.cache.lock().unwrap().entry(key.clone()).or_insert(now).clone(),
                _ => now,
            });
        }
        Ok(reading)
    }

    async fn list(&self) -> Result<Listing, StoreError> {
        let mut listing = match self.flaw {
            Flaw::MetaListedFirst => self.meta_first().await?,
            _ => self.inner.list().await?,
        };
        listing.generation = self.generation().await?;
        self.spoil(&mut listing)?;
        Ok(listing)
    }

    async fn list_nodes(&self) -> Result<Listing, StoreError> {
        self.broken_nodes().await
    }

    async fn swap(&self, lane: Lane, swaps: &[Swap]) -> Result<SwapReply, StoreError> {
        self.flush().await;
        let most = self.facts().swaps_max;
        if swaps.len() > most && self.flaw != Flaw::ForgetsSurplusSwaps {
            return Err(StoreError::new(StoreErrorKind::Refused, "too many"));
        }
        let would_lose = |swap: &Swap| self.now(&swap.key).map(|stored| stored.version) != swap.expect;
        if self.has(Flaw::AllOrNothing) && swaps.iter().any(would_lose) {
            let outcomes = swaps.iter().map(|swap| Swapped::Lost(self.now(&swap.key))).collect();
            return Ok(SwapReply { outcomes, generation: String::new() });
        }
        let mut outcomes = Vec::new();
        for swap in swaps.iter().take(most) {
            outcomes.push(self.broken_swap(lane, swap).await?);
        }
        if self.has(Flaw::OutcomesReversed) {
            outcomes.reverse();
        }
        Ok(SwapReply { outcomes, generation: self.generation().await? })
    }

    async fn watch(&self) -> Result<Option<Watch>, StoreError> {
        let inner = self.inner.clone();
        let watch = inner.watch().await?.unwrap();
        Ok(Some(match self.flaw {
            Flaw::NoSnapshot => keep(watch, |event| !matches!(event, WatchEvent::Snapshot(_))),
            Flaw::WatchForgets => {
                let mut told = 0;
                keep(watch, move |event| {
                    told += u32::from(matches!(event, WatchEvent::Changed(_)));
                    told % 7 != 6
                })
            }
            Flaw::WatchHidesRemovals => {
                keep(watch, |event| !matches!(event, WatchEvent::Changed(changes) if changes[0].1.is_none()))
            }
            Flaw::WatchReorders => {
                let chunks = watch.ready_chunks(1000).map(|events| events.into_iter().rev());
                Box::pin(chunks.flat_map(stream::iter))
            }
            Flaw::WatchBeginsLate => {
                let listing = inner.list().await?;
                let late = stream::once(async move { inner.watch().await.unwrap().unwrap().skip(1) });
                Box::pin(stream::iter([WatchEvent::Snapshot(listing)]).chain(late.flatten()))
            }
            Flaw::OneWatchOnly => {
                let shared = self.shared.clone();
                let number = shared.watches.fetch_add(1, Ordering::Relaxed);
                keep(watch, move |_| shared.watches.load(Ordering::Relaxed) == number + 1)
            }
            Flaw::HidesGaps => {
                let mut begun = false;
                keep(watch, move |event| match event {
                    WatchEvent::Interrupted(_) => false,
                    WatchEvent::Snapshot(_) => !std::mem::replace(&mut begun, true),
                    _ => true,
                })
            }
            Flaw::WatchEnds => Box::pin(
                watch.take_while(|event| future::ready(!matches!(event, WatchEvent::Interrupted(_)))),
            ),
            Flaw::WatchLeaks => {
                let name = format!("{}x", inner.namespace());
                let mut other = inner.server().open(&name).watch().await?.unwrap();
                other.next().await;
                Box::pin(stream::select(watch, other))
            }
            _ => watch,
        }))
    }

    async fn generation(&self) -> Result<String, StoreError> {
        match self.flaw {
            Flaw::GenerationsDiffer => Ok(self.handle.to_string()),
            _ => self.inner.generation().await,
        }
    }

    fn extensions(&self) -> Extensions<'_> {
        Extensions { registry: Some(self), ..Extensions::none() }
    }
}

fn keep(watch: Watch, mut wanted: impl FnMut(&WatchEvent) -> bool + Send + 'static) -> Watch {
    Box::pin(watch.filter(move |event| future::ready(wanted(event))))
}

impl Broken {
    fn keys_in(&self) -> Memory {
        match self.flaw {
            Flaw::KeysShared => self.inner.server().open("shared"),
            _ => self.inner.clone(),
        }
    }
}

#[async_trait]
impl Registry for Broken {
    async fn grant(&self, ttl: Duration) -> Result<LeaseId, StoreError> {
        self.keys_in().grant(ttl).await
    }

    async fn keep_alive(&self, lease: &LeaseId) -> Result<LeaseState, StoreError> {
        let state = self.keys_in().keep_alive(lease).await?;
        Ok(if self.has(Flaw::RenewsTheDead) { LeaseState::Alive } else { state })
    }

    async fn put(&self, lease: &LeaseId, key: &str, value: &[u8]) -> Result<LeaseState, StoreError> {
        self.shared.owners.lock().unwrap().insert(key.to_owned(), lease.clone());
        self.keys_in().put(lease, key, value).await
    }

    async fn remove(&self, lease: &LeaseId, key: &str) -> Result<(), StoreError> {
        let owner = self.shared.owners.lock().unwrap().get(key).cloned();
        match owner {
            Some(owner) if self.has(Flaw::RemovesAnyKey) => self.keys_in().remove(&owner, key).await,
            _ => self.keys_in().remove(lease, key).await,
        }
    }

    async fn revoke(&self, lease: &LeaseId) -> Result<(), StoreError> {
        match self.flaw {
            Flaw::RevokesNothing => Ok(()),
            _ => self.keys_in().revoke(lease).await,
        }
    }

    async fn keys(&self) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        let mut keys = self.keys_in().keys().await?;
        if self.has(Flaw::KeysUnordered) {
            keys.reverse();
        }
        Ok(keys)
    }

    async fn values(&self, keys: &[String]) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        let mut values = self.keys_in().values(keys).await?;
        if self.has(Flaw::RemembersValues) {
            let owners = self.shared.owners.lock().unwrap();
            for (key, value) in keys.iter().zip(&mut values).filter(|(key, _)| owners.contains_key(*key)) {
                value.get_or_insert_with(|| key.clone().into_bytes());
            }
        }
        Ok(values)
    }
}
