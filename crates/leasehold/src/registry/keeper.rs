//! The task that keeps registered keys alive: it makes the store look like what is wanted, again and again.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::Arc;

use leasehold_core::Moment;
use leasehold_core::store::{StoreError, StoreErrorKind};
use leasehold_store::{LeaseId, LeaseState, Store};
use metrics::{counter, gauge};
use tokio::sync::{mpsc, oneshot, watch};

use super::wanted::{Before, Stand, Wanted};
use super::{RegistryHealth, RegistryOptions, RegistryState};
use crate::chance;
use crate::clock::Clock;
use crate::driver::unanswered;

type Reply<T> = oneshot::Sender<Result<T, StoreError>>;

/// What registrants want of the keeper.
#[derive(Debug)]
pub(super) enum Order {
    Register { owner: u64, key: String, value: Vec<u8>, reply: Reply<LeaseId> },
    Unregister { owner: u64, key: String, reply: Reply<()> },
    Forget { owner: u64, done: Option<oneshot::Sender<()>> },
}

/// Keeps the keys of all registrants that share one lease.
pub(super) struct Keeper {
    store: Arc<dyn Store>,
    clock: Clock,
    options: RegistryOptions,
    inbox: mpsc::UnboundedReceiver<Order>,
    health: watch::Sender<RegistryHealth>,
    wanted: BTreeMap<String, Wanted>,
    /// Keys that may still be under the lease and must go.
    unwanted: BTreeSet<String>,
    waiting: Waiting,
    lease: Option<Lease>,
    renew_at: Moment,
    /// The last round failed, and is tried again at `retry_at`.
    retrying: bool,
    retry_at: Moment,
    /// Who was refused which key since anything was kept last. Nothing is left to try then, and that nothing fails shows
    /// nothing.
    refused: BTreeSet<(u64, String)>,
    failures: u32,
    failing_since: Option<Moment>,
    error: Option<String>,
}

struct Lease {
    id: LeaseId,
    /// A write under it has an unknown outcome and might land later: only revoking it settles that.
    doubtful: bool,
}

/// Those who wait for the next round.
#[derive(Default)]
struct Waiting {
    registered: Vec<(String, Reply<LeaseId>)>,
    removed: Vec<Reply<()>>,
    forgotten: Vec<oneshot::Sender<()>>,
}

impl Keeper {
    pub(super) fn new(
        store: Arc<dyn Store>,
        clock: Clock,
        options: RegistryOptions,
        inbox: mpsc::UnboundedReceiver<Order>,
        health: watch::Sender<RegistryHealth>,
    ) -> Self {
        Keeper {
            store,
            clock,
            options,
            inbox,
            health,
            wanted: BTreeMap::new(),
            unwanted: BTreeSet::new(),
            waiting: Waiting::default(),
            lease: None,
            renew_at: Moment::NEVER,
            retrying: false,
            retry_at: Moment::NEVER,
            refused: BTreeSet::new(),
            failures: 0,
            failing_since: None,
            error: None,
        }
    }

    /// Runs until the last registrant is gone.
    pub(super) async fn run(mut self) {
        loop {
            let wake_at = if self.retrying { self.retry_at } else { self.renew_at };
            let order = tokio::select! {
                biased;
                order = self.inbox.recv() => match order {
                    Some(order) => Some(order),
                    None => break,
                },
                () = self.clock.sleep_until(wake_at) => None,
            };
            let asked = match order {
                Some(order) => {
                    self.take(order);
                    while let Ok(order) = self.inbox.try_recv() {
                        self.take(order);
                    }
                    Round::Asked
                }
                None => Round::Due,
            };
            self.round(asked).await;
        }
        self.end().await;
    }

    fn take(&mut self, order: Order) {
        match order {
            Order::Register { owner, key, value, reply } => {
                self.unwanted.remove(&key);
                let wanted = match self.wanted.remove(&key) {
                    Some(wanted) => wanted.overwritten(owner, value),
                    None => Wanted { owner, value, stand: Stand::Wished, before: Before::Nothing },
                };
                self.wanted.insert(key.clone(), wanted);
                self.waiting.registered.push((key, reply));
            }
            Order::Unregister { owner, key, reply } => {
                match self.wanted.get_mut(&key) {
                    Some(wanted) if wanted.owner == owner => self.drop_key(&key),
                    Some(wanted) => wanted.forget_before(owner),
                    None => {}
                }
                self.refused.remove(&(owner, key));
                self.waiting.removed.push(reply);
            }
            Order::Forget { owner, done } => {
                let keys: Vec<String> = self
                    .wanted
                    .iter()
                    .filter(|(_, w)| w.owner == owner)
                    .map(|(key, _)| key.clone())
                    .collect();
                keys.iter().for_each(|key| self.drop_key(key));
                self.wanted.values_mut().for_each(|wanted| wanted.forget_before(owner));
                self.refused.retain(|(refused, _)| *refused != owner);
                self.waiting.forgotten.extend(done);
            }
        }
    }

    fn drop_key(&mut self, key: &str) {
        self.wanted.remove(key);
        if self.lease.is_some() {
            self.unwanted.insert(key.to_owned());
        }
    }

    /// Nobody waits for what was refused, so it must not turn up later; what was there before stays.
    fn take_back(&mut self, key: &str) {
        match self.wanted.remove(key).map(|wanted| wanted.before) {
            Some(Before::Other(owner, value)) => {
                let former = Wanted { owner, value, stand: Stand::Lost, before: Before::Settled };
                self.wanted.insert(key.to_owned(), former);
            }
            _ => self.drop_key(key),
        }
    }

    async fn round(&mut self, round: Round) {
        match self.settle().await {
            Ok(()) => self.settled(),
            Err(error) => self.failed(error, round),
        }
        // Whoever was answered finds it in the health.
        self.publish();
        self.answer();
    }

    fn settled(&mut self) {
        self.retrying = false;
        let keys = self.wanted.len();
        // What was refused is wanted no more, so a round without keys does not show that it would be taken now.
        if keys == 0 && !self.refused.is_empty() {
            return;
        }
        if self.failures > 0 && keys > 0 {
            self.count("leasehold_registry_restores_total", "ok");
            tracing::info!(failures = self.failures, keys, "registered keys are back");
        }
        self.refused.clear();
        self.failures = 0;
        self.failing_since = None;
        self.error = None;
    }

    fn failed(&mut self, error: StoreError, round: Round) {
        // Whoever asks during an outage gets a try of its own, which does not slow down the regular ones.
        if round == Round::Due || !self.retrying {
            let pause = self.options.retry.pause(self.failures);
            self.retry_at = self.clock.now() + pause + chance::up_to(pause / 10);
            self.retrying = true;
            self.failures += 1;
            self.count("leasehold_registry_restores_total", "failed");
            let (failures, again_after) = (self.failures, pause);
            tracing::warn!(%error, failures, ?again_after, "registered keys cannot be kept; trying again");
        }
        self.error = Some(error.to_string());
        self.failing_since.get_or_insert(self.clock.now());
        let refused: Vec<String> = self.waiting.registered.iter().map(|(key, _)| key.clone()).collect();
        let unsettled: BTreeSet<String> = refused
            .into_iter()
            .filter(|key| self.wanted.get(key).is_some_and(|wanted| !wanted.is_settled()))
            .collect();
        for key in &unsettled {
            self.refused.extend(self.wanted.get(key).map(|wanted| (wanted.owner, key.clone())));
            self.take_back(key);
        }
        let failure = || StoreError::new(error.kind, error.message.clone());
        for (key, reply) in std::mem::take(&mut self.waiting.registered) {
            let kept = self.lease_id().filter(|_| !unsettled.contains(&key));
            let _ = reply.send(kept.ok_or_else(failure));
        }
        for reply in std::mem::take(&mut self.waiting.removed) {
            let _ = reply.send(Err(failure()));
        }
    }

    /// Makes the store look like what is wanted.
    async fn settle(&mut self) -> Result<(), StoreError> {
        if let Some(lease) = self.lease.take_if(|lease| lease.doubtful) {
            self.replace(lease).await?;
        }
        // Twice: the lease may turn out to be gone, and then everything is written under a new one.
        for _ in 0..2 {
            if self.lease.is_none() && self.wanted.is_empty() {
                self.unwanted.clear();
                self.renew_at = Moment::NEVER;
                return Ok(());
            }
            if self.settle_once().await? == LeaseState::Alive {
                return Ok(());
            }
            self.lease = None;
            self.start_over();
        }
        Err(StoreError::new(StoreErrorKind::Damaged, "the store forgets leases as soon as they are made"))
    }

    async fn settle_once(&mut self) -> Result<LeaseState, StoreError> {
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
            (wanted.stand, wanted.before) = (Stand::There, Before::Settled);
        }
        Ok(LeaseState::Alive)
    }

    /// The keys that are to be written. Those that were there before are looked at first, and with every renewal all of
    /// them: somebody may have removed one, or written over it.
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

    /// Ends a lease in doubt, but not before there is another one: a store that takes nothing new may still keep what it
    /// has, as an etcd does whose quota is used up.
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

    /// Keeps what is under a lease in doubt, and removes what is not wanted any more. What cannot be done here is tried
    /// again with the next round.
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

    /// A call that changes keys: without an answer, the lease is in doubt.
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
        if outcome.is_err()
            && let Some(lease) = lease
        {
            lease.doubtful = true;
        }
        outcome
    }

    async fn call<'a, T, F>(
        &'a self,
        call: impl FnOnce(&'a dyn leasehold_store::Registry, &'a LeaseId) -> F,
        id: &'a LeaseId,
    ) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, StoreError>> + 'a,
    {
        timed(&*self.store, &self.clock, &self.options, call, id).await
    }

    fn lease_id(&self) -> Option<LeaseId> {
        self.lease.as_ref().map(|lease| lease.id.clone())
    }

    fn answer(&mut self) {
        let lease = self.lease_id();
        for (_, reply) in std::mem::take(&mut self.waiting.registered) {
            if let Some(lease) = lease.clone() {
                let _ = reply.send(Ok(lease));
            }
        }
        for reply in std::mem::take(&mut self.waiting.removed) {
            let _ = reply.send(Ok(()));
        }
        for done in std::mem::take(&mut self.waiting.forgotten) {
            let _ = done.send(());
        }
    }

    fn publish(&self) {
        let taken: Vec<String> = self
            .wanted
            .iter()
            .filter(|(_, wanted)| wanted.stand == Stand::Taken)
            .map(|(key, _)| key.clone())
            .collect();
        let state = match (self.failures, &self.lease) {
            (1.., _) => RegistryState::Failing,
            (0, Some(_)) if !taken.is_empty() => RegistryState::Overwritten,
            (0, Some(_)) => RegistryState::Healthy,
            (0, None) => RegistryState::Idle,
        };
        let (kind, ttl) = (self.store.facts().kind, self.ttl_label());
        let healthy = f64::from(u8::from(matches!(state, RegistryState::Healthy | RegistryState::Idle)));
        gauge!("leasehold_registry_healthy", "store" => kind, "ttl" => ttl.clone()).set(healthy);
        gauge!("leasehold_registry_keys", "store" => kind, "ttl" => ttl).set(self.wanted.len() as f64);
        self.health.send_replace(RegistryHealth {
            state,
            lease: self.lease_id(),
            keys: self.wanted.len(),
            taken,
            failures: self.failures,
            failing_since: self.failing_since,
            error: self.error.clone(),
        });
    }

    fn count(&self, name: &'static str, result: &'static str) {
        let (kind, ttl) = (self.store.facts().kind, self.ttl_label());
        counter!(name, "store" => kind, "ttl" => ttl, "result" => result).increment(1);
    }

    fn ttl_label(&self) -> String {
        self.options.ttl.as_secs_f64().to_string()
    }

    /// Nobody is left: the lease goes, if the store can be reached in time.
    async fn end(mut self) {
        self.wanted.clear();
        self.publish();
        if let Some(lease) = self.lease.take() {
            let until = self.clock.now() + self.options.close_within;
            let revoked =
                self.clock.timeout_at(until, self.call(|r, lease| r.revoke(lease), &lease.id)).await;
            if !matches!(revoked, Some(Ok(()))) {
                tracing::debug!("the lease of registered keys was not revoked; it expires");
            }
        }
    }
}

/// How a key that was there stands now that this was found under it.
fn seen(key: &str, wanted: &Wanted, found: Option<&[u8]>) -> Stand {
    match (found, wanted.stand) {
        (None, Stand::There) => {
            tracing::warn!(key, "somebody removed a registered key; registering it again");
            Stand::Lost
        }
        (None, Stand::Taken) => {
            tracing::info!(key, "a registered key that somebody else had is free; registering it again");
            Stand::Lost
        }
        (None, stand) => stand,
        (Some(value), Stand::Taken) if value == wanted.value => Stand::Lost,
        (Some(value), stand) if value == wanted.value => stand,
        (Some(_), Stand::Taken) => Stand::Taken,
        (Some(_), _) => {
            tracing::warn!(
                key,
                "somebody else wrote over a registered key; it is theirs until it is free or registered anew"
            );
            Stand::Taken
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Round {
    /// Somebody wants something.
    Asked,
    /// It is time.
    Due,
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
