//! Publish before start: which shards this session says that it may be running, and whether a claimed shard may start.
//!
//! A node's record publishes what it holds, is claiming or is planned to take, and nothing starts before a renewal that
//! carries it has landed. A node that claimed a record that was not a release then reads all node records and `meta`, and
//! starts only if no other live session publishes the shard. Of two that claim one shard, because its record was deleted
//! in between, the later to publish sees the other. GUARANTEES, "At most one holder".

mod clearing;

use std::collections::{BTreeMap, BTreeSet};

use super::Node;
use super::context::Context;
use super::hold::{Hold, Phase};
use super::session::Session;
use super::writes::Replaces;
use crate::config::stretch;
use crate::mirror::{Reach, SeenNode};
use crate::name::{Epoch, GroupName, NodeName, SessionId, ShardId};
use crate::notice::SessionState;
use crate::record::{NodeRecord, Published, ShardSet};
use crate::rules::Rule;
use crate::time::Moment;

pub(in crate::node) use clearing::{claim_seen, claims_seen};

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
}

impl Node {
    /// What this session may be running.
    pub(in crate::node) fn publication(&self) -> Published {
        let mut published = Published::default();
        let named =
            |group: &GroupName| self.planner.group(group).is_none_or(|group| group.set == ShardSet::Named);
        for (group, epoch) in &self.publishing.epochs {
            published.group(group).epoch = *epoch;
        }
        let holds = self
            .holds
            .iter()
            .filter(|(_, hold)| hold.is_published())
            .map(|(shard, hold)| (shard, Some(hold)));
        let me = &self.ctx.config.node;
        // A recovering node starts nothing yet, and must not keep others from starting.
        let starts = matches!(
            self.life.state(),
            SessionState::Joining | SessionState::Attached | SessionState::Degraded
        );
        let planned = self.planner.plan().iter().filter(|_| starts);
        let planned = planned.filter(|(shard, to)| *to == Some(me) && !self.holds.contains(shard));
        let planned =
            planned.map(|(shard, _)| (shard, None)).filter(|(shard, _)| !self.is_awaited_elsewhere(shard));
        for (shard, hold) in holds.chain(planned) {
            let group = published.group(&shard.group);
            let next = || self.mirror.shard_record(shard).map(|record| record.epoch.next());
            let epoch = hold.map(|hold| hold.epoch()).or_else(next);
            group.epoch = group.epoch.max(epoch.unwrap_or_default());
            let held = hold.is_some_and(Hold::is_ours);
            let list = if held { &mut group.holds } else { &mut group.plans };
            match shard.name.as_slot().filter(|_| !named(&shard.group)) {
                Some(slot) => list.add_slot(slot),
                None => list.add_name(&shard.name),
            }
        }
        published.shorten(self.publishing.salt);
        published
    }

    /// Shards that this session has claimed and does not start yet, or may not claim because of a hash, for its record.
    pub(in crate::node) fn awaits(&self) -> Vec<ShardId> {
        let claimed = |shard: &&ShardId| {
            self.holds.get(shard).is_some_and(|hold| matches!(hold.phase(), Phase::Claimed { .. }))
        };
        // A hash that hits a shard by accident stays until its node is told so.
        let hit = self.publishing.withheld.iter().filter(|shard| self.is_hit_by_a_hash(shard));
        self.publishing.awaited.iter().filter(claimed).chain(hit).take(AWAITED_MAX).cloned().collect()
    }

    /// Whether the store is known to publish that this session may run a shard at this epoch, whatever becomes of renewals
    /// under way.
    fn is_published(&self, shard: &ShardId, epoch: Epoch) -> bool {
        self.session.as_ref().is_some_and(|session| session.publishes(shard, epoch))
    }

    /// Whether others can see that this session may start a shard, at whatever epoch.
    pub(in crate::node) fn is_announced(&self, shard: &ShardId) -> bool {
        self.is_published(shard, Epoch(0)) || !self.ctx.rules.hold(Rule::PublishedBeforeTrust)
    }

    /// A shard is being claimed: it is published as held before it starts, unless the plan published it already.
    pub(in crate::node) fn publish(&mut self, shard: &ShardId) {
        let epoch = self.holds.get(shard).map(|hold| hold.epoch()).unwrap_or_default();
        if !self.is_published(shard, epoch) {
            self.ctx.record_changed();
        }
    }

    /// Another session that holds a shard as far as its record says; with [`Reach::Start`], or may start it.
    fn published_elsewhere(&self, shard: &ShardId, reach: Reach) -> Option<&NodeName> {
        let others = self.mirror.nodes.iter().filter(|(name, _)| !self.ctx.is_me(name));
        let may_run = |node: &SeenNode| {
            self.mirror.may_run(node, shard, reach, self.ctx.now.at >= self.silent_at(node))
        };
        others.into_iter().find(|(_, node)| may_run(node)).map(|(name, _)| name)
    }

    /// When nobody can be alive any more in a record that cannot be read, unless it changes; or, in one that can be read, the
    /// former session that its own may live beside: that one could not renew since we first saw the other.
    fn silent_at(&self, node: &SeenNode) -> Moment {
        let readable = node.seen.as_ref().is_some_and(|seen| seen.good().is_some());
        let from = if readable { node.session_seen_at } else { node.silent_from };
        from + stretch(
            self.namespace.ttl_max(&self.ctx.config).max(node.ttl_longest),
            self.ctx.config.drift_permille,
        )
    }

    /// When the next record has been silent for so long that no session can be alive in it, of those that cannot be read or
    /// whose session may live beside a former one.
    fn next_silent_at(&self) -> Option<Moment> {
        let unclear = |node: &&SeenNode| {
            node.seen.as_ref().is_some_and(|seen| seen.good().is_none() || node.lost().is_some())
        };
        let silent_at = self.mirror.nodes.values().filter(unclear).map(|node| self.silent_at(node));
        silent_at.filter(|at| *at > self.ctx.now.at).min()
    }

    /// A shard waits for another's record: it is looked at again when that changes, and when an unclear one is silent.
    fn wait_for_silence(&mut self, shard: &ShardId) {
        if let Some(at) = self.next_silent_at() {
            self.ctx.agenda.wake_at(shard, at);
        }
    }

    /// Whether another live session says that it holds a shard, whatever the shard's own record says. Then nobody claims
    /// it before that session says otherwise or is over.
    pub(in crate::node) fn is_withheld(&self, shard: &ShardId) -> bool {
        self.ctx.rules.hold(Rule::PublishedIsHeld) && self.published_elsewhere(shard, Reach::Hold).is_some()
    }

    /// Whether another live session seems to hold a shard, and says so only by a hash.
    fn is_hit_by_a_hash(&self, shard: &ShardId) -> bool {
        self.mirror.nodes.iter().any(|(name, node)| {
            let record = node.record();
            let published =
                record.filter(|record| record.state.is_alive()).and_then(|r| r.publishes.as_ref());
            !self.ctx.is_me(name) && published.is_some_and(|published| published.holds_by_hash(shard))
        })
    }

    /// Another session holds a shard: we come back to it when that may have changed.
    pub(in crate::node) fn wait_while_withheld(&mut self, shard: &ShardId) {
        self.publishing.withheld.insert(shard.clone());
        self.wait_for_silence(shard);
    }

    /// Whether anybody else may have run a shard, as far as records still tell: a live session that holds it, or one that
    /// is over and could have started it.
    pub(in crate::node) fn was_ever_held(&self, shard: &ShardId) -> bool {
        let said = |record: &NodeRecord| {
            let over = !record.state.is_alive() || self.mirror.dead.contains_key(&record.session);
            let published = record.publishes.as_ref();
            published.is_some_and(|it| if over { it.has(shard) } else { it.holds(shard) })
        };
        self.mirror.nodes.iter().any(|(name, node)| !self.ctx.is_me(name) && node.said().any(said))
    }

    /// The highest epoch that anybody published for a group.
    pub(in crate::node) fn epoch_published(&self, group: &GroupName) -> Epoch {
        let ours = self.publishing.epochs.get(group).copied().unwrap_or_default();
        self.epoch_published_by_others(group).max(ours)
    }

    fn epoch_published_by_others(&self, group: &GroupName) -> Epoch {
        let others = self.mirror.nodes.iter().filter(|(name, _)| !self.ctx.is_me(name));
        let records = others.flat_map(|(_, node)| node.said());
        let published = records.filter_map(|record| Some(record.publishes.as_ref()?.epoch(group)));
        published.max().unwrap_or_default()
    }

    /// Whether there was a session of which nobody knows which epochs it held: its record was damaged.
    pub(super) fn are_epochs_unknown(&self) -> bool {
        let unknown = |node: &SeenNode| match node.seen.as_ref().map(|seen| &seen.record) {
            Some(Ok(record)) => record.publishes.is_none(),
            Some(Err(_)) => true,
            None => node.last.as_ref().is_some_and(|last| last.publishes.is_none()),
        };
        self.mirror.nodes.iter().any(|(name, node)| !self.ctx.is_me(name) && unknown(node))
    }

    /// A node's record changed: shards that wait for what it publishes are looked at again.
    pub(in crate::node) fn publication_changed(&mut self, node: &NodeName) {
        self.ctx.agenda.extend(std::mem::take(&mut self.publishing.withheld));
        self.ctx.agenda.extend(self.publishing.awaited.iter().cloned());
        // Another node waits for what we publish and do not have: that is taken back at once.
        let record = self.mirror.node_record(node);
        let Some(record) = record.filter(|record| record.state.is_alive() && !record.awaits.is_empty())
        else {
            return;
        };
        let awaited = record.awaits.iter();
        let mut ours = awaited.filter(|shard| !self.holds.contains(shard) && self.may_be_published(shard));
        if ours.next().is_some() {
            self.ctx.record_changed();
            self.publishing.salt = self.publishing.salt.wrapping_add(1);
        }
    }

    /// What our record publishes, as the store has it or may have it soon.
    fn latest_publication(&self) -> Option<&Published> {
        self.session.as_ref().map(Session::latest_publication)
    }

    fn may_be_published(&self, shard: &ShardId) -> bool {
        self.latest_publication().is_some_and(|latest| latest.has(shard))
    }

    /// Whether another live session has claimed a shard and waits for us to say that we do not have it.
    fn is_awaited_elsewhere(&self, shard: &ShardId) -> bool {
        self.mirror.nodes.iter().any(|(name, node)| {
            let record = node.record();
            !self.ctx.is_me(name)
                && record.is_some_and(|record| record.state.is_alive() && record.awaits.contains(shard))
        })
    }

    /// We no longer have a shard: if another node waits for that, our record says so at once.
    pub(in crate::node) fn take_back(&mut self, shard: &ShardId) {
        if self.may_be_published(shard) && self.is_awaited_elsewhere(shard) {
            self.ctx.record_changed();
        }
    }
}
