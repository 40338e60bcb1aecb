//! The groups that a node serves, and the handlers that run their shards.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use leasehold_core::record::{Policy, ShardSet, ZoneRule};
use leasehold_core::{GroupConfig, GroupName};

use crate::grant::Grant;

/// Any error that a handler may return.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The result of a handler: success, or an error that is logged and counted.
pub type Outcome = Result<(), BoxError>;

/// A set of shards with one policy. Settings of the group in the store override these.
#[derive(Clone, Debug)]
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

    /// Sets all rules for placing and moving at once.
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

    pub(crate) fn into_config(self) -> Result<GroupConfig, String> {
        let group = GroupName::new(&self.name).map_err(|e| e.to_string())?;
        Ok(GroupConfig { group, shards: self.shards, policy: self.policy, capacity: self.capacity })
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// The work of a shard: called with the grant at every start.
#[derive(Clone)]
pub(crate) struct Handler(Arc<dyn Fn(Grant) -> BoxFuture<'static, Outcome> + Send + Sync>);

impl Handler {
    pub(crate) fn new<F, Fut>(work: F) -> Self
    where
        F: Fn(Grant) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Outcome> + Send + 'static,
    {
        Handler(Arc::new(move |grant| Box::pin(work(grant))))
    }

    pub(crate) fn call(&self, grant: Grant) -> BoxFuture<'static, Outcome> {
        (self.0)(grant)
    }
}

impl fmt::Debug for Handler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Handler")
    }
}
