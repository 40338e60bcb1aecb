use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_core::store::{Key, Listing, Stored, Version, WatchEvent};
use leasehold_core::{Moment, SessionId};

use super::handle::Memory;
use super::space::Space;
use super::watch::Watcher;
use crate::LeaseId;

/// What plays the server for [`Memory`] stores, with levers for tests. Clones are the same server.
#[derive(Clone)]
pub struct MemoryServer {
    state: Arc<Mutex<Server>>,
    clock: Option<Arc<dyn Fn() -> Moment + Send + Sync>>,
}

/// All records and registered keys of a [`MemoryServer`] at one moment. The default one is that of an empty server.
#[derive(Clone, Debug, Default)]
pub struct MemorySnapshot {
    spaces: BTreeMap<String, Space>,
    revision: u64,
}

impl MemoryServer {
    /// An empty server whose clock stands still until [`MemoryServer::advance`] moves it.
    pub fn new() -> Self {
        MemoryServer { state: Arc::default(), clock: None }
    }

    /// An empty server that asks `clock` for the time whenever a lease of registered keys is looked at.
    pub fn with_clock(clock: impl Fn() -> Moment + Send + Sync + 'static) -> Self {
        MemoryServer { state: Arc::default(), clock: Some(Arc::new(clock)) }
    }

    /// A client of one namespace, which need not exist.
    pub fn open(&self, namespace: &str) -> Memory {
        Memory::new(self.clone(), namespace)
    }

    /// Moves the server's own clock on, if it was not given one: leases of registered keys expire by it.
    pub fn advance(&self, by: Duration) {
        let mut server = self.lock();
        server.clock = server.clock + by;
    }

    /// Removes everything in all namespaces, as an operator who deletes all keys would: the revision goes on, the generation
    /// stays, and the watches tell of each record.
    pub fn wipe(&self) {
        let mut server = self.lock();
        let namespaces: Vec<String> = server.spaces.keys().cloned().collect();
        for namespace in namespaces {
            let keys: Vec<String> = server.space(&namespace).records.keys().cloned().collect();
            for key in keys {
                server.write(&namespace, &key, None);
            }
            server.space(&namespace).leases = Default::default();
        }
    }

    /// What is there now, to go back to.
    pub fn snapshot(&self) -> MemorySnapshot {
        let server = self.lock();
        MemorySnapshot { spaces: server.spaces.clone(), revision: server.revision }
    }

    /// Goes back to an earlier state, as a server does that is restored from a backup: records, registered keys and
    /// the revision are those of then, and all watches break. The generation stays what it is (that is the hard case;
    /// see [`MemoryServer::set_generation`]), and versions that were already given are still never given again.
    pub fn restore(&self, snapshot: &MemorySnapshot) {
        let mut server = self.lock();
        server.spaces = snapshot.spaces.clone();
        server.revision = snapshot.revision;
        server.break_watches("the server was restored");
    }

    /// Changes the server's mark of identity, as a failover or a new server does. Empty at first.
    pub fn set_generation(&self, generation: impl Into<String>) {
        self.lock().generation = generation.into();
    }

    /// Writes any bytes under any name, unconditionally: corrupt records and foreign keys.
    pub fn put_raw(&self, namespace: &str, key: &str, bytes: impl Into<Vec<u8>>) -> Version {
        self.lock().write(namespace, key, Some(bytes.into().into()))
    }

    /// Removes a record, unconditionally.
    pub fn remove_raw(&self, namespace: &str, key: &str) {
        let mut server = self.lock();
        if server.space(namespace).records.contains_key(key) {
            server.write(namespace, key, None);
        }
    }

    /// What is under a name, as people would look it up.
    pub fn get_raw(&self, namespace: &str, key: &str) -> Option<Stored> {
        self.lock().space(namespace).get(key)
    }

    /// Breaks all watches, as a compaction or a lost connection does: each says [`WatchEvent::Interrupted`] and goes
    /// on with a snapshot. What they had not yet told is never told.
    pub fn drop_watchers(&self) {
        self.lock().break_watches("the connection was lost");
    }

    /// Restarts the server: everything is still there, and all watches break.
    pub fn restart(&self) {
        self.lock().break_watches("the server was restarted");
    }

    /// How many changes a watch may be behind before it is interrupted and starts again with a snapshot (1024 at
    /// first).
    pub fn set_watch_capacity(&self, events_max: usize) {
        self.lock().watch_capacity = events_max;
    }

    /// Tells all watches of a namespace that the process of a session is gone, as the local store does.
    pub fn tell_process_gone(&self, namespace: &str, session: SessionId) {
        self.lock().tell(namespace, WatchEvent::ProcessGone(session));
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Server> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn now(&self) -> Moment {
        match &self.clock {
            Some(clock) => clock(),
            None => self.lock().clock,
        }
    }
}

impl Default for MemoryServer {
    fn default() -> Self {
        MemoryServer::new()
    }
}

impl fmt::Debug for MemoryServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let server = self.lock();
        f.debug_struct("MemoryServer")
            .field("namespaces", &server.spaces.keys())
            .field("revision", &server.revision)
            .field("generation", &server.generation)
            .finish_non_exhaustive()
    }
}

/// The state behind the lock. Nothing awaits while it is held.
pub(super) struct Server {
    pub(super) generation: String,
    pub(super) watchers: BTreeMap<u64, Watcher>,
    spaces: BTreeMap<String, Space>,
    revision: u64,
    versions_given: u64,
    leases_given: u64,
    watchers_begun: u64,
    watch_capacity: usize,
    clock: Moment,
}

impl Default for Server {
    fn default() -> Self {
        Server {
            generation: String::new(),
            watchers: BTreeMap::new(),
            spaces: BTreeMap::new(),
            revision: 0,
            versions_given: 0,
            leases_given: 0,
            watchers_begun: 0,
            watch_capacity: 1024,
            clock: Moment::ZERO,
        }
    }
}

impl Server {
    pub(super) fn space(&mut self, namespace: &str) -> &mut Space {
        self.spaces.entry(namespace.to_owned()).or_default()
    }

    pub(super) fn listing(&mut self, namespace: &str) -> Listing {
        let (generation, revision) = (self.generation.clone(), self.revision);
        self.space(namespace).listing(&generation, revision)
    }

    pub(super) fn nodes(&mut self, namespace: &str) -> Listing {
        let (generation, revision) = (self.generation.clone(), self.revision);
        self.space(namespace).nodes(&generation, revision)
    }

    /// Writes or removes a record, unconditionally, and tells the watches.
    pub(super) fn write(&mut self, namespace: &str, key: &str, value: Option<Arc<[u8]>>) -> Version {
        self.revision += 1;
        self.versions_given += 1;
        let version = Version::new(self.versions_given.to_string());
        let stored = value.map(|value| Stored { version: version.clone(), value });
        let records = &mut self.space(namespace).records;
        match &stored {
            Some(stored) => records.insert(key.to_owned(), stored.clone()),
            None => records.remove(key),
        };
        if let Ok(key) = key.parse::<Key>() {
            self.tell(namespace, WatchEvent::Changed(vec![(key, stored)]));
        }
        version
    }

    pub(super) fn next_lease(&mut self) -> LeaseId {
        self.leases_given += 1;
        LeaseId(self.leases_given.to_string())
    }

    pub(super) fn add_watcher(&mut self, namespace: &str) -> u64 {
        self.watchers_begun += 1;
        self.watchers.insert(self.watchers_begun, Watcher::new(namespace));
        self.watchers_begun
    }

    fn tell(&mut self, namespace: &str, event: WatchEvent) {
        let capacity = self.watch_capacity;
        for watcher in self.watchers.values_mut().filter(|watcher| watcher.namespace == namespace) {
            watcher.tell(event.clone(), capacity);
        }
    }

    fn break_watches(&mut self, why: &str) {
        for watcher in self.watchers.values_mut() {
            watcher.interrupt(why);
        }
    }
}
