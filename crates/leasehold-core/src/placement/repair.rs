//! The last resort against holes: a shard that only nodes without room would take makes one of them hand a shard on.
//!
//! Only declines together with capacities can bring it to this, so it is rare, and it may take its time. It finds a
//! way to place every shard that can be placed at all without moving a pin.

use std::collections::BTreeSet;

use super::field::{NOBODY, Tier};
use super::matching::Market;

/// Places shards that nobody has room for by moving others, each at most one node further.
pub(super) struct Repair<'a, 'm> {
    market: Market<'m>,
    to: &'a mut [u32],
    /// How many more shards each node may get.
    room: &'a mut [u32],
    /// Nodes from which no way leads to a node with room, and never will; and those that take nothing at all.
    dead: Vec<bool>,
    /// The shards in the order of their ids, and where in that order each one is.
    by_id: Vec<u32>,
    place_of: Vec<u32>,
    /// The shards of each node that may move, as places in that order.
    held: Vec<BTreeSet<u32>>,
}

impl<'a, 'm> Repair<'a, 'm> {
    /// Places what can be placed of `unplaced`.
    pub(super) fn run(market: Market<'m>, to: &'a mut [u32], room: &'a mut [u32], mut unplaced: Vec<u32>) {
        let dead: Vec<bool> = market.field.nodes.iter().map(|node| node.tier == Tier::Out).collect();
        if !room.iter().zip(&dead).any(|(&room, &dead)| room > 0 && !dead) {
            return;
        }
        let mut by_id: Vec<u32> = (0..to.len() as u32).collect();
        by_id.sort_by_key(|&shard| &market.ids[shard as usize]);
        let mut place_of = vec![0; to.len()];
        let mut held = vec![BTreeSet::new(); room.len()];
        for (place, &shard) in by_id.iter().enumerate() {
            place_of[shard as usize] = place as u32;
            // Pinned shards have no node here, so they stay where they are.
            if let Some(held) = held.get_mut(to[shard as usize] as usize) {
                held.insert(place as u32);
            }
        }
        unplaced.sort_by_key(|&shard| place_of[shard as usize]);
        let mut repair = Repair { market, to, room, dead, by_id, place_of, held };
        for shard in unplaced {
            repair.place(shard);
        }
    }

    /// Searches breadth first for the shortest chain of moves that ends at a node with room, and makes them.
    fn place(&mut self, shard: u32) {
        let mut search = Search::new(&self.dead);
        if let Some(node) = self.reach(&mut search, shard) {
            return self.shift(&search, shard, node);
        }
        let mut next = 0;
        while let Some(&full) = search.queue.get(next) {
            next += 1;
            for &place in &self.held[full as usize] {
                if let Some(node) = self.reach(&mut search, self.by_id[place as usize]) {
                    return self.shift(&search, shard, node);
                }
            }
        }
        search.queue.iter().for_each(|&node| self.dead[node as usize] = true);
    }

    /// Lets a shard ask all nodes not yet reached; the first with room ends the search.
    fn reach(&self, search: &mut Search, shard: u32) -> Option<u32> {
        let declined = self.market.exceptions.declined(shard);
        let asked: Vec<u32> = search.open.iter().copied().filter(|node| !declined.contains(node)).collect();
        if asked.is_empty() {
            return None;
        }
        search.open.retain(|node| declined.contains(node));
        for pair in self.market.field.ranked(self.market.hashes[shard as usize], asked) {
            search.reached_by[pair.node as usize] = shard;
            if self.room[pair.node as usize] > 0 {
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
            let moving = search.reached_by[node as usize];
            let place = self.place_of[moving as usize];
            self.held[node as usize].insert(place);
            let from = std::mem::replace(&mut self.to[moving as usize], node);
            if moving == shard {
                return;
            }
            self.held[from as usize].remove(&place);
            node = from;
        }
    }
}

struct Search {
    /// Nodes not yet reached.
    open: Vec<u32>,
    /// Which shard would move to a node.
    reached_by: Vec<u32>,
    /// Full nodes, in the order in which they were reached.
    queue: Vec<u32>,
}

impl Search {
    fn new(dead: &[bool]) -> Self {
        let open = (0..dead.len() as u32).filter(|&node| !dead[node as usize]).collect();
        Search { open, reached_by: vec![NOBODY; dead.len()], queue: Vec::new() }
    }
}
