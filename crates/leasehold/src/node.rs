//! A node: what a program holds to take part.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_core::event::{Located, Returning};
use leasehold_core::explain::{Difference, Explanation, WhatIf};
use leasehold_core::record::ShardSet;
use leasehold_core::{Event, GroupName, Moment, NodeName, ShardId, View, Wish};
use leasehold_store::{LeaseId, Store};
use tokio::sync::{broadcast, mpsc, oneshot, watch};

use crate::builder::Builder;
use crate::clock::Clock;
use crate::driver::{Finish, Grants, Input};
use crate::error::Error;
use crate::events::{Events, Told};
use crate::grant::Grant;
use crate::group::{Group, Handler, Outcome};
use crate::registry::Registry;

/// One process's part in a namespace: it holds shards, runs their handlers, and stops them before they can be lost.
///
/// Dropping a node is safe and never blocks: all work is told to stop, what has not stopped within the margin is cut
/// off, and the session is closed in the background if the store can be reached. To know that everything was handed
/// over, use [`leave`](Node::leave).
pub struct Node {
    pub(crate) name: NodeName,
    pub(crate) clock: Clock,
    pub(crate) margin: Duration,
    pub(crate) inputs: mpsc::UnboundedSender<Input>,
    pub(crate) grants: Arc<Grants>,
    pub(crate) views: watch::Receiver<Arc<View>>,
    pub(crate) told: broadcast::WeakSender<Arc<Told>>,
    pub(crate) finished: watch::Receiver<Option<Finish>>,
    pub(crate) registry: Option<Registry>,
    /// The groups that this node serves, with what it would say of their shards if the store says nothing.
    pub(crate) served: Mutex<BTreeMap<GroupName, ShardSet>>,
}

impl Node {
    /// Begins to set up a node on a store.
    pub fn builder(store: Arc<dyn Store>) -> Builder {
        Builder::new(store)
    }

    /// Begins to set up a node without a store, for development: it holds every shard of its groups at once.
    pub fn solo() -> Builder {
        Builder::solo()
    }

    /// The node's name.
    pub fn name(&self) -> &NodeName {
        &self.name
    }

    /// Waits until the node has its first session, however long the store takes.
    pub async fn attached(&self) -> Result<(), Error> {
        self.until(|view| view.me.as_ref().is_some_and(|me| matches!(me.standing, "attached" | "degraded")))
            .await
    }

    /// Waits until the view is as wanted.
    pub async fn until(&self, wanted: impl FnMut(&View) -> bool) -> Result<(), Error> {
        let mut wanted = wanted;
        let mut views = self.views.clone();
        views.wait_for(|view| wanted(view)).await.map(drop).map_err(|_| Error::Left)
    }

    /// What happens from now on.
    pub fn events(&self) -> Events {
        let inbox = self.told.upgrade().map(|told| told.subscribe());
        Events::new(inbox.unwrap_or_else(|| broadcast::channel(1).1))
    }

    /// What the node knows and does, at most about 100 ms old.
    pub fn view(&self) -> Arc<View> {
        self.views.borrow().clone()
    }

    /// The view, and each change of it.
    pub fn watch_view(&self) -> watch::Receiver<Arc<View>> {
        self.views.clone()
    }

    /// The shards whose grants hold right now, in order.
    pub fn owned(&self) -> Vec<ShardId> {
        let grants = self.grants.all();
        grants.iter().filter(|grant| grant.check().is_ok()).map(|grant| grant.shard().clone()).collect()
    }

    /// Whether this node holds the shard right now.
    pub fn owns(&self, shard: &ShardId) -> bool {
        self.grant(shard).is_some()
    }

    /// The grant of a shard that this node holds right now.
    pub fn grant(&self, shard: &ShardId) -> Option<Grant> {
        self.grants.get(shard).filter(|grant| grant.check().is_ok())
    }

    /// Which shard of a group a key belongs to, and who has it.
    pub fn locate(&self, group: &str, key: impl AsRef<[u8]>) -> Result<Located, Error> {
        crate::locate::in_view(&self.views.borrow(), group, key.as_ref())
    }

    /// Takes another share of the work, relative to the other nodes.
    pub fn set_weight(&self, weight: u32) -> Result<(), Error> {
        self.wish(Wish::Weight(weight))
    }

    /// Holds at most this many shards in all.
    pub fn set_capacity(&self, shards_max: Option<u32>) -> Result<(), Error> {
        if shards_max == Some(0) {
            let problem =
                "a capacity of 0 is refused, because it could mean nothing or no limit: set the weight to 0";
            return Err(Error::Config(vec![problem.to_owned()]));
        }
        self.wish(Wish::Capacity(shards_max))
    }

    /// Welcomes new shards, or takes nothing new and hands over what others can take. A health hook that says no goes
    /// before a yes from here.
    pub fn set_accepting(&self, accepting: bool) -> Result<(), Error> {
        self.send(Input::Accept(accepting))
    }

    /// Tells callers where to reach this node.
    pub fn set_address(&self, address: Option<String>) -> Result<(), Error> {
        self.wish(Wish::Address(address))
    }

    /// Serves another group from now on, or gives a group that it serves other static settings and one more handler.
    pub fn serve<F, Fut>(&self, group: Group, work: F) -> Result<(), Error>
    where
        F: Fn(Grant) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Outcome> + Send + 'static,
    {
        let config = group.into_config().map_err(|problem| Error::Config(vec![problem]))?;
        config.check().map_err(|errors| Error::Config(errors.iter().map(ToString::to_string).collect()))?;
        // The handler comes first, so that no shard starts without it.
        self.send(Input::Handle(config.group.clone(), Handler::new(work)))?;
        self.served().insert(config.group.clone(), config.shards);
        self.wish(Wish::Serve(config))
    }

    /// Adds a handler to a group. Shards of it that run already get it at once, under the grant that they have.
    pub fn handle<F, Fut>(&self, group: &str, work: F) -> Result<(), Error>
    where
        F: Fn(Grant) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Outcome> + Send + 'static,
    {
        let group = group_name(group)?;
        self.shards_of(&group)?;
        self.send(Input::Handle(group, Handler::new(work)))
    }

    /// Says that this node can run a shard of a named group that it serves. Said again, nothing changes and the grant
    /// stays.
    pub fn engage(&self, shard: &ShardId) -> Result<(), Error> {
        self.check_named(shard)?;
        self.wish(Wish::Engage(shard.clone()))
    }

    /// Says that this node can no longer run a shard of a named group.
    pub fn disengage(&self, shard: &ShardId) -> Result<(), Error> {
        self.check_named(shard)?;
        self.wish(Wish::Disengage(shard.clone()))
    }

    /// Runs a shard again whose work kept crashing.
    pub fn unquarantine(&self, shard: &ShardId) -> Result<(), Error> {
        self.wish(Wish::Unquarantine(shard.clone()))
    }

    /// Hands everything over, takes nothing, and stays; done when nothing is held any more. As long as nobody can
    /// take the shards they run on here, so put a time limit around it. [`undrain`](Node::undrain) takes it back.
    pub async fn drain(&self) -> Result<(), Error> {
        self.wish(Wish::Drain)?;
        self.until(|view| view.me.as_ref().is_none_or(|me| me.draining && me.held == 0)).await
    }

    /// Takes shards again.
    pub fn undrain(&self) -> Result<(), Error> {
        self.wish(Wish::Undrain)
    }

    /// Hands everything over and leaves, within 30 seconds.
    pub async fn leave(self) -> Finish {
        self.leave_within(Duration::from_secs(30), Returning::No).await
    }

    /// Hands everything over and leaves. Work that has not stopped in time is cut off. With [`Returning::Soon`] the
    /// shards of groups with a restart grace are kept for this name.
    pub async fn leave_within(mut self, within: Duration, returning: Returning) -> Finish {
        let _ = self.inputs.send(Input::Leave { within, returning });
        if let Some(registry) = self.registry.take() {
            registry.close().await;
        }
        self.until_left().await
    }

    /// Waits until the node has left.
    pub async fn until_left(&self) -> Finish {
        let mut finished = self.finished.clone();
        match finished.wait_for(Option::is_some).await {
            Ok(finish) => finish.unwrap_or(Finish::Unconfirmed),
            Err(_) => Finish::Unconfirmed,
        }
    }

    /// Keeps a key and its value alive in the store, for other programs to read, for as long as this node lives.
    pub async fn register(&self, key: &str, value: impl Into<Vec<u8>>) -> Result<LeaseId, Error> {
        self.registry()?.register(key, value).await
    }

    /// Removes a registered key. After an outage it does not come back.
    pub async fn unregister(&self, key: &str) -> Result<(), Error> {
        self.registry()?.unregister(key).await
    }

    /// The registered keys of this node, with their health.
    pub fn registry(&self) -> Result<&Registry, Error> {
        self.registry.as_ref().ok_or(Error::Left)
    }

    /// The moment it is now on the clock of this node's deadlines.
    pub fn now(&self) -> Moment {
        self.clock.now()
    }

    /// Why a shard is where it is, and why it has not moved if this node holds it; `None` if there is no such shard.
    pub async fn explain(&self, shard: &ShardId) -> Result<Option<Explanation>, Error> {
        let shard = shard.clone();
        self.query(move |core, _| core.explain(&shard)).await
    }

    /// What would move if something changed.
    pub async fn what_if(&self, change: WhatIf) -> Result<Difference, Error> {
        self.query(move |core, _| core.what_if(&change)).await?.map_err(Error::Unknown)
    }

    /// Asks the core something on the driver's own thread.
    async fn query<T: Send + 'static>(
        &self,
        question: impl FnOnce(&leasehold_core::Node, leasehold_core::Now) -> T + Send + 'static,
    ) -> Result<T, Error> {
        let (answer, waiting) = oneshot::channel();
        self.send(Input::Query(Box::new(move |core, now| {
            let _ = answer.send(question(core, now));
        })))?;
        waiting.await.map_err(|_| Error::Left)
    }

    fn served(&self) -> MutexGuard<'_, BTreeMap<GroupName, ShardSet>> {
        self.served.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Which shards a group has that this node serves: by the store's word, or else by its own.
    fn shards_of(&self, group: &GroupName) -> Result<ShardSet, Error> {
        let own = self.served().get(group).copied();
        let own = own.ok_or_else(|| {
            Error::Unknown(format!(
                "this node does not serve the group {group}, so nothing was changed: give it to the builder, or call \
                 serve first"
            ))
        })?;
        let views = self.views.borrow();
        Ok(views.groups.iter().find(|known| known.group == *group).map_or(own, |known| known.shards))
    }

    fn check_named(&self, shard: &ShardId) -> Result<(), Error> {
        match self.shards_of(&shard.group)? {
            ShardSet::Named => Ok(()),
            ShardSet::Numbered(slots) => Err(Error::Unknown(format!(
                "the group {} has the numbered slots 0 to {}, which are neither engaged nor disengaged; nothing was \
                 changed: use a named group",
                shard.group,
                slots.saturating_sub(1)
            ))),
        }
    }

    fn wish(&self, wish: Wish) -> Result<(), Error> {
        self.send(Input::Core(Event::Wish(wish)))
    }

    fn send(&self, input: Input) -> Result<(), Error> {
        // A driver that is over may still wait for work to end; it takes no more wishes.
        if self.finished.borrow().is_some() {
            return Err(Error::Left);
        }
        self.inputs.send(input).map_err(|_| Error::Left)
    }
}

pub(crate) fn group_name(group: &str) -> Result<GroupName, Error> {
    GroupName::new(group).map_err(|e| Error::Config(vec![e.to_string()]))
}

impl Drop for Node {
    fn drop(&mut self) {
        // After `leave` this is a second wish with a shorter limit only if it was not awaited, which is right.
        let _ = self.inputs.send(Input::Leave { within: self.margin, returning: Returning::No });
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node")
            .field("name", &self.name)
            .field("owned", &self.owned().len())
            .finish_non_exhaustive()
    }
}
