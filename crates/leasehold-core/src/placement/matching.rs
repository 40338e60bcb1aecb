//! Which node gets which shard when not every shard can have its first choice.
//!
//! The rule is simple: go through all pairs of shard and node from best to worst, and make each pair whose shard is
//! still free and whose node and zone still have room. What is done here gives the same answer with far less work
//! (deferred acceptance): every shard asks its best node; a node or zone that is full keeps the best and turns the
//! worst away, which then asks the best of the nodes that would still take it. Both sides judge a pair by the same
//! order, so there is only one answer in which no shard and node prefer each other, in whatever order they are asked.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use super::exceptions::Exceptions;
use super::field::{Field, NOBODY, Pair};
use super::rendezvous::Spill;
use crate::name::ShardId;

/// What is being matched.
#[derive(Clone, Copy)]
pub(super) struct Market<'a> {
    pub(super) field: &'a Field,
    pub(super) ids: &'a [ShardId],
    pub(super) hashes: &'a [u64],
    pub(super) exceptions: &'a Exceptions,
    pub(super) spill: Spill,
}

/// How many shards each node and each zone may still get.
#[derive(Clone, Debug)]
pub(super) struct Room {
    pub(super) nodes: Vec<u32>,
    pub(super) zone_of: Vec<u32>,
    pub(super) zones: Vec<u32>,
}

/// A matching in the making.
pub(super) struct Matching<'a> {
    market: Market<'a>,
    room: Room,
    /// The node of each shard, or [`NOBODY`]; only shards that take part.
    to: Vec<u32>,
    held: Vec<u32>,
    in_zone: Vec<u32>,
    /// The shards of each node: at the beginning, and those that came later.
    at_first: Members,
    later: Vec<Vec<u32>>,
    /// The shards of each node that has been full, the worst on top; `None` before.
    kept: Vec<Option<BinaryHeap<Kept<'a>>>>,
    /// The same for each zone.
    zone_kept: Vec<Option<BinaryHeap<KeptInZone<'a>>>>,
    /// The hash below which a node turns every shard away.
    floor: Vec<u64>,
    /// Shards without a node that have not asked everybody.
    free: Vec<u32>,
    unplaced: Vec<u32>,
}

impl<'a> Matching<'a> {
    /// Begins with a node for each shard ([`NOBODY`]: it takes no part), whatever the room, and with shards that take
    /// part and have no node yet.
    pub(super) fn new(market: Market<'a>, room: Room, to: Vec<u32>, free: Vec<u32>) -> Self {
        let nodes = market.field.nodes.len();
        let mut matching = Matching {
            market,
            held: vec![0; nodes],
            in_zone: vec![0; room.zones.len()],
            at_first: Members::default(),
            later: vec![Vec::new(); nodes],
            kept: vec![None; nodes],
            zone_kept: vec![None; room.zones.len()],
            floor: room.nodes.iter().map(|&room| if room == 0 { u64::MAX } else { 0 }).collect(),
            free,
            unplaced: Vec::new(),
            room,
            to,
        };
        for &node in &matching.to {
            if let Some(held) = matching.held.get_mut(node as usize) {
                *held += 1;
            }
        }
        for (&held, &zone) in matching.held.iter().zip(&matching.room.zone_of) {
            matching.in_zone[zone as usize] += held;
        }
        matching
    }

    /// Finds a node for every shard. Returns the node of each, and the shards that got none.
    pub(super) fn solve(mut self) -> (Vec<u32>, Vec<u32>) {
        self.trim();
        while let Some(shard) = self.free.pop() {
            if self.market.spill == Spill::Off {
                self.unplaced.push(shard);
                continue;
            }
            match self.best_that_accepts(shard) {
                Some(pair) => self.accept(shard, &pair),
                None => self.unplaced.push(shard),
            }
        }
        (self.to, self.unplaced)
    }

    /// Turns away what is too much at the beginning.
    fn trim(&mut self) {
        let nodes_fit = self.held.iter().zip(&self.room.nodes).all(|(held, room)| held <= room);
        let zones_fit = self.in_zone.iter().zip(&self.room.zones).all(|(held, room)| held <= room);
        if nodes_fit && zones_fit && self.free.is_empty() {
            return;
        }
        self.at_first = Members::new(&self.to, &self.held);
        for node in 0..self.held.len() as u32 {
            if self.held[node as usize] >= self.room.nodes[node as usize] {
                self.trim_node(node);
            }
        }
        for zone in 0..self.in_zone.len() as u32 {
            if self.in_zone[zone as usize] >= self.room.zones[zone as usize] {
                self.trim_zone(zone);
            }
        }
    }

    /// Keeps the best and turns the rest away; from now on the node knows its worst.
    fn trim_node(&mut self, node: u32) {
        let room = self.room.nodes[node as usize] as usize;
        let mut members = self.members(node);
        if 0 < room && room < members.len() {
            members.select_nth_unstable(room - 1);
        }
        for Kept { shard, .. } in members.drain(room..) {
            self.remove(shard);
        }
        self.kept[node as usize] = Some(members.into());
        self.raise_floor(node);
    }

    fn trim_zone(&mut self, zone: u32) {
        self.zone_kept[zone as usize] = Some(self.zone_members(zone).into());
        while self.in_zone[zone as usize] > self.room.zones[zone as usize] {
            self.evict_from_zone(zone);
        }
    }

    fn best_that_accepts(&self, shard: u32) -> Option<Pair> {
        let declined = self.market.exceptions.declined(shard);
        self.market.field.best(self.market.hashes[shard as usize], |node, hash| {
            hash >= self.floor[node as usize] && self.accepts(shard, node, hash) && !declined.contains(&node)
        })
    }

    fn accepts(&self, shard: u32, node: u32, hash: u64) -> bool {
        if self.held[node as usize] >= self.room.nodes[node as usize] {
            let offer = Kept { hash, id: &self.market.ids[shard as usize], shard };
            let worst = self.kept[node as usize].as_ref().and_then(BinaryHeap::peek);
            return worst.is_some_and(|worst| offer < *worst);
        }
        let zone = self.room.zone_of[node as usize] as usize;
        if self.in_zone[zone] >= self.room.zones[zone] {
            let worst = self.zone_kept[zone].as_ref().and_then(BinaryHeap::peek);
            return worst.is_some_and(|worst| self.kept_in_zone(shard, node) < *worst);
        }
        true
    }

    fn accept(&mut self, shard: u32, pair: &Pair) {
        let node = pair.node as usize;
        let zone = self.room.zone_of[node] as usize;
        self.to[shard as usize] = pair.node;
        self.held[node] += 1;
        self.in_zone[zone] += 1;
        self.later[node].push(shard);
        if let Some(kept) = &mut self.kept[node] {
            kept.push(Kept { hash: pair.hash, id: &self.market.ids[shard as usize], shard });
        }
        if self.zone_kept[zone].is_some() {
            let offer = self.kept_in_zone(shard, pair.node);
            self.zone_kept[zone].as_mut().expect("seen above").push(offer);
        }
        if self.held[node] > self.room.nodes[node] {
            self.evict_from_node(pair.node);
        } else if self.in_zone[zone] > self.room.zones[zone] {
            self.evict_from_zone(zone as u32);
        }
        if self.held[node] == self.room.nodes[node] {
            self.raise_floor(pair.node);
        }
        if self.in_zone[zone] == self.room.zones[zone] && self.zone_kept[zone].is_none() {
            self.trim_zone(zone as u32);
        }
    }

    fn evict_from_node(&mut self, node: u32) {
        let worst = self.kept[node as usize].as_mut().and_then(BinaryHeap::pop);
        self.remove(worst.expect("a node that is full knows its worst").shard);
        self.forget_gone(self.room.zone_of[node as usize]);
    }

    fn evict_from_zone(&mut self, zone: u32) {
        let worst = self.zone_kept[zone as usize].as_mut().and_then(BinaryHeap::pop);
        self.remove(worst.expect("a zone that is full knows its worst").shard);
        self.forget_gone(zone);
    }

    /// Makes sure that the worst that a zone knows is still there: its node may have turned it away.
    fn forget_gone(&mut self, zone: u32) {
        let Some(kept) = &mut self.zone_kept[zone as usize] else { return };
        while kept.peek().is_some_and(|worst| self.to[worst.shard as usize] != worst.pair.node) {
            kept.pop();
        }
    }

    /// A node that is full takes nothing below the worst that it holds, from now on. Shards that its zone has turned
    /// away are forgotten here.
    fn raise_floor(&mut self, node: u32) {
        let mut kept = self.kept[node as usize].take().unwrap_or_else(|| self.members(node).into());
        while kept.peek().is_some_and(|worst| self.to[worst.shard as usize] != node) {
            kept.pop();
        }
        self.floor[node as usize] = kept.peek().map_or(u64::MAX, |worst| worst.hash);
        self.kept[node as usize] = Some(kept);
    }

    fn remove(&mut self, shard: u32) {
        let node = std::mem::replace(&mut self.to[shard as usize], NOBODY) as usize;
        self.held[node] -= 1;
        self.in_zone[self.room.zone_of[node] as usize] -= 1;
        self.free.push(shard);
    }

    fn shards_of(&self, node: u32) -> impl Iterator<Item = u32> {
        let shards = self.at_first.of(node).iter().chain(&self.later[node as usize]).copied();
        shards.filter(move |&shard| self.to[shard as usize] == node)
    }

    fn members(&self, node: u32) -> Vec<Kept<'a>> {
        let kept = |shard: u32| {
            let hash = self.market.field.pair_hash(self.market.hashes[shard as usize], node);
            Kept { hash, id: &self.market.ids[shard as usize], shard }
        };
        self.shards_of(node).map(kept).collect()
    }

    fn zone_members(&self, zone: u32) -> Vec<KeptInZone<'a>> {
        let nodes = (0..self.held.len() as u32).filter(|&node| self.room.zone_of[node as usize] == zone);
        nodes.flat_map(|node| self.shards_of(node).map(move |shard| self.kept_in_zone(shard, node))).collect()
    }

    fn kept_in_zone(&self, shard: u32, node: u32) -> KeptInZone<'a> {
        let pair = self.market.field.pair(self.market.hashes[shard as usize], node);
        KeptInZone { pair, field: self.market.field, id: &self.market.ids[shard as usize], shard }
    }
}

/// A shard that a node holds; the worse one is greater.
#[derive(Clone)]
struct Kept<'a> {
    hash: u64,
    id: &'a ShardId,
    shard: u32,
}

impl Ord for Kept<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        other
            .hash
            .cmp(&self.hash)
            .then_with(|| self.id.cmp(other.id))
            .then_with(|| self.shard.cmp(&other.shard))
    }
}

/// A shard that a node of a zone holds; the worse pair is greater.
#[derive(Clone)]
struct KeptInZone<'a> {
    pair: Pair,
    field: &'a Field,
    id: &'a ShardId,
    shard: u32,
}

impl Ord for KeptInZone<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        let pairs = self.field.compare(&self.pair, &other.pair);
        pairs.then_with(|| self.id.cmp(other.id)).then_with(|| self.shard.cmp(&other.shard))
    }
}

macro_rules! ordered {
    ($($type:ident),*) => {$(
        impl PartialOrd for $type<'_> {
            fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
                Some(self.cmp(other))
            }
        }
        impl PartialEq for $type<'_> {
            fn eq(&self, other: &Self) -> bool {
                self.cmp(other).is_eq()
            }
        }
        impl Eq for $type<'_> {}
    )*};
}
ordered!(Kept, KeptInZone);

/// The shards of each node, packed.
#[derive(Default)]
struct Members {
    shards: Vec<u32>,
    ends: Vec<u32>,
}

impl Members {
    fn new(to: &[u32], held: &[u32]) -> Self {
        let mut next: Vec<u32> = Vec::with_capacity(held.len());
        let mut total = 0;
        for &held in held {
            next.push(total);
            total += held;
        }
        let mut shards = vec![0; total as usize];
        for (shard, &node) in to.iter().enumerate() {
            if let Some(next) = next.get_mut(node as usize) {
                shards[*next as usize] = shard as u32;
                *next += 1;
            }
        }
        Members { shards, ends: next }
    }

    fn of(&self, node: u32) -> &[u32] {
        let Some(&end) = self.ends.get(node as usize) else { return &[] };
        let start = if node == 0 { 0 } else { self.ends[node as usize - 1] };
        &self.shards[start as usize..end as usize]
    }
}
