//! The shards here: `consider` looks at one of them and does what is due; calling it too often does no harm.

use super::Node;
use super::freedom::Freedom;
use super::publishing::Check;
use super::writes::{Write, WriteKind};
use crate::config::Gate;
use crate::event::{Action, StopReason};
use crate::name::{Epoch, ShardId};
use crate::notice::{Notice, Standing};
use crate::record::{MoveReason, ShardSet};
use crate::store::Version;
use crate::time::Moment;

/// A shard that this node holds, is getting, or is giving up.
#[derive(Debug)]
pub(super) struct Hold {
    pub(super) epoch: Epoch,
    pub(super) phase: Phase,
    pub(super) write: Option<Write>,
    pub(super) version: Option<Version>,
    pub(super) started_at: Moment,
    pub(super) failures: u32,
    pub(super) quarantined: bool,
    /// Somebody wants it tried again, once what is being written of it is settled.
    pub(super) pardoned: bool,
    /// What a claim must still pass before the work starts.
    pub(super) check: Check,
}

impl Hold {
    /// A shard whose record is being written.
    pub(super) fn writing(phase: Phase, write: Write) -> Self {
        let (epoch, quarantined) = (write.record.epoch, write.record.quarantined);
        let started_at = Moment::ZERO;
        Hold {
            epoch,
            phase,
            write: Some(write),
            version: None,
            started_at,
            failures: 0,
            quarantined,
            pardoned: false,
            check: Check::default(),
        }
    }

    /// Whether user code may be running.
    pub(super) fn has_work(&self) -> bool {
        matches!(self.phase, Phase::Running | Phase::Stopping { .. })
    }

    /// Whether it is on its way to somebody else, as far as it depends on us. Work that does not stop keeps nobody waiting.
    pub(super) fn is_given_up(&self) -> bool {
        matches!(self.phase, Phase::Stopping { stuck: false, .. } | Phase::Stopped { .. } | Phase::Releasing)
    }

    /// Whether its work was told to stop, and has not in time.
    pub(super) fn is_stuck(&self) -> bool {
        matches!(self.phase, Phase::Stopping { stuck: true, .. })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// The gate is being asked.
    Asking,
    /// Its record is being written with our name.
    Claiming,
    /// Its record has our name; its work starts once that is published, and once nobody else publishes it.
    Claimed { why: MoveReason },
    /// Its work runs.
    Running,
    /// Its work was told to stop.
    Stopping { why: StopReason, since: Moment, stuck: bool },
    /// Its work ended; it starts again then.
    Resting { until: Moment },
    /// Its work keeps crashing; it is held and not run.
    Quarantined,
    /// Nothing of it runs, and it is to be released once an earlier write of its record is settled.
    Stopped { why: Option<StopReason> },
    /// Nothing of it runs; its record is being written without our name.
    Releasing,
}

impl Node {
    pub(super) fn reconsider_everything(&mut self) {
        if self.session.is_none() {
            return;
        }
        let mut all: Vec<ShardId> = Vec::new();
        for (shard, wanted) in self.plan.iter() {
            let held_by_other =
                self.mirror.shards.get(shard).and_then(|seen| seen.good()?.holder()).is_some_and(|holder| {
                    !self.mirror.dead.contains_key(&holder.session)
                        && self.roster.get(&holder.node).is_some_and(|m| m.session == holder.session)
                });
            let quiet = held_by_other && !self.holds.contains_key(shard) && wanted != Some(&self.config.node);
            if !quiet {
                all.push(shard.clone());
            }
        }
        all.extend(self.holds.keys().cloned());
        all.extend(self.engaged.iter().cloned());
        all.extend(self.declined.keys().cloned());
        if let Some(session) = self.session_id() {
            let mine = self.mirror.shards.iter().filter(|(_, seen)| {
                seen.good().and_then(|record| record.holder()).is_some_and(|holder| holder.session == session)
            });
            all.extend(mine.map(|(shard, _)| shard.clone()));
        }
        self.reconsider.extend(all);
    }

    /// Does whatever is due for one shard.
    pub(super) fn consider(&mut self, shard: &ShardId) {
        if self.session.is_none() {
            return;
        }
        match self.holds.contains_key(shard) {
            true => self.consider_held(shard),
            false => self.consider_free(shard),
        }
    }

    fn consider_held(&mut self, shard: &ShardId) {
        let Some(hold) = self.holds.get(shard) else { return };
        let (phase, epoch, asked_at) = (hold.phase, hold.epoch, hold.started_at);
        let pardoned = hold.pardoned;
        let must_stop = self.must_stop(shard, epoch);
        let wanted_here = self.plan.wanted(shard) == Some(&self.config.node);
        match phase {
            Phase::Running => {
                if let Some(why) = must_stop {
                    self.stop(shard, why, None);
                } else if wanted_here && !self.hands_over() {
                    self.surplus.remove(shard);
                } else if self.surplus.insert(shard.clone()) {
                    self.surplus_at = self.now.at;
                }
            }
            Phase::Stopping { why, since, stuck: false } => {
                let limit = since + self.stop_timeout(shard);
                if self.now.at < limit {
                    return self.wake_at(shard, limit);
                }
                if let Some(hold) = self.holds.get_mut(shard) {
                    hold.phase = Phase::Stopping { why, since, stuck: true };
                }
                self.record_changed = true;
                self.tell(Notice::Stuck { shard: shard.clone(), epoch });
            }
            Phase::Resting { until } => {
                let elsewhere = self.plan.wanted(shard).is_some_and(|node| !self.is_me(node));
                if must_stop.is_some() || self.leaving.is_some() || elsewhere {
                    self.begin_release(shard, must_stop);
                } else if self.now.at >= until && !self.plan_is_stale() {
                    self.claim_again(shard, MoveReason::WorkEnded);
                } else {
                    self.wake_at(shard, until.max(self.now.at + self.config.debounce));
                }
            }
            Phase::Quarantined => {
                let released = self.control().and_then(|control| control.unquarantine.get(shard)).copied();
                let elsewhere = self.plan.wanted(shard).is_some_and(|node| !self.is_me(node));
                if must_stop.is_some() || self.leaving.is_some() || (self.hands_over() && elsewhere) {
                    self.begin_release(shard, must_stop);
                } else if pardoned || released >= Some(epoch) {
                    self.unquarantine(shard);
                }
            }
            Phase::Asking if must_stop.is_some() || self.hands_over() => {
                self.holds.remove(shard);
            }
            // A gate that does not answer has refused.
            Phase::Asking if self.now.at >= asked_at + self.config.ttl => {
                self.holds.remove(shard);
                self.decline(shard);
            }
            Phase::Asking => self.wake_at(shard, asked_at + self.config.ttl),
            Phase::Stopped { why } => self.begin_release(shard, why),
            Phase::Claimed { .. } if must_stop.is_some() || self.hands_over() => {
                self.begin_release(shard, must_stop);
            }
            Phase::Claimed { why } => self.start_if_clear(shard, why),
            // A plan that changed while the claim waited for its turn.
            Phase::Claiming if !wanted_here && self.drop_unsent_claim(shard) => self.consider_free(shard),
            Phase::Claiming | Phase::Releasing | Phase::Stopping { .. } => {}
        }
    }

    /// Why a shard must not run here, apart from a plan that would rather have it elsewhere.
    fn must_stop(&self, shard: &ShardId, epoch: Epoch) -> Option<StopReason> {
        let settings = self.settings.get(&shard.group)?;
        let gone = !self.serves(&shard.group)
            || match settings.set {
                ShardSet::Named => !self.engaged.contains(shard),
                ShardSet::Numbered(_) => !self.plan.has(shard),
            };
        if gone {
            return Some(StopReason::Disengaged);
        }
        let released = self.control().and_then(|control| control.release.get(shard)).copied();
        (released >= Some(epoch)).then_some(StopReason::Operator)
    }

    pub(super) fn stop_timeout(&self, shard: &ShardId) -> std::time::Duration {
        let policy = self.settings.get(&shard.group).map(|group| group.policy.stop_timeout_ms);
        std::time::Duration::from_millis(policy.unwrap_or(30_000))
    }

    pub(super) fn consider_free(&mut self, shard: &ShardId) {
        if self.orphans.contains_key(shard) || self.reconsider_declined(shard) {
            return;
        }
        self.decline_unheard_of(shard);
        let engaged = self.engaged.contains(shard) && self.kind_otherwise(&shard.group).is_none();
        if engaged && self.create_if_missing(shard) {
            return;
        }
        let Freedom::Now { expect, above, why, vacated } = self.unowned(shard) else { return };
        if self.names_us(shard) && (self.plan.wanted(shard) != Some(&self.config.node) || self.hands_over()) {
            // A claim of ours whose answer was lost, and that we no longer want.
            self.give_up_unrun(shard);
            return;
        }
        let Some(why) = self.whose_turn(shard, why, vacated) else { return };
        if !self.can_acquire(shard) {
            return;
        }
        let admitted = self.admitted.remove(shard);
        if self.config.gate == Gate::Ask && self.standing != Standing::Left && !admitted {
            let write = Write::new(WriteKind::Claim, expect, self.claim_record(shard, above, why));
            let hold = Hold { started_at: self.now.at, ..Hold::writing(Phase::Asking, write) };
            self.holds.insert(shard.clone(), hold);
            self.wake_at(shard, self.now.at + self.config.ttl);
            self.out.push(Action::AskGate(shard.clone()));
            return;
        }
        self.claim(shard, expect, above, why);
    }

    pub(super) fn control(&self) -> Option<&crate::record::Control> {
        self.mirror.control.as_ref().and_then(|seen| seen.best())
    }
}
