//! What is written into shard records: claims, releases, repairs, and first records of named shards.

use super::Node;
use super::assertions::Never;
use super::context::Context;
use super::hold::{Hold, Phase, Started};
use super::holds::Holds;
use super::leaving::{Departure, is_drained_by_operators};
use super::namespace::Namespace;
use super::offer::Offer;
use super::outbox::Outbox;
use super::pace::Pace;
use super::planner::Planner;
use super::requests::{Ask, Purpose, Requests};
use super::session::Session;
use crate::event::StopReason;
use crate::mirror::Mirror;
use crate::name::{Epoch, SessionId, ShardId, WriteId};
use crate::record::{FORMAT, Holder, MoveReason, Record, ShardRecord, ShardSet, ShardState, WorkState};
use crate::rules::Rule;
use crate::store::{Key, Op, Swap, Version};

/// A write of a shard's record that is not known to have landed.
#[derive(Debug)]
pub(super) struct Write {
    pub(super) kind: WriteKind,
    pub(super) record: ShardRecord,
    /// The version that it replaces.
    pub(super) base: Option<Version>,
    /// Of a claim: what that version was.
    pub(super) replaces: Replaces,
    /// Its tries. Each may have landed, at most one can.
    pub(super) tries: Vec<WriteId>,
    pub(super) stage: WriteStage,
}

impl Write {
    pub(super) fn new(kind: WriteKind, base: Option<Version>, record: ShardRecord) -> Self {
        Write { kind, record, base, replaces: Replaces::Other, tries: Vec::new(), stage: WriteStage::Waiting }
    }
}

/// What a claim replaces, which decides what is looked at before the work starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Replaces {
    /// What the last holder gave up, or our own record: nobody else can be running the shard.
    Release,
    /// No record that anybody has ever held, as far as we know.
    Nothing,
    /// A record that was deleted or damaged: its epochs are not known.
    Lost,
    /// Anything else: the record of a session that is over, or a claim of ours whose answer was lost.
    Other,
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
pub(super) enum WriteStage {
    Waiting,
    Sent,
    Unknown,
}

/// Writes that go out in one request.
#[derive(Default)]
struct Batch {
    swaps: Vec<Swap>,
    /// What each of them writes, and its id.
    sent: Vec<(ShardId, WriteId)>,
    /// Shards whose record is not what it was when their claim was made.
    outdated: Vec<ShardId>,
}

impl Outbox {
    /// The next writes to send, as many as one request can have.
    fn next_batch(
        &mut self,
        holds: &mut Holds,
        session: &Session,
        mirror: &Mirror,
        ctx: &mut Context,
    ) -> Batch {
        let mut batch = Batch::default();
        while batch.swaps.len() < ctx.facts.swaps_max.max(1)
            && let Some(shard) = self.next()
        {
            let id = ctx.write_id();
            let unix_ms = ctx.now.unix_ms;
            let keeps = ctx.rules.hold(Rule::RecordsStay);
            let Some(write) = holds.get_mut(&shard).and_then(|hold| hold.write_mut()) else {
                continue;
            };
            if write.stage == WriteStage::Sent {
                continue;
            }
            let known = mirror.shards().get(&shard).map(|seen| &seen.version);
            if write.kind == WriteKind::Claim && write.tries.is_empty() && known != write.base.as_ref() {
                // It waited for its turn, and the record is not what it was.
                batch.outdated.push(shard);
                continue;
            }
            let announced = session.has_announced(&shard) || !ctx.rules.hold(Rule::PublishedBeforeTrust);
            if write.replaces == Replaces::Release && write.tries.is_empty() && !announced {
                // Only a session that had published the shard before relies on a release: otherwise another one may
                // have looked in between, and not seen us.
                write.replaces = Replaces::Other;
            }
            write.stage = WriteStage::Sent;
            write.tries.push(id);
            write.record.write = id;
            write.record.written_unix_ms = unix_ms;
            let removes = write.kind == WriteKind::Release && !keeps;
            let value = (!removes).then(|| write.record.encode().into());
            batch.swaps.push(Swap { key: Key::Shard(shard.clone()), expect: write.base.clone(), value });
            batch.sent.push((shard, id));
        }
        batch
    }

    /// Forgets a claim that was not sent, because the plan gives the shard to another node; `false` if it may have been sent, or
    /// if it counts whatever the plan says.
    pub(super) fn drop_unsent_claim(&mut self, shard: &ShardId, holds: &mut Holds) -> bool {
        let Some(write) = holds.get(shard).and_then(|hold| hold.write()) else { return false };
        let unsent = write.stage == WriteStage::Waiting && write.tries.is_empty() && self.contains(shard);
        let planned = write.kind == WriteKind::Claim && write.record.why != MoveReason::Takeover;
        if !unsent || !planned {
            return false;
        }
        self.remove(shard);
        holds.remove(shard);
        true
    }

    /// Whether records of shards wait to be written until the store has answered others.
    pub(super) fn is_behind(&self, requests: &Requests, pace: &Pace) -> bool {
        !self.is_empty() && pace.is_full(requests)
    }
}

impl Pace {
    /// Whether as many requests with shard writes are under way as may be at once.
    fn is_full(&self, requests: &Requests) -> bool {
        requests.count(|purpose| matches!(purpose, Purpose::Shards(_))) >= self.requests_at_once()
    }
}

/// What the records of shards should say.
pub(super) struct Drafts<'a> {
    mirror: &'a Mirror,
    namespace: &'a Namespace,
    planner: &'a Planner,
    offer: &'a Offer,
    departure: &'a Departure,
    /// Our session.
    session: Option<SessionId>,
    ctx: &'a Context,
}

impl Drafts<'_> {
    /// The record of a shard with this in it, and with what else its record has that we do not know.
    fn shard_record(
        &self,
        shard: &ShardId,
        epoch: Epoch,
        state: ShardState,
        work: WorkState,
        why: MoveReason,
    ) -> ShardRecord {
        let extra = self.mirror.shard_record(shard).map(|record| record.extra.clone());
        ShardRecord {
            format: FORMAT,
            write: WriteId::from_bits(0),
            shard: shard.clone(),
            epoch,
            state,
            work,
            why,
            written_unix_ms: 0,
            extra: extra.unwrap_or_default(),
        }
    }

    /// The record of a claim: our name, and an epoch above all earlier ones.
    pub(super) fn claim_record(&self, shard: &ShardId, above: Epoch, why: MoveReason) -> ShardRecord {
        let group_floor = self.planner.epoch_floor(&shard.group);
        let meta_floor = self.namespace.epoch_floor();
        let epoch = match self.ctx.rules.hold(Rule::EpochRises) {
            true => above.next_above([group_floor, meta_floor]),
            false => above.max(Epoch(1)),
        };
        let session = self.session.expect("only a node with a session claims");
        let holder = Holder { node: self.ctx.me(), session, ttl_ms: self.ctx.config.ttl.as_millis() as u64 };
        let pardoned = self.mirror.control().and_then(|control| control.unquarantine.get(shard)).copied();
        let seen = self.mirror.shard_record(shard);
        let kept =
            seen.filter(|record| pardoned < Some(record.epoch)).map_or(WorkState::Runs, |record| record.work);
        let work = self.planner.on_end(shard).map_or(kept, |(failure, finish)| kept.under(failure, finish));
        self.shard_record(shard, epoch, ShardState::Held { holder }, work, why)
    }

    /// What the record of a shard says that we give up.
    fn vacated_state(&self, shard: &ShardId, why: Option<StopReason>) -> (ShardState, MoveReason) {
        let settings = self.planner.group(&shard.group);
        if why == Some(StopReason::Disengaged) {
            let named = settings.is_some_and(|group| group.set == ShardSet::Named);
            let smaller = settings.is_some() && !self.planner.plan().has(shard);
            if named || smaller {
                return (ShardState::Retired, MoveReason::Disengaged);
            }
        }
        let grace = settings.map_or(0, |group| group.policy.restart_grace_ms);
        if self.departure.returns_soon() && grace > 0 && !is_drained_by_operators(self.mirror, self.ctx) {
            let state = ShardState::Vacant { successor: Some(self.ctx.me()), reserved_ms: Some(grace) };
            return (state, MoveReason::Restart);
        }
        let successor = self.planner.plan().wanted(shard).filter(|node| !self.ctx.is_me(node)).cloned();
        let reason = match why {
            Some(StopReason::Operator) => MoveReason::Operator,
            Some(StopReason::SteppedDown) => MoveReason::SteppedDown,
            Some(StopReason::Failed) => MoveReason::Quarantined,
            Some(StopReason::Moving) => MoveReason::Rebalance,
            Some(StopReason::Disengaged) => MoveReason::Disengaged,
            _ if self.departure.hands_over(self.offer, self.mirror, self.ctx)
                || is_drained_by_operators(self.mirror, self.ctx) =>
            {
                MoveReason::Drain
            }
            _ => MoveReason::Rebalance,
        };
        (ShardState::Vacant { successor, reserved_ms: None }, reason)
    }
}

impl Node {
    /// What the records of shards should say.
    pub(super) fn drafts(&self) -> Drafts<'_> {
        Drafts {
            mirror: &self.mirror,
            namespace: &self.namespace,
            planner: &self.planner,
            offer: &self.offer,
            departure: &self.departure,
            session: self.session_id(),
            ctx: &self.ctx,
        }
    }

    pub(super) fn claim(&mut self, shard: &ShardId, base: Option<Version>, above: Epoch, why: MoveReason) {
        let seen = self.mirror.shards().get(shard).map(|seen| seen.good());
        let replaces = match seen {
            Some(Some(record)) if record.is_release() => Replaces::Release,
            Some(Some(record)) if record.why == MoveReason::Engaged => Replaces::Nothing,
            Some(Some(_)) => Replaces::Other,
            None if !self.planner.had_record(shard, self.others()) => Replaces::Nothing,
            None | Some(None) => Replaces::Lost,
        };
        let record = self.drafts().claim_record(shard, above, why);
        let write = Write { replaces, ..Write::new(WriteKind::Claim, base, record) };
        if !self.hold(shard, Hold::writing(Phase::Claiming, write)) {
            return;
        }
        self.outbox.add(shard);
        self.holds.publish(shard, self.session.as_ref(), &mut self.ctx);
    }

    /// Claims a shard that we hold once more, at a higher epoch, so that its work can start again.
    pub(super) fn claim_again(&mut self, shard: &ShardId, why: MoveReason) {
        let Some(hold) = self.holds.get(shard) else { return };
        self.claim_above(shard, hold.epoch(), why);
    }

    /// The same, at an epoch above this one.
    pub(super) fn claim_above(&mut self, shard: &ShardId, above: Epoch, why: MoveReason) {
        let Some(hold) = self.holds.get(shard) else { return };
        if hold.write().is_some() {
            return;
        }
        let (above, base, work) = (above.max(hold.epoch()), hold.version().cloned(), hold.work());
        let mut record = self.drafts().claim_record(shard, above, why);
        record.work = work;
        if let Some(hold) = self.holds.get_mut(shard) {
            let replaces = Replaces::Release;
            hold.claim(Write { replaces, ..Write::new(WriteKind::Claim, base, record) });
        }
        self.outbox.add(shard);
        self.holds.publish(shard, self.session.as_ref(), &mut self.ctx);
    }

    /// Gives a shard up. Nothing of it runs any more.
    pub(super) fn begin_release(&mut self, shard: &ShardId, why: Option<StopReason>) {
        let runs = self.holds.get(shard).is_some_and(Hold::has_work);
        if !self.assert_that(!runs, Never::ReleaseWhileWorkRuns) {
            return;
        }
        let Some(hold) = self.holds.get(shard) else { return };
        if matches!(hold.write(), Some(Write { kind: WriteKind::Rewrite, .. })) {
            // Its outcome must be known first: the answer brings us back here.
            self.holds.stopped(shard, why);
            self.moves.remove(shard);
            return;
        }
        let (epoch, base, work) = (hold.epoch(), hold.version().cloned(), hold.work());
        let moving = why == Some(StopReason::Moving);
        let started = hold.started();
        let (state, mut why) = self.drafts().vacated_state(shard, why);
        if started == Started::No && self.ctx.rules.hold(Rule::UnstartedIsNoRelease) {
            // Nobody checked whether another node runs it: the next node that claims it must.
            why = MoveReason::Unstarted;
        }
        if let ShardState::Vacant { successor: Some(to), .. } = &state
            && moving
        {
            self.moves.give_up_for(shard, to.clone(), epoch);
        }
        let record = self.drafts().shard_record(shard, epoch, state, work, why);
        if let Some(hold) = self.holds.get_mut(shard) {
            hold.release(Write::new(WriteKind::Release, base, record));
        }
        self.moves.remove(shard);
        self.outbox.add(shard);
    }

    /// Releases a shard whose record names us although we do not run it.
    pub(super) fn give_up_unrun(&mut self, shard: &ShardId) {
        let Some(seen) = self.mirror.shards().get(shard) else { return };
        let Some(record) = seen.good() else { return };
        let (base, epoch, work) = (Some(seen.version.clone()), record.epoch, record.work);
        let (state, why) = self.drafts().vacated_state(shard, None);
        let why = if self.ctx.rules.hold(Rule::UnstartedIsNoRelease) { MoveReason::Unstarted } else { why };
        let record = self.drafts().shard_record(shard, epoch, state, work, why);
        let write = Write::new(WriteKind::Release, base, record);
        if !self.hold(shard, Hold::writing(Phase::Releasing, write)) {
            return;
        }
        self.outbox.add(shard);
    }

    /// Writes the record of a shard that we hold again: it was damaged, or something in it changed.
    pub(super) fn rewrite(&mut self, shard: &ShardId, why: MoveReason) {
        let Some(session) = self.session_id() else { return };
        let (me, ttl_ms) = (self.ctx.me(), self.ctx.config.ttl.as_millis() as u64);
        let Some(hold) = self.holds.get(shard) else { return };
        if hold.write().is_some() {
            return;
        }
        let state = ShardState::Held { holder: crate::record::Holder { node: me, session, ttl_ms } };
        let record = self.drafts().shard_record(shard, hold.epoch(), state, hold.work(), why);
        if let Some(hold) = self.holds.get_mut(shard) {
            hold.rewrite(Write::new(WriteKind::Rewrite, hold.version().cloned(), record));
        }
        self.outbox.add(shard);
    }

    /// A named shard that was engaged here needs a record; `true` if it is being made.
    pub(super) fn create_if_missing(&mut self, shard: &ShardId) -> bool {
        let named = self.planner.is_named(&shard.group);
        let seen = self.mirror.shards().get(shard);
        let (base, epoch) = match seen {
            None => {
                let others = self.others();
                match self.planner.had_record(shard, others) {
                    true => (None, self.publishing.unknown_epoch(shard, others)),
                    false => (None, self.publishing.first_epoch(shard, others)),
                }
            }
            Some(seen) => match seen.good() {
                Some(record) if record.state == ShardState::Retired => {
                    (Some(seen.version.clone()), record.epoch)
                }
                _ => return false,
            },
        };
        if !named || !self.namespace.is_open() {
            return false;
        }
        if self.ctx.now.at < self.pace.paused_until() {
            self.ctx.agenda.wake_at(shard, self.pace.paused_until());
            return true;
        }
        let others = self.others();
        if base.is_none() && (others.is_withheld(shard) || others.accounted_for_at(shard).is_some()) {
            let silent_at = others.next_silent_at(shard);
            self.publishing.wait_while_withheld(shard, silent_at, &mut self.ctx);
            return true;
        }
        let group_floor = self.planner.epoch_floor(&shard.group);
        let meta_floor = self.namespace.epoch_floor();
        let epoch = epoch.max(group_floor).max(meta_floor);
        let state = ShardState::Vacant { successor: None, reserved_ms: None };
        let record = self.drafts().shard_record(shard, epoch, state, WorkState::Runs, MoveReason::Engaged);
        let write = Write::new(WriteKind::Create, base, record);
        if !self.hold(shard, Hold::writing(Phase::Releasing, write)) {
            return true;
        }
        self.outbox.add(shard);
        true
    }

    /// A named shard that has been vacant for long, although a node that has it engaged would have taken it.
    pub(super) fn retire_if_nobody_has_it(&mut self, shard: &ShardId) {
        let Some(seen) = self.mirror.shards().get(shard) else { return };
        let Some(record) = seen.good() else { return };
        let vacant = matches!(record.state, ShardState::Vacant { .. });
        let young = self.ctx.now.at < seen.first_seen_at + self.ctx.config.ttl * 2;
        if !vacant || young || self.pace.is_full(&self.requests) {
            return;
        }
        let Some(seen) = self.mirror.shards().get(shard) else { return };
        let Some(record) = seen.good() else { return };
        let (base, epoch) = (Some(seen.version.clone()), record.epoch);
        let record = self.drafts().shard_record(
            shard,
            epoch,
            ShardState::Retired,
            WorkState::Runs,
            MoveReason::Disengaged,
        );
        let write = Write::new(WriteKind::Create, base, record);
        if !self.hold(shard, Hold::writing(Phase::Releasing, write)) {
            return;
        }
        self.outbox.add(shard);
    }

    pub(super) fn send_writes(&mut self) {
        let mut outdated = Vec::new();
        while !self.outbox.is_empty() && !self.pace.is_full(&self.requests) {
            let Some(session) = &self.session else { break };
            let batch = self.outbox.next_batch(&mut self.holds, session, &self.mirror, &mut self.ctx);
            outdated.extend(batch.outdated);
            if !batch.swaps.is_empty() {
                self.ask(Ask::work(Op::Swap(batch.swaps), Purpose::Shards(batch.sent)));
            }
        }
        for shard in outdated {
            self.holds.remove(&shard);
            self.ctx.agenda.wake_at(&shard, self.ctx.now.at);
        }
    }
}
