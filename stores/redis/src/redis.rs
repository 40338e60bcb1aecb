use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use leasehold_store::{
    Administration, Charged, Extensions, Facts, Finding, Freshness, Key, Lane, Listing, Reading, Safety,
    Store, StoreError, StoreErrorKind, Swap, SwapReply, Throwaway, Watch,
};

use crate::engine::Engine;
use crate::examine;
use crate::high_water::HighWater;
use crate::options::Options;
use crate::records::Records;
use crate::watch;

/// The most swaps in one call: the server does nothing else while it carries them out.
const SWAPS_MAX: usize = 256;

/// One namespace on Redis or Valkey.
#[derive(Debug)]
pub struct Redis {
    pub(crate) work: Arc<Engine>,
    renewal: Engine,
    seen: Arc<HighWater>,
}

impl Redis {
    /// Opens one namespace at an address such as `redis://user:password@host:6379/0`. Nothing is connected yet: that
    /// happens with the first call, and again by itself whenever it is needed.
    ///
    /// | address | servers |
    /// | --- | --- |
    /// | `redis://host:port/db` | one server, or several of which one is the master |
    /// | `redis+sentinel://host:port,…/db?master=name` | what the sentinels say |
    /// | `redis+cluster://host:port,…` | a cluster |
    ///
    /// `rediss`, `rediss+sentinel` and `rediss+cluster` are the same over TLS. Parameters: `namespace` (a parent of the
    /// one given), `wait` (how many replicas must have a write before it counts: 0, and 1 with sentinels or a cluster),
    /// `wait_for` (500, milliseconds), `after_failover` (`continue`, or `new-generation`), `timeout` of a call (2000, milliseconds), `password_file`, `master`,
    /// `sentinel_user`, `sentinel_password`, `sentinel_password_file`, `ca`, `cert`, `key`, `server_name`.
    pub fn open(address: &str, namespace: &str) -> Result<Self, StoreError> {
        Redis::at(Options::parse(address, namespace)?)
    }

    fn at(options: Options) -> Result<Self, StoreError> {
        let options = Arc::new(options);
        let work = Arc::new(Engine::start("lh-redis", options.clone())?);
        let renewal = Engine::start("lh-redis-renew", options)?;
        Ok(Redis { work, renewal, seen: Arc::default() })
    }

    /// The namespace.
    pub fn namespace(&self) -> String {
        self.work.connection().options.namespace.clone()
    }

    fn records(&self, lane: Lane) -> (&Engine, Records) {
        let engine = match lane {
            Lane::Renewal => &self.renewal,
            Lane::Work => &*self.work,
        };
        (engine, Records { connection: engine.connection(), seen: self.seen.clone() })
    }
}

#[async_trait]
impl Store for Redis {
    fn facts(&self) -> Facts {
        Facts {
            kind: "redis",
            watch: true,
            poll_every: Duration::from_millis(250),
            write_every_min: Duration::from_millis(1),
            swaps_max: SWAPS_MAX,
            reads: Freshness::Newest,
            removes: true,
            safety: Safety::LosesLastWrites,
            ttl_default: Duration::from_secs(10),
        }
    }

    async fn read(&self, keys: &[Key]) -> Result<Reading, StoreError> {
        let (engine, records) = self.records(Lane::Work);
        let keys = keys.to_vec();
        engine.run(|_| async move { records.read(&keys).await }).await
    }

    async fn list(&self) -> Result<Listing, StoreError> {
        let (engine, records) = self.records(Lane::Work);
        engine.run(|_| async move { records.list().await }).await
    }

    async fn list_nodes(&self) -> Result<Listing, StoreError> {
        let (engine, records) = self.records(Lane::Work);
        engine.run(|_| async move { records.list_nodes().await }).await
    }

    async fn swap(&self, lane: Lane, swaps: &[Swap]) -> Result<SwapReply, StoreError> {
        if swaps.len() > SWAPS_MAX {
            let message = format!(
                "{} swaps in one call; at most {SWAPS_MAX} are allowed. Nothing was written.",
                swaps.len()
            );
            return Err(StoreError::new(StoreErrorKind::Refused, message));
        }
        let (engine, records) = self.records(lane);
        let swaps = swaps.to_vec();
        engine.run(|_| async move { records.swap(&swaps).await }).await
    }

    async fn watch(&self) -> Result<Option<Watch>, StoreError> {
        let (_, records) = self.records(Lane::Work);
        Ok(Some(watch::start(&self.work, records)))
    }

    async fn generation(&self) -> Result<String, StoreError> {
        let (engine, records) = self.records(Lane::Work);
        engine.run(|_| async move { records.generation().await }).await
    }

    fn extensions(&self) -> Extensions<'_> {
        Extensions { death_proofs: None, administration: Some(self), registry: Some(self) }
    }
}

#[async_trait]
impl Administration for Redis {
    async fn vet(&self) -> Result<(), StoreError> {
        Ok(())
    }

    fn held_up_by(&self) -> Option<String> {
        None
    }

    async fn examine(&self) -> Vec<Finding> {
        let (engine, records) = self.records(Lane::Work);
        let examined = engine.run(|_| async move { Ok(examine::examine(&records).await) }).await;
        examined.unwrap_or_else(|error| vec![Finding::bad(error.to_string(), "Try again.")])
    }

    fn aside(&self, throwaway: &Throwaway) -> Result<Option<Arc<dyn Store>>, StoreError> {
        let corner = self.work.connection().options.in_corner(throwaway.name());
        Ok(Some(Arc::new(Redis::at(corner)?)))
    }

    fn charged(&self) -> Option<Charged> {
        None
    }

    async fn discard(&self, throwaway: &Throwaway) -> Result<(), StoreError> {
        let options = self.work.connection().options.clone();
        // The address may name a parent, in which the namespace is.
        let namespace = options.namespace.rsplit('/').next().unwrap_or_default();
        throwaway.must_be(options.corner.as_deref().unwrap_or(namespace))?;
        throwaway.sweep(self).await?;
        let (engine, records) = self.records(Lane::Work);
        engine.run(|_| async move { records.discard().await }).await
    }
}
