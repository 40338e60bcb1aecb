//! Roster and plan as this node sees them, with the debounce, and the groups' settings in the store.

use super::Node;
use super::context::Context;
use super::declines::Declines;
use super::freeze::Freeze;
use super::planner::Planner;
use super::timers::Timer;
use crate::mirror::Mirror;
use crate::name::{GroupName, NodeName, ShardId};
use crate::notice::Notice;
use crate::plan::{self, Member, Roster};
use crate::record::{NodeState, Served, ShardState};
use crate::time::Moment;

impl Planner {
    /// Makes a new plan after the debounce, so that several changes make one plan.
    pub(super) fn replan_soon(&mut self, freeze: &mut Freeze, ctx: &mut Context) {
        let at = ctx.now.at + ctx.config.debounce;
        let latest_at = self.begin_debounce(ctx.now.at + ctx.config.debounce * 4);
        if ctx.timers.at(Timer::Replan) > ctx.now.at {
            ctx.timers.set(Timer::Replan, at.min(latest_at));
        }
        freeze.prolong(ctx.now.at, ctx.config.ttl * 2);
    }

    /// Makes the first plan, if there is none and nothing else will.
    pub(super) fn replan_if_never(&mut self, freeze: &mut Freeze, ctx: &mut Context) {
        if self.plan().groups.is_empty() && !ctx.timers.is_set(Timer::Replan) {
            self.replan_soon(freeze, ctx);
        }
    }

    /// A node renewed its record: most of the time nothing in it changed. Says whether it shows another view of the roster.
    pub(super) fn refresh_member(
        &mut self,
        name: &NodeName,
        mirror: &Mirror,
        freeze: &mut Freeze,
        ctx: &mut Context,
    ) -> bool {
        let record = mirror.node_record(name);
        let (Some(record), Some(known)) = (record, self.member(name)) else { return false };
        let shows_another_view = known.view != record.view;
        if known.is_shown_by(record, mirror.control()) {
            self.note_view(name, record.view);
            return shows_another_view;
        }
        let known = Member { view: record.view, ..known.clone() };
        self.note_view(name, record.view);
        let mut fresh: Roster = [(name.clone(), Member::of(record))].into();
        plan::apply_control(&mut fresh, mirror.control());
        let Some(fresh) = fresh.remove(name) else { return false };
        if known == fresh {
            return shows_another_view;
        }
        // It drains, or declines: waiting would only leave its shards without a plan.
        let withdraws = known.receives() && !fresh.receives() || !fresh.declined.is_subset(&known.declined);
        let declines = |(name, group): (&GroupName, &Served)| {
            known.groups.get(name).is_some_and(|known| !known.declines_as(group))
        };
        let declines_many = fresh.groups.iter().any(declines);
        match withdraws {
            true => ctx.replan_now(),
            false if declines_many => ctx.replan_within_debounce(),
            false => self.replan_soon(freeze, ctx),
        }
        shows_another_view
    }

    /// How many shards of each group the plan gives to nobody, although nodes serve the group.
    fn homeless(&self, declines: &Declines, mirror: &Mirror) -> Vec<(GroupName, usize)> {
        let mut homeless = Vec::new();
        for (name, group) in &self.plan().groups {
            let unplaced = group.question.shards.iter().zip(&group.answer.to).filter(|(_, to)| to.is_none());
            let count =
                unplaced.filter(|(shard, _)| !declines.is_about_to_retire(shard, self, mirror)).count();
            // Without any node that serves the group there is nobody to be full.
            let count = if group.question.nodes.is_empty() { 0 } else { count };
            homeless.push((name.clone(), count));
        }
        homeless
    }
}

impl Declines {
    /// A named shard that nobody holds and that is not engaged here. A node that has it engaged reports if there is no room for it;
    /// if nobody has, it is retired in a while.
    fn is_about_to_retire(&self, shard: &ShardId, planner: &Planner, mirror: &Mirror) -> bool {
        let record = mirror.shard_record(shard);
        let vacant = record.is_some_and(|record| matches!(record.state, ShardState::Vacant { .. }));
        vacant && self.is_unheard_of(shard, planner)
    }
}

/// Nodes that ended a lost session and have not been seen to open another one: they count until they must be back. Also
/// until when, if there are any.
fn about_to_return(mirror: &Mirror, ctx: &Context) -> (Roster, Moment) {
    let within = ctx.config.returns_within(&ctx.facts);
    let (mut roster, mut until) = (Roster::new(), Moment::NEVER);
    for (name, node) in mirror.nodes() {
        let Some(record) = node.record() else { continue };
        let back_at = node.first_seen_at + within;
        if record.state == NodeState::Left && record.returning && ctx.now.at < back_at {
            let member = Member { state: NodeState::Active, ..Member::of(record) };
            roster.insert(name.clone(), member);
            until = until.min(back_at);
        }
    }
    (roster, until)
}

impl Node {
    /// The roster as we know it now, and until when it counts nodes that have not come back yet.
    fn current_roster(&self) -> (Roster, Moment) {
        let (mut roster, until) = about_to_return(&self.mirror, &self.ctx);
        plan::apply_control(&mut roster, self.mirror.control());
        roster.extend(plan::roster(&self.mirror));
        roster.remove(&self.ctx.config.node);
        if let Some(session) = self.session_id() {
            let member = self.as_member(session);
            let mut mine: Roster = [(self.ctx.me(), member)].into();
            plan::apply_control(&mut mine, self.mirror.control());
            roster.extend(mine);
        }
        (roster, until)
    }

    fn as_member(&self, session: crate::name::SessionId) -> Member {
        let (groups, declined) = self.declines.advertised(&self.offer, &self.mirror);
        Member {
            session,
            state: if self.departure.is_draining() { NodeState::Draining } else { NodeState::Active },
            accepting: self.life.takes_shards(&self.offer),
            returning: self.life.returns(&self.offer, &self.departure, &self.ctx.rules),
            weight: self.offer.weight(),
            capacity: self.offer.capacity(),
            zone: self.ctx.config.zone.clone(),
            groups,
            declined,
            view: self.planner.plan().view,
            ttl_ms: self.ctx.config.ttl.as_millis() as u64,
        }
    }

    pub(super) fn replan(&mut self) {
        self.ctx.timers.stop(Timer::Replan);
        let (roster, until) = self.current_roster();
        self.ctx.timers.set(Timer::Returning, until);
        if self.planner.replan(&self.ctx.config.node, roster, &self.mirror, self.offer.served()) {
            self.ctx.record_changed();
        }
        self.reported.forget_no_receiver();
        if self.session.is_some() {
            self.tell_about_plan();
        }
        self.ctx.agenda.add_everything();
        self.ctx.timers.set(Timer::Surplus, self.ctx.now.at);
        self.vacancies.begin_to_look(self.session.is_some(), &self.namespace, &mut self.ctx);
    }

    /// After a new plan, people hear what is new: shards without room, settings in the store, and what does not fit together.
    fn tell_about_plan(&mut self) {
        for notice in self.reported.room(self.planner.homeless(&self.declines, &self.mirror)) {
            self.ctx.tell(notice);
        }
        self.reported.tell_overrides(&self.offer, &self.holds, &self.mirror, &mut self.ctx);
        for warning in self.reported.warnings_now(self.planner.warnings(&self.mirror, &self.ctx)) {
            self.ctx.tell(Notice::Warning(warning));
        }
    }
}
