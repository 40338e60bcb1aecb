//! Removing the records of what is long gone: sessions that are over and named shards that were retired. Only one node
//! does it, rarely, and an epoch is never given out twice: a shard's record goes only after the group's epoch floor was
//! raised above it.

use std::collections::BTreeSet;

use super::Node;
use super::requests::Purpose;
use crate::mirror::Seen;
use crate::name::{Epoch, GroupName, NodeName, ShardId};
use crate::record::{GroupRecord, NodeRecord, ShardSet, ShardState};
use crate::store::{Key, Lane, Op, Swap, Version};

/// How many records one round removes.
const REMOVED_MAX: usize = 32;

impl Node {
    pub(super) fn gc(&mut self) {
        let first = self.planner.roster().keys().next() == Some(&self.ctx.config.node);
        let busy = self.requests.any(|purpose| matches!(purpose, Purpose::Gc | Purpose::Group));
        if !first
            || busy
            || !self.ctx.facts.removes
            || !self.namespace.is_open()
            || self.departure.hands_over(&self.offer, &self.mirror, &self.ctx)
        {
            return;
        }
        let (mut swaps, raise) = self.split_by_floor();
        if swaps.is_empty() && raise.is_some_and(|(group, epoch)| self.raise_floor(&group, epoch)) {
            return;
        }
        if swaps.is_empty() {
            let (retired, raise) = self.shards_long_retired();
            if let Some((record, version)) = raise {
                self.write_group(record, Some(version));
            }
            swaps = retired;
        }
        swaps.truncate(REMOVED_MAX.min(self.ctx.facts.swaps_max.max(1)));
        if !swaps.is_empty() {
            self.ask(Lane::Work, Op::Swap(swaps), Purpose::Gc);
        }
    }

    /// Forgets what we remember of nodes, sessions and shards that are long gone.
    pub(super) fn forget_long_gone(&mut self) {
        self.mirror.prune(self.ctx.now.at - self.namespace.ttl_max(&self.ctx.config) * 20);
        let known = &self.mirror.shards;
        self.holds.prune(known.len(), |shard| known.contains_key(shard));
        self.fencing.prune(&self.mirror);
    }

    /// Records of sessions that are over, of nodes that no shard's record names: they are proof for earlier sessions, too.
    fn nodes_long_gone(&self) -> Vec<(NodeName, &Seen<Box<NodeRecord>>)> {
        let kept = self.ctx.config.retired_kept;
        let old = |seen: &Seen<Box<NodeRecord>>| {
            self.ctx.now.at.since(seen.first_seen_at) >= kept
                && seen.good().is_some_and(|record| !record.state.is_alive())
        };
        if !self.mirror.nodes.values().any(|node| node.seen.as_ref().is_some_and(old)) {
            return Vec::new();
        }
        let named: BTreeSet<&NodeName> = (self.mirror.shards.values())
            .filter_map(|seen| seen.good()?.holder().map(|holder| &holder.node))
            .collect();
        let seen = self.mirror.nodes.iter().filter_map(|(name, node)| Some((name, node.seen.as_ref()?)));
        seen.filter(|(name, seen)| old(seen) && !named.contains(name))
            .map(|(name, seen)| (name.clone(), seen))
            .collect()
    }

    /// Splits those records into the ones that can go, and the first group whose floor must be raised before the others can:
    /// a node's record may be the only one that still tells which epochs were given out.
    fn split_by_floor(&self) -> (Vec<Swap>, Option<(GroupName, Epoch)>) {
        let mut raise = None;
        let mut swaps = Vec::new();
        for (name, seen) in self.nodes_long_gone() {
            let Some(record) = seen.good() else { continue };
            let low: Vec<(GroupName, Epoch)> = match &record.publishes {
                Some(published) => published.epochs().map(|(group, epoch)| (group.clone(), epoch)).collect(),
                // Nobody knows, but all of them were given out before its tombstone was written.
                None => {
                    let epoch = Epoch(record.written_unix_ms / 1000 + 1);
                    self.mirror.groups.keys().map(|group| (group.clone(), epoch)).collect()
                }
            };
            let mut low = low.into_iter().filter(|(group, epoch)| self.planner.epoch_floor(group) < *epoch);
            match low.next() {
                Some(first) => raise = raise.or(Some(first)),
                None => {
                    swaps.push(Swap { key: Key::Node(name), expect: Some(seen.version.clone()), value: None })
                }
            }
        }
        (swaps, raise)
    }

    /// Raises the floor of a group to an epoch, if its record can be read.
    fn raise_floor(&mut self, group: &GroupName, epoch: Epoch) -> bool {
        let Some(seen) = self.mirror.groups.get(group) else { return false };
        let Some(record) = seen.good().filter(|record| record.epoch_floor < epoch) else { return false };
        let (record, version) = (GroupRecord { epoch_floor: epoch, ..record.clone() }, seen.version.clone());
        self.write_group(record, Some(version));
        true
    }

    /// Records of named shards that were retired long ago and can go, and a group's record with a higher epoch floor, which must
    /// be written before others can.
    fn shards_long_retired(&self) -> (Vec<Swap>, Option<(GroupRecord, Version)>) {
        let mut swaps = Vec::new();
        let mut raise = None;
        for (shard, seen) in &self.mirror.shards {
            let Some(record) = seen.good() else { continue };
            let old = self.ctx.now.at.since(seen.first_seen_at) >= self.ctx.config.retired_kept;
            if !old || record.state != ShardState::Retired || self.is_engaged_or_held(shard) {
                continue;
            }
            let Some(group) = self.mirror.groups.get(&shard.group) else { continue };
            let Some(settings) = group.good().filter(|group| group.shards == ShardSet::Named) else {
                continue;
            };
            if settings.epoch_floor >= record.epoch {
                swaps.push(Swap {
                    key: Key::Shard(shard.clone()),
                    expect: Some(seen.version.clone()),
                    value: None,
                });
            } else if raise.is_none() {
                let epoch_floor = self.mirror.epoch_seen;
                raise = Some((GroupRecord { epoch_floor, ..settings.clone() }, group.version.clone()));
            }
        }
        (swaps, raise)
    }

    fn is_engaged_or_held(&self, shard: &ShardId) -> bool {
        self.declines.is_engaged(shard) || self.holds.contains(shard) || self.holds.is_orphaned(shard)
    }
}
