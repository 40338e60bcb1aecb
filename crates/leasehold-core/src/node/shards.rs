//! The shards here: which to claim, and what their work does. `consider` looks at one shard and does what is due;
//! calling it too often does no harm.

use super::Node;
use super::writes::{Write, WriteKind};
use crate::config::{Gate, stretch};
use crate::event::{Action, Ended, StopReason, Verdict};
use crate::mirror::{Seen, Source};
use crate::name::{Epoch, ShardId};
use crate::notice::{Notice, Standing};
use crate::record::{Holder, MoveReason, ShardRecord, ShardSet, ShardState};
use crate::rules::Rule;
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
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// The gate is being asked.
    Asking,
    /// Its record is being written with our name.
    Claiming,
    /// Its record was created with our name; its work starts once `meta` was read after that.
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
        }
    }

    /// Whether user code may be running.
    pub(super) fn has_work(&self) -> bool {
        matches!(self.phase, Phase::Running | Phase::Stopping { .. })
    }
}

/// Whether a shard may be claimed.
enum Freedom {
    /// A live session holds it, or nobody should.
    No,
    /// Not before then.
    At(Moment),
    /// Not before this node's record was read anew.
    AfterReading(crate::name::NodeName),
    /// Now, by replacing this version.
    Now { expect: Option<Version>, above: Epoch, why: MoveReason, vacated: bool },
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
            Phase::Claimed { .. } if !self.is_vouched(shard, Rule::MetaAfterCreate) => {}
            Phase::Claimed { .. } if must_stop.is_some() || self.hands_over() => {
                self.begin_release(shard, must_stop);
            }
            Phase::Claimed { why } => self.start(shard, why),
            Phase::Claiming | Phase::Releasing | Phase::Stopping { .. } => {}
        }
    }

    pub(super) fn control(&self) -> Option<&crate::record::Control> {
        self.mirror.control.as_ref().and_then(|seen| seen.best())
    }

    fn stop_timeout(&self, shard: &ShardId) -> std::time::Duration {
        let policy = self.settings.get(&shard.group).map(|group| group.policy.stop_timeout_ms);
        std::time::Duration::from_millis(policy.unwrap_or(30_000))
    }

    /// Why a shard must not run here, apart from a plan that would rather have it elsewhere.
    fn must_stop(&self, shard: &ShardId, epoch: Epoch) -> Option<StopReason> {
        let settings = self.settings.get(&shard.group)?;
        let gone = !self.served.contains_key(&shard.group)
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

    fn consider_free(&mut self, shard: &ShardId) {
        if self.orphans.contains_key(shard) || self.reconsider_declined(shard) {
            return;
        }
        if self.engaged.contains(shard) && self.create_if_missing(shard) {
            return;
        }
        let Freedom::Now { expect, above, why, vacated } = self.unowned(shard) else { return };
        if self.names_us(shard) && (self.plan.wanted(shard) != Some(&self.config.node) || self.hands_over()) {
            // A claim of ours whose answer was lost, and that we no longer want.
            if self.may_replace(shard) {
                self.give_up_unrun(shard);
            }
            return;
        }
        let Some(why) = self.whose_turn(shard, why, vacated) else { return };
        if !self.can_acquire(shard) || (expect.is_some() && !self.may_replace(shard)) {
            return;
        }
        if self.config.gate == Gate::Ask && self.standing != Standing::Left {
            let write = Write::new(WriteKind::Claim, expect, self.claim_record(shard, above, why));
            let hold = Hold { started_at: self.now.at, ..Hold::writing(Phase::Asking, write) };
            self.holds.insert(shard.clone(), hold);
            self.wake_at(shard, self.now.at + self.config.ttl);
            self.out.push(Action::AskGate(shard.clone()));
            return;
        }
        self.claim(shard, expect, above, why);
    }

    /// Whether the version of a shard's record that we know may be replaced. A release replaced a record that was there, so
    /// it is from this incarnation; anything else may have been created late, and `meta` is read first.
    pub(super) fn may_replace(&mut self, shard: &ShardId) -> bool {
        let seen = self.mirror.shards.get(shard).and_then(|seen| seen.good());
        seen.is_some_and(|record| record.replaced_another()) || self.is_vouched(shard, Rule::MetaAfterVersion)
    }

    fn is_numbered(&self, shard: &ShardId) -> bool {
        self.settings.get(&shard.group).is_some_and(|group| group.set != ShardSet::Named)
    }

    /// Whether its record names this session.
    fn names_us(&self, shard: &ShardId) -> bool {
        let holder = self.mirror.shards.get(shard).and_then(|seen| seen.good()?.holder());
        holder.is_some_and(|holder| Some(holder.session) == self.session_id())
    }

    /// Whether a shard is unowned now; if it may become so, we come back to it then.
    fn unowned(&mut self, shard: &ShardId) -> Freedom {
        let freedom = self.freedom(shard);
        match &freedom {
            // Before the namespace is open nobody may take it, so nobody is late either.
            Freedom::Now { .. } if !self.is_open() => {}
            Freedom::Now { .. } => {
                let at = self.now.at;
                self.unowned_since.entry(shard.clone()).or_insert(at);
            }
            Freedom::No => {
                self.unowned_since.remove(shard);
                self.turn_since.remove(shard);
            }
            Freedom::At(at) => self.wake_at(shard, *at),
            Freedom::AfterReading(node) => {
                self.reads_wanted.insert(node.clone());
            }
        }
        freedom
    }

    /// GUARANTEES, "At most one holder": the only ways in which a shard becomes free.
    fn freedom(&mut self, shard: &ShardId) -> Freedom {
        let lost_wait = stretch(self.ttl_max(), self.config.drift_permille);
        let unknown_epoch = self.mirror.epoch_seen.max(Epoch(self.now.unix_ms / 1000));
        let Some(seen) = self.mirror.shards.get(shard) else {
            let settings = self.settings.get(&shard.group);
            let (filled, set) = settings.map_or((0, None), |s| (s.filled, Some(s.set)));
            if set == Some(ShardSet::Named) || set.is_none() {
                return Freedom::No;
            }
            let had_record = shard.name.as_slot().is_some_and(|slot| slot < filled);
            if had_record && !self.mirror.vanished.contains_key(shard) {
                self.mirror.vanished.insert(shard.clone(), (self.now.at, self.mirror.epoch_seen));
            }
            let Some((since, _)) = self.mirror.vanished.get(shard) else {
                let why = MoveReason::Planned;
                return Freedom::Now { expect: None, above: Epoch(0), why, vacated: false };
            };
            // It was there: somebody may be holding it without a record.
            let at = *since + lost_wait;
            if self.now.at < at && self.rules.hold(Rule::AbsentIsNotDead) {
                return Freedom::At(at);
            }
            let why = MoveReason::Repaired;
            return Freedom::Now { expect: None, above: unknown_epoch, why, vacated: false };
        };
        let expect = Some(seen.version.clone());
        let record = match &seen.record {
            Ok(record) => record,
            // A newer version understands it, and may be running it.
            Err(error) if error.is_too_new() => return Freedom::No,
            Err(_) => {
                let at = seen.first_seen_at + lost_wait;
                if self.now.at < at && self.rules.hold(Rule::CorruptIsHeld) {
                    return Freedom::At(at);
                }
                let why = MoveReason::Repaired;
                return Freedom::Now { expect, above: unknown_epoch, why, vacated: false };
            }
        };
        let above = record.epoch;
        match &record.state {
            // A slot that was retired when its group became smaller is there again once the group has grown.
            ShardState::Retired if self.is_numbered(shard) && self.plan.has(shard) => {
                Freedom::Now { expect, above, why: MoveReason::Planned, vacated: true }
            }
            ShardState::Retired => Freedom::No,
            ShardState::Vacant { successor, reserved_ms } => {
                let mine = successor.as_ref().is_some_and(|node| self.is_me(node));
                let reserved_until = seen.first_seen_at
                    + std::time::Duration::from_millis(reserved_ms.unwrap_or(0).min(3_600_000));
                if !mine && successor.is_some() && self.now.at < reserved_until {
                    return Freedom::At(reserved_until);
                }
                let why = if mine { record.why } else { MoveReason::Planned };
                Freedom::Now { expect, above, why, vacated: true }
            }
            ShardState::Held { holder } if self.session_id() == Some(holder.session) => {
                // It names this session, and we do not run it: a claim whose answer was lost. It starts anew.
                Freedom::Now { expect, above, why: MoveReason::Planned, vacated: true }
            }
            ShardState::Held { holder } => {
                let (holder, order) = (holder.clone(), seen.order);
                match self.is_over(&holder, order) {
                    Over::Yes => Freedom::Now { expect, above, why: MoveReason::Failover, vacated: false },
                    Over::No => Freedom::No,
                    Over::At(at) => Freedom::At(at),
                    Over::AfterReading => Freedom::AfterReading(holder.node),
                }
            }
        }
    }

    /// Whether the session that a shard's record names is over. `order`: when we saw that record.
    fn is_over(&mut self, holder: &Holder, order: u64) -> Over {
        if self.mirror.dead.contains_key(&holder.session) {
            return Over::Yes;
        }
        let node = self.mirror.nodes.get(&holder.node);
        match node.and_then(|node| node.seen.as_ref()).map(|seen| &seen.record) {
            Some(Ok(record)) if record.session == holder.session => Over::No,
            Some(Ok(record)) => {
                // Its name has another session. That proves something only if it was read after the shard's record,
                // and if that session began over one that had ended, not over a record that was lost.
                let unproved = record.unproved;
                let read_after = node.is_some_and(|node| node.read_issued > order);
                if !read_after && self.rules.hold(Rule::ProofAfterShard) {
                    return Over::AfterReading;
                }
                let lost_until = node.map_or(Moment::NEVER, |node| {
                    node.session_seen_at + stretch(holder.ttl(), self.config.drift_permille)
                });
                if unproved && self.now.at < lost_until && self.rules.hold(Rule::AbsentIsNotDead) {
                    return Over::At(lost_until);
                }
                self.mirror.dead.insert(holder.session, self.now.at);
                Over::Yes
            }
            Some(Err(_)) => {
                self.probe_at = self.probe_at.min(self.now.at + self.ttl_max() / 2);
                Over::No
            }
            None if !self.rules.hold(Rule::AbsentIsNotDead) => Over::Yes,
            None => {
                self.mirror.note_absent(self.now.at, &holder.node);
                self.lost_sessions.insert(holder.node.clone(), (holder.session, holder.ttl()));
                self.probe_at = self.probe_at.min(self.now.at + holder.ttl() / 2);
                Over::No
            }
        }
    }

    /// Whether it is this node's turn to take an unowned shard, and as what that counts.
    fn whose_turn(&mut self, shard: &ShardId, why: MoveReason, vacated: bool) -> Option<MoveReason> {
        let unowned_since = self.unowned_since.get(shard).copied().unwrap_or(self.now.at);
        let Some(wanted) = self.plan.wanted(shard) else {
            self.turn_since.remove(shard);
            return None;
        };
        // Nobody is late before the plan gives it to somebody.
        let since = match self.turn_since.get(shard) {
            Some(since) => unowned_since.max(*since),
            None => self.now.at,
        };
        if !self.rules.hold(Rule::UnownedAtOnce) && self.now.at < unowned_since + self.config.ttl * 3 {
            self.wake_at(shard, unowned_since + self.config.ttl * 3);
            return None;
        }
        if self.plan_is_stale() && !vacated {
            return None;
        }
        if self.is_me(wanted) {
            return Some(why);
        }
        self.turn_since.entry(shard.clone()).or_insert(self.now.at);
        let ranked = self.planning.rank(&self.plan, shard);
        let rank = ranked.iter().position(|node| self.is_me(node))? as u32;
        let delay = self.config.takeover_delay;
        let turn_at = since + delay * rank.clamp(1, 4);
        if self.now.at >= turn_at {
            return Some(MoveReason::Takeover);
        }
        let jitter = self.chance.up_to(delay / 4);
        self.wake_at(shard, turn_at + jitter);
        None
    }

    /// Whether this node may take one more shard now. Whatever forbids it makes us look again when it ends.
    fn can_acquire(&mut self, shard: &ShardId) -> bool {
        let here = self.served.contains_key(&shard.group)
            && (self.engaged.contains(shard)
                || self.settings.get(&shard.group).is_some_and(|group| group.set != ShardSet::Named));
        if !here {
            if self.served.contains_key(&shard.group) && self.plan.wanted(shard) == Some(&self.config.node) {
                self.decline(shard);
            }
            return false;
        }
        let standing = matches!(self.standing, Standing::Attached | Standing::Degraded);
        if !standing || !self.is_open() || self.hands_over() || self.control_drains_me() {
            return false;
        }
        if self.now.at < self.acquire_paused_until {
            self.wake_at(shard, self.acquire_paused_until);
            return false;
        }
        let in_group = || self.holds.keys().filter(|held| held.group == shard.group).count();
        let group_capacity = self.served.get(&shard.group).and_then(|group| group.capacity);
        let room = self.capacity.is_none_or(|capacity| self.holds.len() < capacity as usize)
            && group_capacity.is_none_or(|capacity| in_group() < capacity as usize);
        if !room {
            self.roomless.insert(shard.clone());
            self.wake_at(shard, self.now.at + self.config.takeover_delay);
        }
        room
    }

    /// Lets the others plan around us for this shard, for a while.
    fn decline(&mut self, shard: &ShardId) {
        let until = self.now.at + self.config.ttl;
        if self.declined.insert(shard.clone(), until).is_none() {
            self.record_changed = true;
            self.replan_now();
        }
        self.wake_at(shard, until);
    }

    /// Asks again after a while; `true` if there is nothing else to do now.
    fn reconsider_declined(&mut self, shard: &ShardId) -> bool {
        let Some(until) = self.declined.get(shard).copied() else { return false };
        let unknown = !self.engaged.contains(shard)
            && self.settings.get(&shard.group).is_some_and(|group| group.set == ShardSet::Named);
        if self.now.at < until {
            self.wake_at(shard, until);
        } else if unknown && self.plan.has(shard) {
            self.retire_if_nobody_has_it(shard);
            self.declined.insert(shard.clone(), self.now.at + self.config.ttl);
            self.wake_at(shard, self.now.at + self.config.ttl);
        } else if self.config.gate == Gate::Ask && !self.hands_over() && self.plan.has(shard) {
            // The others plan around us until the gate has said that it has changed its mind: a shard that comes
            // here only to be refused has moved for nothing.
            self.inquired.insert(shard.clone());
            self.out.push(Action::AskGate(shard.clone()));
            self.declined.insert(shard.clone(), self.now.at + self.config.ttl);
            self.wake_at(shard, self.now.at + self.config.ttl);
        } else {
            self.declined.remove(shard);
            self.record_changed = true;
            self.replan_now();
        }
        true
    }

    pub(super) fn on_gate(&mut self, shard: ShardId, verdict: Verdict) {
        if self.inquired.remove(&shard) {
            if verdict == Verdict::Take && self.declined.remove(&shard).is_some() {
                self.record_changed = true;
                self.replan_now();
            }
            return;
        }
        let unwanted = self.hands_over();
        let Some(hold) = self.holds.get_mut(&shard) else { return };
        if hold.phase != Phase::Asking {
            return;
        }
        match verdict {
            Verdict::Take if unwanted => {
                self.holds.remove(&shard);
            }
            Verdict::Take => {
                hold.phase = Phase::Claiming;
                self.outbox.insert(shard);
            }
            Verdict::Refuse => {
                self.holds.remove(&shard);
                self.decline(&shard);
            }
        }
    }

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
        self.settle_by_sight(&shard);
        self.check_held(source, &shard);
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

    /// The record of a claim: our name, and an epoch above all earlier ones.
    pub(super) fn claim_record(&mut self, shard: &ShardId, above: Epoch, why: MoveReason) -> ShardRecord {
        let group_floor = self.settings.get(&shard.group).map_or(Epoch(0), |group| group.epoch_floor);
        let meta_floor = self.meta_known.as_ref().map_or(Epoch(0), |meta| meta.epoch_floor);
        let epoch = match self.rules.hold(Rule::EpochRises) {
            true => above.next_above([group_floor, meta_floor]),
            false => above.max(Epoch(1)),
        };
        let session = self.session_id().expect("only a node with a session claims");
        let holder = Holder { node: self.me(), session, ttl_ms: self.config.ttl.as_millis() as u64 };
        let pardoned = self.control().and_then(|control| control.unquarantine.get(shard)).copied();
        let seen = self.mirror.shards.get(shard).and_then(|seen| seen.good());
        let quarantined = seen.is_some_and(|record| record.quarantined && pardoned < Some(record.epoch));
        self.shard_record(shard, epoch, ShardState::Held { holder }, quarantined, why)
    }
}

enum Over {
    Yes,
    No,
    At(Moment),
    AfterReading,
}
