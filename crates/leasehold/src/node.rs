//! A node: the handle with which a program takes part.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_core::config::{ConfigError, ConfigErrors};
use leasehold_core::event::{Located, Returning};
use leasehold_core::explain::{Difference, Explanation, WhatIf};
use leasehold_core::notice::SessionState;
use leasehold_core::record::ShardSet;
use leasehold_core::view::{ShardPhase, ShardView};
use leasehold_core::{Command, Event, GroupConfig, GroupName, Moment, NodeName, ShardId, ShardName, View};
use leasehold_store::{IntoStore, LeaseId};
use tokio::sync::{broadcast, mpsc, oneshot, watch};

use crate::builder::Builder;
use crate::clock::Clock;
use crate::driver::{Finish, Grants, Input};
use crate::error::Error;
use crate::events::{Events, NodeEvent};
use crate::grant::Grant;
use crate::group::Group;
use crate::handler::{AnyHandler, IntoOutcome};
use crate::registry::Registry;
use crate::vitals::Vitals;

/// How long a node may take to hand over its shards when it leaves.
const LEAVE_WITHIN: Duration = Duration::from_secs(30);

/// One process's part in a namespace: it holds shards, runs their handlers, and stops them before their lease can be
/// lost.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), leasehold::BoxError> {
/// use leasehold::{Group, Node};
///
/// // `Node::builder(store)` in production; `solo` needs no store.
/// let node = Node::solo()
///     .group(Group::numbered("orders", 8), |grant| async move {
///         println!("{} starts with epoch {}", grant.shard(), grant.epoch());
///         grant.stopped().await;
///     })
///     .start()
///     .await?;
/// node.until(|view| view.me.as_ref().is_some_and(|me| me.held == 8)).await?;
/// assert!(node.owns(&"orders/3".parse()?));
/// # let shutdown_signal = std::future::ready(());
/// node.leave_on(shutdown_signal).await; // leasehold::shutdown_signal(), for SIGTERM and Ctrl-C
/// assert!(node.owned().is_empty());
/// # Ok(())
/// # }
/// ```
///
/// Dropping a node is safe and never blocks: all work is told to stop, work that has not stopped within the margin is
/// cut off, and the session is closed in the background if the store can be reached. To know that everything was
/// handed over, use [`leave`](Node::leave).
#[must_use = "dropping a node ends it: keep it until the program ends"]
pub struct Node {
    pub(crate) name: NodeName,
    pub(crate) clock: Clock,
    pub(crate) margin: Duration,
    pub(crate) inputs: mpsc::UnboundedSender<Input>,
    pub(crate) grants: Arc<Grants>,
    pub(crate) views: watch::Receiver<Arc<View>>,
    pub(crate) told: broadcast::WeakSender<Arc<NodeEvent>>,
    pub(crate) finished: watch::Receiver<Option<Finish>>,
    pub(crate) registry: Registry,
    pub(crate) vitals: Vitals,
    /// It was told to leave: it registers nothing more.
    pub(crate) leaving: AtomicBool,
    /// The groups that this node serves, with their shards as configured here, for use if the store has no settings.
    pub(crate) served: Mutex<BTreeMap<GroupName, ShardSet>>,
    /// The named shards that this node was told to run.
    pub(crate) engaged: Mutex<BTreeSet<ShardId>>,
}

impl Node {
    /// Starts to configure a node on a store.
    pub fn builder(store: impl IntoStore) -> Builder {
        Builder::new(store.into_store())
    }

    /// Starts to configure a node without a store, for development (feature `memory`): it holds every shard of its
    /// groups at once.
    #[cfg(feature = "memory")]
    pub fn solo() -> Builder {
        Builder::solo()
    }

    /// The node's name.
    pub fn name(&self) -> &NodeName {
        &self.name
    }

    /// Waits until the node has its first session, for as long as the store takes.
    pub async fn attached(&self) -> Result<(), Error> {
        self.until(|view| {
            view.me
                .as_ref()
                .is_some_and(|me| matches!(me.session_state, SessionState::Attached | SessionState::Degraded))
        })
        .await
    }

    /// Waits until the view satisfies the condition.
    pub async fn until(&self, wanted: impl FnMut(&View) -> bool) -> Result<(), Error> {
        let mut wanted = wanted;
        let mut views = self.views.clone();
        views.wait_for(|view| wanted(view)).await.map(drop).map_err(|_| Error::Left)
    }

    /// The node's events from now on: see [`Events`].
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

    /// Signs of life of the driver and of the store, for health checks.
    pub fn vitals(&self) -> Vitals {
        self.vitals.clone()
    }

    /// The shards whose grants are valid right now, ordered by group and name, slots by their number.
    pub fn owned(&self) -> Vec<ShardId> {
        let grants = self.grants.all();
        let valid = grants.iter().filter(|grant| grant.check().is_ok());
        let mut owned: Vec<ShardId> = valid.map(|grant| grant.shard().clone()).collect();
        owned.sort_unstable_by(ShardId::natural_cmp);
        owned
    }

    /// Whether this node holds the shard right now.
    pub fn owns(&self, shard: &ShardId) -> bool {
        self.grant(shard).is_some()
    }

    /// The grant of a shard that this node holds right now.
    pub fn grant(&self, shard: &ShardId) -> Option<Grant> {
        self.grants.get(shard).filter(|grant| grant.check().is_ok())
    }

    /// Which shard of a group a key belongs to, and which node holds it. A group that this node serves and that is not in
    /// the view yet, because the node has just started, is [`Error::NotReady`].
    pub fn locate(&self, group: &str, key: impl AsRef<[u8]>) -> Result<Located, Error> {
        let located = crate::locate::in_view(&self.views.borrow(), group, key.as_ref());
        match located {
            Err(Error::UnknownGroup(_)) if self.served().keys().any(|served| served.as_str() == group) => {
                Err(Error::NotReady)
            }
            located => located,
        }
    }

    /// Changes this node's share of the work, relative to the other nodes.
    pub fn set_weight(&self, weight: u32) -> Result<(), Error> {
        self.command(Command::Weight(weight))
    }

    /// Limits how many shards this node holds in total.
    pub fn set_capacity(&self, shards_max: Option<u32>) -> Result<(), Error> {
        if shards_max == Some(0) {
            let advice = "to take no shards, set the weight to 0";
            return Err(Error::setting("capacity", "0 is not a capacity", advice));
        }
        self.command(Command::Capacity(shards_max))
    }

    /// Accepts new shards, or takes no new ones and hands over those that others can take. A health hook that says no
    /// overrides a yes from here.
    pub fn set_accepting(&self, accepting: bool) -> Result<(), Error> {
        self.send(Input::Accept(accepting))
    }

    /// Sets the address at which callers reach this node.
    pub fn set_address(&self, address: Option<String>) -> Result<(), Error> {
        self.command(Command::Address(address))
    }

    /// Replaces this node's labels.
    pub fn set_labels(&self, labels: BTreeMap<String, String>) -> Result<(), Error> {
        self.command(Command::Labels(labels))
    }

    /// Serves another group from now on. For a group that it already serves, changes the static settings and adds a
    /// handler.
    pub fn serve<F, Fut>(&self, group: Group, work: F) -> Result<(), Error>
    where
        F: Fn(Grant) -> Fut + Send + Sync + 'static,
        Fut: Future<Output: IntoOutcome> + Send + 'static,
    {
        self.serve_by(group, work, Command::Serve)
    }

    /// Serves a group that others have created in the store: like [`serve`](Node::serve), but if the group's settings in the
    /// store are deleted, this node does not write them again. It goes on until [`unserve`](Node::unserve).
    pub fn serve_stored<F, Fut>(&self, group: Group, work: F) -> Result<(), Error>
    where
        F: Fn(Grant) -> Fut + Send + Sync + 'static,
        Fut: Future<Output: IntoOutcome> + Send + 'static,
    {
        self.serve_by(group, work, Command::ServeStored)
    }

    fn serve_by<F, Fut>(&self, group: Group, work: F, how: fn(GroupConfig) -> Command) -> Result<(), Error>
    where
        F: Fn(Grant) -> Fut + Send + Sync + 'static,
        Fut: Future<Output: IntoOutcome> + Send + 'static,
    {
        let config = group.into_config()?;
        config.check()?;
        // The handler comes first, so that no shard starts without it.
        self.send(Input::Handle(config.group.clone(), AnyHandler::new(work)))?;
        self.served().insert(config.group.clone(), config.shards);
        self.command(how(config))
    }

    /// No longer serves a group: the work of its shards is told to stop, and they are given up. For a group that is not
    /// served nothing happens.
    pub fn unserve(&self, group: &str) -> Result<(), Error> {
        let group = group_name(group)?;
        if self.served().remove(&group).is_some() {
            self.engaged.lock().unwrap_or_else(PoisonError::into_inner).retain(|shard| shard.group != group);
            self.send(Input::Unserve(group))?;
        }
        Ok(())
    }

    /// Adds a handler to a group. Shards of the group that already run get it at once, under their current grant.
    pub fn handle<F, Fut>(&self, group: &str, work: F) -> Result<(), Error>
    where
        F: Fn(Grant) -> Fut + Send + Sync + 'static,
        Fut: Future<Output: IntoOutcome> + Send + 'static,
    {
        let group = group_name(group)?;
        self.shards_of(&group)?;
        self.send(Input::Handle(group, AnyHandler::new(work)))
    }

    /// Declares that this node can run a shard of a named group that it serves. Repeating it changes nothing, and the
    /// grant stays.
    pub fn engage(&self, shard: &ShardId) -> Result<(), Error> {
        self.check_named(shard)?;
        let mut engaged = self.engaged.lock().unwrap_or_else(PoisonError::into_inner);
        self.command(Command::Engage(shard.clone()))?;
        engaged.insert(shard.clone());
        Ok(())
    }

    /// Declares that this node can no longer run a shard of a named group.
    pub fn disengage(&self, shard: &ShardId) -> Result<(), Error> {
        self.check_named(shard)?;
        let mut engaged = self.engaged.lock().unwrap_or_else(PoisonError::into_inner);
        self.command(Command::Disengage(shard.clone()))?;
        engaged.remove(shard);
        Ok(())
    }

    /// Declares which shards of a named group this node can run: engages those that are new in the list, and disengages
    /// those that are no longer in it. Call it with all that a provider knows, as often as it changes. All names are
    /// checked first; if one is invalid, nothing is changed.
    ///
    /// ```no_run
    /// # fn example(node: &leasehold::Node) -> Result<(), leasehold::Error> {
    /// node.set_engaged("tenants", ["acme", "globex"])?;
    /// node.set_engaged("tenants", ["globex", "initech"])?; // acme is given up, globex keeps its grant
    /// # Ok(())
    /// # }
    /// ```
    pub fn set_engaged<S: AsRef<str>>(
        &self,
        group: &str,
        names: impl IntoIterator<Item = S>,
    ) -> Result<(), Error> {
        let group = group_name(group)?;
        let mut wanted = BTreeSet::new();
        let mut problems = Vec::new();
        for name in names {
            match ShardName::new(name.as_ref()) {
                Ok(name) => drop(wanted.insert(ShardId::new(group.clone(), name))),
                Err(e) => problems.push(ConfigError::new("library", "shard", e.to_string(), "rename it")),
            }
        }
        ConfigErrors::none_in(problems)?;
        match self.shards_of(&group)? {
            ShardSet::Named => {}
            ShardSet::Numbered(slots) => return Err(Error::Numbered { group, slots }),
        }
        // Held until the commands are sent, so that two calls at once cannot mix.
        let mut engaged = self.engaged.lock().unwrap_or_else(PoisonError::into_inner);
        let before: Vec<ShardId> = engaged.iter().filter(|shard| shard.group == group).cloned().collect();
        for gone in before.into_iter().filter(|shard| !wanted.contains(shard)) {
            self.command(Command::Disengage(gone.clone()))?;
            engaged.remove(&gone);
        }
        for shard in wanted {
            self.command(Command::Engage(shard.clone()))?;
            engaged.insert(shard);
        }
        Ok(())
    }

    /// Runs all shards of a group again that this node holds and that are quarantined. Those whose work is done stay so.
    pub fn unquarantine_group(&self, group: &str) -> Result<(), Error> {
        let group = group_name(group)?;
        self.shards_of(&group)?;
        let view = self.view();
        let quarantined =
            |seen: &&ShardView| seen.id.0.group == group && seen.state == ShardPhase::Quarantined;
        let shards = view.shards.iter().filter(quarantined);
        shards.map(|seen| &seen.id.0).try_for_each(|shard| self.unquarantine(shard))
    }

    /// Runs a shard again that this node holds and that is quarantined or done. Changes nothing for one that runs or that
    /// another node holds.
    pub fn unquarantine(&self, shard: &ShardId) -> Result<(), Error> {
        let view = self.view();
        if view.ready && !view.shards.iter().any(|seen| seen.id.0 == *shard) {
            return Err(Error::UnknownShard(shard.to_string()));
        }
        self.command(Command::Unquarantine(shard.clone()))
    }

    /// Hands over all shards, takes no new ones, and stays in the namespace; returns when it holds nothing. Shards
    /// that no other node can take keep running here, so put a time limit around it. [`undrain`](Node::undrain)
    /// reverses it.
    pub async fn drain(&self) -> Result<(), Error> {
        self.command(Command::Drain)?;
        self.until(|view| view.me.as_ref().is_none_or(|me| me.draining && me.held == 0)).await
    }

    /// Takes shards again.
    pub fn undrain(&self) -> Result<(), Error> {
        self.command(Command::Undrain)
    }

    /// Hands over all shards and leaves, within 30 seconds. From then on the node holds nothing.
    ///
    /// It waits for the handlers, so a handler must not wait for it: both would be cut off after 30 seconds. Let the handler
    /// tell `main` to leave, or give only its own shard away with [`Grant::step_down`].
    pub async fn leave(&self) -> Finish {
        self.leave_within(LEAVE_WITHIN, Returning::No).await
    }

    /// Waits for a signal, then hands over all shards and leaves, within 30 seconds. Also returns when the node has
    /// left for another reason. This is the last line of most programs:
    ///
    /// ```no_run
    /// # async fn example(node: leasehold::Node) {
    /// node.leave_on(leasehold::shutdown_signal()).await;
    /// # }
    /// ```
    pub async fn leave_on(&self, signal: impl Future) -> Finish {
        tokio::select! {
            finish = self.until_left() => finish,
            _ = signal => self.leave().await,
        }
    }

    /// Hands over all shards and leaves. Work that has not stopped in time is cut off. With [`Returning::Soon`] the
    /// shards of groups with a restart grace are reserved for this name.
    ///
    /// For a node that is leaving already, this can only shorten the time: call it at a second signal to hurry.
    pub async fn leave_within(&self, within: Duration, returning: Returning) -> Finish {
        self.leaving.store(true, Ordering::Release);
        let _ = self.inputs.send(Input::Leave { within, returning });
        self.registry.clone().close().await;
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

    /// Removes a registered key. It does not come back after an outage.
    pub async fn unregister(&self, key: &str) -> Result<(), Error> {
        self.registry()?.unregister(key).await
    }

    /// The keys that this node has registered, with their health.
    pub fn registry(&self) -> Result<&Registry, Error> {
        if self.leaving.load(Ordering::Acquire) { Err(Error::Left) } else { Ok(&self.registry) }
    }

    /// The current moment on the clock that this node's deadlines use.
    pub fn now(&self) -> Moment {
        self.clock.now()
    }

    /// Explains where a shard runs and why, and why it has not moved if this node holds it; `None` if there is no such
    /// shard.
    pub async fn explain(&self, shard: &ShardId) -> Result<Option<Explanation>, Error> {
        let shard = shard.clone();
        self.query(move |core, _| core.explain(&shard)).await
    }

    /// What would move if the given thing changed.
    pub async fn what_if(&self, change: WhatIf) -> Result<Difference, Error> {
        self.query(move |core, _| core.what_if(&change)).await?.map_err(Error::Invalid)
    }

    /// Asks the core a question on the driver's thread.
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

    /// The shards of a group that this node serves: as the store says, or else as configured here.
    fn shards_of(&self, group: &GroupName) -> Result<ShardSet, Error> {
        let own = self.served().get(group).copied();
        let own = own.ok_or_else(|| Error::NotServed(group.clone()))?;
        let views = self.views.borrow();
        Ok(views.groups.iter().find(|known| known.group == *group).map_or(own, |known| known.shards))
    }

    fn check_named(&self, shard: &ShardId) -> Result<(), Error> {
        match self.shards_of(&shard.group)? {
            ShardSet::Named => Ok(()),
            ShardSet::Numbered(slots) => Err(Error::Numbered { group: shard.group.clone(), slots }),
        }
    }

    fn command(&self, command: Command) -> Result<(), Error> {
        self.send(Input::Core(Event::Command(command)))
    }

    fn send(&self, input: Input) -> Result<(), Error> {
        // A driver that is over may still wait for work to end; it takes no more commands.
        if self.finished.borrow().is_some() {
            return Err(Error::Left);
        }
        self.inputs.send(input).map_err(|_| Error::Left)
    }
}

pub(crate) fn group_name(group: &str) -> Result<GroupName, Error> {
    Ok(GroupName::new(group)?)
}

impl Drop for Node {
    fn drop(&mut self) {
        // After `leave`, this sends a second request with a shorter limit only if `leave` was not awaited, which is right.
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
