use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::{StreamExt, stream};
use leasehold_core::name::NAME_BYTES_MAX;
use leasehold_store::{
    Administration, Charged, Extensions, Facts, Finding, Freshness, Key, Lane, Listing, Reading, Safety,
    Store, StoreError, Swap, SwapReply, Swapped, Throwaway, Watch,
};
use object_store::path::Path;

use crate::access::Environment;
use crate::client::{Meter, ObjectClient, Requests};
use crate::error::refused;
use crate::examine;
use crate::layout;
use crate::namespace::{AT_ONCE, Namespace};
use crate::options::Options;
use crate::probe::{self, Probe};
use crate::swapping::{Done, Task};
use crate::target::{Provider, Target};
use crate::watch;

/// One namespace in a bucket.
#[derive(Debug)]
pub struct Bucket {
    namespace: Arc<Namespace>,
    target: Target,
    probe: Arc<Probe>,
    meter: Arc<Meter>,
    name: String,
}

impl Bucket {
    /// Opens a namespace in the bucket at an address such as `s3://bucket/prefix`. Nothing is sent yet: the first
    /// call connects, and the first write checks the bucket.
    pub fn open(address: &str, namespace: &str) -> Result<Self, StoreError> {
        Bucket::open_with(address, namespace, Options::default())
    }

    /// Opens it with these options. What the address says overrides them.
    pub fn open_with(address: &str, namespace: &str, mut options: Options) -> Result<Self, StoreError> {
        check_namespace(namespace)?;
        let target = Target::parse(address, &mut options, Environment::of_process())?;
        let meter = Arc::new(Meter::default());
        let place: Arc<str> = target.place().into();
        let root = below(&target.prefix, &layout::escaped(namespace));
        let wire = || {
            let client = target.client()?;
            Ok::<_, StoreError>(ObjectClient::new(
                client,
                root.clone(),
                place.clone(),
                options.request_within,
                meter.clone(),
            ))
        };
        let (renewal, work) = (wire()?, wire()?);
        let probe = Arc::new(Probe::new(wire()?.at(target.prefix.clone()), &target));
        let opened = Arc::new(Namespace::new(renewal, work, options));
        Ok(Bucket { namespace: opened, target, probe, meter, name: namespace.to_owned() })
    }

    /// The host and port that clients of the bucket at an address connect to, as far as it can be known without asking.
    /// With `via=host:port` in the address they connect to another one, which passes everything on.
    pub fn server_of(address: &str) -> Result<Option<String>, StoreError> {
        Ok(Target::parse(address, &mut Options::default(), Environment::of_process())?.server())
    }

    /// How many requests this client has made.
    pub fn requests(&self) -> Requests {
        self.meter.read()
    }

    /// A client for other objects in the bucket, with the same credentials and its own connections. It never tries
    /// anything twice by itself.
    pub fn client(&self) -> Result<Arc<dyn object_store::ObjectStore>, StoreError> {
        self.target.client()
    }

    /// The folder of all namespaces at this address. Anything else in it is not ours.
    pub fn prefix(&self) -> &Path {
        &self.target.prefix
    }

    pub(crate) fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// Fails if the check found that the bucket does not honour conditions.
    pub(crate) fn check_verdict(&self) -> Result<(), StoreError> {
        self.probe.check_verdict()
    }

    /// Makes sure that the bucket honours conditions.
    pub(crate) async fn pass_probe(&self) -> Result<(), StoreError> {
        self.probe.pass().await
    }

    /// Checks the bucket again.
    pub(crate) async fn check_probe(&self) -> Result<(), StoreError> {
        self.probe.check().await
    }

    pub(crate) fn target(&self) -> &Target {
        &self.target
    }

    fn tasks(&self, swaps: &[Swap]) -> Vec<Task> {
        let mut objects: BTreeMap<String, Vec<(usize, Swap)>> = BTreeMap::new();
        for (at, swap) in swaps.iter().enumerate() {
            let object = layout::object_of(&swap.key, self.namespace.options.pages);
            objects.entry(object).or_default().push((at, swap.clone()));
        }
        objects.into_iter().map(|(object, swaps)| Task { object, swaps }).collect()
    }
}

#[async_trait]
impl Store for Bucket {
    fn facts(&self) -> Facts {
        Facts {
            kind: self.target.provider.kind(),
            watch: true,
            poll_every: self.namespace.options.poll_every,
            // Google takes one write of an object a second: https://cloud.google.com/storage/quotas
            write_every_min: match self.target.provider {
                Provider::Google => Duration::from_secs(1),
                Provider::S3 | Provider::Azure => Duration::from_millis(20),
            },
            swaps_max: 1024,
            // A listing rests on the marker, which may be rewritten a moment after the change that it tells of.
            reads: Freshness::ListsMayLag,
            removes: true,
            safety: Safety::Strict,
            ttl_default: Duration::from_secs(30),
        }
    }

    async fn read(&self, keys: &[Key]) -> Result<Reading, StoreError> {
        self.check_verdict()?;
        let of = |key: &Key| layout::object_of(key, self.namespace.options.pages);
        let last = keys.last().map(of);
        let mut objects: Vec<String> =
            keys.iter().map(of).filter(|object| Some(object) != last.as_ref()).collect();
        objects.sort();
        objects.dedup();
        let fetch = |object: String| async move {
            let held = self.namespace.fetch(Lane::Work, &object).await?;
            Ok::<_, StoreError>((object, held))
        };
        let mut fetched = stream::iter(objects).map(fetch).buffer_unordered(AT_ONCE);
        let mut found = BTreeMap::new();
        while let Some(outcome) = fetched.next().await {
            let (object, held) = outcome?;
            found.insert(object, held);
        }
        // The last key is read after all others: it may vouch for them.
        if let Some(last) = last {
            let (object, held) = fetch(last).await?;
            found.insert(object, held);
        }
        let row = |key: &Key| {
            let object = of(key);
            self.namespace.row(&object, found.get(&object)?, key)
        };
        Ok(Reading { found: keys.iter().map(row).collect(), generation: String::new() })
    }

    async fn list(&self) -> Result<Listing, StoreError> {
        self.check_verdict()?;
        self.namespace.list().await
    }

    async fn list_nodes(&self) -> Result<Listing, StoreError> {
        self.check_verdict()?;
        self.namespace.list_nodes().await
    }

    async fn swap(&self, lane: Lane, swaps: &[Swap]) -> Result<SwapReply, StoreError> {
        self.pass_probe().await?;
        let tasks = self.tasks(swaps);
        let swap = |task| self.namespace.swap(lane, task);
        let done: Vec<Done> = stream::iter(tasks).map(swap).buffer_unordered(AT_ONCE).collect().await;
        if done.iter().any(|done| done.news) {
            self.namespace.marker.owe();
            let within = match lane {
                // The session is renewed; the next look rewrites the marker if this was too slow.
                Lane::Renewal => self.namespace.options.marker_within / 8,
                Lane::Work => self.namespace.options.marker_within,
            };
            self.namespace.marker.catch_up(self.namespace.wire(lane), within).await;
            self.namespace.changed.notify_waiters();
        }
        let mut outcomes = vec![Swapped::Unknown; swaps.len()];
        let mut error = None;
        for done in done {
            for (at, outcome) in done.outcomes {
                outcomes[at] = outcome;
            }
            error = error.or(done.error);
        }
        match error {
            // Says why, since nothing is known of any of them.
            Some(error) if outcomes.iter().all(|outcome| *outcome == Swapped::Unknown) => Err(error),
            Some(error) => {
                tracing::warn!(%error, "some writes have an unknown outcome");
                Ok(SwapReply { outcomes, generation: String::new() })
            }
            None => Ok(SwapReply { outcomes, generation: String::new() }),
        }
    }

    async fn watch(&self) -> Result<Option<Watch>, StoreError> {
        self.check_verdict()?;
        Ok(Some(watch::start(self.namespace.clone(), self.probe.clone())))
    }

    async fn generation(&self) -> Result<String, StoreError> {
        Ok(String::new())
    }

    fn extensions(&self) -> Extensions<'_> {
        Extensions { death_proofs: None, administration: Some(self), registry: Some(self) }
    }
}

#[async_trait]
impl Administration for Bucket {
    async fn vet(&self) -> Result<(), StoreError> {
        self.pass_probe().await
    }

    fn held_up_by(&self) -> Option<String> {
        None
    }

    async fn examine(&self) -> Vec<Finding> {
        examine::examine(self).await
    }

    fn aside(&self, _throwaway: &Throwaway) -> Result<Option<Arc<dyn Store>>, StoreError> {
        Ok(None)
    }

    fn charged(&self) -> Option<Charged> {
        let Requests { puts, gets, lists } = self.requests();
        Some(Charged { writes: puts, reads: gets, lists })
    }

    /// Objects are really deleted here, and only here. A folder of the same name around the namespace goes as well:
    /// then the check of the bucket was made in there.
    async fn discard(&self, throwaway: &Throwaway) -> Result<(), StoreError> {
        throwaway.must_be(&self.name)?;
        self.namespace.work.delete_all().await?;
        match self.target.prefix.parts().next_back() {
            Some(part) if part.as_ref() == throwaway.name() => {
                self.namespace.work.at(self.target.prefix.clone()).delete_all().await
            }
            _ => Ok(()),
        }
    }
}

fn below(folder: &Path, name: &str) -> Path {
    Path::from_iter(folder.parts().map(|part| part.as_ref().to_owned()).chain([name.to_owned()]))
}

fn check_namespace(namespace: &str) -> Result<(), StoreError> {
    let wrong = if namespace.is_empty() {
        "is empty"
    } else if namespace.len() > NAME_BYTES_MAX {
        "is too long"
    } else if namespace == probe::SCRATCH {
        "is reserved for the check of buckets"
    } else {
        return Ok(());
    };
    Err(refused(format!(
        "the namespace {namespace:?} {wrong}: use another one of 1 to {NAME_BYTES_MAX} bytes"
    )))
}
