//! Keys for other programs to read, kept alive under one lease of the store for as long as this process lives.
//!
//! This is for discovery (an address, a version), never for ownership: the store's own expiry decides when a key goes.
//! All registries of one process on the same store and with the same ttl share one lease, which is created at first
//! use. After an outage all keys are registered again automatically; a key that was unregistered meanwhile stays gone.
//!
//! On every store, the last one to register a key owns it: registering takes a key from its current owner, and keeping
//! it alive never does. The keys are checked with every renewal, a third of the ttl after the last. A key
//! that was removed is then registered again. A key that another process registered, or that was written by hand, stays as
//! it is: there is a warning, [`RegistryHealth::taken`] names it, and it is registered again when it is free, or when its
//! owner calls [`Registry::register`] again.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), leasehold::BoxError> {
//! # let store = leasehold::store::MemoryServer::with_clock(leasehold::clock::now).open("shop");
//! use leasehold::registry::{Registry, RegistryState};
//!
//! let registry = Registry::on(store);
//! registry.register("workers/worker-1", "10.0.0.7:80").await?;
//! assert_eq!(registry.keys().await?, [("workers/worker-1".to_owned(), b"10.0.0.7:80".to_vec())]);
//! assert_eq!(registry.health().state, RegistryState::Healthy);
//! registry.close().await; // without it, the keys expire with their lease
//! # Ok(())
//! # }
//! ```
//!
//! A node has a registry of its own: [`Node::register`](crate::Node::register).

mod keeper;
mod options;
mod reconcile;
mod wanted;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use leasehold_core::Moment;
use leasehold_store::{IntoStore, Store, StoreExt};
use tokio::sync::{mpsc, oneshot, watch};

use crate::clock::Clock;
use crate::error::Error;
use crate::tasks::{self, RunsOn};
use keeper::{Keeper, KeeperCommand};
pub use leasehold_store::LeaseId;
pub use options::RegistryOptions;

/// The health of registered keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RegistryHealth {
    /// The current state.
    pub state: RegistryState,
    /// The lease that keeps the keys, once there is one. It changes after an outage.
    pub lease: Option<LeaseId>,
    /// How many keys should be there, over all registries that share the lease.
    pub keys: usize,
    /// The keys among them that another process overwrote.
    pub taken: Vec<String>,
    /// How many tries in a row have failed.
    pub failures: u32,
    /// When they began to fail; tells a blip from an outage.
    pub failing_since: Option<Moment>,
    /// The error of the last one.
    pub error: Option<String>,
}

/// The state of registered keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum RegistryState {
    /// Nothing is registered, so there is no lease.
    #[default]
    Idle,
    /// All keys are there.
    Healthy,
    /// Another process overwrote some of them; the others are there.
    Overwritten,
    /// The store does not answer, or lost the keys; they are registered again as soon as possible. Or the store
    /// refused a key, which was not registered, and nothing has been kept since.
    Failing,
}

/// Registers keys. Clones share their keys. When the last clone is dropped, its keys are removed; with the last
/// registry of the process, the lease is revoked.
#[derive(Clone, Debug)]
#[must_use = "the keys of a registry are removed when it is dropped"]
pub struct Registry(Arc<Registrant>);

#[derive(Debug)]
struct Registrant {
    store: StoreHandle,
    runs_on: RunsOn,
    clock: Clock,
    options: RegistryOptions,
    id: u64,
    keeper: Mutex<Option<Arc<KeeperHandle>>>,
}

#[derive(Clone)]
struct StoreHandle(Arc<dyn Store>);

impl std::fmt::Debug for StoreHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0.facts().kind)
    }
}

/// The connection to a keeper. The keeper ends when the last one is dropped.
#[derive(Debug)]
struct KeeperHandle {
    commands: mpsc::UnboundedSender<KeeperCommand>,
    health: watch::Receiver<RegistryHealth>,
}

/// The keepers of this process: one per store and ttl. A keeper holds its store, so an address means the same store
/// for as long as its entry can be used.
static KEEPERS: Mutex<BTreeMap<(usize, Duration), Weak<KeeperHandle>>> = Mutex::new(BTreeMap::new());
static REGISTRANTS: AtomicU64 = AtomicU64::new(0);

impl Registry {
    /// Registers keys on this store, without a node.
    pub fn on(store: impl IntoStore) -> Self {
        Registry::new(store.into_store(), RegistryOptions::default(), RunsOn::OwnThread, Clock::boot())
    }

    /// The same with other options. The first registry of a process, store and ttl sets the options.
    pub fn with_options(store: impl IntoStore, options: RegistryOptions) -> Result<Self, Error> {
        options.check()?;
        Ok(Registry::new(store.into_store(), options, RunsOn::OwnThread, Clock::boot()))
    }

    /// The same on the current runtime and its clock, for tests (feature `test-util`) under `tokio::time::pause`.
    #[cfg(feature = "test-util")]
    pub fn with_virtual_time(store: impl IntoStore, options: RegistryOptions) -> Result<Self, Error> {
        options.check()?;
        Ok(Registry::new(store.into_store(), options, RunsOn::CurrentRuntime, Clock::virtual_time()))
    }

    /// With options that were checked.
    pub(crate) fn new(
        store: Arc<dyn Store>,
        options: RegistryOptions,
        runs_on: RunsOn,
        clock: Clock,
    ) -> Self {
        let id = REGISTRANTS.fetch_add(1, Ordering::Relaxed);
        let keeper = Mutex::new(None);
        Registry(Arc::new(Registrant { store: StoreHandle(store), runs_on, clock, options, id, keeper }))
    }

    /// A registry on the same store whose keys have another ttl.
    pub fn with_ttl(&self, ttl: Duration) -> Result<Self, Error> {
        let Registrant { store, runs_on, clock, options, .. } = &*self.0;
        let options = RegistryOptions { ttl, ..options.clone() };
        options.check()?;
        Ok(Registry::new(store.0.clone(), options, *runs_on, clock.clone()))
    }

    /// Registers a key, replacing whatever is there, and waits until the store has it. After an error nothing has
    /// changed: an earlier registration of this key stays, and otherwise the key is not registered. The lease changes
    /// after an outage. A key must not be empty.
    pub async fn register(&self, key: &str, value: impl Into<Vec<u8>>) -> Result<LeaseId, Error> {
        if key.is_empty() {
            return Err(Error::Invalid("the key is empty; nothing was registered".to_owned()));
        }
        let (reply, waiting) = oneshot::channel();
        let (key, value) = (key.to_owned(), value.into());
        let handle = self.keeper()?;
        let command = KeeperCommand::Register { owner: self.0.id, key: key.clone(), value, reply };
        handle.commands.send(command).map_err(|_| Error::Left)?;
        let answer = waiting.await.map_err(|_| Error::Left)?;
        answer.map_err(|error| Error::store(format!("registering {key:?}"), error))
    }

    /// Removes a key that was registered here. An error means that the store has not confirmed it; the removal is
    /// retried until the key is gone, and the key never comes back.
    pub async fn unregister(&self, key: &str) -> Result<(), Error> {
        let Some(handle) = self.keeper_if_open() else { return Ok(()) };
        let (reply, waiting) = oneshot::channel();
        let command = KeeperCommand::Unregister { owner: self.0.id, key: key.to_owned(), reply };
        handle.commands.send(command).map_err(|_| Error::Left)?;
        let answer = waiting.await.map_err(|_| Error::Left)?;
        answer.map_err(|error| Error::store(format!("unregistering {key:?}"), error))
    }

    /// The health of the keys.
    pub fn health(&self) -> RegistryHealth {
        self.keeper_if_open().map(|handle| handle.health.borrow().clone()).unwrap_or_default()
    }

    /// All live registered keys in the store, from all processes.
    pub async fn keys(&self) -> Result<Vec<(String, Vec<u8>)>, Error> {
        let store = &self.0.store.0;
        let registry = store.registry().ok_or(Error::NoRegistry(store.facts().kind))?;
        registry.keys().await.map_err(|error| Error::unread("listing registered keys", error))
    }

    /// Removes the keys that were registered here and waits for it, for a bounded time. The last registry of this
    /// process also revokes the lease, and waits for that.
    pub async fn close(self) {
        let Some(handle) = self.take_keeper() else { return };
        let (done, waiting) = oneshot::channel();
        let _ = handle.commands.send(KeeperCommand::Forget { owner: self.0.id, done: Some(done) });
        let mut health = handle.health.clone();
        let closed = async move {
            let _ = waiting.await;
            // The last registrant waits for its keeper, which revokes the lease before it ends.
            if Arc::into_inner(handle).is_some() {
                while health.changed().await.is_ok() {}
            }
        };
        let until = self.0.clock.now() + self.0.options.close_within;
        let _ = self.0.clock.timeout_at(until, closed).await;
    }

    fn keeper_if_open(&self) -> Option<Arc<KeeperHandle>> {
        self.0.keeper.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn take_keeper(&self) -> Option<Arc<KeeperHandle>> {
        self.0.keeper.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn keeper(&self) -> Result<Arc<KeeperHandle>, Error> {
        let mut mine = self.0.keeper.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(handle) = &*mine {
            return Ok(handle.clone());
        }
        let handle = self.shared_keeper()?;
        *mine = Some(handle.clone());
        Ok(handle)
    }

    fn shared_keeper(&self) -> Result<Arc<KeeperHandle>, Error> {
        let Registrant { store, runs_on, clock, options, .. } = &*self.0;
        let at = (Arc::as_ptr(&store.0).cast::<()>() as usize, options.ttl);
        let mut keepers = KEEPERS.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(handle) = keepers.get(&at).and_then(Weak::upgrade) {
            return Ok(handle);
        }
        if store.0.registry().is_none() {
            return Err(Error::NoRegistry(store.0.facts().kind));
        }
        keepers.retain(|_, handle| handle.strong_count() > 0);
        let (commands, inbox) = mpsc::unbounded_channel();
        let (health_tx, health) = watch::channel(RegistryHealth::default());
        let keeper = Keeper::new(store.0.clone(), clock.clone(), options.clone(), inbox, health_tx);
        match runs_on {
            RunsOn::OwnThread => {
                tasks::on_own_thread("leasehold-registry", move || keeper.run()).map_err(Error::machine)?;
            }
            #[cfg(feature = "test-util")]
            RunsOn::CurrentRuntime => tasks::spawn_on(&tokio::runtime::Handle::current(), keeper.run()),
        }
        let handle = Arc::new(KeeperHandle { commands, health });
        keepers.insert(at, Arc::downgrade(&handle));
        Ok(handle)
    }
}

impl Drop for Registrant {
    fn drop(&mut self) {
        if let Some(handle) = self.keeper.lock().unwrap_or_else(PoisonError::into_inner).take() {
            let _ = handle.commands.send(KeeperCommand::Forget { owner: self.id, done: None });
        }
    }
}
