//! A client that watches a namespace without joining it: for callers that route requests, and for operators.

mod operator;
mod record_editor;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_core::event::Located;
use leasehold_core::explain::{Difference, Explanation, WhatIf};
use leasehold_core::name::WriteId;
use leasehold_core::observer::Observer;
use leasehold_core::placement::Placement;
use leasehold_core::record::Control;
use leasehold_core::store::{Facts, Key, Listing, StoreError, StoreErrorKind, WatchEvent};
use leasehold_core::time::Now;
use leasehold_core::{Moment, ShardId, View};
use leasehold_store::{IntoStore, Store, StoreExt};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};

use crate::clock::Clock;
use crate::driver::{follow, unanswered};
use crate::error::Error;
use crate::locate;
use crate::observe::ClientMeters;
use crate::rng;
use crate::tasks::Tasks;

/// How long a listing may take.
const LIST_WITHIN: Duration = Duration::from_secs(10);
/// The shortest time between two views.
const VIEW_EVERY_MIN: Duration = Duration::from_millis(100);

/// How long a probe of the store may take.
const PROBED_WITHIN: Duration = Duration::from_millis(1500);

/// How often the metrics are set again.
const METERED_EVERY: Duration = Duration::from_secs(1);

/// How a client watches.
#[derive(Clone)]
pub struct ClientOptions {
    /// How often everything is listed again, whatever the watch says. A store without a watch has its own interval.
    pub list_every: Duration,
    /// How often one record is read, so that a store that does not answer is noticed soon, also if nothing changes. Without
    /// it, that takes until the next listing.
    pub probe_every: Option<Duration>,
    /// Its name in metrics, which tells several clients of one process apart.
    pub name: String,
    /// The nodes' custom placement, if they have one.
    pub placement: Option<Arc<dyn Placement>>,
    /// The clock: the boot clock, except in tests.
    pub clock: Clock,
}

impl Default for ClientOptions {
    fn default() -> Self {
        ClientOptions {
            list_every: Duration::from_secs(10),
            probe_every: None,
            name: "client".to_owned(),
            placement: None,
            clock: Clock::boot(),
        }
    }
}

impl fmt::Debug for ClientOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientOptions")
            .field("list_every", &self.list_every)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl ClientOptions {
    /// How often this store is listed.
    fn list_every(&self, facts: &Facts) -> Duration {
        let every = if facts.watch { self.list_every } else { facts.poll_every.min(self.list_every) };
        every.max(VIEW_EVERY_MIN)
    }
}

/// Watches a namespace without joining it, and writes operators' commands for its nodes.
///
/// All its answers are what the store said a moment ago: good for routing and for display, never a proof of ownership.
/// It stops watching when it is dropped.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), leasehold::BoxError> {
/// # use leasehold::{Group, Node};
/// # let server = leasehold::store::MemoryServer::new();
/// # let node = Node::builder(server.open("shop")).name("worker-1").address("10.0.0.7:80").new_namespace();
/// # let node = node.hold(Group::numbered("orders", 8)).start().await?;
/// # let store = server.open("shop");
/// use leasehold::Client;
///
/// let client = Client::open(store).await?;
/// client.until(|view| view.shards.len() == 8 && view.shards.iter().all(|shard| shard.holder.is_some())).await;
/// let owner = client.locate("orders", "customer-42")?;
/// assert_eq!((owner.shard.to_string().as_str(), owner.address.as_deref()), ("orders/7", Some("10.0.0.7:80")));
///
/// for problem in &client.view().problems {
///     println!("{problem:?}");
/// }
/// client.set_weight(&"worker-1".parse()?, Some(50)).await?; // an operator's command
/// # Ok(())
/// # }
/// ```
#[must_use = "a client stops watching when it is dropped"]
pub struct Client {
    store: Arc<dyn Store>,
    clock: Clock,
    state: Arc<SharedState>,
    views: watch::Receiver<Arc<View>>,
    _tasks: Tasks,
}

/// What the client's task and its callers share. The lock is never held across an `await`.
struct SharedState(Mutex<Watching>);

struct Watching {
    observer: Observer,
    heard_at: Moment,
    /// Of the last listing, or of the watch.
    last_error: Option<StoreError>,
    /// Of the last probe.
    probe_error: Option<StoreError>,
    /// Since when the store was not heard of, while it does not answer.
    deaf_since: Option<Moment>,
    /// How long the store may be silent before the view is no longer fresh.
    silent_max: Duration,
    /// Whether the store is probed, so that `heard_at` is never long ago while it answers.
    probed: bool,
}

impl Watching {
    fn is_fresh(&self, now: Moment) -> bool {
        self.error().is_none() && now.since(self.heard_at) <= self.silent_max
    }

    fn error(&self) -> Option<&StoreError> {
        self.last_error.as_ref().or(self.probe_error.as_ref())
    }

    /// A listing or the watch brought something.
    fn heard(&mut self, now: Now) {
        (self.last_error, self.probe_error) = (None, None);
        self.heard_at = now.at;
        self.hear_again(now);
    }

    /// A probe was answered: what the watch last said still holds, if it goes on.
    fn probed(&mut self, now: Now) {
        self.probe_error = None;
        if self.last_error.is_none() {
            self.heard_at = now.at;
            self.hear_again(now);
        }
    }

    fn hear_again(&mut self, now: Now) {
        if let Some(since) = self.deaf_since.take() {
            self.observer.heard_again(now, since);
        }
    }

    /// The store did not answer.
    fn failed(&mut self) {
        self.deaf_since.get_or_insert(self.heard_at);
    }

    /// The view now, or that of the moment at which the store was last heard of, if it is probed or does not answer: the
    /// silence of nodes says nothing if nobody is heard.
    fn view(&mut self, now: Now) -> View {
        let deaf = self.probed || self.deaf_since.is_some();
        let late = if deaf { now.at.since(self.heard_at) } else { Duration::ZERO };
        let unix_ms = now.unix_ms.saturating_sub(late.as_millis() as u64);
        let at = if late.is_zero() { now.at } else { self.heard_at };
        self.observer.replan().view(Now { at, unix_ms })
    }
}

impl SharedState {
    fn lock(&self) -> MutexGuard<'_, Watching> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Client {
    /// Reads the namespace once, and then follows it. Fails if the namespace cannot be read.
    pub async fn open(store: impl IntoStore) -> Result<Client, Error> {
        Client::open_with(store, ClientOptions::default()).await
    }

    /// The same with other options.
    pub async fn open_with(store: impl IntoStore, options: ClientOptions) -> Result<Client, Error> {
        let store = store.into_store();
        let clock = options.clock.clone();
        let listing =
            list(&*store, &clock).await.map_err(|error| Error::unread("reading the namespace", error))?;
        let mut observer = Observer::new(options.placement.clone());
        observer.listed(clock.read(), &listing);
        note_the_gone(&mut observer, &*store);
        let first = observer.replan().view(clock.read());
        let list_every = options.list_every(&store.facts());
        let silent_max = list_every * 2;
        let watching = Watching {
            observer,
            heard_at: clock.now(),
            last_error: None,
            probe_error: None,
            deaf_since: None,
            silent_max,
            probed: options.probe_every.is_some(),
        };
        let state = Arc::new(SharedState(Mutex::new(watching)));
        let (views_tx, views) = watch::channel(Arc::new(first));
        let tasks = Tasks::on(Handle::current());
        let (watched_tx, watched) = mpsc::channel(256);
        if store.facts().watch {
            tasks.spawn(follow(store.clone(), clock.clone(), watched_tx));
        }
        if let Some(every) = options.probe_every {
            tasks.spawn(probe(store.clone(), clock.clone(), state.clone(), every.max(VIEW_EVERY_MIN)));
        }
        let scout = Scout {
            store: store.clone(),
            clock: clock.clone(),
            state: state.clone(),
            views: views_tx,
            meters: ClientMeters::new(options.name),
        };
        tasks.spawn(scout.run(watched, list_every));
        Ok(Client { store, clock, state, views, _tasks: tasks })
    }

    /// What the store said, at most about 100 ms ago.
    pub fn view(&self) -> Arc<View> {
        self.views.borrow().clone()
    }

    /// The same with the time that has passed since: a node that is silent for longer, for example. While the store does
    /// not answer it stays what it was.
    pub fn view_now(&self) -> View {
        self.state.lock().view(self.clock.read())
    }

    /// The view, and each change of it.
    pub fn watch_view(&self) -> watch::Receiver<Arc<View>> {
        self.views.clone()
    }

    /// Waits until the view satisfies the condition.
    pub async fn until(&self, mut wanted: impl FnMut(&View) -> bool) {
        let mut views = self.views.clone();
        // The publishing task lives as long as this client.
        let _ = views.wait_for(|view| wanted(view)).await;
    }

    /// Which shard of a group a key belongs to, and which node holds it. In a named group the key is the shard's name.
    pub fn locate(&self, group: &str, key: impl AsRef<[u8]>) -> Result<Located, Error> {
        locate::in_view(&self.views.borrow(), group, key.as_ref())
    }

    /// Which node holds a shard.
    pub fn whereabouts(&self, shard: &ShardId) -> Located {
        self.state.lock().observer.whereabouts(shard)
    }

    /// Explains where a shard runs and why; `None` if there is no such shard.
    pub fn explain(&self, shard: &ShardId) -> Option<Explanation> {
        self.state.lock().observer.replan().explain(shard)
    }

    /// What would move if the given thing changed.
    pub fn what_if(&self, change: &WhatIf) -> Result<Difference, Error> {
        self.state.lock().observer.replan().what_if(change).map_err(Error::Invalid)
    }

    /// The time since the store last answered or reported anything.
    pub fn heard_ago(&self) -> Duration {
        self.clock.now().since(self.state.lock().heard_at)
    }

    /// Whether the view can be relied on for routing: the last request to the store succeeded, its watch is not
    /// interrupted, and it was heard of within two intervals of listing.
    pub fn is_fresh(&self) -> bool {
        self.state.lock().is_fresh(self.clock.now())
    }

    /// The error of the last request to the store, if that failed, or why its watch is interrupted.
    pub fn last_error(&self) -> Option<StoreError> {
        self.state.lock().error().cloned()
    }

    /// What operators have asked for, as far as this client knows.
    pub fn asked(&self) -> Control {
        let empty = || Control::empty(WriteId::from_bits(0));
        self.state.lock().observer.mirror().control().cloned().unwrap_or_else(empty)
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("store", &self.store.facts().kind).finish_non_exhaustive()
    }
}

/// Follows the namespace for a client.
struct Scout {
    store: Arc<dyn Store>,
    clock: Clock,
    state: Arc<SharedState>,
    views: watch::Sender<Arc<View>>,
    meters: ClientMeters,
}

impl Scout {
    async fn run(self, mut watched: mpsc::Receiver<WatchEvent>, every: Duration) {
        let mut meter_at = Moment::ZERO;
        let mut list_at = self.clock.now() + every;
        let mut publish_at = Moment::NEVER;
        let mut not_before = Moment::ZERO;
        loop {
            let wake_at = list_at.min(publish_at).min(meter_at);
            tokio::select! {
                biased;
                () = self.clock.sleep_until(wake_at) => {}
                Some(event) = watched.recv() => {
                    self.hear(event);
                    publish_at = publish_at.min(not_before.max(self.clock.now()));
                }
            }
            if self.clock.now() >= list_at {
                let listed = list(&*self.store, &self.clock).await;
                list_at = self.clock.now() + every - rng::up_to(every / 10);
                self.take(listed);
                publish_at = publish_at.min(self.clock.now());
            }
            if self.clock.now() >= publish_at {
                let view = self.state.lock().view(self.clock.read());
                self.views.send_replace(Arc::new(view));
                not_before = self.clock.now() + VIEW_EVERY_MIN;
                publish_at = Moment::NEVER;
            }
            if self.clock.now() >= meter_at {
                let (now, state) = (self.clock.now(), self.state.lock());
                self.meters.set(state.is_fresh(now), now.since(state.heard_at));
                meter_at = now + METERED_EVERY;
            }
        }
    }

    fn hear(&self, event: WatchEvent) {
        let mut state = self.state.lock();
        match &event {
            WatchEvent::Interrupted(why) => {
                self.meters.interrupted();
                state.last_error = Some(StoreError::new(StoreErrorKind::Unreachable, why.clone()));
                state.failed();
            }
            _ => state.heard(self.clock.read()),
        }
        state.observer.watched(self.clock.read(), event);
    }

    fn take(&self, listed: Result<Listing, StoreError>) {
        self.meters.listed(listed.is_ok());
        let mut state = self.state.lock();
        match listed {
            Ok(listing) => {
                state.heard(self.clock.read());
                state.observer.listed(self.clock.read(), &listing);
                note_the_gone(&mut state.observer, &*self.store);
            }
            Err(error) => {
                state.last_error = Some(error);
                state.failed();
            }
        }
    }
}

/// Reads one record again and again: only an answer shows that the store is there.
async fn probe(store: Arc<dyn Store>, clock: Clock, state: Arc<SharedState>, every: Duration) {
    loop {
        clock.sleep(every).await;
        let late = || Err(unanswered(&*store, "no answer in time"));
        let keys = [Key::Meta];
        let read = clock.timeout_at(clock.now() + PROBED_WITHIN, store.read(&keys)).await;
        match read.unwrap_or_else(late) {
            Ok(_) => state.lock().probed(clock.read()),
            Err(error) => {
                let mut state = state.lock();
                state.probe_error = Some(error);
                state.failed();
            }
        }
    }
}

/// Asks the kernel whether writers are alive, where it can tell: a record does not show its writer's death.
fn note_the_gone(observer: &mut Observer, store: &dyn Store) {
    for session in observer.sessions() {
        if store.is_gone(session) {
            observer.process_gone(session);
        }
    }
}

async fn list(store: &dyn Store, clock: &Clock) -> Result<Listing, StoreError> {
    let late = || Err(unanswered(store, "no listing in time"));
    clock.timeout_at(clock.now() + LIST_WITHIN, store.list()).await.unwrap_or_else(late)
}
