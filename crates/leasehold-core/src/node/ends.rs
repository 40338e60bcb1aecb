//! What follows when work fails too often or has finished: its shard is held and not run, and perhaps tried once more.

use super::Node;
use super::hold::{Hold, Phase};
use crate::event::StopReason;
use crate::name::ShardId;
use crate::notice::{Notice, QuarantineEnds};
use crate::record::{FailurePolicy, FinishPolicy, MoveReason, WorkState};
use crate::time::Moment;

impl Node {
    /// The work of a shard failed too often: it is not run, here for now.
    pub(super) fn quarantine(&mut self, shard: &ShardId, rule: FailurePolicy, error: String) {
        let another = self.planner.another_takes(&self.ctx.config.node, shard);
        let at = self.ctx.now.at;
        let Some(hold) = self.holds.get_mut(shard) else { return };
        let (epoch, was) = (hold.epoch(), hold.work());
        hold.idle(WorkState::Quarantined, at);
        let ends = match rule.pause() {
            None => QuarantineEnds::ByOperator,
            Some(pause) if was == WorkState::Trial && another => QuarantineEnds::Elsewhere(pause),
            Some(pause) => QuarantineEnds::After(pause),
        };
        self.ctx.tell(Notice::Quarantined { shard: shard.clone(), epoch, error, ends });
        let QuarantineEnds::Elsewhere(pause) = ends else {
            self.ctx.agenda.add(shard.clone());
            return self.rewrite(shard, MoveReason::Quarantined);
        };
        // Its one try failed as well: another node has the next. Released in this step, after the plan without this node is made.
        hold.stopped(Some(StopReason::Failed));
        // For long enough that another takes it, and over long before that one has tried: it must find somebody else then.
        self.declines.decline_for(shard, pause / 2, &mut self.ctx);
        self.ctx.record_changed();
        self.ctx.replan_now();
        self.ctx.agenda.add(shard.clone());
    }

    /// The work of a shard has finished, and is not started again here.
    pub(super) fn finish_work(&mut self, shard: &ShardId, rule: FinishPolicy) {
        let at = self.ctx.now.at;
        let Some(hold) = self.holds.get_mut(shard) else { return };
        let (epoch, for_good) = (hold.epoch(), rule == FinishPolicy::Done);
        hold.idle(if for_good { WorkState::Done } else { WorkState::Runs }, at);
        self.ctx.tell(Notice::Finished { shard: shard.clone(), epoch, for_good });
        if for_good {
            self.rewrite(shard, MoveReason::Finished);
        }
    }

    /// Whether a quarantined shard is tried once more by itself: here, so that each node has its turn.
    pub(super) fn is_tried_again(&self, shard: &ShardId) -> bool {
        let quarantined = self.holds.get(shard).is_some_and(|hold| hold.work() == WorkState::Quarantined);
        quarantined && self.planner.on_end(shard).is_some_and(|(on_failure, _)| on_failure.pause().is_some())
    }

    /// A shard that is held and not run: its group may have other rules now, and a quarantine may be over.
    pub(super) fn consider_idle(&mut self, shard: &ShardId, since: Moment) {
        let Some((on_failure, on_finish)) = self.planner.on_end(shard) else { return };
        let Some(hold) = self.holds.get_mut(shard) else { return };
        if hold.work() != WorkState::Quarantined {
            if on_finish == FinishPolicy::Restart {
                self.run_again(shard, MoveReason::WorkEnded);
            }
            return;
        }
        if on_failure == FailurePolicy::Retry {
            return self.run_again(shard, MoveReason::WorkEnded);
        }
        let Some(pause) = on_failure.pause() else { return };
        let at = self.ctx.now.at;
        if at < since + pause {
            self.ctx.agenda.wake_at(shard, since + pause);
        } else if hold.write().is_some() || self.ctx.plan_is_stale() {
            self.ctx.agenda.wake_at(shard, at + self.ctx.config.debounce);
        } else {
            hold.set_work(WorkState::Trial);
            self.claim_again(shard, MoveReason::WorkEnded);
        }
    }

    /// Work that was tried once and has run for long enough is as good as any other.
    pub(super) fn end_trial_if_healthy(&mut self, shard: &ShardId) {
        let Some(hold) = self.holds.get_mut(shard) else { return };
        let Some(until) = hold.on_trial_until(self.ctx.config.healthy_after) else { return };
        if self.ctx.now.at < until {
            return self.ctx.agenda.wake_at(shard, until);
        }
        hold.set_work(WorkState::Runs);
    }

    /// An operator, or its own node's user, lets a shard run again.
    pub(super) fn unquarantine(&mut self, shard: &ShardId) {
        if self.holds.get(shard).is_some_and(Hold::is_idle) {
            self.run_again(shard, MoveReason::Operator);
        }
    }

    fn run_again(&mut self, shard: &ShardId, why: MoveReason) {
        let Some(hold) = self.holds.get_mut(shard) else { return };
        debug_assert!(matches!(hold.phase(), Phase::Idle { .. }), "only what is not run is run again");
        if hold.pardon() {
            self.claim_again(shard, why);
        }
    }
}
