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
pub use planner::{Planner, WrongAnswer};
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
///
/// A placement never decides who *may* run a shard, so a wrong one costs balance or availability, and never lets two
/// nodes run a shard at once. Nobody corrects its answers, though. This is the contract:
///
/// - **Determinism.** Every node computes the plan for itself. The same question must get the same answer on every
///   node, platform and build with the same [`id`](Placement::id): no clock, no chance, no I/O, no floating point, no
///   order of a hash map, and no memory of earlier questions. Break ties by name. Nodes that answer differently under
///   one id take shards from each other for as long as they differ.
/// - **Length.** [`Assignment::to`] has one entry for each shard of the question, in its order: an index into
///   [`Question::nodes`]. Entries that are missing count as `None`, entries beyond the end are ignored, and the
///   problem `placement` is shown. An index beyond the nodes counts as `None`.
/// - **`None`** means that nobody takes the shard, whatever [`rank`](Placement::rank) says. Answer it only if no
///   candidate can have the shard: a shard must not stay unowned while a node has room.
/// - **Pins.** Nothing but the placement carries out [`Question::pins`]: a placement that ignores them makes
///   `leasehold pin` do nothing. Give a pinned shard to its node, whatever its weight, unless that node is no
///   candidate, has no room, or declines it. Place the shard like any other then.
/// - **Declined shards.** Give no shard to a node in [`Question::declined`], and leave that node out of `rank`. It
///   refuses the shard, which then waits for the next in rank.
/// - **Capacity.** Give no candidate more shards than its [`capacity`](Candidate::capacity), pinned ones included. It
///   takes no more, and what is too much waits for the next in rank. The groups of a namespace are placed one after the
///   other, by name; the capacity is what earlier groups have left.
/// - **Weight, zones and balance** are in the question for you to use. Nothing else looks at them.
/// - **Stability.** Each difference from the last answer is a shard that stops and starts. Change little when the
///   question changes little.
/// - **Speed.** It is called on the thread that renews the session, for each group, whenever the question changes.
///   Answer within milliseconds for all your shards and nodes.
/// - **Panics** are caught. The last answer stays in effect where its nodes are still there, Leasehold's own placement
///   answers the rest, and the problem `placement` is shown. If `rank` panics, the built-in order is used.
/// - **A new version** needs a new id. While nodes with different ids run, no shard moves voluntarily between them, and
///   the problem `placements_differ` is shown; shards without an owner are still taken.
///
/// ```
/// use leasehold_core::ShardId;
/// use leasehold_core::placement::{Assignment, Placement, Question, Rendezvous};
///
/// /// Everything on the first node by name that can have it; the others stand by.
/// struct FirstByName;
///
/// impl Placement for FirstByName {
///     fn id(&self) -> String {
///         "example/first-by-name/1".to_owned()
///     }
///
///     fn place(&self, question: &Question) -> Assignment {
///         let mut held = vec![0; question.nodes.len()];
///         let mut has_room = |node: &u32| {
///             let most = question.nodes[*node as usize].capacity.unwrap_or(u32::MAX);
///             let fits = held[*node as usize] < most;
///             held[*node as usize] += u32::from(fits);
///             fits
///         };
///         let ranked = |shard| self.rank(question, shard).into_iter();
///         Assignment { to: question.shards.iter().map(|shard| ranked(shard).find(&mut has_room)).collect() }
///     }
///
///     fn rank(&self, question: &Question, shard: &ShardId) -> Vec<u32> {
///         let pinned_to = question.pins.get(shard);
///         // The built-in rank leaves out the nodes that cannot have the shard.
///         let mut ranked = Rendezvous.rank(question, shard);
///         ranked.sort_by_key(|&node| (pinned_to != Some(&question.nodes[node as usize].name), node));
///         ranked
///     }
/// }
/// ```
///
/// `crates/leasehold/examples/coordinator.rs` places by cost.
pub trait Placement: Send + Sync {
    /// Names the rule and its version. It must always be the same; a short text such as `shop/by-cost/3`.
    fn id(&self) -> String;
    /// Which node should hold which shard.
    fn place(&self, question: &Question) -> Assignment;
    /// The candidates in the order in which they should have this shard, best first, without those that cannot have it.
    /// If the planned node does not take a shard that nobody holds, the next ones do, each after another
    /// `takeover_delay`. A candidate that is left out never steps in.
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
