//! Registered keys: one Lease each, under leases whose age is measured with the API server's clock.
//!
//! Kubernetes expires nothing by itself. A lease is a Lease that is replaced at every renewal. The server notes in
//! `managedFields` when it took a write of ours, and it says in the `Date` of every answer what time it is; a lease is over
//! when these are further apart than its ttl and two seconds. No client's clock is asked, and the times in the Lease's fields,
//! which the server's clock gave as well, are for people and other tools.
//!
//! A lease that is over stays so: it is renewed on condition of the state that was seen alive, and a renewal that the server
//! took too late after the one before is undone. Keys don't have the lease as their owner in the sense of Kubernetes: its
//! garbage collector deletes by uid, and could delete a key that another process has just taken over. A
//! renewal sometimes removes a few Leases that expired long ago, each on condition of the state in which it was seen.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::jiff::Timestamp;
use leasehold_core::Moment;
use leasehold_store::{LeaseId, LeaseState, Registry, StoreError, StoreErrorKind, rng};
use serde::de::IgnoredAny;

use crate::api_types::TimedLease;
use crate::clock;
use crate::kubernetes::{AT_ONCE, Inner, Kubernetes};
use crate::layout::Base;
use crate::leases::{Wrote, timeless};
use crate::registered::{Registered, Registration, written};

/// How often a key is read again because another process wrote it.
const TRIES: u32 = 10;
/// How often a process looks for what is long gone.
const REMOVE_EVERY: Duration = Duration::from_secs(600);
/// How many Leases are removed at a time; the rest goes with the next renewal.
const TIDIED_MAX: usize = 100;
/// How long that may hold up a call whose own work is done already, at most.
const REMOVE_FOR_MAX: Duration = Duration::from_secs(1);

/// When to look for what is long gone: at the first renewal, and then now and then.
#[derive(Debug, Default)]
pub(crate) struct Tidying {
    due_at: Mutex<Moment>,
}

impl Tidying {
    fn is_due(&self) -> bool {
        *self.due_at.lock().unwrap_or_else(PoisonError::into_inner) <= clock::now()
    }

    fn next_after(&self, pause: Duration) {
        *self.due_at.lock().unwrap_or_else(PoisonError::into_inner) = clock::now() + pause;
    }
}

/// All leases and registered keys at one moment, and what time it was then.
struct Census {
    leases: BTreeMap<LeaseId, Registration>,
    keys: Vec<Registered>,
    now: Timestamp,
}

/// What to delete: a name, and the state in which it was seen.
type Doomed = (String, Base);

impl Kubernetes {
    /// A lease that is alive, and what time it is.
    async fn alive(&self, id: &LeaseId) -> Result<Option<(Registration, Timestamp)>, StoreError> {
        let Inner { leases, registry, .. } = &*self.inner;
        let (found, now) = leases.get_dated(registry, &leases.layout.lease_name(id)).await?;
        let found = found.and_then(|lease| leases.layout.registration(&lease));
        Ok(found.filter(|found| found.is_alive_at(now)).map(|found| (found, now)))
    }

    async fn census(&self) -> Result<Census, StoreError> {
        let Inner { leases, work, .. } = &*self.inner;
        let (all, now) = leases.list_dated(work, &leases.layout.registered_selector()).await?;
        let registrations = all.iter().filter_map(|lease| leases.layout.registration(lease));
        let keys = all.iter().filter_map(|lease| leases.layout.registered(lease)).collect();
        Ok(Census { leases: registrations.map(|found| (found.id.clone(), found)).collect(), keys, now })
    }

    /// Deletes these in the state in which they were seen. What others changed or deleted meanwhile stays as it is.
    async fn delete_seen(&self, doomed: Vec<Doomed>) -> Result<(), StoreError> {
        let Inner { leases, work, rate_limit, .. } = &*self.inner;
        let delete = |(name, base): Doomed| async move {
            rate_limit.turn().await;
            leases.delete(work, &name, &base).await.map(drop)
        };
        stream::iter(doomed).map(delete).buffer_unordered(AT_ONCE).try_collect().await
    }

    /// Removes some of what is long gone, in the time that a renewal may spare.
    async fn remove_expired(&self, ttl: Duration) {
        let removals = &self.inner.removals;
        if !removals.is_due() {
            return;
        }
        // First this: should it take too long, it is not tried again with every renewal.
        removals.next_after(REMOVE_EVERY + rng::up_to(REMOVE_EVERY / 4));
        let work = async {
            let mut doomed = self.census().await?.long_gone(&self.inner);
            let more = doomed.len() > TIDIED_MAX;
            doomed.truncate(TIDIED_MAX);
            self.delete_seen(doomed).await?;
            Ok::<_, StoreError>(more)
        };
        match tokio::time::timeout(REMOVE_FOR_MAX.min(ttl / 10), work).await {
            Ok(Ok(true)) => removals.next_after(Duration::ZERO),
            Ok(Ok(false)) => {}
            Ok(Err(error)) => tracing::debug!(%error, "expired registered keys were not removed"),
            Err(_) => tracing::debug!("not all expired registered keys were removed in time"),
        }
    }

    /// Deletes all leases and registered keys of this namespace.
    pub(crate) async fn remove_all_registered(&self) -> Result<(), StoreError> {
        let Inner { leases, work, .. } = &*self.inner;
        let (all, _) = leases.list_dated(work, &leases.layout.registered_selector()).await?;
        self.delete_seen(all.iter().map(doomed).collect()).await
    }
}

impl Census {
    /// Keys first: a lease that is still there says for how long it is gone.
    fn long_gone(&self, inner: &Inner) -> Vec<Doomed> {
        let is_gone = |id: &LeaseId| self.leases.get(id).is_none_or(|lease| lease.is_long_gone_at(self.now));
        let keys = self.keys.iter().filter(|key| is_gone(&key.lease));
        let keys = keys.map(|key| (key.name.clone(), key.base.clone()));
        let leases = self.leases.values().filter(|lease| lease.is_long_gone_at(self.now));
        let name = |lease: &Registration| inner.leases.layout.lease_name(&lease.id);
        keys.chain(leases.map(|lease| (name(lease), lease.base.clone()))).collect()
    }
}

#[async_trait]
impl Registry for Kubernetes {
    async fn grant(&self, ttl: Duration) -> Result<LeaseId, StoreError> {
        let Inner { leases, registry, .. } = &*self.inner;
        let id = LeaseId(rng::fresh_id()?);
        let name = leases.layout.lease_name(&id);
        // Nothing is there; this is for the time.
        let (_, now) = leases.get_dated(registry, &name).await?;
        match leases.create::<TimedLease>(registry, &leases.layout.new_lease(&id, ttl, now)?).await? {
            Wrote::Done(made) if written(&made).is_some() => Ok(id),
            Wrote::Done(_) => {
                leases.delete_any(registry, &name).await?;
                Err(timeless())
            }
            Wrote::Refused => Err(busy("a lease with that name already exists")),
            Wrote::Forbidden(error) => Err(error),
        }
    }

    async fn keep_alive(&self, lease: &LeaseId) -> Result<LeaseState, StoreError> {
        let Inner { leases, registry, .. } = &*self.inner;
        let Some((found, now)) = self.alive(lease).await? else { return Ok(LeaseState::Gone) };
        let renewal = leases.layout.renewed(&found, now)?;
        match leases.replace::<TimedLease>(registry, &renewal).await? {
            Wrote::Done(made) => {
                let Some(renewed) = leases.layout.registration(&made) else { return Err(timeless()) };
                if !renewed.is_noted_since(now) {
                    return Err(timeless());
                }
                if !found.is_alive_at(renewed.written) {
                    leases.delete(registry, &renewal.metadata.name, &renewed.base).await?;
                    return Ok(LeaseState::Gone);
                }
                self.remove_expired(found.ttl).await;
                Ok(LeaseState::Alive)
            }
            // It was removed, or an earlier renewal of ours whose caller stopped waiting was faster.
            Wrote::Refused => Ok(self.alive(lease).await?.map_or(LeaseState::Gone, |_| LeaseState::Alive)),
            Wrote::Forbidden(error) => Err(error),
        }
    }

    async fn put(&self, lease: &LeaseId, key: &str, value: &[u8]) -> Result<LeaseState, StoreError> {
        let Inner { leases, registry, .. } = &*self.inner;
        let name = leases.layout.key_name(key);
        for _ in 0..TRIES {
            let (alive, there) = futures::try_join!(self.alive(lease), leases.get_named(registry, &name))?;
            if alive.is_none() {
                return Ok(LeaseState::Gone);
            }
            let base = there.map(|there| there.metadata.base());
            let wish = leases.layout.new_key(lease, key, value, base.as_ref())?;
            let wrote = match base {
                None => leases.create::<IgnoredAny>(registry, &wish).await?,
                Some(_) => leases.replace::<IgnoredAny>(registry, &wish).await?,
            };
            match wrote {
                Wrote::Done(_) => return Ok(LeaseState::Alive),
                Wrote::Refused => {}
                Wrote::Forbidden(error) => return Err(error),
            }
        }
        Err(busy(format!("other processes keep writing the key {key:?}")))
    }

    async fn remove(&self, lease: &LeaseId, key: &str) -> Result<(), StoreError> {
        let Inner { leases, registry, .. } = &*self.inner;
        let name = leases.layout.key_name(key);
        for _ in 0..TRIES {
            let (found, _) = leases.get_dated(registry, &name).await?;
            let found = found.and_then(|found| leases.layout.registered(&found));
            let Some(found) = found.filter(|found| found.lease == *lease) else { return Ok(()) };
            match leases.delete(registry, &name, &found.base).await? {
                Wrote::Done(_) => return Ok(()),
                Wrote::Refused => {}
                Wrote::Forbidden(error) => return Err(error),
            }
        }
        Err(busy(format!("other processes keep writing the key {key:?}")))
    }

    async fn revoke(&self, lease: &LeaseId) -> Result<(), StoreError> {
        let Inner { leases, registry, work, .. } = &*self.inner;
        // With this all its keys are gone for readers; their Leases follow, or another process removes them later.
        leases.delete_any(registry, &leases.layout.lease_name(lease)).await?;
        let removed = async {
            let (under, _) = leases.list_dated(work, &leases.layout.selector_under(lease)).await?;
            self.delete_seen(under.iter().map(doomed).collect()).await
        };
        if !matches!(tokio::time::timeout(REMOVE_FOR_MAX, removed).await, Ok(Ok(()))) {
            tracing::debug!("some keys of a revoked lease are left for a later renewal to remove");
            self.inner.removals.next_after(Duration::ZERO);
        }
        Ok(())
    }

    async fn keys(&self) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        let Census { leases, keys, now } = self.census().await?;
        let alive: BTreeSet<&LeaseId> =
            leases.values().filter(|lease| lease.is_alive_at(now)).map(|lease| &lease.id).collect();
        let kept = keys.into_iter().filter(|key| alive.contains(&key.lease));
        Ok(kept.map(|key| (key.key, key.value)).collect::<BTreeMap<_, _>>().into_iter().collect())
    }

    async fn values(&self, keys: &[String]) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        let Inner { leases, registry, .. } = &*self.inner;
        let look = |key: String| async move {
            let (found, _) = leases.get_dated(registry, &leases.layout.key_name(&key)).await?;
            Ok::<_, StoreError>(found.and_then(|found| leases.layout.registered(&found)))
        };
        let found: Vec<Option<Registered>> =
            stream::iter(keys.to_vec()).map(look).buffered(AT_ONCE).try_collect().await?;
        let mut alive = BTreeMap::new();
        for lease in found.iter().flatten().map(|key| &key.lease).collect::<BTreeSet<_>>() {
            alive.insert(lease.clone(), self.alive(lease).await?.is_some());
        }
        let value = |key: Registered| alive[&key.lease].then_some(key.value);
        Ok(found.into_iter().map(|found| found.and_then(value)).collect())
    }
}

fn doomed(lease: &TimedLease) -> Doomed {
    let plain = &lease.metadata.plain;
    (plain.name.clone(), plain.base())
}

fn busy(what: impl Into<String>) -> StoreError {
    StoreError::new(StoreErrorKind::Busy, what)
}
