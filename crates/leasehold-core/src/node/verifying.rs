//! Whether the store still names us for what we hold, and what a shard's record that has changed sets off.

use super::Node;
use super::hold::Phase;
use super::timers::Timer;
use crate::event::StopReason;
use crate::mirror::{Seen, Source};
use crate::name::ShardId;
use crate::record::{MoveReason, ShardState};
use crate::rules::Rule;

impl Node {
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
        if hold.write().is_some()
            || matches!(hold.phase(), Phase::Asking | Phase::Claiming | Phase::Releasing)
        {
            return;
        }
        match self.mirror.shards().get(shard) {
            Some(Seen { record: Ok(record), version, .. }) => {
                let ours = record.holder().is_some_and(|holder| Some(holder.session) == session)
                    && record.epoch == hold.epoch();
                if ours {
                    hold.set_version(Some(version.clone()));
                    return;
                }
                if !self.ctx.rules.hold(Rule::VerifyHeld) {
                    return;
                }
                self.give_up(shard);
            }
            Some(Seen { record: Err(error), .. }) if error.is_too_new() => self.give_up(shard),
            Some(Seen { record: Err(_), version, .. }) => {
                hold.set_version(Some(version.clone()));
                self.rewrite(shard, MoveReason::Repaired);
            }
            None if matches!(hold.phase(), Phase::Claimed { .. }) => self.give_up(shard),
            None if matches!(source, Source::Fresh(_)) => {
                hold.set_version(None);
                self.rewrite(shard, MoveReason::Repaired);
            }
            None => {
                self.outbox.doubt([shard.clone()]);
                self.ctx.timers.set(Timer::ReadBack, self.ctx.now.at);
            }
        }
    }

    /// The store does not name us any more, as far as we can read it: nothing of it may run here.
    fn give_up(&mut self, shard: &ShardId) {
        let Some(hold) = self.holds.get(shard) else { return };
        if !hold.has_work() {
            self.holds.give_back(shard, self.session.as_ref(), &self.mirror, &mut self.ctx);
            self.ctx.agenda.add(shard.clone());
        } else if !matches!(hold.phase(), Phase::Stopping { why: StopReason::NotOurs, .. }) {
            let kill_at = self.ctx.now.at + self.ctx.config.kill_budget;
            self.stop(shard, StopReason::NotOurs, Some(kill_at));
        }
    }

    pub(super) fn shard_has_changed(&mut self, source: Source, shard: ShardId) {
        self.moves.note_moved(&shard, self.ctx.now.at);
        // Whatever its record says now, the time without a holder starts again; unless it is our own claim,
        // which the watch may show before the answer does.
        if !self.holds.contains(&shard) {
            self.vacancies.restart(&shard);
        }
        self.fencing.note_missing_holder(&shard, &self.namespace, &mut self.mirror, &mut self.ctx);
        self.outcome_seen(source, &shard);
        self.moves.note_taken(&shard, &self.mirror, self.ctx.now.at);
        self.check_held(source, &shard);
        self.planner.note_filled(&shard, self.pace.fill_next_at(), &mut self.ctx);
        let named = self.planner.is_named(&shard.group);
        if named {
            let seen = self.mirror.shards().get(&shard);
            let exists =
                seen.is_some_and(|s| s.good().is_none_or(|record| record.state != ShardState::Retired));
            if exists != self.planner.plan().has(&shard) {
                self.ctx.replan_now();
            }
        }
        self.ctx.agenda.add(shard);
    }
}
