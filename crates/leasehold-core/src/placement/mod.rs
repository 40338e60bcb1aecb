//! Which node should hold which shard: a pure function of roster and policy.
//!
//! Every node computes the plan for itself, so the answer must be the same on every platform and in every language:
//! integers only, hashes over specified bytes, ties broken by names. `spec/placement.md` describes the algorithm and
//! `spec/placement-vectors.json` holds test vectors; this module is one implementation of it.
//!
//! - `hash`: the bytes that are hashed, and the finaliser that joins a shard and a node into a pair.
//! - `cost`: the integer logarithm. `field`: the order of pairs, and the best node for a shard.
//! - `choices`: the first choice of every shard, kept from question to question.
//! - `exceptions`: pins and declines. `caps`: how many shards each node and each zone may have.
//! - `matching`: which node gets what when not every shard can have its first choice. `repair`: the last resort against holes.
//! - `rendezvous`: all of these in a row. `planner`: what the core uses.

mod caps;
mod choices;
mod cost;
mod exceptions;
mod field;
mod hash;
mod matching;
mod planner;
mod rendezvous;
mod repair;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use cost::cost;
pub use hash::{node_hash, pair_hash, shard_hash, slot_of_key};
pub use planner::{Fault, Planner};
pub use rendezvous::{Ranked, Rendezvous};

use crate::name::{NodeName, ShardId};
use crate::record::Policy;

/// The id of the built-in placement.
pub const RENDEZVOUS: &str = "rendezvous/1";

/// A node that may be given shards of the group that is being placed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Its name.
    pub name: NodeName,
    /// Its weight; 0 gets nothing but what is pinned to it.
    pub weight: u32,
    /// The most shards of this group that it may get: what is left of its capacity in all, and its capacity for
    /// this group.
    pub capacity: Option<u32>,
    /// Its zone.
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
    /// `None` where no node has room.
    pub to: Vec<Option<u32>>,
}

impl FromIterator<Option<u32>> for Assignment {
    fn from_iter<I: IntoIterator<Item = Option<u32>>>(to: I) -> Self {
        Assignment { to: to.into_iter().collect() }
    }
}

/// A rule that says which node should hold which shard. All nodes of a namespace must use the same one.
pub trait Placement: Send + Sync {
    /// Names the rule and its version; nodes only hand shards to nodes that plan with the same one.
    fn id(&self) -> String;
    /// Answers the question; the same question gets the same answer, everywhere. If it panics, its last answer
    /// stays in effect, Leasehold's own placement answers the rest, and a problem is reported.
    fn place(&self, question: &Question) -> Assignment;
    /// The candidates in the order in which they should have this shard, best first. Those that can't have it at all
    /// are left out.
    fn rank(&self, question: &Question, shard: &ShardId) -> Vec<u32>;
}

impl<P: Placement + ?Sized> Placement for Arc<P> {
    fn id(&self) -> String {
        (**self).id()
    }
    fn place(&self, question: &Question) -> Assignment {
        (**self).place(question)
    }
    fn rank(&self, question: &Question, shard: &ShardId) -> Vec<u32> {
        (**self).rank(question, shard)
    }
}
