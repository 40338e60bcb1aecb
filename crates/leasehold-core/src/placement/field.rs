//! The nodes as placement sees them, and the order of pairs.

use std::cmp::Ordering;

use super::Question;
use super::caps::capacity;
use super::cost::{compare_scores, cost, greatest_score, greatest_score_of, inverse, least_score};
use super::hash::{node_hash, pair_hash};
use crate::name::NodeName;
use crate::record::ZoneRule;

/// Stands for "no node".
pub(super) const NOBODY: u32 = u32::MAX;

/// Where a node comes in the order of pairs, before its score counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Tier {
    /// In the preferred zone, or no zone is preferred.
    First,
    /// Outside the preferred zone.
    Second,
    /// Without weight or capacity: it only gets what is pinned to it, if anything.
    Out,
}

/// A node of the question.
#[derive(Clone, Debug)]
pub(super) struct Contender {
    pub(super) name: NodeName,
    pub(super) hash: u64,
    pub(super) weight: u32,
    pub(super) tier: Tier,
    inverse: u64,
}

/// A pair of a shard and a node, seen from the shard.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pair {
    pub(super) node: u32,
    pub(super) hash: u64,
    pub(super) cost: u64,
}

/// All nodes of a question, prepared for finding the best of them for a shard quickly.
#[derive(Clone, Debug, Default)]
pub(super) struct Field {
    /// In the question's order.
    pub(super) nodes: Vec<Contender>,
    /// The nodes of the first and of the second tier, packed for scanning.
    tiers: [PackedTier; 2],
}

#[derive(Clone, Debug, Default)]
struct PackedTier {
    hash: Vec<u64>,
    inverse: Vec<u64>,
    node: Vec<u32>,
}

/// So many nodes of a tier are compared without a branch, because the best so far changes often among the first.
const HEAD: usize = 128;

impl PackedTier {
    /// Where the smallest of the least scores is among the first nodes, and the second smallest of them.
    #[inline]
    fn least_scores(&self, shard: u64) -> (usize, u64) {
        let (mut least, mut second, mut at) = (u64::MAX, u64::MAX, 0);
        for (i, (&node_hash, &inverse)) in self.hash.iter().zip(&self.inverse).take(HEAD).enumerate() {
            let score = least_score(pair_hash(shard, node_hash), inverse);
            second = second.min(least.max(score));
            at = if score < least { i } else { at };
            least = least.min(score);
        }
        (at, second)
    }
}

impl Field {
    pub(super) fn new(question: &Question) -> Self {
        let mut field = Field::default();
        for (i, node) in question.nodes.iter().enumerate() {
            let tier = match &question.policy.zones {
                _ if node.weight == 0 || capacity(node) == 0 => Tier::Out,
                ZoneRule::Prefer(zone) if node.zone.as_ref() != Some(zone) => Tier::Second,
                _ => Tier::First,
            };
            let hash = node_hash(&node.name);
            let inverse = inverse(node.weight.max(1));
            if tier != Tier::Out {
                let tier_nodes = &mut field.tiers[usize::from(tier == Tier::Second)];
                tier_nodes.hash.push(hash);
                tier_nodes.inverse.push(inverse);
                tier_nodes.node.push(i as u32);
            }
            field.nodes.push(Contender { name: node.name.clone(), hash, weight: node.weight, tier, inverse });
        }
        field
    }

    pub(super) fn pair_hash(&self, shard: u64, node: u32) -> u64 {
        pair_hash(shard, self.nodes[node as usize].hash)
    }

    pub(super) fn pair(&self, shard: u64, node: u32) -> Pair {
        let hash = self.pair_hash(shard, node);
        Pair { node, hash, cost: cost(hash) }
    }

    /// The order of two pairs: tier, score, hash, name. The better one is less.
    pub(super) fn compare(&self, a: &Pair, b: &Pair) -> Ordering {
        let (left, right) = (&self.nodes[a.node as usize], &self.nodes[b.node as usize]);
        left.tier
            .cmp(&right.tier)
            .then_with(|| compare_scores(a.cost, left.weight, b.cost, right.weight))
            .then_with(|| b.hash.cmp(&a.hash))
            .then_with(|| left.name.cmp(&right.name))
            .then_with(|| a.node.cmp(&b.node))
    }

    /// The better of two nodes for a shard; most often without a logarithm.
    #[inline]
    pub(super) fn better(&self, shard: u64, a: u32, b: u32) -> u32 {
        let (left, right) = (&self.nodes[a as usize], &self.nodes[b as usize]);
        if left.tier == right.tier {
            let (hash_a, hash_b) = (pair_hash(shard, left.hash), pair_hash(shard, right.hash));
            let least_b = least_score(hash_b, right.inverse);
            if least_score(hash_a, left.inverse) > greatest_score_of(hash_b, least_b) {
                return b;
            }
        }
        if self.compare(&self.pair(shard, a), &self.pair(shard, b)).is_lt() { a } else { b }
    }

    /// The best node for a shard.
    #[inline]
    pub(super) fn first(&self, shard: u64) -> Option<u32> {
        let tier_nodes = self.tiers.iter().find(|tier_nodes| !tier_nodes.node.is_empty())?;
        let (likely, runner_up) = tier_nodes.least_scores(shard);
        let best = self.pair(shard, tier_nodes.node[likely]);
        if runner_up <= greatest_score(best.cost, self.nodes[best.node as usize].weight) {
            return self.best(shard, |_, _| true).map(|pair| pair.node);
        }
        self.best_in(tier_nodes, HEAD, shard, Some(best), &|_, _| true).map(|pair| pair.node)
    }

    /// The best node for a shard among those that `may` lets have it.
    #[inline]
    pub(super) fn best(&self, shard: u64, may: impl Fn(u32, u64) -> bool) -> Option<Pair> {
        self.tiers.iter().find_map(|tier_nodes| self.best_in(tier_nodes, 0, shard, None, &may))
    }

    /// The best of a tier from some node on, if it is better than the best so far.
    #[inline]
    fn best_in(
        &self,
        tier_nodes: &PackedTier,
        from: usize,
        shard: u64,
        mut best: Option<Pair>,
        may: &impl Fn(u32, u64) -> bool,
    ) -> Option<Pair> {
        let limit_of = |pair: &Pair| greatest_score(pair.cost, self.nodes[pair.node as usize].weight);
        let mut limit = best.as_ref().map_or(u64::MAX, limit_of);
        for (i, (&node_hash, &inverse)) in
            tier_nodes.hash.iter().zip(&tier_nodes.inverse).enumerate().skip(from)
        {
            let hash = pair_hash(shard, node_hash);
            if least_score(hash, inverse) > limit {
                continue;
            }
            let node = tier_nodes.node[i];
            if !may(node, hash) {
                continue;
            }
            let pair = Pair { node, hash, cost: cost(hash) };
            if best.is_none_or(|best| self.compare(&pair, &best).is_lt()) {
                limit = limit_of(&pair);
                best = Some(pair);
            }
        }
        best
    }

    /// These nodes, the best for a shard first.
    pub(super) fn ranked(&self, shard: u64, nodes: impl IntoIterator<Item = u32>) -> Vec<Pair> {
        let mut pairs: Vec<Pair> = nodes.into_iter().map(|node| self.pair(shard, node)).collect();
        pairs.sort_by(|a, b| self.compare(a, b));
        pairs
    }

    /// All nodes that may have shards at all.
    pub(super) fn eligible(&self) -> impl Iterator<Item = u32> {
        self.tiers.iter().flat_map(|tier_nodes| tier_nodes.node.iter().copied())
    }
}
