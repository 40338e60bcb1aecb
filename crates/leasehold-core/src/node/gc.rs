//! Removing the records of what is long gone: sessions that are over and named shards that were retired. Only one node
//! does it, rarely, and an epoch is never given out twice: a shard's record goes only after the group's epoch floor was
//! raised above it.

use std::collections::BTreeSet;

use super::Node;
use super::context::Context;
use super::declines::Declines;
use super::holds::Holds;
use super::planner::Planner;
use super::requests::{Ask, Purpose};
use crate::mirror::{Mirror, Seen};
use crate::name::{Epoch, GroupName, NodeName};
use crate::record::{GroupRecord, NodeRecord, ShardSet, ShardState};
use crate::store::{Key, Op, Swap, Version};

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
        let (mut swaps, raise) = self.planner.split_by_floor(&self.mirror, &self.ctx);
        let raise = raise.filter(|_| swaps.is_empty());
        let higher = raise.and_then(|(group, epoch)| with_higher_floor(&group, epoch, &self.mirror));
        if let Some((record, version)) = higher {
            let ask = Ask::write_group(record, Some(version), &mut self.ctx);
            return self.ask(ask);
        }
        if swaps.is_empty() {
            let (retired, raise) = self.holds.shards_long_retired(&self.declines, &self.mirror, &self.ctx);
            if let Some((record, version)) = raise {
                let ask = Ask::write_group(record, Some(version), &mut self.ctx);
                self.ask(ask);
            }
            swaps = retired;
        }
        swaps.truncate(REMOVED_MAX.min(self.ctx.facts.swaps_max.max(1)));
        if !swaps.is_empty() {
            self.ask(Ask::work(Op::Swap(swaps), Purpose::Gc));
        }
    }

    /// Forgets what we remember of nodes, sessions and shards that are long gone.
    pub(super) fn forget_long_gone(&mut self) {
        self.mirror.prune(self.ctx.now.at - self.namespace.ttl_max(&self.ctx.config) * 20);
        let known = self.mirror.shards();
        self.holds.prune(known.len(), |shard| known.contains_key(shard));
        self.fencing.prune(&self.mirror);
    }
}

impl Planner {
    /// Splits those records into the ones that can go, and the first group whose floor must be raised before the others can:
    /// a node's record may be the only one that still tells which epochs were given out.
    fn split_by_floor(&self, mirror: &Mirror, ctx: &Context) -> (Vec<Swap>, Option<(GroupName, Epoch)>) {
        let mut raise = None;
        let mut swaps = Vec::new();
        for (name, seen) in nodes_long_gone(mirror, ctx) {
            let Some(record) = seen.good() else { continue };
            let low: Vec<(GroupName, Epoch)> = match &record.publishes {
                Some(published) => published.epochs().map(|(group, epoch)| (group.clone(), epoch)).collect(),
                // Nobody knows, but all of them were given out before its tombstone was written.
                None => {
                    let epoch = Epoch(record.written_unix_ms / 1000 + 1);
                    mirror.groups().keys().map(|group| (group.clone(), epoch)).collect()
                }
            };
            let mut low = low.into_iter().filter(|(group, epoch)| self.epoch_floor(group) < *epoch);
            match low.next() {
                Some(first) => raise = raise.or(Some(first)),
                None => {
                    swaps.push(Swap { key: Key::Node(name), expect: Some(seen.version.clone()), value: None })
                }
            }
        }
        (swaps, raise)
    }
}

impl Holds {
    /// Records of named shards that were retired long ago and can go, and a group's record with a higher epoch floor, which must
    /// be written before others can.
    fn shards_long_retired(
        &self,
        declines: &Declines,
        mirror: &Mirror,
        ctx: &Context,
    ) -> (Vec<Swap>, Option<(GroupRecord, Version)>) {
        let mut swaps = Vec::new();
        let mut raise = None;
        for (shard, seen) in mirror.shards() {
            let Some(record) = seen.good() else { continue };
            let old = ctx.now.at.since(seen.first_seen_at) >= ctx.config.retired_kept;
            let needed = declines.is_engaged(shard) || self.contains(shard) || self.is_orphaned(shard);
            if !old || record.state != ShardState::Retired || needed {
                continue;
            }
            let Some(group) = mirror.groups().get(&shard.group) else { continue };
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
                let epoch_floor = mirror.epoch_seen();
                raise = Some((GroupRecord { epoch_floor, ..settings.clone() }, group.version.clone()));
            }
        }
        (swaps, raise)
    }
}

/// Records of sessions that are over, of nodes that no shard's record names: they are proof for earlier sessions, too.
fn nodes_long_gone<'a>(mirror: &'a Mirror, ctx: &Context) -> Vec<(NodeName, &'a Seen<Box<NodeRecord>>)> {
    let kept = ctx.config.retired_kept;
    let old = |seen: &Seen<Box<NodeRecord>>| {
        ctx.now.at.since(seen.first_seen_at) >= kept
            && seen.good().is_some_and(|record| !record.state.is_alive())
    };
    if !mirror.nodes().values().any(|node| node.seen.as_ref().is_some_and(old)) {
        return Vec::new();
    }
    let named: BTreeSet<&NodeName> = (mirror.shards().values())
        .filter_map(|seen| seen.good()?.holder().map(|holder| &holder.node))
        .collect();
    let seen = mirror.nodes().iter().filter_map(|(name, node)| Some((name, node.seen.as_ref()?)));
    seen.filter(|(name, seen)| old(seen) && !named.contains(name))
        .map(|(name, seen)| (name.clone(), seen))
        .collect()
}

/// A group's record with its floor raised to an epoch, if that record can be read.
fn with_higher_floor(group: &GroupName, epoch: Epoch, mirror: &Mirror) -> Option<(GroupRecord, Version)> {
    let seen = mirror.groups().get(group)?;
    let record = seen.good().filter(|record| record.epoch_floor < epoch)?;
    Some((GroupRecord { epoch_floor: epoch, ..record.clone() }, seen.version.clone()))
}
