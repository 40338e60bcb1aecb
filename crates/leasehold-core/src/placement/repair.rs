//! The last resort against holes: a shard that only nodes without room would take makes one of them hand a shard on.
//!
//! Only declines together with capacities can bring it to this, so it is rare, and it may take its time. It finds a
//! way to place every shard that can be placed at all without moving a pin.

use super::field::{NOBODY, Tier};
use super::matching::Market;

/// Places shards that nobody has room for by moving others, each at most one node further.
pub(super) struct Repair<'a, 'm> {
    market: Market<'m>,
    to: &'a mut [u32],
    /// How many more shards each node may get.
    room: &'a mut [u32],
    /// Nodes from which no way leads to a node with room, and never will.
    dead: Vec<bool>,
    /// The shards in the order of their ids.
    by_id: Vec<u32>,
}

impl<'a, 'm> Repair<'a, 'm> {
    /// Places what can be placed of `unplaced`.
    pub(super) fn run(market: Market<'m>, to: &'a mut [u32], room: &'a mut [u32], mut unplaced: Vec<u32>) {
        let id = |shard: &u32| &market.ids[*shard as usize];
        unplaced.sort_by_key(id);
        let dead = market.field.nodes.iter().map(|node| node.tier == Tier::Out).collect();
        let mut repair = Repair { market, to, room, dead, by_id: Vec::new() };
        for shard in unplaced {
            if !repair.anybody_has_room() {
                return;
            }
            if repair.by_id.is_empty() {
                repair.by_id = (0..market.ids.len() as u32).collect();
                repair.by_id.sort_by_key(id);
            }
            repair.place(shard);
        }
    }

    fn anybody_has_room(&self) -> bool {
        (0..self.room.len()).any(|node| self.room[node] > 0 && !self.dead[node])
    }

    /// Searches breadth first for the shortest chain of moves that ends at a node with room, and makes them.
    fn place(&mut self, shard: u32) {
        let mut search =
            Search { visited: self.dead.clone(), asked_by: vec![NOBODY; self.room.len()], queue: Vec::new() };
        if let Some(node) = self.visit(&mut search, shard) {
            return self.shift(&search, shard, node);
        }
        let mut next = 0;
        while let Some(&full) = search.queue.get(next) {
            next += 1;
            for at in 0..self.by_id.len() {
                let other = self.by_id[at];
                if self.to[other as usize] != full || self.market.exceptions.pins.contains_key(&other) {
                    continue;
                }
                if let Some(node) = self.visit(&mut search, other) {
                    return self.shift(&search, shard, node);
                }
            }
        }
        self.dead = search.visited;
    }

    /// Lets a shard ask all nodes not yet asked; the first with room ends the search.
    fn visit(&self, search: &mut Search, shard: u32) -> Option<u32> {
        let (hash, declined) = (self.market.hashes[shard as usize], self.market.exceptions.declined(shard));
        if search.visited.iter().all(|&visited| visited) {
            return None;
        }
        for pair in self.market.field.ranked(hash, declined) {
            let node = pair.node as usize;
            if std::mem::replace(&mut search.visited[node], true) {
                continue;
            }
            search.asked_by[node] = shard;
            if self.room[node] > 0 {
                return Some(pair.node);
            }
            search.queue.push(pair.node);
        }
        None
    }

    /// Moves every shard of the chain one node further, the last one to `node`.
    fn shift(&mut self, search: &Search, shard: u32, mut node: u32) {
        self.room[node as usize] -= 1;
        loop {
            let moving = search.asked_by[node as usize];
            let from = std::mem::replace(&mut self.to[moving as usize], node);
            if moving == shard {
                return;
            }
            node = from;
        }
    }
}

struct Search {
    visited: Vec<bool>,
    /// Which shard would move to a node.
    asked_by: Vec<u32>,
    queue: Vec<u32>,
}
