//! Who should hold what: the roster, the groups' settings and the plan that follows from them. `planning` says when to
//! make a new plan, and what follows from it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::context::Context;
use super::timers::Timer;
use crate::config::GroupConfig;
use crate::mirror::Mirror;
use crate::name::{Epoch, GroupName, NodeName, ShardId};
use crate::placement::Placement;
use crate::plan::{GroupSettings, Member, Plan, Planning, Roster};
use crate::record::{FailurePolicy, FinishPolicy, ShardSet};
use crate::time::Moment;

/// Who should hold what.
#[derive(Debug)]
pub(super) struct Planner {
    roster: Roster,
    settings: BTreeMap<GroupName, GroupSettings>,
    planning: Planning,
    plan: Plan,
    made: u64,
    /// However much the roster goes on changing, a new plan is made by then; [`Moment::NEVER`] if it rests.
    latest_at: Moment,
}

impl Planner {
    pub(super) fn new(own: Option<Arc<dyn Placement>>) -> Self {
        Planner {
            roster: Roster::new(),
            settings: BTreeMap::new(),
            planning: Planning::new(own),
            plan: Plan::default(),
            made: 0,
            latest_at: Moment::NEVER,
        }
    }

    pub(super) fn roster(&self) -> &Roster {
        &self.roster
    }

    pub(super) fn member(&self, node: &NodeName) -> Option<&Member> {
        self.roster.get(node)
    }

    /// The store is another one now: nobody is known there.
    pub(super) fn forget_roster(&mut self) {
        self.roster.clear();
    }

    /// A node shows that it has planned by this view of the roster.
    pub(super) fn note_view(&mut self, node: &NodeName, view: u64) {
        if let Some(member) = self.roster.get_mut(node) {
            member.view = view;
        }
    }

    pub(super) fn settings(&self) -> &BTreeMap<GroupName, GroupSettings> {
        &self.settings
    }

    pub(super) fn group(&self, group: &GroupName) -> Option<&GroupSettings> {
        self.settings.get(group)
    }

    /// Whether a group is known to have named shards.
    pub(super) fn is_named(&self, group: &GroupName) -> bool {
        self.group(group).is_some_and(|group| group.set == ShardSet::Named)
    }

    /// Whether a group is known to have numbered shards.
    pub(super) fn is_numbered(&self, group: &GroupName) -> bool {
        self.group(group).is_some_and(|group| group.set != ShardSet::Named)
    }

    /// A slot has a record of which its group's record does not know: that is written once no more of them come for a moment,
    /// and not before then.
    pub(super) fn note_filled(&self, shard: &ShardId, not_before: Moment, ctx: &mut Context) {
        let unknown = |settings: &GroupSettings| {
            settings.set != ShardSet::Named
                && shard.name.as_slot().is_some_and(|slot| !settings.filled.contains(slot))
        };
        if self.group(&shard.group).is_some_and(unknown) {
            ctx.timers.set(Timer::Fill, (ctx.now.at + ctx.config.debounce).max(not_before));
        }
    }

    /// How long the work of a shard may take to stop before it counts as stuck.
    pub(super) fn stop_timeout(&self, shard: &ShardId) -> Duration {
        let policy = self.group(&shard.group).map(|group| group.policy.stop_timeout_ms);
        Duration::from_millis(policy.unwrap_or(30_000))
    }

    /// What happens when the work of a shard fails or finishes; `None` if the group's settings are not known.
    pub(super) fn on_end(&self, shard: &ShardId) -> Option<(FailurePolicy, FinishPolicy)> {
        self.group(&shard.group).map(|group| (group.policy.on_failure, group.policy.on_finish))
    }

    /// Whether another node would take a shard now if it had room.
    pub(super) fn another_takes(&self, me: &NodeName, shard: &ShardId) -> bool {
        self.roster.iter().any(|(name, member)| {
            let serves = member.groups.get(&shard.group).is_some_and(|served| !served.declined);
            name != me && member.takes_now() && serves && !member.declines(shard)
        })
    }

    /// Every new epoch in this group is above this.
    pub(super) fn epoch_floor(&self, group: &GroupName) -> Epoch {
        self.group(group).map_or(Epoch(0), |group| group.epoch_floor)
    }

    pub(super) fn plan(&self) -> &Plan {
        &self.plan
    }

    /// How many plans were made.
    pub(super) fn made(&self) -> u64 {
        self.made
    }

    pub(super) fn planning(&self) -> &Planning {
        &self.planning
    }

    /// Switches rules of placement off, to show that tests notice.
    #[cfg(feature = "sabotage")]
    pub(super) fn obey(&mut self, rules: &crate::rules::Rules) {
        self.planning.obey(rules);
    }

    /// In which order nodes take a shard.
    pub(super) fn rank(&self, shard: &ShardId) -> Vec<&NodeName> {
        self.planning.rank(&self.plan, shard)
    }

    /// The roster changed: when a new plan is made at the latest, counted from the first change since the last plan.
    pub(super) fn begin_debounce(&mut self, otherwise: Moment) -> Moment {
        if self.latest_at == Moment::NEVER {
            self.latest_at = otherwise;
        }
        self.latest_at
    }

    /// Makes a new plan; `true` if its view of the roster is another one.
    pub(super) fn replan(
        &mut self,
        me: &NodeName,
        roster: Roster,
        mirror: &Mirror,
        served: &BTreeMap<GroupName, GroupConfig>,
    ) -> bool {
        self.latest_at = Moment::NEVER;
        self.roster = roster;
        self.settings = self.planning.settings(mirror, served);
        let control = mirror.control();
        let plan = self.planning.plan(&self.roster, &self.settings, control);
        let changed = plan.view != self.plan.view;
        self.plan = plan;
        self.made += 1;
        self.note_view(me, self.plan.view);
        changed
    }
}
