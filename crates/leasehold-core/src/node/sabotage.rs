//! What a wrong design would do. Each function stands behind the gate of one rule (`self.ctx.rules.hold(Rule::…)`), and only a
//! build with the feature `sabotage` has them: tests switch a rule off and must notice.

use super::Node;
use super::context::Context;
use super::holds::Holds;
use super::outbox::Outbox;
use super::requests::{Ask, Purpose, Sent};
use super::writes::WriteStage;
use crate::event::{Action, Deadlines, StopReason};
use crate::name::{Epoch, NodeName, SessionId, ShardId};
use crate::record::{GroupRecord, NodeRecord, NodeState, Record};
use crate::rules::Rule;
use crate::store::{Key, Lane, StoreError, StoreErrorKind, Stored, Swap, Swapped, Version};
use crate::time::Moment;

/// What only a wrong design would remember.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// The last group's record that was written.
    group: Option<GroupRecord>,
}

impl Memory {
    pub(super) fn note_group(&mut self, record: &GroupRecord) {
        self.group = Some(record.clone());
    }
}

impl Node {
    /// Switches safety rules off, to show that tests notice.
    pub fn set_rules(&mut self, rules: crate::rules::Rules) {
        self.planner.obey(&rules);
        self.ctx.rules = rules;
    }

    /// `NoRenewalWhenDetached`: renews a session that is lost, which keeps everybody else out.
    pub(super) fn renew_what_is_over(&mut self, session: SessionId, version: Version) {
        let seen = self.mirror.nodes().get(&self.ctx.config.node).and_then(|node| node.seen.as_ref());
        let Some(record) = seen.and_then(|seen| seen.good()) else { return };
        if self.ctx.now.unix_ms < record.written_unix_ms + self.ctx.config.renew_every.as_millis() as u64 {
            return;
        }
        let seq = record.seq + 1;
        let write = self.ctx.write_id();
        let record = self.node_record(write, session, seq, NodeState::Active);
        let value = Some(record.encode().into());
        let swap = Swap { key: Key::Node(self.ctx.me()), expect: Some(version), value };
        self.ask(Ask::swap(Lane::Renewal, swap, Purpose::Group));
    }

    /// `NoForeignClocks`: judges others by the time in their records.
    pub(super) fn distrust_clocks(&mut self) {
        if self.ctx.rules.hold(Rule::NoForeignClocks) {
            return;
        }
        let names: Vec<NodeName> = self.mirror.nodes().keys().cloned().collect();
        for name in names {
            let suspected = self.fencing.suspect(&name, self.session_id(), self.others()).is_some();
            let record = self.mirror.node_record(&name).filter(|_| suspected);
            let over = |record: &NodeRecord| self.ctx.now.unix_ms > record.written_unix_ms + record.ttl_ms;
            if record.is_some_and(over) {
                self.fence(&name, self.ctx.now.at);
            }
        }
    }

    /// `StopBeforeRelease`: releases a shard whose work still runs.
    pub(super) fn release_while_it_runs(&mut self, shard: &ShardId, epoch: Epoch, why: StopReason) {
        self.begin_release(shard, Some(why));
        if self.holds.contains(shard) {
            self.holds.orphan(shard, epoch);
        }
    }

    /// `GateAsksAgain`: sends the claim that was made before the gate was asked.
    pub(super) fn claim_as_asked(&mut self, shard: &ShardId) {
        let Some(hold) = self.holds.get_mut(shard) else { return };
        let Some(write) = hold.take_write() else { return };
        hold.claim(write);
        self.outbox.add(shard);
        self.holds.publish(shard, self.session.as_ref(), &mut self.ctx);
    }

    /// `FullStoreRenewsNothing`: goes on while the store is full, because nobody can take over then.
    pub(super) fn go_on_while_full(&mut self, sent: &Sent, error: &StoreError) {
        let full = error.kind == StoreErrorKind::Refused && error.message.contains("no space");
        if !full || self.ctx.rules.hold(Rule::FullStoreRenewsNothing) {
            return;
        }
        if let (Purpose::Renew(write), Some(session)) = (&sent.purpose, &mut self.session) {
            session.believe(*write, &mut self.ctx);
        }
    }

    /// `GroupWriteIsASwap`: writes a group's record once more, over what another has just written; `true` if it does.
    pub(super) fn write_group_over(&mut self, outcomes: &[Swapped]) -> bool {
        let [Swapped::Lost(Some(there))] = outcomes else { return false };
        let Some(record) = self.ctx.memory.group.clone() else { return false };
        if self.ctx.rules.hold(Rule::GroupWriteIsASwap) {
            return false;
        }
        let ask = Ask::write_group(record, Some(there.version.clone()), &mut self.ctx);
        self.ask(ask);
        true
    }

    /// `FenceBeforeTakeover`: takes a silent session for dead without saying so in its record.
    pub(super) fn take_for_dead(&mut self, session: SessionId) {
        self.mirror.note_over(self.ctx.now.at, session);
        self.planner.replan_soon(&mut self.freeze, &mut self.ctx);
        self.ctx.agenda.add_everything();
    }
}

/// `LostIsForEver`: a session that goes on although its work was told that the grants are lost.
#[derive(Debug, Default)]
pub(super) struct LostGrants {
    told: bool,
}

impl LostGrants {
    /// Waits for a late confirmation of a session whose grants are lost already; `true` if it does.
    pub(super) fn revive(&mut self, deadlines: &Deadlines, ctx: &mut Context) -> bool {
        if ctx.rules.hold(Rule::LostIsForEver) || ctx.now.at >= deadlines.valid_until {
            return false;
        }
        if !std::mem::replace(&mut self.told, true) {
            ctx.out.push(Action::Lose);
        }
        true
    }

    /// The late confirmation came.
    pub(super) fn revived(&mut self) {
        self.told = false;
    }

    /// When the session is given up, if that is not at `stop_at`.
    pub(super) fn over_at(&self, deadlines: &Deadlines) -> Option<Moment> {
        self.told.then_some(deadlines.valid_until)
    }
}

impl Holds {
    /// `UnchangedIsUnknown`: a release that is not seen yet has failed, so the shard is still ours and goes on as it was.
    pub(super) fn run_on(&mut self, shard: &ShardId, ctx: &mut Context) {
        let Some(hold) = self.get_mut(shard) else { return };
        hold.take_write();
        hold.run(hold.started_at());
        let epoch = hold.epoch();
        ctx.out.push(Action::Start { shard: shard.clone(), epoch });
    }
}

impl Outbox {
    /// `NoBlindRetry`: writes the same once more, over whatever is there now.
    pub(super) fn retry_blindly(&mut self, shard: &ShardId, current: Option<&Stored>, holds: &mut Holds) {
        let Some(write) = holds.get_mut(shard).and_then(|hold| hold.write_mut()) else { return };
        write.base = current.map(|stored| stored.version.clone());
        write.stage = WriteStage::Waiting;
        self.add(shard);
    }
}
