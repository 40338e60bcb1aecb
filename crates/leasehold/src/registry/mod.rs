//! Keys for other programs to read, kept alive under one lease of the store for as long as this process lives.
//!
//! This is for discovery (an address, a version), never for ownership: the store's own expiry decides when a key goes.
//! All registries of one process on the same store and with the same ttl share one lease, which is created at first
//! use. After an outage all keys are registered again automatically; a key that was unregistered meanwhile stays gone.
//!
//! On every store, the last one to register a key owns it: registering takes a key from its current owner, and keeping
//! it alive never does. The keys are checked with every renewal, a third of the ttl after the last. A key that
//! somebody removed is then registered again. A key that somebody else registered, or wrote by hand, stays theirs:
//! there is a warning, [`RegistryHealth::taken`] names it, and it is registered again when it is free, or when its
//! owner calls [`Registry::register`] again.

mod keeper;
mod options;
mod settling;
mod wanted;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use leasehold_core::Moment;
use leasehold_store::Store;
use tokio::sync::{mpsc, oneshot, watch};

use crate::clock::Clock;
use crate::error::Error;
use crate::tasks::{self, Place};
use keeper::{Keeper, Order};
pub use leasehold_store::LeaseId;
pub use options::RegistryOptions;

/// The health of registered keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RegistryHealth {
    /// The current state.
    pub state: RegistryState,
    /// The lease that keeps the keys, once there is one. It changes after an outage.
    pub lease: Option<LeaseId>,
    /// How many keys should be there, over all registries that share the lease.
    pub keys: usize,
    /// The keys among them that somebody else overwrote.
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
pub enum RegistryState {
    /// Nothing is registered, so there is no lease.
    #[default]
    Idle,
    /// All keys are there.
    Healthy,
    /// Somebody else overwrote some of them; the others are there.
    Overwritten,
    /// The store does not answer, or lost the keys; they are registered again as soon as possible. Or the store
    /// refused a key, which was not registered, and nothing has been kept since.
    Failing,
}

/// Registers keys. Clones share their keys. When the last clone is dropped, its keys are removed; with the last
/// registry of the process, the lease is revoked.
#[derive(Clone, Debug)]
pub struct Registry(Arc<Registrant>);

#[derive(Debug)]
struct Registrant {
    store: StoreHandle,
    place: Place,
    clock: Clock,
    options: RegistryOptions,
    id: u64,
    line: Mutex<Option<Arc<Line>>>,
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
struct Line {
    orders: mpsc::UnboundedSender<Order>,
    health: watch::Receiver<RegistryHealth>,
}

/// The keepers of this process: one per store and ttl. A keeper holds its store, so an address means the same store
/// for as long as its entry can be used.
static LINES: Mutex<BTreeMap<(usize, Duration), Weak<Line>>> = Mutex::new(BTreeMap::new());
static REGISTRANTS: AtomicU64 = AtomicU64::new(0);

impl Registry {
    /// Registers keys on this store, without a node.
    pub fn on(store: Arc<dyn Store>) -> Self {
        Registry::new(store, RegistryOptions::default(), Place::OwnThread, Clock::boot())
    }

    /// The same with other options. The first registry of a process, store and ttl sets the options.
    pub fn with_options(store: Arc<dyn Store>, options: RegistryOptions) -> Result<Self, Error> {
        options.check()?;
        Ok(Registry::new(store, options, Place::OwnThread, Clock::boot()))
    }

    /// The same on the current runtime and its clock, for tests under `tokio::time::pause`.
    pub fn with_virtual_time(store: Arc<dyn Store>, options: RegistryOptions) -> Result<Self, Error> {
        options.check()?;
        Ok(Registry::new(store, options, Place::CurrentRuntime, Clock::virtual_time()))
    }

    /// With options that were checked.
    pub(crate) fn new(store: Arc<dyn Store>, options: RegistryOptions, place: Place, clock: Clock) -> Self {
        let id = REGISTRANTS.fetch_add(1, Ordering::Relaxed);
        let line = Mutex::new(None);
        Registry(Arc::new(Registrant { store: StoreHandle(store), place, clock, options, id, line }))
    }

    /// A registry on the same store whose keys have another ttl.
    pub fn with_ttl(&self, ttl: Duration) -> Result<Self, Error> {
        let Registrant { store, place, clock, options, .. } = &*self.0;
        let options = RegistryOptions { ttl, ..options.clone() };
        options.check()?;
        Ok(Registry::new(store.0.clone(), options, *place, clock.clone()))
    }

    /// Registers a key, replacing whatever is there, and waits until the store has it. After an error nothing has
    /// changed: an earlier registration of this key stays, and otherwise the key is not registered. The lease changes
    /// after an outage. A key must not be empty.
    pub async fn register(&self, key: &str, value: impl Into<Vec<u8>>) -> Result<LeaseId, Error> {
        if key.is_empty() {
            return Err(Error::Unknown("the key is empty; nothing was registered".to_owned()));
        }
        let (reply, waiting) = oneshot::channel();
        let (key, value) = (key.to_owned(), value.into());
        let line = self.line()?;
        let order = Order::Register { owner: self.0.id, key: key.clone(), value, reply };
        line.orders.send(order).map_err(|_| Error::Left)?;
        let answer = waiting.await.map_err(|_| Error::Left)?;
        answer.map_err(|error| Error::store(format!("registering {key:?}"), error))
    }

    /// Removes a key that was registered here. An error means that the store has not confirmed it; the removal is
    /// retried until the key is gone, and the key never comes back.
    pub async fn unregister(&self, key: &str) -> Result<(), Error> {
        let Some(line) = self.line_if_open() else { return Ok(()) };
        let (reply, waiting) = oneshot::channel();
        let order = Order::Unregister { owner: self.0.id, key: key.to_owned(), reply };
        line.orders.send(order).map_err(|_| Error::Left)?;
        let answer = waiting.await.map_err(|_| Error::Left)?;
        answer.map_err(|error| Error::store(format!("unregistering {key:?}"), error))
    }

    /// The health of the keys.
    pub fn health(&self) -> RegistryHealth {
        self.line_if_open().map(|line| line.health.borrow().clone()).unwrap_or_default()
    }

    /// All live registered keys in the store, whoever registered them.
    pub async fn keys(&self) -> Result<Vec<(String, Vec<u8>)>, Error> {
        let store = &self.0.store.0;
        let registry = store.registry().ok_or(Error::NoRegistry(store.facts().kind))?;
        registry.keys().await.map_err(|error| Error::unread("listing registered keys", error))
    }

    /// Removes the keys that were registered here and waits for it, for a bounded time. The last registry of this
    /// process also revokes the lease, and waits for that.
    pub async fn close(self) {
        let Some(line) = self.take_line() else { return };
        let (done, waiting) = oneshot::channel();
        let _ = line.orders.send(Order::Forget { owner: self.0.id, done: Some(done) });
        let mut health = line.health.clone();
        let closed = async move {
            let _ = waiting.await;
            // The last registrant waits for its keeper, which revokes the lease before it ends.
            if Arc::into_inner(line).is_some() {
                while health.changed().await.is_ok() {}
            }
        };
        let until = self.0.clock.now() + self.0.options.close_within;
        let _ = self.0.clock.timeout_at(until, closed).await;
    }

    fn line_if_open(&self) -> Option<Arc<Line>> {
        self.0.line.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn take_line(&self) -> Option<Arc<Line>> {
        self.0.line.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn line(&self) -> Result<Arc<Line>, Error> {
        let mut mine = self.0.line.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(line) = &*mine {
            return Ok(line.clone());
        }
        let line = self.shared_line()?;
        *mine = Some(line.clone());
        Ok(line)
    }

    fn shared_line(&self) -> Result<Arc<Line>, Error> {
        let Registrant { store, place, clock, options, .. } = &*self.0;
        let at = (Arc::as_ptr(&store.0).cast::<()>() as usize, options.ttl);
        let mut lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(line) = lines.get(&at).and_then(Weak::upgrade) {
            return Ok(line);
        }
        if store.0.registry().is_none() {
            return Err(Error::NoRegistry(store.0.facts().kind));
        }
        lines.retain(|_, line| line.strong_count() > 0);
        let (orders, inbox) = mpsc::unbounded_channel();
        let (health_tx, health) = watch::channel(RegistryHealth::default());
        let keeper = Keeper::new(store.0.clone(), clock.clone(), options.clone(), inbox, health_tx);
        match place {
            Place::OwnThread => {
                tasks::on_own_thread("leasehold-registry", move || keeper.run()).map_err(Error::machine)?;
            }
            Place::CurrentRuntime => tasks::spawn_on(&tokio::runtime::Handle::current(), keeper.run()),
        }
        let line = Arc::new(Line { orders, health });
        lines.insert(at, Arc::downgrade(&line));
        Ok(line)
    }
}

impl Drop for Registrant {
    fn drop(&mut self) {
        if let Some(line) = self.line.lock().unwrap_or_else(PoisonError::into_inner).take() {
            let _ = line.orders.send(Order::Forget { owner: self.id, done: None });
        }
    }
}
