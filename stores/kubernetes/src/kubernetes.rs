use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use leasehold_store::{
    Administration, Charged, Extensions, Facts, Finding, Freshness, Key, Lane, Listing, Reading, Safety,
    Store, StoreError, Swap, SwapReply, Swapped, Throwaway, Version, Watch,
};

use crate::client::{self, ApiClient};
use crate::layout::{self, Base};
use crate::leases::{Leases, Wrote};
use crate::options::Options;
use crate::rate_limit::RateLimit;
use crate::registry::Tidying;
use crate::{examine, watch, zone};

/// The most swaps in one call, all of them under way at once. Each is a request of its own, and the call is answered
/// when the last of them is, so a few are better than many; the core has up to eight such calls under way.
const SWAPS_MAX: usize = 4;
/// How many requests of one call are under way at once.
pub(crate) const AT_ONCE: usize = 8;
/// More keys than this are read by one listing, which is just as fresh.
const READS_MAX: usize = 32;

/// One namespace of Leasehold as Leases on the Kubernetes API.
#[derive(Clone, Debug)]
pub struct Kubernetes {
    pub(crate) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) leases: Leases,
    /// Renewals, and nothing else.
    renewal: ApiClient,
    pub(crate) work: ApiClient,
    pub(crate) watch: ApiClient,
    /// Leases of registered keys, and what is put under them.
    pub(crate) registry: ApiClient,
    pub(crate) removals: Tidying,
    pub(crate) rate_limit: RateLimit,
}

impl Kubernetes {
    /// Opens a namespace of the store at an address such as `k8s://jobs?prefix=orders`. The first
    /// call connects.
    pub fn open(address: &str, namespace: &str) -> Result<Self, StoreError> {
        Ok(Kubernetes::open_with(Options::parse(address)?, namespace))
    }

    /// Opens a namespace of Leasehold with these options.
    pub fn open_with(options: Options, namespace: &str) -> Self {
        let link = || ApiClient::new(options.clone());
        let inner = Inner {
            leases: Leases::new(&options, namespace),
            renewal: link(),
            work: link(),
            watch: link(),
            registry: link(),
            removals: Tidying::default(),
            rate_limit: RateLimit::new(options.writes_per_second, options.writes_burst),
        };
        Kubernetes { inner: Arc::new(inner) }
    }

    /// The host and port of the API server that clients at an address connect to. With `via=host:port` in the address
    /// they connect to another one, which passes everything on.
    pub async fn server_of(address: &str) -> Result<Option<String>, StoreError> {
        client::server(&Options::parse(address)?).await
    }

    /// The zone of the Kubernetes node that a pod runs on, by its label `topology.kubernetes.io/zone`; give it to
    /// Leasehold's node as its zone. RBAC must allow to get nodes, which needs a ClusterRole.
    pub async fn zone_of(&self, kube_node: &str) -> Result<Option<String>, StoreError> {
        zone::zone_of(&self.inner.work, kube_node).await
    }
}

#[async_trait]
impl Store for Kubernetes {
    fn facts(&self) -> Facts {
        Facts {
            kind: "kubernetes",
            watch: true,
            poll_every: Duration::from_secs(5),
            write_every_min: Duration::from_millis(10),
            swaps_max: SWAPS_MAX,
            reads: Freshness::Newest,
            removes: true,
            safety: Safety::Strict,
            ttl_default: Duration::from_secs(15),
        }
    }

    async fn read(&self, keys: &[Key]) -> Result<Reading, StoreError> {
        let Inner { leases, work, .. } = &*self.inner;
        if keys.len() > READS_MAX {
            let listing = leases.list(work).await?.listing;
            let there: std::collections::BTreeMap<Key, _> = listing.entries.into_iter().collect();
            let found = keys.iter().map(|key| there.get(key).cloned()).collect();
            return Ok(Reading { found, generation: listing.generation });
        }
        let generation = leases.generation(work).await?;
        let Some((last, others)) = keys.split_last() else {
            return Ok(Reading { found: Vec::new(), generation });
        };
        let reads: Vec<_> = others.iter().map(|key| leases.get(work, key).boxed()).collect();
        let mut found: Vec<_> = stream::iter(reads).buffered(AT_ONCE).try_collect().await?;
        // The last key is read after all others: it may vouch for them.
        found.push(leases.get(work, last).await?);
        Ok(Reading { found, generation })
    }

    async fn list(&self) -> Result<Listing, StoreError> {
        Ok(self.inner.leases.list(&self.inner.work).await?.listing)
    }

    async fn list_nodes(&self) -> Result<Listing, StoreError> {
        self.inner.leases.list_nodes(&self.inner.work).await
    }

    async fn swap(&self, lane: Lane, swaps: &[Swap]) -> Result<SwapReply, StoreError> {
        let Inner { leases, renewal, work, rate_limit, .. } = &*self.inner;
        let link = match lane {
            Lane::Renewal => renewal,
            Lane::Work => work,
        };
        let generation = leases.generation(link).await?;
        let attempt = async |swap: &Swap| {
            if lane == Lane::Work {
                rate_limit.turn().await;
            }
            try_swap(leases, link, swap).await
        };
        let tries: Vec<_> = swaps.iter().map(|swap| attempt(swap).boxed()).collect();
        let tried: Vec<Result<Swapped, StoreError>> = stream::iter(tries).buffered(AT_ONCE).collect().await;
        Ok(SwapReply { outcomes: outcomes(tried)?, generation })
    }

    async fn watch(&self) -> Result<Option<Watch>, StoreError> {
        watch::start(Arc::clone(&self.inner)).await.map(Some)
    }

    async fn generation(&self) -> Result<String, StoreError> {
        self.inner.leases.make_anchor(&self.inner.work).await
    }

    fn extensions(&self) -> Extensions<'_> {
        Extensions { death_proofs: None, administration: Some(self), registry: Some(self) }
    }
}

#[async_trait]
impl Administration for Kubernetes {
    async fn vet(&self) -> Result<(), StoreError> {
        Ok(())
    }

    fn held_up_by(&self) -> Option<String> {
        None
    }

    async fn examine(&self) -> Vec<Finding> {
        examine::examine(&self.inner, &self.facts()).await
    }

    fn aside(&self, _throwaway: &Throwaway) -> Result<Option<Arc<dyn Store>>, StoreError> {
        Ok(None)
    }

    fn charged(&self) -> Option<Charged> {
        None
    }

    async fn discard(&self, throwaway: &Throwaway) -> Result<(), StoreError> {
        let Inner { leases, work, .. } = &*self.inner;
        throwaway.must_be(leases.layout.namespace())?;
        // Nodes do not need the right to delete many at once; with only their rights, delete one by one.
        if !leases.delete_all(work).await? {
            throwaway.sweep(self).await?;
            self.remove_all_registered().await?;
            leases.delete_any(work, &leases.layout.anchor_name()).await?;
        }
        Ok(())
    }
}

/// Keeps the known outcomes, whatever happened to the others. If none is known, the caller gets the error.
fn outcomes(tried: Vec<Result<Swapped, StoreError>>) -> Result<Vec<Swapped>, StoreError> {
    let mut outcomes = Vec::with_capacity(tried.len());
    let mut first = None;
    let mut known = false;
    for tried in tried {
        outcomes.push(tried.unwrap_or_else(|error| {
            first.get_or_insert(error);
            Swapped::Unknown
        }));
        known |= outcomes.last() != Some(&Swapped::Unknown);
    }
    match first {
        Some(error) if !known => Err(error),
        Some(error) => {
            tracing::warn!(%error, "some of the writes of one call have an unknown outcome");
            Ok(outcomes)
        }
        None => Ok(outcomes),
    }
}

async fn try_swap(leases: &Leases, link: &ApiClient, swap: &Swap) -> Result<Swapped, StoreError> {
    let base = match &swap.expect {
        None => None,
        Some(version) => match Base::of(version) {
            Some(base) => Some(leases.references.tied(base)),
            // This is not a version of this store, so it never was here.
            None => return lost(leases, link, swap).await,
        },
    };
    let wrote = match (&base, &swap.value) {
        (None, Some(value)) => leases.create(link, &leases.layout.lease(&swap.key, value, None)?).await?,
        (Some(base), Some(value)) => {
            leases.replace(link, &leases.layout.lease(&swap.key, value, Some(base))?).await?
        }
        (Some(base), None) => leases.delete(link, &leases.layout.name(&swap.key), base).await?,
        (None, None) => Wrote::Refused,
    };
    match (wrote, &swap.value, &base) {
        (Wrote::Forbidden(error), ..) => Err(error),
        (Wrote::Done(lease), Some(_), _) => {
            leases.references.note(&lease.metadata);
            Ok(Swapped::Applied(layout::version(&lease)))
        }
        (Wrote::Done(_), None, Some(base)) => {
            Ok(Swapped::Applied(Version::new(format!("gone.{}", base.uid))))
        }
        (Wrote::Done(_), None, None) | (Wrote::Refused, ..) => lost(leases, link, swap).await,
    }
}

/// The server refused, so the write will never land; what is there instead must still be read.
async fn lost(leases: &Leases, link: &ApiClient, swap: &Swap) -> Result<Swapped, StoreError> {
    let found = leases.get(link, &swap.key).await?;
    let there = found.as_ref().map(|stored| &stored.version);
    if swap.value.is_none() && swap.expect.is_none() && found.is_none() {
        return Ok(Swapped::Applied(Version::new("gone.")));
    }
    match there.is_some() && there == swap.expect.as_ref() {
        // It was refused although the expected state is there: the outcome is unknown.
        true => Ok(Swapped::Unknown),
        false => Ok(Swapped::Lost(found)),
    }
}
