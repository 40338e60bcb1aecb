//! Weighted rendezvous with bounded load: the built-in placement.

use super::caps::{Caps, UNLIMITED, capacity};
use super::choices::Choices;
use super::cost::COST_BITS;
use super::exceptions::Exceptions;
use super::field::{Field, NOBODY, Pair};
use super::hash::shard_hash;
use super::matching::{Market, Matching, Room};
use super::repair::Repair;
use super::{Assignment, Placement, Question};
use crate::name::{NodeName, ShardId};

/// Weighted rendezvous with bounded load, version 1, computed from scratch at every call. [`super::Planner`] gives
/// the same answers and recomputes only what changed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rendezvous;

impl Placement for Rendezvous {
    fn id(&self) -> String {
        super::RENDEZVOUS.to_owned()
    }

    fn place(&self, question: &Question) -> Assignment {
        place(&mut Choices::default(), question, Spill::On)
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

/// Answers a question, given what is known from the last one.
pub(super) fn place(choices: &mut Choices, question: &Question, spill: Spill) -> Assignment {
    let exceptions = choices.update(question);
    let market = Market {
        field: &choices.field,
        ids: &question.shards,
        hashes: &choices.hashes,
        exceptions: &exceptions,
        spill,
    };
    let mut pinned = vec![0; question.nodes.len()];
    let mut to = choices.first.clone();
    for (&shard, &node) in &exceptions.pins {
        pinned[node as usize] += 1;
        to[shard as usize] = NOBODY;
    }
    let caps = Caps::new(&question.nodes, &question.policy, to.len() as u32, &pinned);
    let (mut to, unplaced) = Matching::new(market, under(caps, question, &pinned), to, Vec::new()).solve();
    if !unplaced.is_empty() && spill == Spill::On {
        relax(market, question, &pinned, &mut to, unplaced);
    }
    for (&shard, &node) in &exceptions.pins {
        to[shard as usize] = node;
    }
    Assignment { to: to.into_iter().map(|node| (node != NOBODY).then_some(node)).collect() }
}

/// What the pins leave of the caps. Pins on nodes without weight count against nobody.
fn under(caps: Caps, question: &Question, pinned: &[u32]) -> Room {
    let mut room = Room { nodes: caps.nodes, zone_of: caps.zone_of, zones: caps.zones };
    for (node, &pinned) in pinned.iter().enumerate().filter(|(node, _)| question.nodes[*node].weight > 0) {
        room.nodes[node] = room.nodes[node].saturating_sub(pinned);
        let zone = &mut room.zones[room.zone_of[node] as usize];
        if *zone != UNLIMITED {
            *zone = zone.saturating_sub(pinned);
        }
    }
    room
}

/// Balance and zones must not make holes: what is left over only has to respect capacities, and moves others aside
/// where it must.
fn relax(market: Market<'_>, question: &Question, pinned: &[u32], to: &mut [u32], left: Vec<u32>) {
    let mut room: Vec<u32> =
        question.nodes.iter().zip(pinned).map(|(node, pinned)| capacity(node) - pinned).collect();
    take_up(&mut room, to);
    let open = Room { nodes: room.clone(), zone_of: vec![0; room.len()], zones: vec![UNLIMITED] };
    let (more, unplaced) = Matching::new(market, open, vec![NOBODY; to.len()], left).solve();
    take_up(&mut room, &more);
    for (to, more) in to.iter_mut().zip(more) {
        if more != NOBODY {
            *to = more;
        }
    }
    Repair::run(market, to, &mut room, unplaced);
}

fn take_up(room: &mut [u32], to: &[u32]) {
    for &node in to {
        if let Some(room) = room.get_mut(node as usize) {
            *room -= 1;
        }
    }
}

/// The nodes that may have a shard, best first; one that it is pinned to comes before all others.
pub(super) fn rank(question: &Question, id: &ShardId) -> Vec<u32> {
    ranked(question, id).into_iter().map(|ranked| ranked.node).collect()
}

/// A node in the ranking of a shard.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ranked {
    /// The node, as an index into the question's nodes.
    pub node: u32,
    /// Cost divided by weight, for people: the node with the smallest one comes first, unless zones or a pin say
    /// otherwise. A node without weight has none.
    pub score: Option<f64>,
}

/// The same with scores.
pub(super) fn ranked(question: &Question, id: &ShardId) -> Vec<Ranked> {
    let field = Field::new(question);
    let index = |name: &NodeName| field.nodes.iter().position(|node| node.name == *name).map(|at| at as u32);
    let declined: Vec<u32> = question.declined.get(id).into_iter().flatten().filter_map(index).collect();
    let pinned = question.pins.get(id).and_then(index);
    let pinned =
        pinned.filter(|&node| !declined.contains(&node) && capacity(&question.nodes[node as usize]) > 0);
    let hash = shard_hash(id);
    let mut pairs = field.ranked(hash, field.eligible().filter(|node| !declined.contains(node)));
    if let Some(pinned) = pinned {
        pairs.retain(|pair| pair.node != pinned);
        pairs.insert(0, field.pair(hash, pinned));
    }
    let score = |pair: &Pair| {
        let weight = field.nodes[pair.node as usize].weight;
        (weight > 0).then(|| pair.cost as f64 / (1u64 << COST_BITS) as f64 / f64::from(weight))
    };
    pairs.iter().map(|pair| Ranked { node: pair.node, score: score(pair) }).collect()
}

/// The most shards that each node may get, as things are: by balance, and never above its capacity.
pub(super) fn caps(question: &Question) -> Vec<u32> {
    let exceptions = Exceptions::new(question, &Field::new(question));
    let mut pinned = vec![0; question.nodes.len()];
    exceptions.pins.values().for_each(|&node| pinned[node as usize] += 1);
    Caps::new(&question.nodes, &question.policy, question.shards.len() as u32, &pinned).nodes
}
