//! The groups that a node serves.

use std::time::Duration;

use leasehold_core::config::ConfigError;
use leasehold_core::event::shard_of;
use leasehold_core::record::{FailurePolicy, FinishPolicy, Policy, ShardSet, ZoneRule};
use leasehold_core::{GroupConfig, GroupName, ShardId};

/// A set of shards with one policy. Settings of the group in the store override these.
///
/// ```
/// use std::time::Duration;
/// use leasehold::{Group, ZoneRule};
///
/// let orders = Group::numbered("orders", 64).zones(ZoneRule::Spread); // orders/0 to orders/63
/// let tenants = Group::named("tenants").stop_timeout(Duration::from_secs(60)); // tenants/acme, …
/// let scheduler = Group::leader("scheduler"); // scheduler/0
/// # let builder = leasehold::Node::solo().hold(orders).hold(tenants).hold(scheduler);
/// ```
#[derive(Clone, Debug)]
#[must_use = "a group is served only once it is given to a builder or a node"]
pub struct Group {
    name: String,
    shards: ShardSet,
    policy: Policy,
    capacity: Option<u32>,
}

impl Group {
    /// A group with the slots `0..slots`.
    pub fn numbered(name: impl Into<String>, slots: u32) -> Self {
        Group::new(name, ShardSet::Numbered(slots))
    }

    /// A group of named shards, which come and go by [`Node::engage`](crate::Node::engage) and
    /// [`Node::disengage`](crate::Node::disengage).
    pub fn named(name: impl Into<String>) -> Self {
        Group::new(name, ShardSet::Named)
    }

    /// A group of one shard, `name/0`: the node that holds it is the leader.
    ///
    /// The leader changes when it leaves, fails or steps down, and also, like any shard, when the plan prefers another node:
    /// one that joins, or one that was restarted. To let it stay until it leaves, fails or steps down:
    ///
    /// ```
    /// use leasehold::{Group, Policy};
    ///
    /// let leader = Group::leader("scheduler").policy(Policy { kept_min: 1, ..Policy::default() });
    /// # let builder = leasehold::Node::solo().hold(leader);
    /// ```
    pub fn leader(name: impl Into<String>) -> Self {
        Group::numbered(name, 1)
    }

    fn new(name: impl Into<String>, shards: ShardSet) -> Self {
        Group { name: name.into(), shards, policy: Policy::default(), capacity: None }
    }

    /// The most shards of this group that this node may hold.
    pub fn capacity(mut self, shards_max: u32) -> Self {
        self.capacity = Some(shards_max);
        self
    }

    /// Sets all rules at once: replaces whatever was set before, also [`on_failure`](Group::on_failure),
    /// [`on_finish`](Group::on_finish), zones, the restart grace and the time limit of a stop.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// How zones influence placement.
    pub fn zones(mut self, zones: ZoneRule) -> Self {
        self.policy.zones = zones;
        self
    }

    /// How long the shards of a node that leaves to restart are reserved for it.
    pub fn restart_grace(mut self, grace: Duration) -> Self {
        self.policy.restart_grace_ms = millis(grace);
        self
    }

    /// How long a planned stop may take before the shard counts as stuck.
    pub fn stop_timeout(mut self, timeout: Duration) -> Self {
        self.policy.stop_timeout_ms = millis(timeout);
        self
    }

    /// What happens to a shard whose handler fails again and again. By default it is tried forever, with a pause that
    /// grows up to a bound, so that it recovers by itself from an outage of what it needs.
    ///
    /// A handler fails when it returns an error or panics without having been told to stop. An error that it returns
    /// after that, such as [`Lost`](crate::Lost) from [`Grant::check`](crate::Grant::check), is no failure. The pause is
    /// `Config::restart` (from 200 ms, doubling up to 30 s), and work that ran for `Config::healthy_after` (60 s) starts
    /// counting again: [`Builder::configure`](crate::Builder::configure).
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use leasehold::{FailurePolicy, Group};
    ///
    /// let orders = Group::numbered("orders", 64)
    ///     // After 8 failures in a row: one try every 5 minutes, each on another node.
    ///     .on_failure(FailurePolicy::half_open(8, Duration::from_secs(300)));
    /// ```
    pub fn on_failure(mut self, policy: FailurePolicy) -> Self {
        self.policy.on_failure = policy;
        self
    }

    /// What happens to a shard whose handler returns without an error and was not told to stop. By default it is started
    /// again; [`FinishPolicy::Once`] runs it once per holder, and [`FinishPolicy::Done`] once for all nodes.
    pub fn on_finish(mut self, policy: FinishPolicy) -> Self {
        self.policy.on_finish = policy;
        self
    }

    /// Which shard a key belongs to, in a group with numbered slots: the same on every node and in every language
    /// (`spec/placement.md`). `None` in a named group, where the key is the shard's own name, in an empty group, and if
    /// the group's name is invalid. Settings in the store override those given here, so a program that routes requests
    /// should use [`Node::locate`](crate::Node::locate) or [`Client::locate`](crate::Client::locate).
    ///
    /// ```
    /// let orders = leasehold::Group::numbered("orders", 64);
    /// assert_eq!(orders.shard_of("customer-42").unwrap().to_string(), "orders/61");
    /// ```
    pub fn shard_of(&self, key: impl AsRef<[u8]>) -> Option<ShardId> {
        let group = GroupName::new(&self.name).ok()?;
        match self.shards {
            ShardSet::Numbered(0) | ShardSet::Named => None,
            ShardSet::Numbered(slots) => Some(shard_of(&group, slots, key.as_ref())),
        }
    }

    pub(crate) fn into_config(self) -> Result<GroupConfig, ConfigError> {
        let group = GroupName::new(&self.name).map_err(|e| {
            ConfigError::new(
                "library",
                format!("groups[{}]", self.name),
                e.to_string(),
                "choose another name",
            )
        })?;
        Ok(GroupConfig { group, shards: self.shards, policy: self.policy, capacity: self.capacity })
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
