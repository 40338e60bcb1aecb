//! The work of the shards here: starting it, stopping it, what follows from its end, and whether the store still names
//! us for it.

use super::Node;
use super::shards::Phase;
use crate::event::{Action, Ended, StopReason};
use crate::mirror::{Seen, Source};
use crate::name::{Epoch, ShardId};
use crate::notice::Notice;
use crate::record::{MoveReason, ShardSet, ShardState};
use crate::rules::Rule;
use crate::time::Moment;

impl Node {
    /// Starts the work of a shard whose claim is known to have landed.
    pub(super) fn start(&mut self, shard: &ShardId, why: MoveReason) {
        self.turn_since.remove(shard);
        let unowned_for = self.unowned_since.remove(shard).map(|since| self.now.at.since(since));
        let Some(hold) = self.holds.get_mut(shard) else { return };
        let epoch = hold.epoch;
        if hold.quarantined {
            hold.phase = Phase::Quarantined;
            return;
        }
        hold.phase = Phase::Running;
        hold.started_at = self.now.at;
        self.out.push(Action::Start { shard: shard.clone(), epoch });
        self.tell(Notice::Started { shard: shard.clone(), epoch, why, unowned_for });
        self.reconsider.insert(shard.clone());
    }

    /// Tells the work of a shard to stop.
    pub(super) fn stop(&mut self, shard: &ShardId, why: StopReason, kill_at: Option<Moment>) {
        let Some(hold) = self.holds.get_mut(shard) else { return };
        let epoch = hold.epoch;
        hold.phase = Phase::Stopping { why, since: self.now.at, stuck: false };
        self.surplus.remove(shard);
        self.out.push(Action::Stop { shard: shard.clone(), epoch, why, kill_at });
        self.tell(Notice::Stopping { shard: shard.clone(), epoch, why });
        if why != StopReason::NotOurs {
            let limit = self.now.at + self.stop_timeout(shard);
            self.wake_at(shard, limit);
            if !self.rules.hold(Rule::StopBeforeRelease) {
                self.begin_release(shard, Some(why));
                if let Some(hold) = self.holds.remove(shard) {
                    self.orphans.insert(shard.clone(), epoch);
                    self.holds.insert(shard.clone(), hold);
                }
            }
        }
    }

    pub(super) fn on_ended(&mut self, shard: ShardId, epoch: Epoch, how: Ended) {
        if self.orphans.get(&shard) == Some(&epoch) {
            self.orphans.remove(&shard);
            if self.session.is_none() && self.orphans.is_empty() {
                self.list_at = self.list_at.min(self.now.at);
            }
            self.reconsider.insert(shard);
            return;
        }
        let Some(hold) = self.holds.get(&shard) else { return };
        if hold.epoch != epoch {
            return;
        }
        match hold.phase {
            Phase::Running => self.work_ended(&shard, how),
            Phase::Stopping { why: StopReason::NotOurs, .. } => {
                self.holds.remove(&shard);
                self.take_back(&shard);
                self.reconsider.insert(shard);
            }
            Phase::Stopping { why, .. } => {
                self.begin_release(&shard, Some(why));
                self.surplus_at = self.now.at;
            }
            _ => {}
        }
    }

    /// The work ended without being told to: it rests, or is quarantined when it keeps crashing.
    fn work_ended(&mut self, shard: &ShardId, how: Ended) {
        let (at, healthy_after) = (self.now.at, self.config.healthy_after);
        let Some(hold) = self.holds.get_mut(shard) else { return };
        self.surplus.remove(shard);
        if at.since(hold.started_at) >= healthy_after {
            hold.failures = 0;
        }
        hold.failures += 1;
        let (epoch, failures) = (hold.epoch, hold.failures);
        let failed = matches!(how, Ended::Failed(_));
        if failed && failures >= self.config.quarantine_after {
            hold.phase = Phase::Quarantined;
            hold.quarantined = true;
            self.tell(Notice::Quarantined { shard: shard.clone(), epoch });
            return self.rewrite(shard, MoveReason::Quarantined);
        }
        let pause = self.config.restart.pause(failures - 1);
        let again_after = pause + self.chance.up_to(pause / 10);
        if let Some(hold) = self.holds.get_mut(shard) {
            hold.phase = Phase::Resting { until: at + again_after };
        }
        let error = match how {
            Ended::Finished => None,
            Ended::Failed(error) => Some(error),
        };
        self.tell(Notice::WorkEnded { shard: shard.clone(), epoch, error, again_after });
        self.wake_at(shard, at + again_after);
        self.reconsider.insert(shard.clone());
    }

    pub(super) fn unquarantine(&mut self, shard: &ShardId) {
        let Some(hold) = self.holds.get_mut(shard).filter(|hold| hold.phase == Phase::Quarantined) else {
            return;
        };
        hold.pardoned = hold.write.is_some();
        if !hold.pardoned {
            hold.quarantined = false;
            hold.failures = 0;
            self.claim_again(shard, MoveReason::Operator);
        }
    }

    /// After every listing: is everything that we hold still ours?
    pub(super) fn verify_held(&mut self) {
        let held: Vec<ShardId> = self.holds.keys().cloned().collect();
        for shard in held {
            self.check_held(Source::Fresh(0), &shard);
        }
    }

    /// Compares a held shard with its record. What is not ours is stopped at once; damage is written over.
    pub(super) fn check_held(&mut self, source: Source, shard: &ShardId) {
        let session = self.session_id();
        let Some(hold) = self.holds.get_mut(shard) else { return };
        if hold.write.is_some() || matches!(hold.phase, Phase::Asking | Phase::Claiming | Phase::Releasing) {
            return;
        }
        match self.mirror.shards.get(shard) {
            Some(Seen { record: Ok(record), version, .. }) => {
                let ours = record.holder().is_some_and(|holder| Some(holder.session) == session)
                    && record.epoch == hold.epoch;
                if ours {
                    hold.version = Some(version.clone());
                    return;
                }
                if !self.rules.hold(Rule::VerifyHeld) {
                    return;
                }
                self.give_up(shard);
            }
            Some(Seen { record: Err(error), .. }) if error.is_too_new() => self.give_up(shard),
            Some(Seen { record: Err(_), version, .. }) => {
                hold.version = Some(version.clone());
                self.rewrite(shard, MoveReason::Repaired);
            }
            None if matches!(hold.phase, Phase::Claimed { .. }) => self.give_up(shard),
            None if matches!(source, Source::Fresh(_)) => {
                hold.version = None;
                self.rewrite(shard, MoveReason::Repaired);
            }
            None => {
                self.verify.insert(shard.clone());
                self.settle_at = self.now.at;
            }
        }
    }

    /// The store does not name us any more, as far as we can read it: nothing of it may run here.
    fn give_up(&mut self, shard: &ShardId) {
        let Some(hold) = self.holds.get(shard) else { return };
        if !hold.has_work() {
            self.holds.remove(shard);
            self.take_back(shard);
            self.reconsider.insert(shard.clone());
        } else if !matches!(hold.phase, Phase::Stopping { why: StopReason::NotOurs, .. }) {
            let kill_at = self.now.at + self.config.kill_budget;
            self.stop(shard, StopReason::NotOurs, Some(kill_at));
        }
    }

    pub(super) fn shard_has_changed(&mut self, source: Source, shard: ShardId) {
        self.moved_at.insert(shard.clone(), self.now.at);
        // Whatever its record says now, the time in which it had no holder begins anew; unless it is our own claim,
        // which the watch may show before the answer does.
        if !self.holds.contains_key(&shard) {
            self.unowned_since.remove(&shard);
        }
        self.note_missing_holder(&shard);
        self.settle_by_sight(source, &shard);
        self.note_taken(&shard);
        self.check_held(source, &shard);
        self.note_filled(&shard);
        let named = self.settings.get(&shard.group).is_some_and(|group| group.set == ShardSet::Named);
        if named {
            let seen = self.mirror.shards.get(&shard);
            let exists =
                seen.is_some_and(|s| s.good().is_none_or(|record| record.state != ShardState::Retired));
            if exists != self.plan.has(&shard) {
                self.replan_now();
            }
        }
        self.reconsider.insert(shard);
    }
}
