//! What became of a write, and what follows from that.
//!
//! Unknown is an outcome. A write that got no answer may have landed, or may yet land. Reading back shows our write
//! (applied), another version than the one that it replaces (it never will), or that same version: still unknown, until a
//! swap of that version succeeds.

use super::Node;
use super::context::Context;
use super::hold::Phase;
use super::holds::Holds;
use super::outbox::Outbox;
use super::publishing::{Check, claim_seen};
use super::requests::{Ask, Purpose, Requests, Sent};
use super::timers::Timer;
use super::writes::{Replaces, WriteKind, WriteStage};
use crate::mirror::Source;
use crate::name::{ShardId, WriteId};
use crate::notice::Notice;
use crate::record::{Record, ShardRecord, ShardState};
use crate::rules::Rule;
use crate::store::{Key, Stored, Swapped, Version};

/// How many shards one read looks at.
pub(super) const LOOK_MAX: usize = 256;

impl Ask {
    /// Looks at the records of shards, as many as one read can.
    pub(super) fn look_at(mut shards: Vec<ShardId>) -> Self {
        shards.truncate(LOOK_MAX);
        let mut keys: Vec<Key> = shards.iter().cloned().map(Key::Shard).collect();
        keys.push(Key::Meta);
        Ask::read(keys, Purpose::Look(shards))
    }
}

impl Outbox {
    /// Reads back what became of writes of unknown outcome, and looks at what may not be ours any more.
    pub(super) fn read_back(&mut self, holds: &Holds, requests: &Requests, ctx: &mut Context) -> Option<Ask> {
        ctx.agenda.add_everything();
        let unknown = holds
            .iter()
            .filter(|(_, hold)| hold.write().is_some_and(|write| write.stage == WriteStage::Unknown));
        let mut shards: Vec<ShardId> = unknown.map(|(shard, _)| shard.clone()).collect();
        shards.extend(self.take_doubtful());
        shards.dedup();
        if shards.is_empty() {
            return None;
        }
        if requests.any(|purpose| matches!(purpose, Purpose::Look(_))) {
            ctx.timers.set(Timer::ReadBack, ctx.now.at + ctx.config.try_timeout);
            return None;
        }
        if shards.len() > LOOK_MAX {
            ctx.timers.set(Timer::ReadBack, ctx.now.at + ctx.config.try_timeout / 4);
        }
        Some(Ask::look_at(shards))
    }
}

impl Node {
    pub(super) fn on_shard_swapped(&mut self, shard: &ShardId, id: WriteId, outcome: Swapped) {
        let Some(write) = self.holds.get_mut(shard).and_then(|hold| hold.write_mut()) else { return };
        if !write.tries.contains(&id) {
            return;
        }
        match outcome {
            Swapped::Applied(version) => self.landed(shard, id, version),
            Swapped::Lost(current) => self.decide_outcome(shard, current.as_ref(), Evidence::Lost),
            Swapped::Unknown if !self.ctx.rules.hold(Rule::UnknownIsResolved) => {
                self.landed(shard, id, Version::new("assumed"));
            }
            Swapped::Unknown => {
                write.stage = WriteStage::Unknown;
                let pause = self.ctx.config.retry.pause(self.pace.failures());
                self.ctx.timers.set_earlier(Timer::ReadBack, self.ctx.now.at + pause);
            }
        }
    }

    pub(super) fn on_looked(&mut self, shards: &[ShardId], sent: &Sent, found: &[Option<Stored>]) {
        for (shard, stored) in shards.iter().zip(found) {
            let write = self.holds.get(shard).and_then(|hold| hold.write());
            match write.map(|write| write.stage) {
                Some(WriteStage::Unknown) => self.decide_outcome(shard, stored.as_ref(), Evidence::ReadBack),
                Some(_) => {}
                None => {
                    self.check_held(Source::Fresh(sent.issued), shard);
                    if let Some(stored) = stored {
                        claim_seen(&mut self.holds, shard, &stored.version, sent.issued);
                    }
                }
            }
            self.ctx.agenda.add(shard.clone());
        }
        if self.outbox.has_doubts() {
            self.ctx.timers.set(Timer::ReadBack, self.ctx.now.at);
        }
    }

    /// Decides what became of a write by what is in the store.
    fn decide_outcome(&mut self, shard: &ShardId, current: Option<&Stored>, evidence: Evidence) {
        let Some(write) = self.holds.get_mut(shard).and_then(|hold| hold.write_mut()) else { return };
        #[cfg(feature = "sabotage")]
        if evidence == Evidence::ReadBack && !self.ctx.rules.hold(Rule::NoBlindRetry) {
            return self.outbox.retry_blindly(shard, current, &mut self.holds);
        }
        let record = current.and_then(|stored| ShardRecord::decode(&stored.value).ok());
        if let (Some(stored), Some(record)) = (current, &record)
            && write.tries.contains(&record.write)
        {
            return self.landed(shard, record.write, stored.version.clone());
        }
        let unchanged = current.map(|stored| &stored.version) == write.base.as_ref();
        if evidence == Evidence::ReadBack && unchanged && self.ctx.rules.hold(Rule::UnchangedIsUnknown) {
            // It may still be under way. A new try on the same version decides it: at most one of them can land.
            write.stage = WriteStage::Waiting;
            self.outbox.add(shard);
            return;
        }
        #[cfg(feature = "sabotage")]
        if evidence == Evidence::ReadBack && unchanged && write.kind == WriteKind::Release {
            return self.holds.run_on(shard, &mut self.ctx);
        }
        self.write_lost(shard);
    }

    /// The watch or a listing may show our own write before its answer comes, or instead of it.
    pub(super) fn outcome_seen(&mut self, source: Source, shard: &ShardId) {
        let Some(write) = self.holds.get(shard).and_then(|hold| hold.write()) else { return };
        let Some(seen) = self.mirror.shards().get(shard) else { return };
        let shown = seen.good().map(|record| record.write).filter(|id| write.tries.contains(id));
        let holder = seen.good().and_then(|record| record.holder()).map(|holder| holder.session);
        let foreign = holder.is_some_and(|session| Some(session) != self.session_id());
        if write.kind == WriteKind::Claim && foreign && write.base.as_ref() != Some(&seen.version) {
            // Another node was quicker. Our claim can no longer land, and a node that waits for us need not wait for its answer.
            return self.write_lost(shard);
        }
        let settles = source != Source::Watch || !self.ctx.rules.hold(Rule::WatchSettlesNoClaim);
        if shown.is_some() && !settles && write.kind == WriteKind::Claim {
            // The watch may be late, and the record gone since: the answer tells, or a look at it.
            if write.stage == WriteStage::Unknown {
                self.ctx.timers.set(Timer::ReadBack, self.ctx.now.at);
            }
        } else if let Some(id) = shown {
            let version = seen.version.clone();
            self.landed(shard, id, version);
        }
    }

    fn write_lost(&mut self, shard: &ShardId) {
        let Some(hold) = self.holds.get_mut(shard) else { return };
        let Some(write) = hold.take_write() else { return };
        if write.kind == WriteKind::Claim && (write.stage == WriteStage::Unknown || write.tries.len() > 1) {
            self.pace.claim_hung(&mut self.ctx);
        }
        match write.kind {
            WriteKind::Claim | WriteKind::Release | WriteKind::Create => {
                self.holds.give_back(shard, self.session.as_ref(), &self.mirror, &mut self.ctx);
                self.vacancies.restart(shard);
            }
            WriteKind::Rewrite => self.check_held(Source::Fresh(0), shard),
        }
        self.ctx.agenda.add(shard.clone());
    }

    fn landed(&mut self, shard: &ShardId, id: WriteId, version: Version) {
        let Some(hold) = self.holds.get_mut(shard) else { return };
        let Some(mut write) = hold.take_write() else { return };
        write.record.write = id;
        let removed = write.kind == WriteKind::Release && !self.ctx.rules.hold(Rule::RecordsStay);
        let stored = Stored { version: version.clone(), value: write.record.encode().into() };
        match write.kind {
            WriteKind::Claim => {
                let late = write.stage == WriteStage::Unknown || write.tries.len() > 1;
                let check = Check::after(match write.replaces {
                    // It may have been under way for long, and another node may have had the shard meanwhile.
                    Replaces::Nothing if late => Replaces::Lost,
                    replaces => replaces,
                });
                let epoch = write.record.epoch;
                hold.claimed(version, epoch, check, write.record.why);
                self.publishing.note_epoch(&shard.group, epoch);
                self.pace.claim_landed(&mut self.ctx);
                self.moves.claim_landed(self.ctx.now.at);
            }
            WriteKind::Rewrite => {
                hold.set_version(Some(version));
                if let Phase::Stopping { .. } | Phase::Resting { .. } = hold.phase() {
                    self.ctx.agenda.add(shard.clone());
                }
            }
            WriteKind::Release => {
                self.holds.remove(shard);
                self.ctx.timers.set(Timer::Surplus, self.ctx.now.at);
                self.ctx.agenda.extend(self.vacancies.take_roomless());
                let successor = match &write.record.state {
                    ShardState::Vacant { successor, .. } => successor.clone(),
                    _ => None,
                };
                let (epoch, why) = (write.record.epoch, write.record.why);
                self.ctx.tell(Notice::Released { shard: shard.clone(), epoch, why, successor });
            }
            WriteKind::Create => {
                self.holds.remove(shard);
            }
        }
        self.ctx.agenda.add(shard.clone());
        self.take_in(Source::Mine, &Key::Shard(shard.clone()), (!removed).then_some(&stored));
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Evidence {
    /// A swap was lost: nothing of that request can land any more.
    Lost,
    /// A read after an unknown outcome.
    ReadBack,
}
