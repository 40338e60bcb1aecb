//! Shards that cannot run here: the acquire gate refuses them, nobody has engaged them here, or their work stepped down. The others are told, so that
//! they plan around us, and exactly so: what is not declined stays ours to take, and what runs goes on.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::Node;
use super::context::Context;
use super::hold::Phase;
use super::offer::Offer;
use super::planner::Planner;
use crate::config::Gate;
use crate::event::{Action, Verdict};
use crate::mirror::Mirror;
use crate::name::{GroupName, ShardId, ShardName};
use crate::record::{Served, ShardSet};
#[cfg(feature = "sabotage")]
use crate::rules::Rule;
use crate::time::Moment;

/// The most declined shards that a node's record lists one by one, as all versions read them. More are told by group, as sets.
const DECLINED_LISTED_MAX: usize = 64;

/// What can run here, and what cannot.
#[derive(Debug, Default)]
pub(super) struct Declines {
    /// Named shards that user code offers to run here.
    engaged: BTreeSet<ShardId>,
    /// Shards that the gate refused, or that we do not know, with when to ask again.
    declined: BTreeMap<ShardId, Moment>,
    /// Of those, the shards that the gate is asked about again.
    inquired: BTreeSet<ShardId>,
    /// Shards that the gate just let in: they are looked at once more before they are claimed.
    admitted: BTreeSet<ShardId>,
}

impl Declines {
    pub(super) fn is_engaged(&self, shard: &ShardId) -> bool {
        self.engaged.contains(shard)
    }

    /// The shards that are engaged or declined here.
    pub(super) fn shards(&self) -> impl Iterator<Item = &ShardId> {
        self.engaged.iter().chain(self.declined.keys())
    }

    /// A named shard that nobody has engaged here, so that it cannot run here.
    pub(super) fn is_unheard_of(&self, shard: &ShardId, planner: &Planner) -> bool {
        let named = planner.group(&shard.group).is_none_or(|group| group.set == ShardSet::Named);
        named && !self.engaged.contains(shard)
    }

    /// Whether the gate just let a shard in; asks once.
    pub(super) fn take_admitted(&mut self, shard: &ShardId) -> bool {
        self.admitted.remove(shard)
    }

    /// User code offers to run a named shard here.
    pub(super) fn engage(&mut self, shard: ShardId, ctx: &mut Context) {
        if self.engaged.insert(shard.clone()) && self.declined.remove(&shard).is_some() {
            ctx.record_changed();
        }
        ctx.agenda.add(shard);
    }

    /// User code no longer does.
    pub(super) fn disengage(&mut self, shard: ShardId, ctx: &mut Context) {
        self.engaged.remove(&shard);
        ctx.agenda.add(shard);
    }

    /// For a ttl, the others plan around us for this shard.
    pub(super) fn decline(&mut self, shard: &ShardId, ctx: &mut Context) {
        self.decline_for(shard, ctx.config.ttl, ctx);
    }

    /// For this long, the others plan around us for this shard.
    pub(super) fn decline_for(&mut self, shard: &ShardId, pause: Duration, ctx: &mut Context) {
        let until = ctx.now.at + pause;
        if self.declined.insert(shard.clone(), until).is_none() {
            self.changed(ctx);
        }
        ctx.agenda.wake_at(shard, until);
    }

    /// The shard may come here again.
    pub(super) fn accept(&mut self, shard: &ShardId, ctx: &mut Context) {
        if self.declined.remove(shard).is_some() {
            self.changed(ctx);
        }
    }

    /// A few are planned around at once. A gate that refuses thousands says so one by one.
    fn changed(&self, ctx: &mut Context) {
        ctx.record_changed();
        match self.are_many() {
            true => ctx.replan_within_debounce(),
            false => ctx.replan_now(),
        }
    }

    /// Whether there are more than our record lists one by one.
    fn are_many(&self) -> bool {
        self.declined.len() > DECLINED_LISTED_MAX
    }

    /// The session is over: what the gate said counts no more.
    pub(super) fn forget_admitted(&mut self) {
        self.admitted.clear();
    }

    /// What we offer to the others: the groups, with what we decline of each, and the shards that we decline where those are
    /// few.
    pub(super) fn advertised(
        &self,
        offer: &Offer,
        mirror: &Mirror,
    ) -> (BTreeMap<GroupName, Served>, BTreeSet<ShardId>) {
        let served = |capacity| Served { capacity, ..Served::default() };
        let mut groups: BTreeMap<GroupName, Served> =
            offer.offered(mirror).map(|(name, group)| (name.clone(), served(group.capacity))).collect();
        if !self.are_many() {
            return (groups, self.declined.keys().cloned().collect());
        }
        for shard in self.declined.keys() {
            let Some(served) = groups.get_mut(&shard.group) else { continue };
            let numbered =
                offer.served().get(&shard.group).is_some_and(|group| group.shards != ShardSet::Named);
            match shard.name.as_slot().filter(|_| numbered) {
                Some(slot) => {
                    served.slots_declined.insert(slot);
                }
                None => {
                    served.names_declined.insert(shard.name.clone());
                }
            }
        }
        for (name, served) in &mut groups {
            self.tell_what_is_known(name, served);
        }
        (groups, BTreeSet::new())
    }

    /// Where fewer names are engaged here than are unknown, those are told instead.
    fn tell_what_is_known(&self, group: &GroupName, served: &mut Served) {
        let is_unknown =
            |name: &ShardName| !self.engaged.contains(&ShardId { group: group.clone(), name: name.clone() });
        let unknown = served.names_declined.iter().filter(|name| is_unknown(name)).count();
        let engaged = self.engaged.iter().filter(|shard| shard.group == *group);
        if unknown == 0 || engaged.clone().count() > unknown {
            return;
        }
        served.names_known = Some(engaged.map(|shard| shard.name.clone()).collect());
        served.names_declined.retain(|name| !is_unknown(name));
    }
}

impl Node {
    pub(super) fn on_gate(&mut self, shard: ShardId, verdict: Verdict) {
        if self.declines.inquired.remove(&shard) {
            if verdict == Verdict::Take {
                self.declines.accept(&shard, &mut self.ctx);
            }
            return;
        }
        if self.holds.get(&shard).is_none_or(|hold| hold.phase() != Phase::Asking) {
            return;
        }
        match verdict {
            #[cfg(feature = "sabotage")]
            Verdict::Take if !self.ctx.rules.hold(Rule::GateAsksAgain) => self.claim_as_asked(&shard),
            // Its answer may be as old as a ttl: whether the shard is free, wanted and ours to take is asked again.
            Verdict::Take => {
                self.holds.remove(&shard);
                self.declines.admitted.insert(shard.clone());
                self.consider_free(&shard);
                self.declines.admitted.remove(&shard);
            }
            Verdict::Refuse => {
                self.holds.remove(&shard);
                self.declines.decline(&shard, &mut self.ctx);
            }
        }
    }

    /// Whether a shard cannot run here and the others must know before they give it up for us.
    pub(super) fn must_decline(&self, shard: &ShardId) -> bool {
        let wanted_here = match self.planner.plan().wanted(shard) {
            Some(node) => self.ctx.is_me(node),
            // A node that lists what it knows is not planned for anything else; what no node knows must be found out all the same.
            None => {
                self.declines.are_many()
                    && self.planner.plan().has(shard)
                    && !self.departure.hands_over(&self.offer, &self.mirror, &self.ctx)
            }
        };
        wanted_here
            && self.offer.serves(&shard.group, &self.mirror)
            && self.declines.is_unheard_of(shard, &self.planner)
    }

    /// Asks again after a while; `true` if there is nothing else to do now.
    pub(super) fn reconsider_declined(&mut self, shard: &ShardId) -> bool {
        let Some(until) = self.declines.declined.get(shard).copied() else { return false };
        let unknown = self.declines.is_unheard_of(shard, &self.planner);
        if self.ctx.now.at < until {
            self.ctx.agenda.wake_at(shard, until);
        } else if unknown && self.planner.plan().has(shard) {
            self.retire_if_nobody_has_it(shard);
            self.declines.declined.insert(shard.clone(), self.ctx.now.at + self.ctx.config.ttl);
            self.ctx.agenda.wake_at(shard, self.ctx.now.at + self.ctx.config.ttl);
        } else if self.ctx.config.gate == Gate::Ask
            && !self.departure.hands_over(&self.offer, &self.mirror, &self.ctx)
            && self.planner.plan().has(shard)
        {
            // The others plan around us until the gate has said that it has changed its mind: a shard that comes
            // here only to be refused has moved for nothing.
            self.declines.inquired.insert(shard.clone());
            self.ctx.out.push(Action::AskGate(shard.clone()));
            self.declines.declined.insert(shard.clone(), self.ctx.now.at + self.ctx.config.ttl);
            self.ctx.agenda.wake_at(shard, self.ctx.now.at + self.ctx.config.ttl);
        } else {
            self.declines.accept(shard, &mut self.ctx);
        }
        true
    }
}
