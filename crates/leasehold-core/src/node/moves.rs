//! Voluntary moves: what the plan wants elsewhere is given up, as far as `may_move` allows and there is room.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::Node;
use super::context::Context;
use super::freeze::Freeze;
use super::hold::{Hold, Phase};
use super::holds::Holds;
use super::planner::Planner;
use super::timers::Timer;
use crate::event::StopReason;
use crate::may_move::{Move, Receiver, Room, Unmoved, may_move};
use crate::mirror::{Mirror, Seen};
use crate::name::{Epoch, GroupName, NodeName, ShardId};
use crate::notice::Notice;
use crate::record::{Holder, ShardRecord};
use crate::rules::Rule;
use crate::time::Moment;

/// How many shards are being given up for each node, by group.
type UnderWay = BTreeMap<NodeName, BTreeMap<GroupName, u32>>;

/// The voluntary moves of the shards here.
#[derive(Debug, Default)]
pub(super) struct Moves {
    /// Shards that run here and should not.
    surplus: BTreeSet<ShardId>,
    /// When each move of the last hour was begun.
    begun_at: Vec<Moment>,
    /// When a shard's record last changed, wherever it is.
    moved_at: BTreeMap<ShardId, Moment>,
    /// For whom a shard was given up voluntarily, at which epoch, until a node has it.
    given_up_for: BTreeMap<ShardId, (NodeName, Epoch)>,
    /// When another node had to take what had been given up for a node that has taken nothing since.
    missed_at: BTreeMap<NodeName, Moment>,
    /// When this node may next give a shard up for one that is full and has to give one up itself.
    swap_places_at: Moment,
}

impl Moves {
    /// A shard runs here and should not; `true` if that is new.
    pub(super) fn add(&mut self, shard: &ShardId) -> bool {
        self.surplus.insert(shard.clone())
    }

    /// A shard may stay, or does not run here any more.
    pub(super) fn remove(&mut self, shard: &ShardId) {
        self.surplus.remove(shard);
    }

    /// The shards that run here and should not.
    pub(super) fn surplus(&self) -> &BTreeSet<ShardId> {
        &self.surplus
    }

    /// What should not run here is looked at in this step: what it waited for may have happened.
    pub(super) fn look_at_surplus(&self, ctx: &mut Context) {
        if !self.surplus.is_empty() {
            ctx.timers.set(Timer::Surplus, ctx.now.at);
        }
    }

    /// A shard's record changed.
    pub(super) fn note_moved(&mut self, shard: &ShardId, at: Moment) {
        self.moved_at.insert(shard.clone(), at);
    }

    /// A shard is given up for a node.
    pub(super) fn give_up_for(&mut self, shard: &ShardId, to: NodeName, epoch: Epoch) {
        self.given_up_for.insert(shard.clone(), (to, epoch));
    }

    /// A shard's record changed: notes whether the node that it was given up for took it. A node that renews its record and
    /// takes nothing would be given the same shards again and again.
    pub(super) fn note_taken(&mut self, shard: &ShardId, mirror: &Mirror, at: Moment) {
        let Some((to, epoch)) = self.given_up_for.get(shard) else { return };
        let Some(record) = mirror.shard_record(shard) else { return };
        let Some(holder) = record.holder().filter(|_| record.epoch > *epoch) else { return };
        match holder.node == *to {
            true => self.missed_at.remove(to),
            false => self.missed_at.insert(to.clone(), at),
        };
        self.given_up_for.remove(shard);
    }

    /// A node has a new session: it may be given shards again.
    pub(super) fn trust_again(&mut self, node: &NodeName) {
        self.missed_at.remove(node);
    }

    /// A claim of ours landed: if we are in a ring of full nodes, the next swap may follow at once.
    pub(super) fn claim_landed(&mut self, at: Moment) {
        self.swap_places_at = self.swap_places_at.min(at);
    }

    /// The session is over: nothing is here any more.
    pub(super) fn clear(&mut self) {
        self.surplus.clear();
        self.given_up_for.clear();
    }
}

/// What decides whether a shard that runs here may move voluntarily, and whether there is room for it.
pub(super) struct Movability<'a> {
    moves: &'a Moves,
    planner: &'a Planner,
    mirror: &'a Mirror,
    holds: &'a Holds,
    freeze: &'a Freeze,
    ctx: &'a Context,
}

impl<'a> Movability<'a> {
    /// Whether a shard that runs here may be moved voluntarily to this node; if not, why.
    pub(super) fn may_move(&self, shard: &ShardId, to: Option<&'a NodeName>) -> Result<(), Unmoved> {
        let under_way = self.moves_under_way();
        let room = to.map_or(Room::default(), |to| {
            let room = self.room_at(to, &shard.group);
            less_under_way(room, &under_way, to, &shard.group)
        });
        may_move(&self.move_of(shard, to, room))
    }

    fn move_of(&self, shard: &ShardId, to: Option<&'a NodeName>, room: Room) -> Move<'a> {
        let control = self.mirror.control();
        let policy = self.planner.group(&shard.group).map(|group| group.policy.clone()).unwrap_or_default();
        let runs = |(_, hold): &(&ShardId, &Hold)| hold.phase() == Phase::Running;
        let in_group = |(held, _): &(&ShardId, &Hold)| held.group == shard.group;
        // Counted only where it matters: there may be many.
        let running = match policy.kept_min {
            0 => usize::MAX,
            _ => self.holds.iter().filter(runs).filter(in_group).count(),
        };
        let kept_min_in_all = self.ctx.config.kept_min;
        let running_in_all = match kept_min_in_all {
            0 => usize::MAX,
            _ => self.holds.iter().filter(runs).count(),
        };
        let hold = self.holds.get(shard);
        Move {
            at: self.ctx.now.at,
            policy,
            frozen_by_operator: control.and_then(|control| control.frozen(&shard.group)),
            pinned_here: control
                .and_then(|control| control.pins.get(shard))
                .is_some_and(|to| self.ctx.is_me(to)),
            frozen_until: self.freeze.until(),
            plan_is_stale: self.ctx.plan_is_stale(),
            moved_at: self.moves.moved_at.get(shard).copied(),
            started_at: hold.map_or(Moment::ZERO, Hold::started_at),
            on_trial_until: hold.and_then(|hold| hold.on_trial_until(self.ctx.config.healthy_after)),
            moves_begun: &self.moves.begun_at,
            running,
            running_in_all,
            kept_min_in_all,
            view: self.planner.plan().view,
            to: to.map(|to| self.receiver(to, room)),
        }
    }

    fn receiver(&self, node: &'a NodeName, room: Room) -> Receiver<'a> {
        let member = self.planner.member(node);
        let seen = self.mirror.nodes().get(node);
        let record = seen.and_then(|node| node.seen.as_ref()).and_then(|seen| seen.good());
        Receiver {
            node,
            receives: member.is_some_and(|member| member.takes_now()),
            silent_for: seen.map(|node| self.ctx.now.at.since(node.silent_from)),
            ttl: record.map_or(self.ctx.config.ttl, |record| record.ttl()),
            view: match self.ctx.rules.hold(Rule::ViewsAgree) {
                true => member.map_or(0, |member| member.view),
                false => self.planner.plan().view,
            },
            missed_at: self.moves.missed_at.get(node).copied(),
            room,
        }
    }

    /// How many more shards a node can hold now, in all and of this group, by what its record and the shards' say.
    fn room_at(&self, node: &NodeName, group: &GroupName) -> Room {
        let Some(member) = self.planner.member(node) else { return Room::default() };
        let of_group = member.groups.get(group).and_then(|served| served.capacity);
        if member.capacity.is_none() && of_group.is_none() {
            return Room::default();
        }
        let holds = |seen: &Seen<ShardRecord>| {
            seen.good().and_then(|record| record.holder()).is_some_and(|h| h.session == member.session)
        };
        let held = self.mirror.shards().iter().filter(|(_, seen)| holds(seen));
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
        let why = |hold: &Hold| matches!(hold.phase(), Phase::Stopping { why: StopReason::Moving, .. });
        for (shard, _) in self.holds.iter().filter(|(_, hold)| why(hold)) {
            if let Some(to) = self.planner.plan().wanted(shard) {
                *moves.entry(to.clone()).or_default().entry(shard.group.clone()).or_default() += 1;
            }
        }
        moves
    }

    /// Nodes that are all full and each have what the next one should have would wait for each other without end. If this
    /// node and the receiver are in such a ring, it gives its shard up nevertheless, as the others in the ring do: each
    /// has room once it has given up its own. One at a time, and not again soon: the others may not do the same.
    fn may_swap_places(&self, to: &NodeName, under_way: &UnderWay) -> bool {
        self.ctx.now.at >= self.moves.swap_places_at && !under_way.contains_key(to) && self.leads_here(to)
    }

    /// Whether a node has a shard that should be here, or with a node that has one that should be here, and so on. Only
    /// shards count that may move now, as far as we can tell.
    fn leads_here(&self, from: &NodeName) -> bool {
        let mut gives: BTreeMap<&NodeName, BTreeSet<&NodeName>> = BTreeMap::new();
        for (shard, wanted) in self.planner.plan().iter() {
            let holder = self.mirror.holder(shard);
            let alive = |h: &&Holder| self.planner.member(&h.node).is_some_and(|m| m.session == h.session);
            let policy = self.planner.group(&shard.group).map(|group| &group.policy);
            let rests_ms = policy.map_or(0, |policy| policy.cooldown_ms.max(policy.min_run_ms));
            let moved_at = self.moves.moved_at.get(shard).copied().unwrap_or(Moment::ZERO);
            let rests = self.ctx.now.at < moved_at + Duration::from_millis(rests_ms);
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
        reached.contains(&self.ctx.config.node)
    }

    /// Whether a node will take shards in a moment, for all that we can tell.
    fn comes_back(&self, node: &NodeName) -> bool {
        let seen_at = self.mirror.nodes().get(node).map_or(Moment::ZERO, |node| node.session_seen_at);
        let returning =
            self.planner.member(node).is_some_and(|member| !member.takes_now() && member.receives());
        returning && self.ctx.now.at < seen_at + self.ctx.config.returns_within(&self.ctx.facts)
    }
}

fn less_under_way(room: Room, moves: &UnderWay, to: &NodeName, group: &GroupName) -> Room {
    let groups = moves.get(to);
    let in_all: u32 = groups.map_or(0, |groups| groups.values().sum());
    let of_group = groups.and_then(|groups| groups.get(group)).copied().unwrap_or(0);
    room.less(in_all, of_group)
}

impl Node {
    /// What decides whether a shard that runs here may move voluntarily.
    pub(super) fn movability(&self) -> Movability<'_> {
        Movability {
            moves: &self.moves,
            planner: &self.planner,
            mirror: &self.mirror,
            holds: &self.holds,
            freeze: &self.freeze,
            ctx: &self.ctx,
        }
    }

    /// Gives up a shard that runs, or that is held and not run, for the node that should have it.
    fn begin_move(&mut self, shard: &ShardId, why: StopReason) {
        match self.holds.get(shard).is_some_and(Hold::is_idle) {
            true => self.begin_release(shard, Some(why)),
            false => self.stop(shard, why, None),
        }
    }

    /// Begins to move what the plan wants elsewhere, as far as the stabilisers allow.
    pub(super) fn move_surplus(&mut self) {
        self.ctx.timers.stop(Timer::Surplus);
        if self.session.is_none() {
            return;
        }
        let window = Duration::from_secs(3600);
        let at = self.ctx.now.at;
        self.moves.begun_at.retain(|begun| at.since(*begun) < window);
        let drains = self.departure.hands_over(&self.offer, &self.mirror, &self.ctx);
        // A stalled store strands at most `give_up_at_once` shards.
        let mut given_up = self.holds.values().filter(|hold| hold.is_given_up()).count();
        let hurried = self.departure.is_hurried(at);
        let mut homeless = 0;
        let mut rooms: BTreeMap<(NodeName, GroupName), Room> = BTreeMap::new();
        let mut under_way = self.movability().moves_under_way();
        let surplus: Vec<ShardId> = self.moves.surplus.iter().cloned().collect();
        for shard in surplus {
            if self.holds.get(&shard).is_none_or(|hold| !hold.may_be_moved()) {
                self.moves.surplus.remove(&shard);
                continue;
            }
            let to = self.planner.plan().wanted(&shard).filter(|node| !self.ctx.is_me(node)).cloned();
            if drains {
                if to.is_none() && !self.departure.is_leaving() {
                    homeless += 1;
                } else if !hurried && to.as_ref().is_some_and(|to| self.movability().comes_back(to)) {
                    // Nobody would run it until then.
                } else if hurried || given_up < self.ctx.config.give_up_at_once {
                    given_up += 1;
                    self.begin_move(&shard, StopReason::Draining);
                }
            } else if given_up < self.ctx.config.give_up_at_once
                && may_move(&self.movability().move_of(&shard, to.as_ref(), Room::default())).is_ok()
                && let Some(to) = to
            {
                let room = rooms.entry((to.clone(), shard.group.clone()));
                let room = *room.or_insert_with(|| self.movability().room_at(&to, &shard.group));
                if less_under_way(room, &under_way, &to, &shard.group).is_none_left() {
                    if !self.movability().may_swap_places(&to, &under_way) {
                        continue;
                    }
                    self.moves.swap_places_at = at + self.ctx.config.ttl * 2;
                }
                *under_way.entry(to).or_default().entry(shard.group.clone()).or_default() += 1;
                given_up += 1;
                self.moves.begun_at.push(at);
                self.begin_move(&shard, StopReason::Moving);
            }
        }
        if homeless > 0 && self.reported.no_receiver() {
            self.ctx.tell(Notice::NoReceiver { shards: homeless });
        }
        if !self.moves.surplus.is_empty() {
            let again = Duration::from_millis(200).min(self.ctx.config.ttl / 20);
            self.ctx.timers.set(Timer::Surplus, at + again);
        }
    }
}
