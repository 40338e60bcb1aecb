//! Reconciles the store with the registered keys: one lease, and all keys under it.

use std::future::Future;

use leasehold_core::Moment;
use leasehold_core::store::{StoreError, StoreErrorKind};
use leasehold_store::{LeaseId, LeaseState, Store, StoreExt};

use super::RegistryOptions;
use super::keeper::{Keeper, Lease};
use super::wanted::{Before, Stand, Wanted};
use crate::clock::Clock;
use crate::driver::unanswered;

impl Keeper {
    /// Reconciles the store with the registered keys.
    pub(super) async fn reconcile(&mut self) -> Result<(), StoreError> {
        if let Some(lease) = self.lease.take_if(|lease| lease.doubtful) {
            self.replace(lease).await?;
        }
        // With the last key its lease goes, and whatever is still under it.
        if self.wanted.is_empty()
            && let Some(id) = self.lease.as_ref().map(|lease| lease.id.clone())
        {
            self.call(|r, lease| r.revoke(lease), &id).await?;
            self.lease = None;
        }
        // Twice: the lease may turn out to be gone, and then everything is written under a new one.
        for _ in 0..2 {
            if self.lease.is_none() && self.wanted.is_empty() {
                self.unwanted.clear();
                self.renew_at = Moment::NEVER;
                return Ok(());
            }
            if self.reconcile_once().await? == LeaseState::Alive {
                return Ok(());
            }
            self.lease = None;
            self.start_over();
        }
        Err(StoreError::new(StoreErrorKind::Damaged, "the store drops leases right after they are created"))
    }

    async fn reconcile_once(&mut self) -> Result<LeaseState, StoreError> {
        let id = match &self.lease {
            Some(lease) => lease.id.clone(),
            None => self.new_lease().await?,
        };
        let due = self.clock.now() >= self.renew_at;
        if due {
            let began_at = self.clock.now();
            let renewed = self.call(|r, lease| r.keep_alive(lease), &id).await;
            self.count("leasehold_registry_renewals_total", if renewed.is_ok() { "ok" } else { "failed" });
            if renewed? == LeaseState::Gone {
                tracing::warn!("the store dropped the lease of registered keys; registering them again");
                return Ok(LeaseState::Gone);
            }
            self.renew_at = began_at + self.options.ttl / 3;
        }
        while let Some(key) = self.unwanted.first().cloned() {
            self.write(|r, lease| r.remove(lease, &key), &id).await?;
            self.unwanted.remove(&key);
        }
        for key in self.missing(due).await? {
            let value = self.wanted[&key].value.clone();
            if self.write(|r, lease| r.put(lease, &key, &value), &id).await? == LeaseState::Gone {
                return Ok(LeaseState::Gone);
            }
            let wanted = self.wanted.get_mut(&key).expect("nothing was taken in meanwhile");
            (wanted.stand, wanted.before) = (Stand::There, Before::Confirmed);
        }
        Ok(LeaseState::Alive)
    }

    /// The keys that must be written. Keys that were there before are read first, and all of them with every renewal:
    /// one may have been removed or overwritten.
    async fn missing(&mut self, due: bool) -> Result<Vec<String>, StoreError> {
        let unsure = |stand: Stand| stand == Stand::Lost || (due && stand != Stand::Wished);
        let unsure: Vec<String> =
            self.wanted.iter().filter(|(_, w)| unsure(w.stand)).map(|(key, _)| key.clone()).collect();
        if !unsure.is_empty() {
            let none = LeaseId(String::new());
            let values = self.call(|r, _| r.values(&unsure), &none).await?;
            for (key, value) in unsure.iter().zip(values) {
                let wanted = self.wanted.get_mut(key).expect("nothing was taken in meanwhile");
                wanted.stand = seen(key, wanted, value.as_deref());
            }
        }
        let missing = |(key, w): (&String, &Wanted)| {
            matches!(w.stand, Stand::Wished | Stand::Lost).then(|| key.clone())
        };
        Ok(self.wanted.iter().filter_map(missing).collect())
    }

    async fn new_lease(&mut self) -> Result<LeaseId, StoreError> {
        let id = self.granted().await?;
        self.lease = Some(Lease { id: id.clone(), doubtful: false });
        Ok(id)
    }

    async fn granted(&mut self) -> Result<LeaseId, StoreError> {
        let (ttl, began_at) = (self.options.ttl, self.clock.now());
        let none = LeaseId(String::new());
        let id = self.call(|r, _| r.grant(ttl), &none).await?;
        self.renew_at = began_at + ttl / 3;
        Ok(id)
    }

    /// Ends a lease in doubt, but not before there is another one: a store that accepts nothing new may still keep what
    /// it has, like an etcd whose quota is used up.
    async fn replace(&mut self, doubtful: Lease) -> Result<(), StoreError> {
        let fresh = match self.wanted.is_empty() {
            true => Ok(None),
            false => self.granted().await.map(Some),
        };
        let ended = match fresh {
            Ok(fresh) => {
                // If the old one cannot be ended, the fresh one expires unused.
                let revoked = self.call(|r, lease| r.revoke(lease), &doubtful.id).await;
                revoked.map(|()| fresh.map(|id| Lease { id, doubtful: false }))
            }
            Err(error) => {
                self.hold(&doubtful.id).await;
                Err(error)
            }
        };
        match ended {
            Ok(fresh) => {
                self.lease = fresh;
                self.start_over();
                Ok(())
            }
            Err(error) => {
                self.lease = Some(doubtful);
                Err(error)
            }
        }
    }

    /// Keeps the keys under a lease in doubt, and removes those that are no longer wanted. Whatever fails here is tried
    /// again in the next round.
    async fn hold(&mut self, lease: &LeaseId) {
        let renewed = self.call(|r, lease| r.keep_alive(lease), lease).await;
        self.count("leasehold_registry_renewals_total", if renewed.is_ok() { "ok" } else { "failed" });
        if !matches!(renewed, Ok(LeaseState::Alive)) {
            return;
        }
        for key in &self.unwanted {
            if self.call(|r, lease| r.remove(lease, key), lease).await.is_err() {
                return;
            }
        }
    }

    fn start_over(&mut self) {
        self.unwanted.clear();
        for wanted in self.wanted.values_mut().filter(|wanted| wanted.stand != Stand::Wished) {
            wanted.stand = Stand::Lost;
        }
    }

    /// A call that changes keys: without an answer, the lease is in doubt. A refusal is an answer: a refused write does not
    /// land later, and if it landed before, the key is removed like any other that is not wanted.
    async fn write<'a, T, F>(
        &'a mut self,
        call: impl FnOnce(&'a dyn leasehold_store::Registry, &'a LeaseId) -> F,
        id: &'a LeaseId,
    ) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, StoreError>> + 'a,
    {
        let Keeper { store, clock, options, lease, .. } = self;
        let outcome = timed(&**store, clock, options, call, id).await;
        if outcome.as_ref().is_err_and(|error| error.kind != StoreErrorKind::Refused)
            && let Some(lease) = lease
        {
            lease.doubtful = true;
        }
        outcome
    }

    pub(super) async fn call<'a, T, F>(
        &'a self,
        call: impl FnOnce(&'a dyn leasehold_store::Registry, &'a LeaseId) -> F,
        id: &'a LeaseId,
    ) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, StoreError>> + 'a,
    {
        timed(&*self.store, &self.clock, &self.options, call, id).await
    }
}

/// The new state of a key that was there, given what was found under it.
fn seen(key: &str, wanted: &Wanted, found: Option<&[u8]>) -> Stand {
    match (found, wanted.stand) {
        (None, Stand::There) => {
            tracing::warn!(key, "a registered key was deleted; registering it again");
            Stand::Lost
        }
        (None, Stand::Taken) => {
            tracing::info!(key, "a registered key that another process held is free; registering it again");
            Stand::Lost
        }
        (None, stand) => stand,
        (Some(value), Stand::Taken) if value == wanted.value => Stand::Lost,
        (Some(value), stand) if value == wanted.value => stand,
        (Some(_), Stand::Taken) => Stand::Taken,
        (Some(_), _) => {
            tracing::warn!(
                key,
                "another process overwrote this registered key and keeps it; this process writes it again once it is free, or when it is registered again"
            );
            Stand::Taken
        }
    }
}

async fn timed<'a, T, F>(
    store: &'a dyn Store,
    clock: &Clock,
    options: &RegistryOptions,
    call: impl FnOnce(&'a dyn leasehold_store::Registry, &'a LeaseId) -> F,
    lease: &'a LeaseId,
) -> Result<T, StoreError>
where
    F: Future<Output = Result<T, StoreError>> + 'a,
{
    let registry = store
        .registry()
        .ok_or_else(|| StoreError::new(StoreErrorKind::Refused, "this store has no expiring keys"))?;
    let until = clock.now() + options.call_timeout;
    clock
        .timeout_at(until, call(registry, lease))
        .await
        .unwrap_or_else(|| Err(unanswered(store, "no answer in time")))
}
