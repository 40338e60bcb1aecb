//! What a wrong design would do. Each function stands behind the gate of one rule (`self.ctx.rules.hold(Rule::…)`), and only a
//! build with the feature `sabotage` has them: tests switch a rule off and must notice.

use super::Node;
use super::context::Context;
use super::holds::Holds;
use super::outbox::Outbox;
use super::requests::{Ask, Purpose};
use super::writes::WriteStage;
use crate::event::{Action, Deadlines, StopReason};
use crate::name::{Epoch, NodeName, SessionId, ShardId};
use crate::record::{NodeRecord, NodeState, Record};
use crate::rules::Rule;
use crate::store::{Key, Lane, Stored, Swap, Version};
use crate::time::Moment;

impl Node {
    /// Switches safety rules off, to show that tests notice.
    pub fn set_rules(&mut self, rules: crate::rules::Rules) {
        self.planner.obey(&rules);
        self.ctx.rules = rules;
    }

    /// `NoRenewalWhenDetached`: renews a session that is lost, which keeps everybody else out.
    pub(super) fn renew_what_is_over(&mut self, session: SessionId, version: Version) {
        let seen = self.mirror.nodes.get(&self.ctx.config.node).and_then(|node| node.seen.as_ref());
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
        let names: Vec<NodeName> = self.mirror.nodes.keys().cloned().collect();
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
