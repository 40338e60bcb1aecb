//! The shards here: `consider` looks at one of them and does what is due; calling it too often does no harm.

use super::Node;
use super::claimable::Claimable;
use super::hold::{Hold, Phase};
use super::timers::Timer;
use super::writes::{Write, WriteKind};
use crate::config::Gate;
use crate::event::{Action, StopReason};
use crate::name::{Epoch, ShardId};
use crate::notice::{Notice, SessionState};
use crate::record::{MoveReason, ShardSet};

impl Node {
    pub(super) fn reconsider_everything(&mut self) {
        if self.session.is_none() {
            return;
        }
        let mut all: Vec<ShardId> = Vec::new();
        for (shard, wanted) in self.planner.plan().iter() {
            let held_by_other = self.mirror.holder(shard).is_some_and(|holder| {
                !self.mirror.is_proved_over(&holder.session)
                    && self.planner.member(&holder.node).is_some_and(|m| m.session == holder.session)
            });
            let quiet = held_by_other && !self.holds.contains(shard) && wanted != Some(&self.ctx.config.node);
            if !quiet {
                all.push(shard.clone());
            }
        }
        all.extend(self.holds.keys().cloned());
        all.extend(self.declines.shards().cloned());
        if let Some(session) = self.session_id() {
            let mine = self.mirror.shards().iter().filter(|(_, seen)| {
                seen.good().and_then(|record| record.holder()).is_some_and(|holder| holder.session == session)
            });
            all.extend(mine.map(|(shard, _)| shard.clone()));
        }
        self.ctx.agenda.extend(all);
    }

    /// Does whatever is due for one shard.
    pub(super) fn consider(&mut self, shard: &ShardId) {
        if self.session.is_none() {
            return;
        }
        match self.holds.contains(shard) {
            true => self.consider_held(shard),
            false => self.consider_free(shard),
        }
    }

    fn consider_held(&mut self, shard: &ShardId) {
        let Some(hold) = self.holds.get(shard) else { return };
        let (phase, epoch, asked_at) = (hold.phase(), hold.epoch(), hold.started_at());
        let (pardoned, may_be_moved) = (hold.is_pardoned(), hold.may_be_moved());
        let must_stop = self.must_stop(shard, epoch);
        let wanted = self.planner.plan().wanted(shard);
        let wanted_here = wanted == Some(&self.ctx.config.node);
        let elsewhere = wanted.is_some() && !wanted_here;
        let hands_over = self.departure.hands_over(&self.offer, &self.mirror, &self.ctx);
        match phase {
            Phase::Running => {
                self.end_trial_if_healthy(shard);
                if let Some(why) = must_stop {
                    self.stop(shard, why, None);
                } else if wanted_here && !hands_over {
                    self.moves.remove(shard);
                } else if self.moves.add(shard) {
                    self.ctx.timers.set(Timer::Surplus, self.ctx.now.at);
                }
            }
            Phase::Stopping { why, since, stuck: false } => {
                let limit = since + self.planner.stop_timeout(shard);
                if self.ctx.now.at < limit {
                    return self.ctx.agenda.wake_at(shard, limit);
                }
                if let Some(hold) = self.holds.get_mut(shard) {
                    hold.stuck(why, since);
                }
                self.ctx.record_changed();
                self.ctx.tell(Notice::Stuck { shard: shard.clone(), epoch });
            }
            Phase::Resting { until } => {
                if must_stop.is_some() || self.departure.is_leaving() || elsewhere {
                    self.begin_release(shard, must_stop);
                } else if self.ctx.now.at >= until && !self.ctx.plan_is_stale() {
                    self.claim_again(shard, MoveReason::WorkEnded);
                } else {
                    self.ctx.agenda.wake_at(shard, until.max(self.ctx.now.at + self.ctx.config.debounce));
                }
            }
            Phase::Idle { since } => {
                let released =
                    self.mirror.control().and_then(|control| control.unquarantine.get(shard)).copied();
                if must_stop.is_some() || self.departure.is_leaving() || (hands_over && elsewhere) {
                    self.begin_release(shard, must_stop);
                } else if pardoned || released >= Some(epoch) {
                    self.unquarantine(shard);
                } else if elsewhere && may_be_moved && !self.is_tried_again(shard) {
                    if self.moves.add(shard) {
                        self.ctx.timers.set(Timer::Surplus, self.ctx.now.at);
                    }
                } else {
                    self.moves.remove(shard);
                    self.consider_idle(shard, since);
                }
            }
            Phase::Asking if must_stop.is_some() || hands_over => {
                self.holds.remove(shard);
            }
            // A gate that does not answer has refused.
            Phase::Asking if self.ctx.now.at >= asked_at + self.ctx.config.ttl => {
                self.holds.remove(shard);
                self.declines.decline(shard, &mut self.ctx);
            }
            Phase::Asking => self.ctx.agenda.wake_at(shard, asked_at + self.ctx.config.ttl),
            Phase::Stopped { why, .. } => self.begin_release(shard, why),
            Phase::Claimed { .. } if must_stop.is_some() || hands_over => {
                self.begin_release(shard, must_stop);
            }
            Phase::Claimed { why } => self.start_if_clear(shard, why),
            // A plan that changed while the claim waited for its turn.
            Phase::Claiming
                if elsewhere
                    && !self.claimability().names_us(shard)
                    && self.outbox.drop_unsent_claim(shard, &mut self.holds) =>
            {
                self.consider_free(shard);
            }
            Phase::Claiming | Phase::Releasing | Phase::Stopping { .. } => {}
        }
    }

    /// Why a shard must not run here, apart from a plan that would rather have it elsewhere.
    fn must_stop(&self, shard: &ShardId, epoch: Epoch) -> Option<StopReason> {
        if !self.offer.served().contains_key(&shard.group) {
            return Some(StopReason::Disengaged);
        }
        let settings = self.planner.group(&shard.group)?;
        let gone = !self.offer.serves(&shard.group, &self.mirror)
            || match settings.set {
                ShardSet::Named => !self.declines.is_engaged(shard),
                ShardSet::Numbered(_) => !self.planner.plan().has(shard),
            };
        if gone {
            return Some(StopReason::Disengaged);
        }
        let released = self.mirror.control().and_then(|control| control.release.get(shard)).copied();
        (released >= Some(epoch)).then_some(StopReason::Operator)
    }

    pub(super) fn consider_free(&mut self, shard: &ShardId) {
        if self.holds.is_orphaned(shard) || self.reconsider_declined(shard) {
            return;
        }
        if self.must_decline(shard) {
            self.declines.decline(shard, &mut self.ctx);
        }
        let engaged = self.declines.is_engaged(shard)
            && self.offer.kind_otherwise(&shard.group, &self.mirror).is_none();
        if engaged && self.create_if_missing(shard) {
            return;
        }
        let Claimable::Now { expect, above, why, vacated } = self.look_whether_unowned(shard) else { return };
        if self.claimability().names_us(shard)
            && (self.planner.plan().wanted(shard) != Some(&self.ctx.config.node)
                || self.departure.hands_over(&self.offer, &self.mirror, &self.ctx))
        {
            // A claim of ours whose answer was lost, and that we no longer want.
            self.give_up_unrun(shard);
            return;
        }
        let Some(why) = self.take_turn(shard, why, vacated) else { return };
        if !self.make_room(shard) {
            return;
        }
        let admitted = self.declines.take_admitted(shard);
        if self.ctx.config.gate == Gate::Ask && self.life.state() != SessionState::Left && !admitted {
            let write = Write::new(WriteKind::Claim, expect, self.drafts().claim_record(shard, above, why));
            let hold = Hold::asking(write, self.ctx.now.at);
            if !self.hold(shard, hold) {
                return;
            }
            self.ctx.agenda.wake_at(shard, self.ctx.now.at + self.ctx.config.ttl);
            self.ctx.out.push(Action::AskGate(shard.clone()));
            return;
        }
        self.claim(shard, expect, above, why);
    }
}
