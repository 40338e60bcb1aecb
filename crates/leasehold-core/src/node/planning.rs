//! Roster and plan as this node sees them, with the debounce, and the groups' settings in the store.

use super::Node;
use super::requests::Purpose;
use crate::mirror::Seen;
use crate::name::{NodeName, ShardId, WriteId};
use crate::notice::Notice;
use crate::plan::{self, Member, Roster};
use crate::record::{FORMAT, GroupRecord, NodeState, Record, Served, ShardSet};
use crate::store::{Key, Lane, Swap, Version};
use crate::time::Moment;

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
        match withdraws {
            true => self.replan_now(),
            false => self.replan_soon(),
        }
    }

    fn current_roster(&self) -> Roster {
        let mut roster = plan::roster(&self.mirror);
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
        let too_many = self.declined.len() > 64;
        let groups = self.offered().map(|(name, group)| {
            let declined = too_many && self.declined.keys().any(|shard| shard.group == *name);
            (name.clone(), Served { capacity: group.capacity, declined, ..Served::default() })
        });
        Member {
            session,
            state: if self.is_draining() { NodeState::Draining } else { NodeState::Active },
            accepting: self.offers(),
            weight: self.weight,
            capacity: self.capacity,
            zone: self.config.zone.clone(),
            groups: groups.collect(),
            declined: if too_many { Default::default() } else { self.declined.keys().cloned().collect() },
            view: self.plan.view,
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
        self.reconsider_all = true;
        self.surplus_at = self.now.at;
        self.begin_to_look_for_wanted();
    }

    fn tell_room(&mut self) {
        if self.session.is_none() {
            return;
        }
        let mut told = Vec::new();
        let mut homeless = std::collections::BTreeMap::new();
        for (name, group) in &self.plan.groups {
            let count = group.answer.to.iter().filter(|to| to.is_none()).count();
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

    /// Writes settings of ours that the store does not have, or that were damaged there, and marks filled groups.
    pub(super) fn mend_groups(&mut self) {
        if self.session.is_none() || self.requests.any(|purpose| matches!(purpose, Purpose::Group)) {
            return;
        }
        let served: Vec<_> = self.served.values().cloned().collect();
        for group in served {
            let (record, expect) = match self.mirror.groups.get(&group.group) {
                None => {
                    let fresh = GroupRecord {
                        format: FORMAT,
                        write: WriteId::from_bits(0),
                        group: group.group.clone(),
                        shards: group.shards,
                        policy: group.policy.clone(),
                        epoch_floor: Default::default(),
                        filled: 0,
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
                Some(Seen { record: Ok(record), version, .. }) => match self.should_fill(record) {
                    Some(filled) => (GroupRecord { filled, ..record.clone() }, Some(version.clone())),
                    None => continue,
                },
                Some(_) => continue,
            };
            return self.write_group(record, expect);
        }
    }

    /// Once every slot has a record, one that is missing later was lost: one node says so in the group's record.
    fn should_fill(&self, record: &GroupRecord) -> Option<u32> {
        let ShardSet::Numbered(slots) = record.shards else { return None };
        if record.filled >= slots
            || self.plan.wanted(&ShardId::slot(&record.group, 0)) != Some(&self.config.node)
        {
            return None;
        }
        let all = (record.filled..slots)
            .all(|slot| self.mirror.shards.contains_key(&ShardId::slot(&record.group, slot)));
        all.then_some(slots)
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
