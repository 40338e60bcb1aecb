//! Removing the records of what is long gone: sessions that are over and named shards that were retired. Only one node
//! does it, rarely, and an epoch is never given out twice: a shard's record goes only after the group's epoch floor was
//! raised above it.

use std::collections::BTreeSet;

use super::Node;
use super::requests::Purpose;
use crate::name::{NodeName, ShardId};
use crate::record::{GroupRecord, ShardSet, ShardState};
use crate::store::{Key, Lane, Op, Swap};

/// How many records one round removes.
const REMOVED_MAX: usize = 32;

impl Node {
    pub(super) fn tidy(&mut self) {
        let first = self.roster.keys().next() == Some(&self.config.node);
        let busy = self.requests.any(|purpose| matches!(purpose, Purpose::Tidy | Purpose::Group));
        if !first || busy || !self.facts.removes || !self.is_open() || self.hands_over() {
            return;
        }
        let mut swaps = self.nodes_long_gone();
        if swaps.is_empty() {
            swaps = self.shards_long_retired();
        }
        swaps.truncate(REMOVED_MAX.min(self.facts.swaps_max.max(1)));
        if !swaps.is_empty() {
            self.ask(Lane::Work, Op::Swap(swaps), Purpose::Tidy);
        }
    }

    /// Records of sessions that are over, of nodes that no shard's record names: they are proof for earlier sessions, too.
    fn nodes_long_gone(&self) -> Vec<Swap> {
        let kept = self.config.retired_kept;
        let old = |seen: &crate::mirror::Seen<crate::record::NodeRecord>| {
            self.now.at.since(seen.first_seen_at) >= kept
                && seen.good().is_some_and(|record| !record.state.is_alive())
        };
        if !self.mirror.nodes.values().any(|node| node.seen.as_ref().is_some_and(old)) {
            return Vec::new();
        }
        let named: BTreeSet<&NodeName> = (self.mirror.shards.values())
            .filter_map(|seen| seen.good()?.holder().map(|holder| &holder.node))
            .collect();
        let gone = |(name, node): (&NodeName, &crate::mirror::SeenNode)| {
            let seen = node.seen.as_ref()?;
            (old(seen) && !named.contains(name)).then(|| Swap {
                key: Key::Node(name.clone()),
                expect: Some(seen.version.clone()),
                value: None,
            })
        };
        self.mirror.nodes.iter().filter_map(gone).collect()
    }

    /// Records of named shards that were retired long ago, once their group's epoch floor is above them.
    fn shards_long_retired(&mut self) -> Vec<Swap> {
        let mut swaps = Vec::new();
        let mut raise: Option<(GroupRecord, crate::store::Version)> = None;
        for (shard, seen) in &self.mirror.shards {
            let Some(record) = seen.good() else { continue };
            let old = self.now.at.since(seen.first_seen_at) >= self.config.retired_kept;
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
        if let Some((record, version)) = raise {
            self.write_group(record, Some(version));
        }
        swaps
    }

    fn is_engaged_or_held(&self, shard: &ShardId) -> bool {
        self.engaged.contains(shard) || self.holds.contains_key(shard) || self.orphans.contains_key(shard)
    }
}
