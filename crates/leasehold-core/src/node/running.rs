//! The work of the shards here: starting it, stopping it, and what follows from its end.

use std::time::Duration;

use super::Node;
use super::hold::Phase;
use super::timers::Timer;
use crate::event::{Action, Ended, StopReason};
use crate::name::{Epoch, ShardId};
use crate::notice::Notice;
use crate::record::{FinishPolicy, MoveReason, WorkState};
use crate::time::Moment;

impl Node {
    /// Starts the work of a shard whose claim is known to have landed.
    pub(super) fn start(&mut self, shard: &ShardId, why: MoveReason) {
        let unowned_for = self.vacancies.taken(shard).map(|since| self.ctx.now.at.since(since));
        let Some(hold) = self.holds.get_mut(shard) else { return };
        let epoch = hold.epoch();
        if !hold.work().is_run() {
            hold.idle(hold.work(), self.ctx.now.at);
            self.ctx.agenda.add(shard.clone());
            return;
        }
        if !self.assert_may_start(shard, epoch) {
            return;
        }
        self.holds.run(shard, self.ctx.now.at);
        self.ctx.out.push(Action::Start { shard: shard.clone(), epoch });
        self.ctx.tell(Notice::Started { shard: shard.clone(), epoch, why, unowned_for });
        self.ctx.agenda.add(shard.clone());
    }

    /// Tells the work of a shard to stop.
    pub(super) fn stop(&mut self, shard: &ShardId, why: StopReason, kill_at: Option<Moment>) {
        let Some(hold) = self.holds.get_mut(shard) else { return };
        let epoch = hold.epoch();
        hold.stop(why, self.ctx.now.at);
        self.moves.remove(shard);
        self.ctx.out.push(Action::Stop { shard: shard.clone(), epoch, why, kill_at });
        self.ctx.tell(Notice::Stopping { shard: shard.clone(), epoch, why });
        if why != StopReason::NotOurs {
            let limit = self.ctx.now.at + self.planner.stop_timeout(shard);
            self.ctx.agenda.wake_at(shard, limit);
            #[cfg(feature = "sabotage")]
            if !self.ctx.rules.hold(crate::rules::Rule::StopBeforeRelease) {
                self.release_while_it_runs(shard, epoch, why);
            }
        }
    }

    pub(super) fn on_ended(&mut self, shard: ShardId, epoch: Epoch, how: Ended) {
        if self.holds.orphan_ended(&shard, epoch) {
            if self.session.is_none() && !self.holds.has_orphans() {
                self.ctx.timers.set_earlier(Timer::List, self.ctx.now.at);
            }
            self.ctx.agenda.add(shard);
            return;
        }
        let Some(hold) = self.holds.get(&shard) else { return };
        if hold.epoch() != epoch {
            return;
        }
        match hold.phase() {
            Phase::Running => self.work_ended(&shard, how),
            Phase::Stopping { why: StopReason::NotOurs, .. } => {
                self.holds.give_back(&shard, self.session.as_ref(), &self.mirror, &mut self.ctx);
                self.ctx.agenda.add(shard);
            }
            Phase::Stopping { why, .. } => {
                if let Some(pause) = hold.steps_down_for() {
                    self.declines.decline_for(&shard, pause, &mut self.ctx);
                }
                self.holds.stopped(&shard, Some(why));
                self.begin_release(&shard, Some(why));
                self.ctx.timers.set(Timer::Surplus, self.ctx.now.at);
            }
            _ => {}
        }
    }

    /// The work ended without being told to. What follows from that is the group's decision: `ends`.
    fn work_ended(&mut self, shard: &ShardId, how: Ended) {
        let (at, healthy_after) = (self.ctx.now.at, self.ctx.config.healthy_after);
        self.moves.remove(shard);
        let (on_failure, on_finish) = self.planner.on_end(shard).unwrap_or_default();
        let Some(hold) = self.holds.get_mut(shard) else { return };
        let failures = hold.work_ended(at, healthy_after);
        let error = match how {
            Ended::Finished if on_finish != FinishPolicy::Restart => {
                return self.finish_work(shard, on_finish);
            }
            Ended::Finished => None,
            Ended::Failed(error) => {
                let tried = hold.work() == WorkState::Trial && on_failure.pause().is_some();
                if tried || on_failure.failures_max().is_some_and(|most| failures >= most) {
                    return self.quarantine(shard, on_failure, error);
                }
                Some(error)
            }
        };
        let epoch = hold.epoch();
        let pause = self.ctx.config.restart.pause(failures - 1);
        let jittered = pause + self.ctx.rng.up_to(pause / 10);
        // What the jitter adds to the longest pause is taken from it instead: that is what it says, the longest.
        let beyond = jittered.saturating_sub(self.ctx.config.restart.longest());
        let again_after = jittered - beyond * 2;
        hold.rest(at + again_after);
        self.ctx.tell(Notice::WorkEnded { shard: shard.clone(), epoch, error, again_after });
        self.ctx.agenda.wake_at(shard, at + again_after);
        self.ctx.agenda.add(shard.clone());
    }

    /// The work of a shard wants another node to have it. A grant of an earlier epoch has no say.
    pub(super) fn step_down(&mut self, shard: &ShardId, epoch: Epoch, pause: Duration) {
        let Some(hold) = self.holds.get_mut(shard).filter(|hold| hold.epoch() == epoch) else { return };
        let why = StopReason::SteppedDown;
        match hold.phase() {
            Phase::Running => {
                hold.step_down_for(pause);
                self.stop(shard, why, None);
            }
            // Released in this step, after the plan without this node is made.
            Phase::Resting { .. } | Phase::Idle { .. } => {
                hold.stopped(Some(why));
                self.ctx.agenda.add(shard.clone());
            }
            _ => return,
        }
        self.declines.decline_for(shard, pause, &mut self.ctx);
    }
}
