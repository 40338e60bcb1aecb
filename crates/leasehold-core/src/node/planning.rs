//! Roster and plan as this node sees them, with the debounce, and the groups' settings in the store.

use super::Node;
use super::timers::Timer;
use crate::name::{GroupName, NodeName, ShardId};
use crate::plan::{self, Member, Roster};
use crate::record::{NodeState, Served, ShardState};
use crate::time::Moment;

impl Node {
    /// Plans anew before this step ends.
    pub(super) fn replan_now(&mut self) {
        self.timers.set(Timer::Replan, self.now.at);
    }

    /// Plans anew once the roster has rested for a moment, so that several changes make one plan.
    pub(super) fn replan_soon(&mut self) {
        let at = self.now.at + self.config.debounce;
        let latest_at = self.planner.begin_debounce(self.now.at + self.config.debounce * 4);
        if self.timers.at(Timer::Replan) > self.now.at {
            self.timers.set(Timer::Replan, at.min(latest_at));
        }
        self.freeze.prolong(self.now.at, self.config.ttl * 2);
    }

    /// Plans anew within a moment, however much more comes until then: where a plan after each of many changes would cost more
    /// than it helps.
    pub(super) fn replan_within_debounce(&mut self) {
        self.timers.set_earlier(Timer::Replan, self.now.at + self.config.debounce);
    }

    pub(super) fn replan_if_never(&mut self) {
        if self.planner.plan().groups.is_empty() && !self.timers.is_set(Timer::Replan) {
            self.replan_soon();
        }
    }

    /// Whether the roster just changed and the plan does not know it yet.
    pub(super) fn plan_is_stale(&self) -> bool {
        self.timers.is_set(Timer::Replan)
    }

    /// A node renewed its record: most of the time nothing in it changed.
    pub(super) fn refresh_member(&mut self, name: &NodeName) {
        let record = self.mirror.nodes.get(name).and_then(|n| n.seen.as_ref()).and_then(|seen| seen.good());
        let (Some(record), Some(mut known)) = (record, self.planner.member(name).cloned()) else { return };
        let mut fresh: Roster = [(name.clone(), Member::of(record))].into();
        plan::apply_control(&mut fresh, self.mirror.control.as_ref().and_then(|seen| seen.best()));
        let Some(fresh) = fresh.remove(name) else { return };
        if known.view != fresh.view {
            known.view = fresh.view;
            self.planner.note_view(name, fresh.view);
            if !self.moves.surplus().is_empty() {
                self.timers.set(Timer::Surplus, self.now.at);
            }
        }
        if known == fresh {
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
        self.timers.set(Timer::Returning, until);
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
        let (groups, declined) = self.advertised();
        Member {
            session,
            state: if self.is_draining() { NodeState::Draining } else { NodeState::Active },
            accepting: self.offers(),
            returning: self.returns(),
            weight: self.offer.weight(),
            capacity: self.offer.capacity(),
            zone: self.config.zone.clone(),
            groups,
            declined,
            view: self.planner.plan().view,
            ttl_ms: self.config.ttl.as_millis() as u64,
        }
    }

    pub(super) fn replan(&mut self) {
        self.timers.stop(Timer::Replan);
        let (me, roster) = (self.me(), self.current_roster());
        if self.planner.replan(&me, roster, &self.mirror, self.offer.served()) {
            self.life.record_changed();
        }
        self.reported.forget_no_receiver();
        self.tell_room();
        self.tell_overrides();
        self.tell_warnings();
        self.agenda.add_everything();
        self.timers.set(Timer::Surplus, self.now.at);
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
        let mut homeless = Vec::new();
        for (name, group) in &self.planner.plan().groups {
            let unplaced = group.question.shards.iter().zip(&group.answer.to).filter(|(_, to)| to.is_none());
            let count = unplaced.filter(|(shard, _)| !self.is_about_to_retire(shard)).count();
            // Without any node that serves the group there is nobody to be full.
            let count = if group.question.nodes.is_empty() { 0 } else { count };
            homeless.push((name.clone(), count));
        }
        for notice in self.reported.room(homeless) {
            self.tell(notice);
        }
    }
}
