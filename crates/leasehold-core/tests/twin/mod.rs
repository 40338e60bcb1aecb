//! Placement, the dumb way: all pairs, sorted, one after the other. It follows `spec/placement.md` sentence by sentence
//! and shares only the hash and the logarithm with the real one.

use std::cmp::Ordering;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use leasehold_core::name::ShardId;
use leasehold_core::placement::{Candidate, Question, cost, node_hash, pair_hash, shard_hash};
use leasehold_core::record::ZoneRule;

/// The node of each shard.
pub(crate) type Plan = BTreeMap<ShardId, Option<String>>;

#[derive(Clone, Debug)]
struct Pair<'q> {
    outside: bool,
    hash: u64,
    node: &'q Candidate,
    shard: &'q ShardId,
}

fn order(a: &Pair<'_>, b: &Pair<'_>) -> Ordering {
    let score = |one: &Pair<'_>, other: &Pair<'_>| u128::from(cost(one.hash)) * u128::from(other.node.weight);
    a.outside
        .cmp(&b.outside)
        .then(score(a, b).cmp(&score(b, a)))
        .then(b.hash.cmp(&a.hash))
        .then(a.node.name.cmp(&b.node.name))
        .then(a.shard.cmp(b.shard))
}

fn capacity(node: &Candidate) -> u64 {
    node.capacity.map_or(u64::from(u32::MAX), u64::from)
}

fn declines(question: &Question, node: &Candidate, shard: &ShardId) -> bool {
    question.declined.get(shard).is_some_and(|by| by.contains(&node.name))
}

fn pairs_of<'q>(question: &'q Question, shard: &'q ShardId) -> Vec<Pair<'q>> {
    let mut pairs = Vec::new();
    for node in &question.nodes {
        if node.weight > 0 && capacity(node) > 0 && !declines(question, node, shard) {
            let hash = pair_hash(shard_hash(shard), node_hash(&node.name));
            let outside = match &question.policy.zones {
                ZoneRule::Prefer(zone) => node.zone.as_ref() != Some(zone),
                _ => false,
            };
            pairs.push(Pair { outside, hash, node, shard });
        }
    }
    pairs.sort_by(order);
    pairs
}

/// What one member (node or zone) may get: weight and capacity in, cap out.
fn caps(total: u64, members: &[(u64, u64)], permille: u64) -> Vec<u64> {
    let mut bound = vec![false; members.len()];
    loop {
        let of_free = |pick: fn(&(u64, u64)) -> u64, want: bool| -> u64 {
            members.iter().zip(&bound).filter(|(_, b)| **b == want).map(|(m, _)| pick(m)).sum()
        };
        let weight = of_free(|m| m.0, false);
        let rest = total.saturating_sub(of_free(|m| m.1, true));
        let mut again = false;
        for (i, m) in members.iter().enumerate() {
            if !bound[i] && u128::from(m.1) * u128::from(weight) < u128::from(m.0) * u128::from(rest) {
                bound[i] = true;
                again = true;
            }
        }
        if again {
            continue;
        }
        return (members.iter().zip(&bound))
            .map(|(&(w, c), &bound)| {
                if bound {
                    return c;
                }
                let fair = u128::from(w) * u128::from(rest);
                let up = fair.div_ceil(u128::from(weight));
                let most = fair * u128::from(permille) / (1000 * u128::from(weight));
                up.max(most).min(u128::from(c)) as u64
            })
            .collect();
    }
}

struct State<'q> {
    question: &'q Question,
    to: BTreeMap<&'q ShardId, Option<&'q Candidate>>,
    pinned: BTreeSet<&'q ShardId>,
}

impl<'q> State<'q> {
    fn held(&self, keep: impl Fn(&Candidate) -> bool) -> u64 {
        self.to.values().flatten().filter(|node| keep(node)).count() as u64
    }

    fn on(&self, node: &Candidate) -> u64 {
        self.held(|other| other.name == node.name)
    }

    fn pin(&mut self) {
        for node in &self.question.nodes {
            let mut wanted: Vec<Pair<'q>> = Vec::new();
            for shard in self.question.shards.iter() {
                if self.question.pins.get(shard) == Some(&node.name) && !declines(self.question, node, shard)
                {
                    let hash = pair_hash(shard_hash(shard), node_hash(&node.name));
                    wanted.push(Pair { outside: false, hash, node, shard });
                }
            }
            wanted.sort_by(|a, b| b.hash.cmp(&a.hash).then(a.shard.cmp(b.shard)));
            for pair in wanted.into_iter().take(capacity(node) as usize) {
                self.to.insert(pair.shard, Some(node));
                self.pinned.insert(pair.shard);
            }
        }
    }

    /// Caps by node name, and quotas by zone.
    fn limits(&self) -> (BTreeMap<String, u64>, BTreeMap<Option<String>, u64>) {
        let permille = u64::from(self.question.policy.balance_permille);
        let with_weight: Vec<&Candidate> =
            self.question.nodes.iter().filter(|node| node.weight > 0).collect();
        let share = |node: &&Candidate| (u64::from(node.weight), capacity(node));
        let total = self.question.shards.len() as u64 - self.held(|node| node.weight == 0);
        let mut groups: Vec<(u64, Vec<&Candidate>)> = Vec::new();
        let mut zones = BTreeMap::new();
        match &self.question.policy.zones {
            ZoneRule::Ignore => groups.push((total, with_weight)),
            ZoneRule::Prefer(zone) => {
                let inside = |node: &Candidate| node.zone.as_ref() == Some(zone);
                let (first, second): (Vec<_>, Vec<_>) =
                    with_weight.into_iter().partition(|node| inside(node));
                let elsewhere = self.held(|node| node.weight > 0 && !inside(node));
                let fits = first.iter().map(|node| capacity(node)).sum::<u64>().min(total - elsewhere);
                groups.push((fits, first));
                groups.push((total - fits, second));
            }
            ZoneRule::Spread => {
                let mut members: BTreeMap<Option<String>, Vec<&Candidate>> = BTreeMap::new();
                for node in with_weight {
                    members.entry(node.zone.clone()).or_default().push(node);
                }
                let sum = |nodes: &Vec<&Candidate>| {
                    let shares: Vec<(u64, u64)> = nodes.iter().map(share).collect();
                    (shares.iter().map(|s| s.0).sum(), shares.iter().map(|s| s.1).sum())
                };
                let shares: Vec<(u64, u64)> = members.values().map(sum).collect();
                let quotas = caps(total, &shares, 1000);
                for ((zone, nodes), quota) in members.into_iter().zip(quotas) {
                    zones.insert(zone, quota);
                    groups.push((quota, nodes));
                }
            }
        }
        let mut nodes = BTreeMap::new();
        for (total, members) in groups {
            let shares: Vec<(u64, u64)> = members.iter().map(share).collect();
            for (node, cap) in members.iter().zip(caps(total, &shares, permille)) {
                nodes.insert(node.name.to_string(), cap);
            }
        }
        (nodes, zones)
    }

    fn fill(&mut self, fits: impl Fn(&Self, &Candidate) -> bool) {
        let shards = self.question.shards.iter().filter(|shard| self.to[shard].is_none());
        let mut pairs: Vec<Pair<'q>> = shards.flat_map(|shard| pairs_of(self.question, shard)).collect();
        pairs.sort_by(order);
        for pair in pairs {
            if self.to[pair.shard].is_none() && fits(self, pair.node) {
                self.to.insert(pair.shard, Some(pair.node));
            }
        }
    }

    fn repair(&mut self) {
        let unplaced: Vec<&ShardId> =
            self.to.iter().filter(|(_, node)| node.is_none()).map(|(id, _)| *id).collect();
        for shard in unplaced {
            let mut reached: BTreeMap<String, (&'q ShardId, &'q Candidate)> = BTreeMap::new();
            let mut queue: Vec<&'q Candidate> = Vec::new();
            let mut askers: Vec<&'q ShardId> = vec![shard];
            let mut next = 0;
            let end = 'search: loop {
                for asker in std::mem::take(&mut askers) {
                    for pair in pairs_of(self.question, asker) {
                        let Entry::Vacant(entry) = reached.entry(pair.node.name.to_string()) else {
                            continue;
                        };
                        entry.insert((asker, pair.node));
                        if self.on(pair.node) < capacity(pair.node) {
                            break 'search Some(pair.node);
                        }
                        queue.push(pair.node);
                    }
                }
                let Some(full) = queue.get(next) else { break None };
                next += 1;
                let here = self.to.iter().filter(|(_, node)| node.is_some_and(|node| node.name == full.name));
                askers = here.map(|(id, _)| *id).filter(|id| !self.pinned.contains(id)).collect();
            };
            let mut end = end;
            while let Some(node) = end {
                let moving = reached[node.name.as_str()].0;
                end = self.to.insert(moving, Some(node)).flatten();
            }
        }
    }
}

/// Where each shard goes.
pub(crate) fn place(question: &Question) -> Plan {
    let to = question.shards.iter().map(|shard| (shard, None)).collect();
    let mut state = State { question, to, pinned: BTreeSet::new() };
    state.pin();
    let (caps, quotas) = state.limits();
    state.fill(|state, node| {
        let quota = quotas.get(&node.zone).copied().unwrap_or(u64::MAX);
        let zone_full =
            !quotas.is_empty() && state.held(|other| other.zone == node.zone && other.weight > 0) >= quota;
        state.on(node) < caps[node.name.as_str()] && !zone_full
    });
    state.fill(|state, node| state.on(node) < capacity(node));
    state.repair();
    state.to.iter().map(|(id, node)| ((*id).clone(), node.map(|node| node.name.to_string()))).collect()
}
