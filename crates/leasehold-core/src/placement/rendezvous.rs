//! Weighted rendezvous with bounded load: the placement that Leasehold brings along.

use std::cmp::Ordering;

use super::caps::{Caps, capacity};
use super::cost::{compare_scores, cost};
use super::hash::{node_hash, pair_hash, shard_hash};
use super::{Assignment, Placement, Question};
use crate::name::ShardId;
use crate::record::ZoneRule;

/// Weighted rendezvous with bounded load, version 1, computed from scratch at every call. [`super::Planner`] gives
/// the same answers and recomputes only what changed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rendezvous;

impl Placement for Rendezvous {
    fn id(&self) -> String {
        "rendezvous/1".to_owned()
    }

    fn place(&self, question: &Question) -> Assignment {
        place(question, Spill::On)
    }

    fn rank(&self, question: &Question, shard: &ShardId) -> Vec<u32> {
        rank(question, shard)
    }
}

/// Whether what does not fit goes to the next in rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spill {
    On,
    /// Only to show that it is needed.
    Off,
}

#[derive(Clone, Copy)]
struct Pair {
    tier: u8,
    hash: u64,
    cost: u64,
    weight: u32,
    node: u32,
    shard: u32,
}

impl Pair {
    fn order(&self, other: &Pair, question: &Question) -> Ordering {
        let name = |pair: &Pair| &question.nodes[pair.node as usize].name;
        let id = |pair: &Pair| &question.shards[pair.shard as usize];
        self.tier
            .cmp(&other.tier)
            .then_with(|| compare_scores(self.cost, self.weight, other.cost, other.weight))
            .then_with(|| other.hash.cmp(&self.hash))
            .then_with(|| name(self).cmp(name(other)))
            .then_with(|| id(self).cmp(id(other)))
    }
}

fn pairs_of(question: &Question, shard: u32, id: &ShardId) -> Vec<Pair> {
    let declined = question.declined.get(id);
    let mut pairs = Vec::new();
    for (node, candidate) in question.nodes.iter().enumerate() {
        if candidate.weight == 0
            || capacity(candidate) == 0
            || declined.is_some_and(|d| d.contains(&candidate.name))
        {
            continue;
        }
        let outside =
            matches!(&question.policy.zones, ZoneRule::Prefer(zone) if candidate.zone.as_ref() != Some(zone));
        let hash = pair_hash(shard_hash(id), node_hash(&candidate.name));
        pairs.push(Pair {
            tier: u8::from(outside),
            hash,
            cost: cost(hash),
            weight: candidate.weight,
            node: node as u32,
            shard,
        });
    }
    pairs.sort_by(|a, b| a.order(b, question));
    pairs
}

pub(super) fn rank(question: &Question, id: &ShardId) -> Vec<u32> {
    let mut ranked: Vec<u32> = pairs_of(question, 0, id).iter().map(|pair| pair.node).collect();
    if let Some(pinned) = pin_of(question, id) {
        ranked.retain(|&node| node != pinned);
        ranked.insert(0, pinned);
    }
    ranked
}

fn pin_of(question: &Question, id: &ShardId) -> Option<u32> {
    let name = question.pins.get(id)?;
    let node = question.nodes.iter().position(|candidate| candidate.name == *name)?;
    let declined = question.declined.get(id).is_some_and(|d| d.contains(name));
    (!declined && capacity(&question.nodes[node]) > 0).then_some(node as u32)
}

pub(super) fn place(question: &Question, spill: Spill) -> Assignment {
    let mut to: Vec<Option<u32>> = vec![None; question.shards.len()];
    let mut held = vec![0u32; question.nodes.len()];
    let mut pins: Vec<(u64, &ShardId, usize, u32)> = Vec::new();
    for (shard, id) in question.shards.iter().enumerate() {
        if let Some(node) = pin_of(question, id) {
            pins.push((
                !pair_hash(shard_hash(id), node_hash(&question.nodes[node as usize].name)),
                id,
                shard,
                node,
            ));
        }
    }
    pins.sort();
    for (_, _, shard, node) in pins {
        if held[node as usize] < capacity(&question.nodes[node as usize]) {
            held[node as usize] += 1;
            to[shard] = Some(node);
        }
    }
    let caps = Caps::new(&question.nodes, &question.policy, question.shards.len() as u32, &held);
    let mut in_zone = vec![0u32; caps.zones.len()];
    for (node, &count) in held.iter().enumerate() {
        in_zone[caps.zone_of[node] as usize] += count;
    }
    let mut pairs: Vec<Pair> = Vec::new();
    for (shard, id) in question.shards.iter().enumerate() {
        if to[shard].is_none() {
            let mut ranked = pairs_of(question, shard as u32, id);
            if spill == Spill::Off {
                ranked.truncate(1);
            }
            pairs.extend(ranked);
        }
    }
    pairs.sort_by(|a, b| a.order(b, question));
    for pair in &pairs {
        let (shard, node) = (pair.shard as usize, pair.node as usize);
        let zone = caps.zone_of[node] as usize;
        if to[shard].is_none() && held[node] < caps.nodes[node] && in_zone[zone] < caps.zones[zone] {
            to[shard] = Some(pair.node);
            held[node] += 1;
            in_zone[zone] += 1;
        }
    }
    if spill == Spill::On {
        for pair in &pairs {
            let (shard, node) = (pair.shard as usize, pair.node as usize);
            if to[shard].is_none() && held[node] < capacity(&question.nodes[node]) {
                to[shard] = Some(pair.node);
                held[node] += 1;
            }
        }
    }
    Assignment { to }
}
