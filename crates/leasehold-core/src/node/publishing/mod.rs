//! Publish before start: which shards this session says that it may be running, and whether a claimed shard may start.
//!
//! A node's record publishes what it holds, is claiming or is planned to take, and nothing starts before a renewal that
//! carries it has landed. A node that claimed a record that was not a release then reads all node records and `meta`, and
//! starts only if no other live session publishes the shard. Of two that claim one shard, because its record was deleted
//! in between, the later to publish sees the other. GUARANTEES, "At most one holder".

mod clearing;
mod others;

use std::collections::{BTreeMap, BTreeSet};

use super::context::Context;
use super::hold::{Hold, Phase};
use super::holds::Holds;
use super::life::Life;
use super::planner::Planner;
use super::session::Session;
use super::writes::Replaces;
use crate::mirror::Mirror;
use crate::name::{Epoch, GroupName, SessionId, ShardId};
use crate::notice::SessionState;
use crate::record::{NodeRecord, Published, ShardSet};
use crate::time::Moment;

pub(in crate::node) use clearing::{claim_seen, claims_seen};
pub(in crate::node) use others::Others;

/// The most shards that a record lists as awaited. The next ones follow when these have started.
const AWAITED_MAX: usize = 64;

/// What has been published, and who waits for what.
#[derive(Debug, Default)]
pub(in crate::node) struct Publishing {
    /// The highest epoch held in each group, in all sessions of this process.
    epochs: BTreeMap<GroupName, Epoch>,
    /// Decides how long lists of names are hashed. Another one, if a hash hits a shard that another node waits for.
    salt: u32,
    /// Claimed shards that wait for a reading of all node records.
    unread: BTreeSet<ShardId>,
    /// Our logical time when the last such reading was issued.
    read_issued: u64,
    /// Claimed shards whose records must be read once more before they start.
    unconfirmed: BTreeSet<ShardId>,
    /// Claimed shards that another session publishes.
    awaited: BTreeSet<ShardId>,
    /// Shards that are not claimed while another session holds them, whatever their record says.
    withheld: BTreeSet<ShardId>,
}

/// What a claimed shard must still pass before it starts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::node) struct Check {
    /// What the claim replaced; unless it was a release, all node records must be read.
    replaced: Option<Replaces>,
    /// Our logical time when both the claim and its publication were known to have landed.
    ready: Option<u64>,
    /// Another session published it when we last looked.
    blocked: bool,
    /// Our logical time when we had looked and nobody else published it.
    cleared: Option<u64>,
    /// Our logical time when the newest read that showed our claim was issued.
    confirmed: u64,
    /// Sessions that published it when we looked.
    blockers: BTreeSet<SessionId>,
    /// Whether one of them said that it held it.
    was_held: bool,
}

impl Check {
    /// What follows for a claim that replaced this.
    pub(in crate::node) fn after(replaced: Replaces) -> Self {
        Check { replaced: Some(replaced), ..Check::default() }
    }

    /// A read that was issued then showed our claim.
    fn confirm(&mut self, issued: u64) {
        self.confirmed = self.confirmed.max(issued);
    }

    /// Whether nothing but the publication is missing.
    pub(in crate::node) fn trusts_the_record(&self) -> bool {
        self.replaced == Some(Replaces::Release)
    }
}

impl Publishing {
    /// A claim landed at this epoch.
    pub(in crate::node) fn note_epoch(&mut self, group: &GroupName, epoch: Epoch) {
        let highest = self.epochs.entry(group.clone()).or_default();
        *highest = epoch.max(*highest);
    }

    /// The record that a new session replaces may be the only one that tells how high epochs were.
    pub(in crate::node) fn take_over_epochs(&mut self, former: Option<&Published>) {
        for (group, epoch) in former.into_iter().flat_map(Published::epochs) {
            self.note_epoch(group, epoch);
        }
    }

    /// All node records were read, by a request that was issued then, and `meta` after them.
    pub(in crate::node) fn nodes_were_read(&mut self, issued: u64, ctx: &mut Context) {
        self.read_issued = self.read_issued.max(issued);
        ctx.agenda.extend(std::mem::take(&mut self.unread));
    }

    /// The session is over: it waits for nothing any more.
    pub(in crate::node) fn clear(&mut self) {
        let Publishing { epochs, salt, .. } = std::mem::take(self);
        *self = Publishing { epochs, salt, ..Publishing::default() };
    }

    /// What this session may be running.
    pub(in crate::node) fn publication(
        &self,
        holds: &Holds,
        planner: &Planner,
        life: &Life,
        others: Others<'_>,
    ) -> Published {
        let mut published = Published::default();
        let named = |group: &GroupName| planner.group(group).is_none_or(|group| group.set == ShardSet::Named);
        for (group, epoch) in &self.epochs {
            published.group(group).epoch = *epoch;
        }
        let held =
            holds.iter().filter(|(_, hold)| hold.is_published()).map(|(shard, hold)| (shard, Some(hold)));
        let me = &others.ctx.config.node;
        // A recovering node starts nothing yet, and must not keep others from starting.
        let starts =
            matches!(life.state(), SessionState::Joining | SessionState::Attached | SessionState::Degraded);
        let planned = planner.plan().iter().filter(|_| starts);
        let planned = planned.filter(|(shard, to)| *to == Some(me) && !holds.contains(shard));
        let planned = planned
            .map(|(shard, _)| (shard, None))
            .filter(|(shard, _)| !is_awaited_elsewhere(shard, others.mirror, others.ctx));
        for (shard, hold) in held.chain(planned) {
            let group = published.group(&shard.group);
            let next = || others.mirror.shard_record(shard).map(|record| record.epoch.next());
            let epoch = hold.map(|hold| hold.epoch()).or_else(next);
            group.epoch = group.epoch.max(epoch.unwrap_or_default());
            let ours = hold.is_some_and(Hold::is_ours);
            let list = if ours { &mut group.holds } else { &mut group.plans };
            match shard.name.as_slot().filter(|_| !named(&shard.group)) {
                Some(slot) => list.add_slot(slot),
                None => list.add_name(&shard.name),
            }
        }
        published.shorten(self.salt);
        published
    }

    /// Shards that this session has claimed and does not start yet, or may not claim because of a hash, for its record.
    pub(in crate::node) fn awaits(&self, holds: &Holds, others: Others<'_>) -> Vec<ShardId> {
        let claimed = |shard: &&ShardId| {
            holds.get(shard).is_some_and(|hold| matches!(hold.phase(), Phase::Claimed { .. }))
        };
        // A hash that hits a shard by accident stays until its node is told so.
        let hit = self.withheld.iter().filter(|shard| others.is_hit_by_a_hash(shard));
        self.awaited.iter().filter(claimed).chain(hit).take(AWAITED_MAX).cloned().collect()
    }

    /// Another session holds a shard: we come back to it when that may have changed, and when an unclear record is silent.
    pub(in crate::node) fn wait_while_withheld(
        &mut self,
        shard: &ShardId,
        silent_at: Moment,
        ctx: &mut Context,
    ) {
        self.withheld.insert(shard.clone());
        ctx.agenda.wake_at(shard, silent_at);
    }

    /// The highest epoch that anybody published for a group.
    pub(in crate::node) fn epoch_published(&self, group: &GroupName, others: Others<'_>) -> Epoch {
        let ours = self.epochs.get(group).copied().unwrap_or_default();
        others.epoch_published(group).max(ours)
    }

    /// A node's record changed, to this if it can be read: shards that wait for what it publishes are looked at again.
    pub(in crate::node) fn publication_changed(
        &mut self,
        record: Option<&NodeRecord>,
        holds: &Holds,
        session: Option<&Session>,
        ctx: &mut Context,
    ) {
        ctx.agenda.extend(std::mem::take(&mut self.withheld));
        ctx.agenda.extend(self.awaited.iter().cloned());
        // Another node waits for what we publish and do not have: that is taken back at once.
        let Some(record) = record.filter(|record| record.state.is_alive() && !record.awaits.is_empty())
        else {
            return;
        };
        let is_published = |shard: &ShardId| session.is_some_and(|session| session.may_be_published(shard));
        if record.awaits.iter().any(|shard| !holds.contains(shard) && is_published(shard)) {
            ctx.record_changed();
            self.salt = self.salt.wrapping_add(1);
        }
    }
}

impl Holds {
    /// A shard is being claimed: it is published as held before it starts, unless the plan published it already.
    pub(in crate::node) fn publish(&self, shard: &ShardId, session: Option<&Session>, ctx: &mut Context) {
        let epoch = self.get(shard).map(|hold| hold.epoch()).unwrap_or_default();
        if !session.is_some_and(|session| session.publishes(shard, epoch)) {
            ctx.record_changed();
        }
    }

    /// Nothing of a shard is here any more: if another node waits for that, our record says so at once.
    pub(in crate::node) fn give_back(
        &mut self,
        shard: &ShardId,
        session: Option<&Session>,
        mirror: &Mirror,
        ctx: &mut Context,
    ) {
        self.remove(shard);
        if session.is_some_and(|session| session.may_be_published(shard))
            && is_awaited_elsewhere(shard, mirror, ctx)
        {
            ctx.record_changed();
        }
    }
}

/// Whether another live session has claimed a shard and waits for us to say that we do not have it.
fn is_awaited_elsewhere(shard: &ShardId, mirror: &Mirror, ctx: &Context) -> bool {
    mirror.nodes().iter().any(|(name, node)| {
        let record = node.record();
        !ctx.is_me(name)
            && record.is_some_and(|record| record.state.is_alive() && record.awaits.contains(shard))
    })
}
