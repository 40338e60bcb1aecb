//! The task that keeps registered keys alive: it takes commands, reconciles the store with them regularly, and reports
//! the health.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use leasehold_core::Moment;
use leasehold_core::store::StoreError;
use leasehold_store::{LeaseId, Store};
use metrics::{counter, gauge};
use tokio::sync::{mpsc, oneshot, watch};

use super::wanted::{Before, Stand, Wanted};
use super::{RegistryHealth, RegistryOptions, RegistryState};
use crate::clock::Clock;
use crate::observe::Described;
use crate::rng;

type Reply<T> = oneshot::Sender<Result<T, StoreError>>;

/// Requests of registrants to the keeper.
#[derive(Debug)]
pub(super) enum KeeperCommand {
    Register { owner: u64, key: String, value: Vec<u8>, reply: Reply<LeaseId> },
    Unregister { owner: u64, key: String, reply: Reply<()> },
    Forget { owner: u64, done: Option<oneshot::Sender<()>> },
}

/// Keeps the keys of all registrants that share one lease.
pub(super) struct Keeper {
    pub(super) store: Arc<dyn Store>,
    pub(super) clock: Clock,
    pub(super) options: RegistryOptions,
    inbox: mpsc::UnboundedReceiver<KeeperCommand>,
    health: watch::Sender<RegistryHealth>,
    pub(super) wanted: BTreeMap<String, Wanted>,
    /// Keys that may still be under the lease and must go.
    pub(super) unwanted: BTreeSet<String>,
    waiting: Waiting,
    pub(super) lease: Option<Lease>,
    pub(super) renew_at: Moment,
    /// The last round failed, and is tried again at `retry_at`.
    retrying: bool,
    retry_at: Moment,
    /// The keys that were refused, by registrant, since anything was kept last. Nothing is left to try then, so the
    /// absence of failures shows nothing.
    refused: BTreeSet<(u64, String)>,
    failures: u32,
    failing_since: Option<Moment>,
    error: Option<String>,
    described: Described,
}

pub(super) struct Lease {
    pub(super) id: LeaseId,
    /// A write under it has an unknown outcome and might land later: only revoking it rules that out.
    pub(super) doubtful: bool,
}

/// The callers that wait for the next round.
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
        inbox: mpsc::UnboundedReceiver<KeeperCommand>,
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
            described: Described::default(),
        }
    }

    /// Runs until the last registrant is gone.
    pub(super) async fn run(mut self) {
        loop {
            let wake_at = if self.retrying { self.retry_at } else { self.renew_at };
            let command = tokio::select! {
                biased;
                command = self.inbox.recv() => match command {
                    Some(command) => Some(command),
                    None => break,
                },
                () = self.clock.sleep_until(wake_at) => None,
            };
            let asked = match command {
                Some(command) => {
                    self.take(command);
                    while let Ok(command) = self.inbox.try_recv() {
                        self.take(command);
                    }
                    Round::Asked
                }
                None => Round::Due,
            };
            self.round(asked).await;
        }
        self.end().await;
    }

    fn take(&mut self, command: KeeperCommand) {
        match command {
            KeeperCommand::Register { owner, key, value, reply } => {
                self.unwanted.remove(&key);
                let wanted = match self.wanted.remove(&key) {
                    Some(wanted) => wanted.overwritten(owner, value),
                    None => Wanted { owner, value, stand: Stand::Wished, before: Before::Nothing },
                };
                self.wanted.insert(key.clone(), wanted);
                self.waiting.registered.push((key, reply));
            }
            KeeperCommand::Unregister { owner, key, reply } => {
                match self.wanted.get_mut(&key) {
                    Some(wanted) if wanted.owner == owner => self.drop_key(&key),
                    Some(wanted) => wanted.forget_before(owner),
                    None => {}
                }
                self.refused.remove(&(owner, key));
                self.waiting.removed.push(reply);
            }
            KeeperCommand::Forget { owner, done } => {
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

    /// No caller waits for a refused key, so it must not turn up later; an earlier registration stays.
    fn take_back(&mut self, key: &str) {
        match self.wanted.remove(key).map(|wanted| wanted.before) {
            Some(Before::Other(owner, value)) => {
                let former = Wanted { owner, value, stand: Stand::Lost, before: Before::Confirmed };
                self.wanted.insert(key.to_owned(), former);
            }
            _ => self.drop_key(key),
        }
    }

    async fn round(&mut self, round: Round) {
        match self.reconcile().await {
            Ok(()) => self.reconciled(),
            Err(error) => self.failed(error, round),
        }
        // Callers that already got an answer see it in the health.
        self.publish();
        self.answer();
    }

    fn reconciled(&mut self) {
        self.retrying = false;
        let keys = self.wanted.len();
        // A refused key is no longer wanted, so a round without keys does not show that the store would take it now.
        if keys == 0 && !self.refused.is_empty() {
            return;
        }
        if self.failures > 0 && keys > 0 {
            self.count("leasehold_registry_restores_total", "ok");
            tracing::info!(failures = self.failures, keys, "registered keys restored");
        }
        self.refused.clear();
        self.failures = 0;
        self.failing_since = None;
        self.error = None;
    }

    fn failed(&mut self, error: StoreError, round: Round) {
        // A request during an outage gets a try of its own, which does not slow down the regular ones.
        if round == Round::Due || !self.retrying {
            let pause = self.options.retry.pause(self.failures);
            self.retry_at = self.clock.now() + pause + rng::up_to(pause / 10);
            self.retrying = true;
            self.failures += 1;
            self.count("leasehold_registry_restores_total", "failed");
            let (failures, again_after_ms) = (self.failures, pause.as_millis() as u64);
            tracing::warn!(%error, failures, again_after_ms, "cannot renew registered keys; retrying");
        }
        self.error = Some(error.to_string());
        self.failing_since.get_or_insert(self.clock.now());
        let refused: Vec<String> = self.waiting.registered.iter().map(|(key, _)| key.clone()).collect();
        let unconfirmed: BTreeSet<String> = refused
            .into_iter()
            .filter(|key| self.wanted.get(key).is_some_and(|wanted| !wanted.is_confirmed()))
            .collect();
        for key in &unconfirmed {
            self.refused.extend(self.wanted.get(key).map(|wanted| (wanted.owner, key.clone())));
            self.take_back(key);
        }
        let failure = || StoreError::new(error.kind, error.message.clone());
        for (key, reply) in std::mem::take(&mut self.waiting.registered) {
            let kept = self.lease_id().filter(|_| !unconfirmed.contains(&key));
            let _ = reply.send(kept.ok_or_else(failure));
        }
        for reply in std::mem::take(&mut self.waiting.removed) {
            let _ = reply.send(Err(failure()));
        }
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
        self.described.to_current();
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

    pub(super) fn count(&self, name: &'static str, result: &'static str) {
        let (kind, ttl) = (self.store.facts().kind, self.ttl_label());
        counter!(name, "store" => kind, "ttl" => ttl, "result" => result).increment(1);
    }

    fn ttl_label(&self) -> String {
        self.options.ttl.as_secs_f64().to_string()
    }

    /// No registrant is left: the lease is revoked, if the store can be reached in time.
    async fn end(mut self) {
        self.wanted.clear();
        self.publish();
        if let Some(lease) = self.lease.take() {
            let until = self.clock.now() + self.options.close_within;
            let revoked =
                self.clock.timeout_at(until, self.call(|r, lease| r.revoke(lease), &lease.id)).await;
            if !matches!(revoked, Some(Ok(()))) {
                tracing::debug!("the lease of registered keys was not revoked; it expires after its ttl");
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Round {
    /// A command came in.
    Asked,
    /// The timer fired.
    Due,
}
