//! Voluntary moves: what the plan wants elsewhere is given up, as far as `may_move` allows and there is room.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::Node;
use super::shards::{Hold, Phase};
use crate::event::StopReason;
use crate::may_move::{Move, Receiver, Room, Unmoved, may_move};
use crate::mirror::Seen;
use crate::name::{GroupName, NodeName, ShardId};
use crate::notice::Notice;
use crate::record::{Holder, ShardRecord};
use crate::time::Moment;

/// How many shards are being given up for each node, by group.
type UnderWay = BTreeMap<NodeName, BTreeMap<GroupName, u32>>;

impl Node {
    /// Whether a shard that runs here may be moved voluntarily to this node; if not, why.
    pub(super) fn may_move(&self, shard: &ShardId, to: Option<&NodeName>) -> Result<(), Unmoved> {
        let under_way = self.moves_under_way();
        let room = to.map_or(Room::default(), |to| {
            let room = self.room_at(to, &shard.group);
            self.less_under_way(room, &under_way, to, &shard.group)
        });
        may_move(&self.move_of(shard, to, room))
    }

    fn move_of<'a>(&'a self, shard: &ShardId, to: Option<&'a NodeName>, room: Room) -> Move<'a> {
        let control = self.control();
        let policy = self.settings.get(&shard.group).map(|group| group.policy.clone()).unwrap_or_default();
        let in_group =
            |(held, hold): &(&ShardId, &Hold)| held.group == shard.group && hold.phase == Phase::Running;
        // Counted only where it matters: there may be many.
        let running = match policy.kept_min {
            0 => usize::MAX,
            _ => self.holds.iter().filter(in_group).count(),
        };
        Move {
            at: self.now.at,
            policy,
            frozen_by_operator: control.and_then(|control| control.freeze.as_deref()),
            pinned_here: control.and_then(|control| control.pins.get(shard)).is_some_and(|to| self.is_me(to)),
            frozen_until: self.frozen_until,
            plan_is_stale: self.plan_is_stale(),
            moved_at: self.moved_at.get(shard).copied(),
            started_at: self.holds.get(shard).map_or(Moment::ZERO, |hold| hold.started_at),
            moves_begun: &self.moves_begun,
            running,
            view: self.plan.view,
            to: to.map(|to| self.receiver(to, room)),
        }
    }

    fn receiver<'a>(&self, node: &'a NodeName, room: Room) -> Receiver<'a> {
        let member = self.roster.get(node);
        let seen = self.mirror.nodes.get(node);
        let record = seen.and_then(|node| node.seen.as_ref()).and_then(|seen| seen.good());
        Receiver {
            node,
            receives: member.is_some_and(|member| member.takes_now()),
            silent_for: seen.map(|node| self.now.at.since(node.silent_from)),
            ttl: record.map_or(self.config.ttl, |record| record.ttl()),
            view: member.map_or(0, |member| member.view),
            missed_at: self.missed_at.get(node).copied(),
            room,
        }
    }

    /// How many more shards a node can hold now, in all and of this group, by what its record and the shards' say.
    fn room_at(&self, node: &NodeName, group: &GroupName) -> Room {
        let Some(member) = self.roster.get(node) else { return Room::default() };
        let of_group = member.groups.get(group).and_then(|served| served.capacity);
        if member.capacity.is_none() && of_group.is_none() {
            return Room::default();
        }
        let holds = |seen: &Seen<ShardRecord>| {
            seen.good().and_then(|record| record.holder()).is_some_and(|h| h.session == member.session)
        };
        let held = self.mirror.shards.iter().filter(|(_, seen)| holds(seen));
        let (mut in_all, mut in_group) = (0, 0);
        for (shard, _) in held {
            in_all += 1;
            in_group += u32::from(shard.group == *group);
        }
        Room {
            in_all: member.capacity.map(|capacity| capacity.saturating_sub(in_all)),
            of_group: of_group.map(|capacity| capacity.saturating_sub(in_group)),
        }
    }

    /// What is being given up for others here, and counts as theirs already.
    fn moves_under_way(&self) -> UnderWay {
        let mut moves = UnderWay::new();
        let why = |hold: &Hold| matches!(hold.phase, Phase::Stopping { why: StopReason::Moving, .. });
        for (shard, _) in self.holds.iter().filter(|(_, hold)| why(hold)) {
            if let Some(to) = self.plan.wanted(shard) {
                *moves.entry(to.clone()).or_default().entry(shard.group.clone()).or_default() += 1;
            }
        }
        moves
    }

    fn less_under_way(&self, room: Room, moves: &UnderWay, to: &NodeName, group: &GroupName) -> Room {
        let groups = moves.get(to);
        let in_all: u32 = groups.map_or(0, |groups| groups.values().sum());
        let of_group = groups.and_then(|groups| groups.get(group)).copied().unwrap_or(0);
        room.less(in_all, of_group)
    }

    /// Nodes that are all full and each have what the next one should have would wait for each other for ever. If this
    /// node and the receiver are in such a ring, it gives its shard up all the same, as the others in the ring do: each
    /// has room once it has given up its own. One at a time, and not again soon, should the others not play along.
    fn swap_places(&mut self, to: &NodeName, under_way: &UnderWay) -> bool {
        if self.now.at < self.swap_places_at || under_way.contains_key(to) || !self.leads_here(to) {
            return false;
        }
        self.swap_places_at = self.now.at + self.config.ttl * 2;
        true
    }

    /// Whether a node has a shard that should be here, or with somebody who has one that should be here, and so on. Only
    /// shards count that may move now, as far as we can tell.
    fn leads_here(&self, from: &NodeName) -> bool {
        let mut gives: BTreeMap<&NodeName, BTreeSet<&NodeName>> = BTreeMap::new();
        for (shard, wanted) in self.plan.iter() {
            let holder = self.mirror.shards.get(shard).and_then(|seen| seen.good()?.holder());
            let alive = |h: &&Holder| self.roster.get(&h.node).is_some_and(|m| m.session == h.session);
            let policy = self.settings.get(&shard.group).map(|group| &group.policy);
            let rests_ms = policy.map_or(0, |policy| policy.cooldown_ms.max(policy.min_run_ms));
            let moved_at = self.moved_at.get(shard).copied().unwrap_or(Moment::ZERO);
            let rests = self.now.at < moved_at + Duration::from_millis(rests_ms);
            if let (Some(holder), Some(wanted), false) = (holder.filter(alive), wanted, rests) {
                gives.entry(&holder.node).or_default().insert(wanted);
            }
        }
        let mut reached = BTreeSet::from([from]);
        let mut next = vec![from];
        while let Some(node) = next.pop() {
            let further = gives.get(node).into_iter().flatten().filter(|to| **to != node);
            next.extend(further.filter(|to| reached.insert(to)));
        }
        reached.contains(&self.config.node)
    }

    /// Notes who took what was given up for somebody. A node that renews its record and takes nothing would be given
    /// the same shards again and again.
    pub(super) fn note_taken(&mut self, shard: &ShardId) {
        let Some((to, epoch)) = self.given_up_for.get(shard) else { return };
        let Some(record) = self.mirror.shards.get(shard).and_then(|seen| seen.good()) else { return };
        let Some(holder) = record.holder().filter(|_| record.epoch > *epoch) else { return };
        match holder.node == *to {
            true => self.missed_at.remove(to),
            false => self.missed_at.insert(to.clone(), self.now.at),
        };
        self.given_up_for.remove(shard);
    }

    /// Whether a node will take shards in a moment, for all that we can tell.
    fn comes_back(&self, node: &NodeName) -> bool {
        let seen_at = self.mirror.nodes.get(node).map_or(Moment::ZERO, |node| node.session_seen_at);
        let returning = self.roster.get(node).is_some_and(|member| !member.takes_now() && member.receives());
        returning && self.now.at < seen_at + self.config.returns_within(&self.facts)
    }

    /// Begins to move what the plan wants elsewhere, as far as the stabilisers allow.
    pub(super) fn move_surplus(&mut self) {
        self.surplus_at = Moment::NEVER;
        if self.session.is_none() {
            return;
        }
        let window = Duration::from_secs(3600);
        let at = self.now.at;
        self.moves_begun.retain(|begun| at.since(*begun) < window);
        let drains = self.hands_over();
        // A store that stalls now must not find more than that standing still.
        let mut given_up = self.holds.values().filter(|hold| hold.is_given_up()).count();
        let hurried = self.leaving.as_ref().is_some_and(|leaving| at >= leaving.half());
        let mut homeless = 0;
        let mut rooms: BTreeMap<(NodeName, GroupName), Room> = BTreeMap::new();
        let mut under_way = self.moves_under_way();
        let surplus: Vec<ShardId> = self.surplus.iter().cloned().collect();
        for shard in surplus {
            if self.holds.get(&shard).is_none_or(|hold| hold.phase != Phase::Running) {
                self.surplus.remove(&shard);
                continue;
            }
            let to = self.plan.wanted(&shard).filter(|node| !self.is_me(node)).cloned();
            if drains {
                if to.is_none() && self.leaving.is_none() {
                    homeless += 1;
                } else if !hurried && to.as_ref().is_some_and(|to| self.comes_back(to)) {
                    // Nobody would run it until then.
                } else if hurried || given_up < self.config.give_up_at_once {
                    given_up += 1;
                    self.stop(&shard, StopReason::Draining, None);
                }
            } else if given_up < self.config.give_up_at_once
                && may_move(&self.move_of(&shard, to.as_ref(), Room::default())).is_ok()
                && let Some(to) = to
            {
                let room = rooms.entry((to.clone(), shard.group.clone()));
                let room = *room.or_insert_with(|| self.room_at(&to, &shard.group));
                if self.less_under_way(room, &under_way, &to, &shard.group).is_none_left()
                    && !self.swap_places(&to, &under_way)
                {
                    continue;
                }
                *under_way.entry(to).or_default().entry(shard.group.clone()).or_default() += 1;
                given_up += 1;
                self.moves_begun.push(at);
                self.stop(&shard, StopReason::Moving, None);
            }
        }
        if homeless > 0 && !self.no_receiver_told {
            self.no_receiver_told = true;
            self.tell(Notice::NoReceiver { shards: homeless });
        }
        if !self.surplus.is_empty() {
            let again = Duration::from_millis(200).min(self.config.ttl / 20);
            self.surplus_at = at + again;
        }
    }
}
