//! Writing shard records: sending, settling unknown outcomes, and what follows from what landed.
//!
//! Unknown is an outcome. A write that got no answer may have landed, or may yet land. Reading back shows our write
//! (applied), another version than the one we conditioned on (it never will), or that same version: still unknown,
//! and settled only by a successful swap past it.

use super::Node;
use super::requests::{Purpose, Sent};
use super::shards::{Hold, Phase};
use crate::event::{Returning, StopReason};
use crate::mirror::Source;
use crate::name::{Epoch, ShardId, WriteId};
use crate::notice::Notice;
use crate::record::{FORMAT, MoveReason, Record, ShardRecord, ShardSet, ShardState};
use crate::rules::Rule;
use crate::store::{Key, Lane, Op, Stored, Swap, Swapped, Version};
use crate::time::Moment;

/// How many requests with shard writes are under way at once.
const REQUESTS_MAX: usize = 8;
/// How many shards one read looks at.
const LOOK_MAX: usize = 256;

/// A write of a shard's record that is not known to have landed.
#[derive(Debug)]
pub(super) struct Write {
    pub(super) kind: WriteKind,
    pub(super) record: ShardRecord,
    /// The version that it replaces.
    base: Option<Version>,
    /// Its tries. Each may have landed, at most one can.
    tries: Vec<WriteId>,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WriteKind {
    /// With our name, at a new epoch.
    Claim,
    /// Without our name.
    Release,
    /// Of a named shard that has no record, or a retired one.
    Create,
    /// The same holder and epoch, with something else changed.
    Rewrite,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Waiting,
    Sent,
    Unsettled,
}

impl Write {
    pub(super) fn new(kind: WriteKind, base: Option<Version>, record: ShardRecord) -> Self {
        Write { kind, record, base, tries: Vec::new(), stage: Stage::Waiting }
    }
}

impl Node {
    pub(super) fn shard_record(
        &self,
        shard: &ShardId,
        epoch: Epoch,
        state: ShardState,
        quarantined: bool,
        why: MoveReason,
    ) -> ShardRecord {
        let extra =
            self.mirror.shards.get(shard).and_then(|seen| seen.good()).map(|record| record.extra.clone());
        ShardRecord {
            format: FORMAT,
            write: WriteId::from_bits(0),
            shard: shard.clone(),
            epoch,
            state,
            quarantined,
            why,
            written_unix_ms: 0,
            extra: extra.unwrap_or_default(),
        }
    }

    pub(super) fn claim(&mut self, shard: &ShardId, base: Option<Version>, above: Epoch, why: MoveReason) {
        let record = self.claim_record(shard, above, why);
        self.holds.insert(
            shard.clone(),
            Hold::writing(Phase::Claiming, Write::new(WriteKind::Claim, base, record)),
        );
        self.outbox.insert(shard.clone());
    }

    /// Claims a shard that we hold once more, at a higher epoch, so that its work can start again.
    pub(super) fn claim_again(&mut self, shard: &ShardId, why: MoveReason) {
        let Some(hold) = self.holds.get(shard) else { return };
        if hold.write.is_some() {
            return;
        }
        let (above, base, quarantined) = (hold.epoch, hold.version.clone(), hold.quarantined);
        let mut record = self.claim_record(shard, above, why);
        record.quarantined = quarantined;
        if let Some(hold) = self.holds.get_mut(shard) {
            hold.epoch = record.epoch;
            hold.phase = Phase::Claiming;
            hold.write = Some(Write::new(WriteKind::Claim, base, record));
        }
        self.outbox.insert(shard.clone());
    }

    /// Gives a shard up. Nothing of it runs any more.
    pub(super) fn begin_release(&mut self, shard: &ShardId, why: Option<StopReason>) {
        let Some(hold) = self.holds.get(shard) else { return };
        if matches!(hold.write, Some(Write { kind: WriteKind::Rewrite, .. })) {
            // Its outcome must be known first: the answer brings us back here.
            if let Some(hold) = self.holds.get_mut(shard) {
                hold.phase = Phase::Stopped { why };
            }
            self.surplus.remove(shard);
            return;
        }
        let (epoch, base, quarantined) = (hold.epoch, hold.version.clone(), hold.quarantined);
        let (state, why) = self.vacated_state(shard, why);
        let record = self.shard_record(shard, epoch, state, quarantined, why);
        if let Some(hold) = self.holds.get_mut(shard) {
            hold.phase = Phase::Releasing;
            hold.write = Some(Write::new(WriteKind::Release, base, record));
        }
        self.surplus.remove(shard);
        self.outbox.insert(shard.clone());
    }

    /// Releases a shard whose record names us although we do not run it.
    pub(super) fn give_up_unrun(&mut self, shard: &ShardId) {
        let Some(seen) = self.mirror.shards.get(shard) else { return };
        let Some(record) = seen.good() else { return };
        let (base, epoch, quarantined) = (Some(seen.version.clone()), record.epoch, record.quarantined);
        let (state, why) = self.vacated_state(shard, None);
        let record = self.shard_record(shard, epoch, state, quarantined, why);
        let write = Write::new(WriteKind::Release, base, record);
        self.holds.insert(shard.clone(), Hold::writing(Phase::Releasing, write));
        self.outbox.insert(shard.clone());
    }

    fn vacated_state(&self, shard: &ShardId, why: Option<StopReason>) -> (ShardState, MoveReason) {
        let settings = self.settings.get(&shard.group);
        if why == Some(StopReason::Disengaged) {
            let named = settings.is_some_and(|group| group.set == ShardSet::Named);
            let smaller = settings.is_some() && !self.plan.has(shard);
            if named || smaller {
                return (ShardState::Retired, MoveReason::Disengaged);
            }
        }
        let grace = settings.map_or(0, |group| group.policy.restart_grace_ms);
        if let Some(leaving) = &self.leaving
            && leaving.returning == Returning::Soon
            && grace > 0
        {
            let state = ShardState::Vacant { successor: Some(self.me()), reserved_ms: Some(grace) };
            return (state, MoveReason::Restart);
        }
        let successor = self.plan.wanted(shard).filter(|node| !self.is_me(node)).cloned();
        let reason = match why {
            Some(StopReason::Operator) => MoveReason::Operator,
            Some(StopReason::Moving) => MoveReason::Rebalance,
            Some(StopReason::Disengaged) => MoveReason::Disengaged,
            _ if self.hands_over() || self.control_drains_me() => MoveReason::Drain,
            _ => MoveReason::Rebalance,
        };
        (ShardState::Vacant { successor, reserved_ms: None }, reason)
    }

    /// Writes the record of a shard that we hold anew: it was damaged, or something in it changed.
    pub(super) fn rewrite(&mut self, shard: &ShardId, why: MoveReason) {
        let Some(session) = self.session_id() else { return };
        let (me, ttl_ms) = (self.me(), self.config.ttl.as_millis() as u64);
        let Some(hold) = self.holds.get(shard) else { return };
        if hold.write.is_some() {
            return;
        }
        let state = ShardState::Held { holder: crate::record::Holder { node: me, session, ttl_ms } };
        let record = self.shard_record(shard, hold.epoch, state, hold.quarantined, why);
        if let Some(hold) = self.holds.get_mut(shard) {
            hold.write = Some(Write::new(WriteKind::Rewrite, hold.version.clone(), record));
        }
        self.outbox.insert(shard.clone());
    }

    /// A named shard that was engaged here needs a record; `true` if it is being made.
    pub(super) fn create_if_missing(&mut self, shard: &ShardId) -> bool {
        let named = self.settings.get(&shard.group).is_some_and(|group| group.set == ShardSet::Named);
        let seen = self.mirror.shards.get(shard);
        let (base, epoch) = match seen {
            None => (None, self.mirror.vanished.get(shard).map_or(Epoch(0), |(_, epoch)| *epoch)),
            Some(seen) => match seen.good() {
                Some(record) if record.state == ShardState::Retired => {
                    (Some(seen.version.clone()), record.epoch)
                }
                _ => return false,
            },
        };
        if !named || !self.is_open() || self.now.at < self.acquire_paused_until {
            return false;
        }
        if seen.is_none()
            && let Some((since, _)) = self.mirror.vanished.get(shard)
            && self.rules.hold(Rule::AbsentIsNotDead)
        {
            let at = *since + crate::config::stretch(self.ttl_max(), self.config.drift_permille);
            if self.now.at < at {
                self.wake_at(shard, at);
                return true;
            }
        }
        let group_floor = self.settings.get(&shard.group).map_or(Epoch(0), |group| group.epoch_floor);
        let meta_floor = self.meta_known.as_ref().map_or(Epoch(0), |meta| meta.epoch_floor);
        let epoch = epoch.max(group_floor).max(meta_floor);
        let state = ShardState::Vacant { successor: None, reserved_ms: None };
        let record = self.shard_record(shard, epoch, state, false, MoveReason::Engaged);
        let write = Write::new(WriteKind::Create, base, record);
        self.holds.insert(shard.clone(), Hold::writing(Phase::Releasing, write));
        self.outbox.insert(shard.clone());
        true
    }

    /// A named shard that has been vacant for long, although whoever has it engaged would have taken it.
    pub(super) fn retire_if_nobody_has_it(&mut self, shard: &ShardId) {
        let Some(seen) = self.mirror.shards.get(shard) else { return };
        let Some(record) = seen.good() else { return };
        let vacant = matches!(record.state, ShardState::Vacant { .. });
        let young = self.now.at < seen.first_seen_at + self.config.ttl * 2;
        if !vacant || young || self.requests_full() || !self.may_replace(shard) {
            return;
        }
        let Some(seen) = self.mirror.shards.get(shard) else { return };
        let Some(record) = seen.good() else { return };
        let (base, epoch) = (Some(seen.version.clone()), record.epoch);
        let record = self.shard_record(shard, epoch, ShardState::Retired, false, MoveReason::Disengaged);
        let write = Write::new(WriteKind::Create, base, record);
        self.holds.insert(shard.clone(), Hold::writing(Phase::Releasing, write));
        self.outbox.insert(shard.clone());
    }

    fn requests_full(&self) -> bool {
        self.requests.count(|purpose| matches!(purpose, Purpose::Shards(_))) >= REQUESTS_MAX
    }

    pub(super) fn send_writes(&mut self) {
        while !self.outbox.is_empty() && self.session.is_some() && !self.requests_full() {
            let mut swaps = Vec::new();
            let mut sent = Vec::new();
            while swaps.len() < self.facts.swaps_max.max(1)
                && let Some(shard) = self.outbox.pop_first()
            {
                let id = WriteId::from_bits(self.chance.bits());
                let unix_ms = self.now.unix_ms;
                let keeps = self.rules.hold(Rule::RecordsStay);
                let Some(write) = self.holds.get_mut(&shard).and_then(|hold| hold.write.as_mut()) else {
                    continue;
                };
                if write.stage == Stage::Sent {
                    continue;
                }
                write.stage = Stage::Sent;
                write.tries.push(id);
                write.record.write = id;
                write.record.written_unix_ms = unix_ms;
                let removes = write.kind == WriteKind::Release && !keeps;
                let value = (!removes).then(|| write.record.encode().into());
                swaps.push(Swap { key: Key::Shard(shard.clone()), expect: write.base.clone(), value });
                sent.push((shard, id));
            }
            if !swaps.is_empty() {
                self.ask(Lane::Work, Op::Swap(swaps), Purpose::Shards(sent));
            }
        }
    }

    pub(super) fn on_shard_swapped(&mut self, shard: &ShardId, id: WriteId, outcome: Swapped, _issued: u64) {
        let Some(write) = self.holds.get_mut(shard).and_then(|hold| hold.write.as_mut()) else { return };
        if !write.tries.contains(&id) {
            return;
        }
        match outcome {
            Swapped::Applied(version) => self.landed(shard, id, version),
            Swapped::Lost(current) => self.settle_by(shard, current.as_ref(), Settling::Lost),
            Swapped::Unknown if !self.rules.hold(Rule::UnknownIsSettled) => {
                self.landed(shard, id, Version::new("assumed"));
            }
            Swapped::Unknown => {
                write.stage = Stage::Unsettled;
                let pause = self.config.retry.pause(self.store_failures);
                self.settle_at = self.settle_at.min(self.now.at + pause);
            }
        }
    }

    /// Reads back what became of writes of unknown outcome, and looks at what may not be ours any more.
    pub(super) fn settle(&mut self) {
        self.settle_at = Moment::NEVER;
        if self.session.is_none() {
            return;
        }
        self.reconsider_all = true;
        let unsettled = self
            .holds
            .iter()
            .filter(|(_, hold)| hold.write.as_ref().is_some_and(|write| write.stage == Stage::Unsettled));
        let mut shards: Vec<ShardId> = unsettled.map(|(shard, _)| shard.clone()).collect();
        shards.extend(std::mem::take(&mut self.verify));
        shards.dedup();
        if shards.is_empty() {
            return;
        }
        if self.requests.any(|purpose| matches!(purpose, Purpose::Look(_))) {
            self.settle_at = self.now.at + self.config.try_timeout;
            return;
        }
        if shards.len() > LOOK_MAX {
            self.settle_at = self.now.at + self.config.try_timeout / 4;
        }
        self.look_at(shards);
    }

    pub(super) fn look_at(&mut self, mut shards: Vec<ShardId>) {
        shards.truncate(LOOK_MAX);
        let mut keys: Vec<Key> = shards.iter().cloned().map(Key::Shard).collect();
        if self.rules.hold(Rule::MetaAfterVersion) {
            keys.push(Key::Meta);
        }
        self.ask(Lane::Work, Op::Read(keys), Purpose::Look(shards));
    }

    pub(super) fn on_looked(&mut self, shards: &[ShardId], sent: &Sent, found: &[Option<Stored>]) {
        for (shard, stored) in shards.iter().zip(found) {
            let write = self.holds.get(shard).and_then(|hold| hold.write.as_ref());
            match write.map(|write| write.stage) {
                Some(Stage::Unsettled) => self.settle_by(shard, stored.as_ref(), Settling::ReadBack),
                Some(_) => {}
                None => self.check_held(Source::Fresh(sent.issued), shard),
            }
            self.reconsider.insert(shard.clone());
        }
    }

    /// Decides what became of a write by what is in the store.
    fn settle_by(&mut self, shard: &ShardId, current: Option<&Stored>, how: Settling) {
        let Some(write) = self.holds.get_mut(shard).and_then(|hold| hold.write.as_mut()) else { return };
        let record = current.and_then(|stored| ShardRecord::decode(&stored.value).ok());
        if let (Some(stored), Some(record)) = (current, &record)
            && write.tries.contains(&record.write)
        {
            return self.landed(shard, record.write, stored.version.clone());
        }
        let unchanged = current.map(|stored| &stored.version) == write.base.as_ref();
        if how == Settling::ReadBack && unchanged && self.rules.hold(Rule::UnchangedIsUnknown) {
            // It may still be under way. A new try on the same version settles it: at most one of them can land.
            write.stage = Stage::Waiting;
            self.outbox.insert(shard.clone());
            return;
        }
        if how == Settling::ReadBack && unchanged && write.kind == WriteKind::Release {
            return self.run_on(shard);
        }
        self.write_lost(shard);
    }

    /// What a wrong design would do: a release that is not seen yet has failed, so the shard is still ours and goes on
    /// as it was. Only a test build gets here.
    fn run_on(&mut self, shard: &ShardId) {
        let Some(hold) = self.holds.get_mut(shard) else { return };
        hold.write = None;
        hold.phase = Phase::Running;
        let epoch = hold.epoch;
        self.out.push(crate::event::Action::Start { shard: shard.clone(), epoch });
    }

    /// The watch or a listing may show our own write before its answer comes, or instead of it.
    pub(super) fn settle_by_sight(&mut self, shard: &ShardId) {
        let Some(write) = self.holds.get(shard).and_then(|hold| hold.write.as_ref()) else { return };
        let Some(seen) = self.mirror.shards.get(shard) else { return };
        let shown = seen.good().map(|record| record.write).filter(|id| write.tries.contains(id));
        if let Some(id) = shown {
            let version = seen.version.clone();
            self.landed(shard, id, version);
        }
    }

    fn write_lost(&mut self, shard: &ShardId) {
        let Some(hold) = self.holds.get_mut(shard) else { return };
        let Some(write) = hold.write.take() else { return };
        if write.kind == WriteKind::Claim && (write.stage == Stage::Unsettled || write.tries.len() > 1) {
            self.claim_hung();
        }
        match write.kind {
            WriteKind::Claim | WriteKind::Release | WriteKind::Create => {
                self.holds.remove(shard);
                self.unowned_since.remove(shard);
            }
            WriteKind::Rewrite => self.check_held(Source::Fresh(0), shard),
        }
        self.reconsider.insert(shard.clone());
    }

    /// A claim got no answer for so long that somebody else took the shard: its time without an owner was in vain. For a
    /// while, longer each time, this node shows no view, so that nobody gives anything up for it.
    fn claim_hung(&mut self) {
        if self.shy_until != Moment::NEVER {
            return;
        }
        self.claims_hung += 1;
        self.shy_until = self.now.at + self.config.ttl * (1 << self.claims_hung.min(6));
        self.record_changed = true;
    }

    fn landed(&mut self, shard: &ShardId, id: WriteId, version: Version) {
        let Some(hold) = self.holds.get_mut(shard) else { return };
        let Some(mut write) = hold.write.take() else { return };
        write.record.write = id;
        let removed = write.kind == WriteKind::Release && !self.rules.hold(Rule::RecordsStay);
        let stored = Stored { version: version.clone(), value: write.record.encode().into() };
        match write.kind {
            WriteKind::Claim => {
                hold.version = Some(version.clone());
                hold.epoch = write.record.epoch;
                self.claims_hung = 0;
                self.shy_until = self.shy_until.min(self.now.at);
                self.swap_places_at = self.swap_places_at.min(self.now.at);
                let why = write.record.why;
                match write.base {
                    Some(_) => self.start(shard, why),
                    // It may have landed in a store that was emptied meanwhile, next to somebody who still runs it.
                    None => hold.phase = Phase::Claimed { why },
                }
            }
            WriteKind::Rewrite => {
                hold.version = Some(version.clone());
                if let Phase::Stopping { .. } | Phase::Resting { .. } = hold.phase {
                    self.reconsider.insert(shard.clone());
                }
            }
            WriteKind::Release => {
                self.holds.remove(shard);
                self.reconsider.append(&mut self.roomless);
                let successor = match &write.record.state {
                    ShardState::Vacant { successor, .. } => successor.clone(),
                    _ => None,
                };
                let (epoch, why) = (write.record.epoch, write.record.why);
                self.tell(Notice::Released { shard: shard.clone(), epoch, why, successor });
            }
            WriteKind::Create => {
                self.holds.remove(shard);
            }
        }
        self.reconsider.insert(shard.clone());
        self.take_in(Source::Mine, &Key::Shard(shard.clone()), (!removed).then_some(&stored));
        if write.base.is_some() {
            // What it replaced was from this incarnation, so this is too.
            self.mirror.vouch(shard, &version);
        }
    }

    /// The store failed: acquiring pauses, for a second at most. Renewals have their own pace.
    pub(super) fn pause_after_failure(&mut self) {
        let pause = self.config.retry.pause(self.store_failures);
        self.store_failures = self.store_failures.saturating_add(1);
        let until = self.now.at + pause + self.chance.up_to(pause / 4);
        self.acquire_paused_until = until;
        if self.list_at == Moment::NEVER || self.session.is_none() {
            self.list_at = self.list_at.min(until);
        }
        self.settle_at = self.settle_at.min(until);
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Settling {
    /// A swap was lost: nothing of that request can land any more.
    Lost,
    /// A read after an unknown outcome.
    ReadBack,
}
