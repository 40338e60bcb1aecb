//! How many shards each node and each zone may have.
//!
//! Fair shares are by weight, and where a capacity is below the fair share, the others' shares rise until everything
//! that can fit does. A cap is `balance` × the fair share, but always lets the fair share be rounded up to a whole
//! shard, so that the caps together never leave a shard without a place.

use std::collections::BTreeMap;

use super::Candidate;
use crate::record::{Policy, ZoneRule};

/// What a cap reads where there is none.
pub(super) const UNLIMITED: u32 = u32::MAX;

/// The limits of one plan. All counts include pinned shards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Caps {
    /// The most shards that balance lets each node have, never above its capacity.
    pub(super) nodes: Vec<u32>,
    /// The zone of each node, an index into `zones`; all nodes are in one zone unless zones are to be spread over.
    pub(super) zone_of: Vec<u32>,
    /// The most shards that each zone may have.
    pub(super) zones: Vec<u32>,
}

impl Caps {
    /// The limits for `shards` shards, of which `pinned[i]` are pinned to node `i`.
    pub(super) fn new(nodes: &[Candidate], policy: &Policy, shards: u32, pinned: &[u32]) -> Self {
        let mut caps =
            Caps { nodes: vec![0; nodes.len()], zone_of: vec![0; nodes.len()], zones: vec![UNLIMITED] };
        let idle_pins: u32 = (0..nodes.len()).filter(|&i| nodes[i].weight == 0).map(|i| pinned[i]).sum();
        let shards = shards - idle_pins;
        let all: Vec<usize> = (0..nodes.len()).filter(|&i| nodes[i].weight > 0).collect();
        match &policy.zones {
            ZoneRule::Ignore => caps.fill(nodes, policy, shards, &all),
            ZoneRule::Prefer(zone) => {
                let (inside, outside): (Vec<usize>, Vec<usize>) =
                    all.into_iter().partition(|&i| nodes[i].zone.as_ref() == Some(zone));
                let pinned_outside: u32 = outside.iter().map(|&i| pinned[i]).sum();
                let room_inside = total_capacity(nodes, &inside);
                let first = room_inside.min(shards - pinned_outside);
                caps.fill(nodes, policy, first, &inside);
                caps.fill(nodes, policy, shards - first, &outside);
            }
            ZoneRule::Spread => caps.spread(nodes, policy, shards, &all),
        }
        caps
    }

    fn spread(&mut self, nodes: &[Candidate], policy: &Policy, shards: u32, all: &[usize]) {
        let mut zones: BTreeMap<Option<&str>, Vec<usize>> = BTreeMap::new();
        for &i in all {
            zones.entry(nodes[i].zone.as_deref()).or_default().push(i);
        }
        let shares: Vec<Share> = zones
            .values()
            .map(|members| Share {
                weight: members.iter().map(|&i| u64::from(nodes[i].weight)).sum(),
                capacity: total_capacity(nodes, members),
            })
            .collect();
        let level = Level::of(shards, &shares);
        self.zones.clear();
        for (zone, (members, share)) in zones.values().zip(&shares).enumerate() {
            let quota = level.cap(share, 1000);
            self.zones.push(quota);
            self.fill(nodes, policy, quota, members);
            for &i in members {
                self.zone_of[i] = zone as u32;
            }
        }
        if self.zones.is_empty() {
            self.zones.push(UNLIMITED);
        }
    }

    fn fill(&mut self, nodes: &[Candidate], policy: &Policy, shards: u32, members: &[usize]) {
        let shares: Vec<Share> = members.iter().map(|&i| Share::of(&nodes[i])).collect();
        let level = Level::of(shards, &shares);
        for (&i, share) in members.iter().zip(&shares) {
            self.nodes[i] = level.cap(share, policy.balance_permille);
        }
    }
}

/// The most shards that a node may have whatever the balance.
pub(super) fn capacity(node: &Candidate) -> u32 {
    node.capacity.unwrap_or(UNLIMITED)
}

fn total_capacity(nodes: &[Candidate], members: &[usize]) -> u32 {
    members.iter().fold(0, |sum, &i| sum.saturating_add(capacity(&nodes[i])))
}

/// What decides the share of a node, or of a zone.
struct Share {
    weight: u64,
    capacity: u32,
}

impl Share {
    fn of(node: &Candidate) -> Self {
        Share { weight: u64::from(node.weight), capacity: capacity(node) }
    }
}

/// The fair share per unit of weight, `shards / weight`, of those whose capacity is not below it.
struct Level {
    shards: u64,
    weight: u64,
}

impl Level {
    /// Gives those their capacity whose capacity is below their fair share, and shares out the rest among the others.
    fn of(shards: u32, shares: &[Share]) -> Level {
        let mut level = Level { shards: u64::from(shards), weight: shares.iter().map(|s| s.weight).sum() };
        // Those whose capacity is smallest for their weight are bound first, so one pass is enough.
        let mut tightest: Vec<&Share> = shares.iter().filter(|s| s.capacity < shards).collect();
        tightest.sort_by(|a, b| {
            let left = u128::from(a.capacity) * u128::from(b.weight);
            left.cmp(&(u128::from(b.capacity) * u128::from(a.weight)))
        });
        for share in tightest {
            let bound = u128::from(share.capacity) * u128::from(level.weight)
                < u128::from(share.weight) * u128::from(level.shards);
            if !bound {
                break;
            }
            level.shards -= u64::from(share.capacity);
            level.weight -= share.weight;
        }
        level
    }

    /// `balance` × the fair share rounded down, or the fair share rounded up if that is more; never above capacity.
    fn cap(&self, share: &Share, balance_permille: u32) -> u32 {
        if self.weight == 0 {
            return share.capacity;
        }
        let fair = u128::from(share.weight) * u128::from(self.shards);
        let rounded_up = fair.div_ceil(u128::from(self.weight));
        let balanced = fair * u128::from(balance_permille) / (1000 * u128::from(self.weight));
        rounded_up.max(balanced).min(u128::from(share.capacity)) as u32
    }
}
