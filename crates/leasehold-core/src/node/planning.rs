//! Roster and plan as this node sees them, with the debounce, and the groups' settings in the store.

use super::Node;
use super::requests::Purpose;
use crate::mirror::{Lasting, Seen};
use crate::name::{GroupName, NodeName, ShardId, WriteId};
use crate::notice::Notice;
use crate::plan::{self, GroupSettings, Member, Roster};
use crate::record::{FORMAT, GroupRecord, NodeState, Record, Served, ShardSet, ShardState};
use crate::store::{Key, Lane, Swap, Version};
use crate::time::Moment;
use crate::warning::Warning;

impl Node {
    /// Plans anew before this step ends.
    pub(super) fn replan_now(&mut self) {
        self.replan_at = self.now.at;
    }

    /// Plans anew once the roster has rested for a moment, so that several changes make one plan.
    pub(super) fn replan_soon(&mut self) {
        let at = self.now.at + self.config.debounce;
        if self.replan_latest_at == Moment::NEVER {
            self.replan_latest_at = self.now.at + self.config.debounce * 4;
        }
        if self.replan_at > self.now.at {
            self.replan_at = at.min(self.replan_latest_at);
        }
        if self.frozen_until > self.now.at {
            self.frozen_until = self.now.at + self.config.ttl * 2;
        }
    }

    /// Plans anew within a moment, however much more comes until then: where a plan after each of many changes would cost more
    /// than it helps.
    pub(super) fn replan_within_debounce(&mut self) {
        self.replan_at = self.replan_at.min(self.now.at + self.config.debounce);
    }

    pub(super) fn replan_if_never(&mut self) {
        if self.plan.groups.is_empty() && self.replan_at == Moment::NEVER {
            self.replan_soon();
        }
    }

    /// Whether the roster just changed and the plan does not know it yet.
    pub(super) fn plan_is_stale(&self) -> bool {
        self.replan_at != Moment::NEVER
    }

    /// A node renewed its record: most of the time nothing in it changed.
    pub(super) fn refresh_member(&mut self, name: &NodeName) {
        let record = self.mirror.nodes.get(name).and_then(|n| n.seen.as_ref()).and_then(|seen| seen.good());
        let (Some(record), Some(known)) = (record, self.roster.get_mut(name)) else { return };
        let mut fresh: Roster = [(name.clone(), Member::of(record))].into();
        plan::apply_control(&mut fresh, self.mirror.control.as_ref().and_then(|seen| seen.best()));
        let Some(fresh) = fresh.remove(name) else { return };
        if known.view != fresh.view {
            known.view = fresh.view;
            if !self.surplus.is_empty() {
                self.surplus_at = self.now.at;
            }
        }
        if *known == fresh {
            return;
        }
        // It drains, or declines: waiting would only leave its shards without a plan.
        let withdraws = known.receives() && !fresh.receives() || !fresh.declined.is_subset(&known.declined);
        let declines = |(name, group): (&GroupName, &Served)| {
            known.groups.get(name).is_some_and(|known| !known.declines_as(group))
        };
        let declines_many = fresh.groups.iter().any(declines);
        match withdraws {
            true => self.replan_now(),
            false if declines_many => self.replan_within_debounce(),
            false => self.replan_soon(),
        }
    }

    /// Nodes that ended a lost session and have not been seen to open another one: they count until they must be back. Also
    /// until when, if there are any.
    fn about_to_return(&self) -> (Roster, Moment) {
        let within = self.config.returns_within(&self.facts);
        let (mut roster, mut until) = (Roster::new(), Moment::NEVER);
        for (name, node) in &self.mirror.nodes {
            let Some(record) = node.seen.as_ref().and_then(|seen| seen.good()) else { continue };
            let back_at = node.first_seen_at + within;
            if record.state == NodeState::Left && record.returning && self.now.at < back_at {
                let member = Member { state: NodeState::Active, ..Member::of(record) };
                roster.insert(name.clone(), member);
                until = until.min(back_at);
            }
        }
        (roster, until)
    }

    fn current_roster(&mut self) -> Roster {
        let (mut roster, until) = self.about_to_return();
        self.returning_until = until;
        plan::apply_control(&mut roster, self.mirror.control.as_ref().and_then(|seen| seen.best()));
        roster.extend(plan::roster(&self.mirror));
        roster.remove(&self.config.node);
        if let Some(session) = self.session_id() {
            let member = self.as_member(session);
            let mut mine: Roster = [(self.me(), member)].into();
            plan::apply_control(&mut mine, self.mirror.control.as_ref().and_then(|seen| seen.best()));
            roster.extend(mine);
        }
        roster
    }

    fn as_member(&self, session: crate::name::SessionId) -> Member {
        let (groups, declined) = self.offer();
        Member {
            session,
            state: if self.is_draining() { NodeState::Draining } else { NodeState::Active },
            accepting: self.offers(),
            returning: self.returns(),
            weight: self.weight,
            capacity: self.capacity,
            zone: self.config.zone.clone(),
            groups,
            declined,
            view: self.plan.view,
            ttl_ms: self.config.ttl.as_millis() as u64,
        }
    }

    pub(super) fn replan(&mut self) {
        self.replan_at = Moment::NEVER;
        self.replan_latest_at = Moment::NEVER;
        self.roster = self.current_roster();
        self.settings = self.planning.settings(&self.mirror, &self.served);
        let control = self.mirror.control.as_ref().and_then(|seen| seen.best());
        let plan = self.planning.plan(&self.roster, &self.settings, control);
        if plan.view != self.plan.view {
            self.record_changed = true;
        }
        self.plan = plan;
        let me = self.me();
        let view = self.plan.view;
        if let Some(member) = self.roster.get_mut(&me) {
            member.view = view;
        }
        self.no_receiver_told = false;
        self.tell_room();
        self.tell_overruled();
        self.tell_warnings();
        self.reconsider_all = true;
        self.surplus_at = self.now.at;
        self.begin_to_look_for_wanted();
    }

    /// A named shard that nobody holds and that is not engaged here. Whoever has it engaged tells if there is no room for it;
    /// if nobody has, it is retired in a while.
    fn is_about_to_retire(&self, shard: &ShardId) -> bool {
        let record = self.mirror.shards.get(shard).and_then(|seen| seen.good());
        let vacant = record.is_some_and(|record| matches!(record.state, ShardState::Vacant { .. }));
        vacant && self.is_unheard_of(shard)
    }

    fn tell_room(&mut self) {
        if self.session.is_none() {
            return;
        }
        let mut told = Vec::new();
        let mut homeless = std::collections::BTreeMap::new();
        for (name, group) in &self.plan.groups {
            let unplaced = group.question.shards.iter().zip(&group.answer.to).filter(|(_, to)| to.is_none());
            let count = unplaced.filter(|(shard, _)| !self.is_about_to_retire(shard)).count();
            // Without any node that serves the group there is nobody to be full.
            let count = if group.question.nodes.is_empty() { 0 } else { count };
            match (count, self.no_room.get(name)) {
                (0, Some(_)) => told.push(Notice::RoomAgain { group: name.clone() }),
                (0, None) => {}
                (now, Some(before)) if now == *before => {}
                (now, _) => told.push(Notice::NoRoom { group: name.clone(), shards: now }),
            }
            if count > 0 {
                homeless.insert(name.clone(), count);
            }
        }
        self.no_room = homeless;
        for notice in told {
            self.tell(notice);
        }
    }

    /// Writes settings of ours that the store does not have, or that were damaged there, and which slots have had a record.
    pub(super) fn mend_groups(&mut self) {
        if self.now.at >= self.fill_at {
            self.fill_at = Moment::NEVER;
        }
        if self.session.is_none() || self.requests.any(|purpose| matches!(purpose, Purpose::Group)) {
            return;
        }
        let served: Vec<_> = self.served.values().cloned().collect();
        for group in served {
            let lasting = self.mirror.lasting.get(&group.group).cloned().unwrap_or_default();
            let (record, expect) = match self.mirror.groups.get(&group.group) {
                None => {
                    // It was there before: whatever operators had set in it is lost.
                    let anew = Warning::GroupWrittenAnew(group.group.clone());
                    if self.mirror.lasting.contains_key(&group.group) && self.warnings.insert(anew.clone()) {
                        self.tell(Notice::Warning(anew));
                    }
                    let fresh = GroupRecord {
                        format: FORMAT,
                        write: WriteId::from_bits(0),
                        group: group.group.clone(),
                        shards: group.shards,
                        policy: group.policy.clone(),
                        epoch_floor: lasting.epoch_floor,
                        filled: lasting.filled,
                        written_unix_ms: 0,
                        extra: Default::default(),
                    };
                    (fresh, None)
                }
                Some(Seen { record: Err(error), before: Some(before), version, .. })
                    if !error.is_too_new() =>
                {
                    (before.clone(), Some(version.clone()))
                }
                Some(Seen { record: Ok(record), version, .. }) => match self.says_more(record, lasting) {
                    Some(more) => {
                        let version = version.clone();
                        self.fill_next_at = self.now.at + self.config.renew_every;
                        (more, Some(version))
                    }
                    None => continue,
                },
                Some(_) => continue,
            };
            return self.write_group(record, expect);
        }
    }

    /// A slot's record that is missing was lost if there was one before: one node keeps that in the group's record, and
    /// puts back what somebody took out of it.
    fn says_more(&self, record: &GroupRecord, lasting: Lasting) -> Option<GroupRecord> {
        let plan = self.plan.groups.get(&record.group)?;
        let first = plan.answer.to.iter().find_map(|to| *to)?;
        if plan.question.nodes.get(first as usize)?.name != self.config.node {
            return None;
        }
        let filled = match record.shards {
            // Not with every record that comes, in a group whose slots are taken one after the other.
            ShardSet::Numbered(slots)
                if !lasting.filled.covers(slots) && self.now.at >= self.fill_next_at =>
            {
                let there = |slot: &u32| {
                    let shard = ShardId::slot(&record.group, *slot);
                    !lasting.filled.contains(*slot) && self.mirror.shards.contains_key(&shard)
                };
                lasting.filled.union(&(0..slots).filter(there).collect())
            }
            _ => lasting.filled,
        };
        let more = GroupRecord { filled, epoch_floor: lasting.epoch_floor, ..record.clone() };
        (more != *record).then_some(more)
    }

    /// A slot has a record of which its group does not know: it is told once no more of them come for a moment.
    pub(super) fn note_filled(&mut self, shard: &ShardId) {
        let unknown = |settings: &GroupSettings| {
            settings.set != ShardSet::Named
                && shard.name.as_slot().is_some_and(|slot| !settings.filled.contains(slot))
        };
        if self.settings.get(&shard.group).is_some_and(unknown) {
            self.fill_at = (self.now.at + self.config.debounce).max(self.fill_next_at);
        }
    }

    pub(super) fn write_group(&mut self, mut record: GroupRecord, expect: Option<Version>) {
        record.write = WriteId::from_bits(self.chance.bits());
        record.written_unix_ms = self.now.unix_ms;
        let value = Some(record.encode().into());
        let swap = Swap { key: Key::Group(record.group.clone()), expect, value };
        self.ask_swap(Lane::Work, swap, Purpose::Group);
    }

    /// A node was proved dead. When many are at once, something larger is wrong, and moving shards would add to it.
    pub(super) fn count_vanished(&mut self) {
        let (at, ttl) = (self.now.at, self.config.ttl);
        self.vanish_log.retain(|vanished_at| at.since(*vanished_at) < ttl);
        let before = if self.vanish_log.is_empty() { 0 } else { self.vanish_of };
        self.vanish_log.push(at);
        let vanished = self.vanish_log.len();
        // Of those that were there before the first of them vanished.
        self.vanish_of = self.roster.len().max(before).max(vanished);
        let of = self.vanish_of;
        if vanished >= 2 && vanished * 1000 >= of * self.config.vanish_freeze_permille as usize {
            if self.frozen_until <= at {
                self.tell(Notice::Frozen { vanished, of });
            }
            self.frozen_until = at + ttl * 2;
        }
    }

    pub(super) fn thaw_at(&self) -> Moment {
        if self.frozen_until > Moment::ZERO { self.frozen_until } else { Moment::NEVER }
    }

    pub(super) fn run_thaw(&mut self) {
        if self.now.at >= self.thaw_at() {
            self.frozen_until = Moment::ZERO;
            self.tell(Notice::Thawed);
            self.surplus_at = self.now.at;
        }
    }
}
