//! Publish before start: which shards this session says that it may be running, and whether a claimed shard may start.
//!
//! A node's record publishes what it holds, is claiming or is planned to take, and nothing starts before a renewal that
//! carries it has landed. Whoever claimed a record that was not a release then reads all node records and `meta`, and
//! starts only if no other live session publishes the shard. Of two that claim one shard, because its record was deleted
//! in between, the later to publish sees the other. GUARANTEES, "At most one holder".

use std::collections::{BTreeMap, BTreeSet};

use super::Node;
use super::requests::Purpose;
use super::shards::{Hold, Phase};
use super::writes::Replaces;
use crate::config::stretch;
use crate::mirror::{Reach, SeenNode};
use crate::name::{Epoch, GroupName, NodeName, SessionId, ShardId};
use crate::notice::Standing;
use crate::record::{MoveReason, Published, ShardSet};
use crate::rules::Rule;
use crate::store::{Freshness, Lane, Op, Version};
use crate::time::Moment;

/// The most claimed shards whose records are read one by one before they start.
const LOOKED_AT_MAX: usize = 32;
/// The most shards that a record lists as awaited. The next ones follow when these have started.
const AWAITED_MAX: usize = 64;

/// What has been published, and who waits for what.
#[derive(Debug, Default)]
pub(super) struct Publishing {
    /// The highest epoch held in each group, in all sessions of this process.
    epochs: BTreeMap<GroupName, Epoch>,
    /// Decides how long lists of names are hashed. Another one, if a hash hits a shard that somebody else waits for.
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
pub(super) struct Check {
    /// What the claim replaced; unless it was a release, all node records must be read.
    replaced: Option<Replaces>,
    /// Our logical time when both the claim and its publication were known to have landed.
    ready: Option<u64>,
    /// Another session published it when we last looked.
    blocked: bool,
    /// Our logical time when we had looked and nobody else published it.
    cleared: Option<u64>,
    /// Our logical time when the newest read that showed our claim was issued.
    pub(super) confirmed: u64,
    /// Sessions that published it when we looked.
    blockers: BTreeSet<SessionId>,
    /// Whether one of them said that it held it.
    was_held: bool,
}

impl Check {
    /// What follows for a claim that replaced this.
    pub(super) fn after(replaced: Replaces) -> Self {
        Check { replaced: Some(replaced), ..Check::default() }
    }

    /// Whether nothing but the publication is missing.
    pub(super) fn trusts_the_record(&self) -> bool {
        self.replaced == Some(Replaces::Release)
    }
}

impl Node {
    /// What this session may be running.
    pub(super) fn publication(&self) -> Published {
        let mut published = Published::default();
        let named =
            |group: &GroupName| self.settings.get(group).is_none_or(|group| group.set == ShardSet::Named);
        for (group, epoch) in &self.publishing.epochs {
            published.group(group).epoch = *epoch;
        }
        let holds = self
            .holds
            .iter()
            .filter(|(_, hold)| hold.is_published())
            .map(|(shard, hold)| (shard, Some(hold)));
        let me = &self.config.node;
        // Whoever recovers starts nothing yet, and must not keep others from it.
        let starts = matches!(self.standing, Standing::Joining | Standing::Attached | Standing::Degraded);
        let planned = self.plan.iter().filter(|_| starts);
        let planned = planned.filter(|(shard, to)| *to == Some(me) && !self.holds.contains_key(*shard));
        let planned =
            planned.map(|(shard, _)| (shard, None)).filter(|(shard, _)| !self.is_awaited_elsewhere(shard));
        for (shard, hold) in holds.chain(planned) {
            let group = published.group(&shard.group);
            let next = || {
                self.mirror.shards.get(shard).and_then(|seen| seen.good()).map(|record| record.epoch.next())
            };
            let epoch = hold.map(|hold| hold.epoch).or_else(next);
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

    /// Shards that this session has claimed and does not start yet, for its record.
    pub(super) fn awaits(&self) -> Vec<ShardId> {
        let claimed = |shard: &&ShardId| {
            self.holds.get(*shard).is_some_and(|hold| matches!(hold.phase, Phase::Claimed { .. }))
        };
        self.publishing.awaited.iter().filter(claimed).take(AWAITED_MAX).cloned().collect()
    }

    /// Whether the store is known to publish that this session may run a shard at this epoch, whatever becomes of renewals
    /// under way.
    fn is_published(&self, shard: &ShardId, epoch: Epoch) -> bool {
        let Some(session) = &self.session else { return false };
        session.published.covers(shard, epoch)
            && session.pending.iter().all(|renewal| renewal.published.covers(shard, epoch))
    }

    /// Whether others can see that this session may start a shard, at whatever epoch.
    pub(super) fn is_announced(&self, shard: &ShardId) -> bool {
        self.is_published(shard, Epoch(0)) || !self.rules.hold(Rule::PublishedBeforeTrust)
    }

    /// A shard is being claimed: it is published as held before it starts, unless the plan published it already.
    pub(super) fn publish(&mut self, shard: &ShardId) {
        let epoch = self.holds.get(shard).map(|hold| hold.epoch).unwrap_or_default();
        self.record_changed |= !self.is_published(shard, epoch);
    }

    /// Another session that holds a shard as far as its record says; with [`Reach::Start`], or may start it.
    fn published_elsewhere(&self, shard: &ShardId, reach: Reach) -> Option<&NodeName> {
        let others = self.mirror.nodes.iter().filter(|(name, _)| !self.is_me(name));
        let may_run =
            |node: &SeenNode| self.mirror.may_run(node, shard, reach, self.now.at >= self.silent_at(node));
        others.into_iter().find(|(_, node)| may_run(node)).map(|(name, _)| name)
    }

    /// When nobody can be alive any more in a record that cannot be read, unless it changes.
    fn silent_at(&self, node: &SeenNode) -> Moment {
        node.silent_from + stretch(self.ttl_max().max(node.ttl_longest), self.config.drift_permille)
    }

    /// A shard waits for another's record: it is considered again when that changes, and when an unreadable one is silent.
    fn wait_for_silence(&mut self, shard: &ShardId) {
        let unreadable = |node: &&SeenNode| node.seen.as_ref().is_some_and(|seen| seen.good().is_none());
        let silent_at = self.mirror.nodes.values().filter(unreadable).map(|node| self.silent_at(node));
        if let Some(at) = silent_at.filter(|at| *at > self.now.at).min() {
            self.wake_at(shard, at);
        }
    }

    /// Whether another live session says that it holds a shard, whatever the shard's own record says. Then nobody claims
    /// it before that session says otherwise or is over.
    pub(super) fn is_withheld(&mut self, shard: &ShardId) -> bool {
        let held =
            self.rules.hold(Rule::PublishedIsHeld) && self.published_elsewhere(shard, Reach::Hold).is_some();
        if held {
            self.publishing.withheld.insert(shard.clone());
            self.wait_for_silence(shard);
        }
        held
    }

    /// Whether anybody else may have run a shard, as far as records still tell: a live session that holds it, or one that
    /// is over and could have started it.
    pub(super) fn was_ever_held(&self, shard: &ShardId) -> bool {
        let said = |node: &SeenNode| {
            let record = node.seen.as_ref().and_then(|seen| seen.best()).or(node.last.as_ref());
            record.and_then(|record| Some((record, record.publishes.as_ref()?))).is_some_and(
                |(record, published)| {
                    let over = !record.state.is_alive() || self.mirror.dead.contains_key(&record.session);
                    if over { published.has(shard) } else { published.holds(shard) }
                },
            )
        };
        self.mirror.nodes.iter().any(|(name, node)| !self.is_me(name) && said(node))
    }

    /// The highest epoch that anybody published for a group.
    pub(super) fn epoch_published(&self, group: &GroupName) -> Epoch {
        let ours = self.publishing.epochs.get(group).copied().unwrap_or_default();
        self.epoch_published_by_others(group).max(ours)
    }

    fn epoch_published_by_others(&self, group: &GroupName) -> Epoch {
        let others = self.mirror.nodes.iter().filter(|(name, _)| !self.is_me(name));
        let records = others
            .filter_map(|(_, node)| node.seen.as_ref().and_then(|seen| seen.best()).or(node.last.as_ref()));
        let published = records.filter_map(|record| Some(record.publishes.as_ref()?.epoch(group)));
        published.max().unwrap_or_default()
    }

    /// A node's record changed: whoever waits for what it publishes is considered again.
    pub(super) fn publication_changed(&mut self, node: &NodeName) {
        self.reconsider.append(&mut self.publishing.withheld);
        self.reconsider.extend(self.publishing.awaited.iter().cloned());
        // Somebody waits for what we publish and do not have: it is taken back at once.
        let record =
            self.mirror.nodes.get(node).and_then(|node| node.seen.as_ref()).and_then(|seen| seen.good());
        let Some(record) = record.filter(|record| record.state.is_alive() && !record.awaits.is_empty())
        else {
            return;
        };
        let awaited = record.awaits.iter();
        let mut ours =
            awaited.filter(|shard| !self.holds.contains_key(*shard) && self.may_be_published(shard));
        if ours.next().is_some() {
            self.record_changed = true;
            self.publishing.salt = self.publishing.salt.wrapping_add(1);
        }
    }

    /// What our record publishes, as the store has it or may have it soon.
    fn latest_publication(&self) -> Option<&Published> {
        let session = self.session.as_ref()?;
        Some(session.pending.last().map_or(&session.published, |renewal| &renewal.published))
    }

    fn may_be_published(&self, shard: &ShardId) -> bool {
        self.latest_publication().is_some_and(|latest| latest.has(shard))
    }

    /// Whether another live session has claimed a shard and waits for us to say that we do not have it.
    fn is_awaited_elsewhere(&self, shard: &ShardId) -> bool {
        self.mirror.nodes.iter().any(|(name, node)| {
            let record = node.seen.as_ref().and_then(|seen| seen.good());
            !self.is_me(name)
                && record.is_some_and(|record| record.state.is_alive() && record.awaits.contains(shard))
        })
    }

    /// We do not have a shard any more: if somebody waits for that to be said, it is said at once.
    pub(super) fn take_back(&mut self, shard: &ShardId) {
        self.record_changed |= self.may_be_published(shard) && self.is_awaited_elsewhere(shard);
    }

    /// Notes the epoch of a claim that landed.
    pub(super) fn note_epoch(&mut self, shard: &ShardId, epoch: Epoch) {
        let highest = self.publishing.epochs.entry(shard.group.clone()).or_default();
        *highest = epoch.max(*highest);
    }

    /// The record that a new session replaces may be the only one that tells how high epochs were.
    pub(super) fn take_over_epochs(&mut self) {
        let former = self.mirror.nodes.get(&self.config.node).and_then(|node| node.seen.as_ref()?.best());
        let former = former.and_then(|record| record.publishes.clone());
        for (group, epoch) in former.iter().flat_map(Published::epochs) {
            let highest = self.publishing.epochs.entry(group.clone()).or_default();
            *highest = epoch.max(*highest);
        }
    }

    /// Starts a claimed shard, once that is safe; else asks for what is missing. `true` if it started.
    pub(super) fn start_if_clear(&mut self, shard: &ShardId, why: MoveReason) {
        let epoch = self.holds.get(shard).map(|hold| hold.epoch).unwrap_or_default();
        if !self.is_published(shard, epoch) && self.rules.hold(Rule::PublishBeforeStart) {
            self.record_changed |=
                !self.latest_publication().is_some_and(|latest| latest.covers(shard, epoch));
            return;
        }
        let order = self.mirror.tick();
        let Some(hold) = self.holds.get_mut(shard) else { return };
        let ready = *hold.check.ready.get_or_insert(order);
        if !hold.check.trusts_the_record()
            && self.rules.hold(Rule::NodesBeforeStart)
            && !self.is_clear(shard, ready, order)
        {
            return;
        }
        self.publishing.awaited.remove(shard);
        if let Some(above) = self.epoch_too_low(shard) {
            return self.claim_above(shard, above, why);
        }
        self.start(shard, why);
    }

    /// Whether nobody else may be running a shard that we claimed: all nodes were read since that was published, none of them
    /// publishes it, and then its record was read once more and was still our claim.
    fn is_clear(&mut self, shard: &ShardId, ready: u64, order: u64) -> bool {
        if self.publishing.read_issued < ready {
            self.publishing.unread.insert(shard.clone());
            return false;
        }
        let blocked = self.rules.hold(Rule::PublishedIsHeld) && self.is_blocked(shard);
        let Some(hold) = self.holds.get_mut(shard) else { return false };
        let was_blocked = std::mem::replace(&mut hold.check.blocked, blocked);
        if blocked {
            return false;
        }
        if was_blocked {
            // The watch may be late: what it says is a reason to look again.
            hold.check.ready = Some(order);
            self.publishing.unread.insert(shard.clone());
            return false;
        }
        let cleared = *hold.check.cleared.get_or_insert(order);
        if hold.check.confirmed < cleared && self.rules.hold(Rule::ClaimStillThere) {
            self.publishing.unconfirmed.insert(shard.clone());
            return false;
        }
        true
    }

    /// Whether another session publishes a shard that we claimed: then we wait for it to say otherwise, or to be over.
    fn is_blocked(&mut self, shard: &ShardId) -> bool {
        let Some(blocker) = self.published_elsewhere(shard, Reach::Start).cloned() else { return false };
        let held = self.published_elsewhere(shard, Reach::Hold).is_some();
        let node = self.mirror.nodes.get(&blocker);
        let known =
            node.and_then(|node| node.seen.as_ref().and_then(|seen| seen.best()).or(node.last.as_ref()));
        let session = known.map(|record| record.session);
        if let Some(hold) = self.holds.get_mut(shard) {
            hold.check.blockers.extend(session);
            hold.check.was_held |= held || session.is_none();
        }
        if self.publishing.awaited.insert(shard.clone()) {
            self.record_changed = true;
        }
        self.wait_for_silence(shard);
        true
    }

    /// The epoch above which a claimed shard must start, if its claim is not. Somebody else may have had it meanwhile:
    /// whoever took its publication back has told its epochs, and those of whoever died are unknown.
    fn epoch_too_low(&self, shard: &ShardId) -> Option<Epoch> {
        let hold = self.holds.get(shard)?;
        let (replaced, blockers) = (hold.check.replaced?, &hold.check.blockers);
        let died = || blockers.iter().any(|session| self.mirror.dead.contains_key(session));
        let above = match replaced {
            Replaces::Release => return None,
            _ if hold.check.was_held || died() => self.unknown_epoch(shard),
            Replaces::Nothing if self.was_ever_held(shard) => self.unknown_epoch(shard),
            // What is known now, and was perhaps not known when it was claimed.
            Replaces::Lost => self.epoch_published_by_others(&shard.group),
            Replaces::Nothing | Replaces::Other if !blockers.is_empty() => {
                self.epoch_published_by_others(&shard.group)
            }
            Replaces::Nothing | Replaces::Other => return None,
        };
        (hold.epoch <= above && self.rules.hold(Rule::EpochRises)).then_some(above)
    }

    /// Reads all node records, and `meta` after them, for the claimed shards that wait for it.
    pub(super) fn ask_for_nodes(&mut self) {
        let busy = self.requests.any(|purpose| matches!(purpose, Purpose::Nodes));
        let paused = self.now.at < self.acquire_paused_until;
        if !self.publishing.unread.is_empty() && self.session.is_some() && !busy && !paused {
            self.ask(Lane::Work, Op::ListNodes, Purpose::Nodes);
        }
    }

    /// Reads the records of claimed shards once more: a few of them each, and many with everything else.
    pub(super) fn ask_for_claims(&mut self) {
        let claims = &mut self.publishing.unconfirmed;
        claims.retain(|shard| self.holds.contains_key(shard));
        let busy = self.requests.any(|purpose| matches!(purpose, Purpose::Look(_) | Purpose::List));
        if claims.is_empty() || busy || self.session.is_none() || self.now.at < self.acquire_paused_until {
            return;
        }
        if claims.len() > LOOKED_AT_MAX && self.facts.reads == Freshness::Newest {
            claims.clear();
            self.list_at = Moment::NEVER;
            return self.ask(Lane::Work, Op::List, Purpose::List);
        }
        let mut shards: Vec<ShardId> = claims.iter().cloned().collect();
        shards.truncate(LOOKED_AT_MAX.max(super::settling::LOOK_MAX));
        shards.iter().for_each(|shard| {
            self.publishing.unconfirmed.remove(shard);
        });
        self.look_at(shards);
    }

    /// A read that was issued then shows this version of a shard's record: if it is our claim, it was still there.
    pub(super) fn claim_seen(&mut self, shard: &ShardId, version: &Version, issued: u64) {
        if let Some(hold) = self.holds.get_mut(shard)
            && hold.version.as_ref() == Some(version)
        {
            hold.check.confirmed = hold.check.confirmed.max(issued);
        }
    }

    /// The same, for a listing of everything.
    pub(super) fn claims_seen(&mut self, issued: u64) {
        for (shard, hold) in &mut self.holds {
            let seen = self.mirror.shards.get(shard).map(|seen| &seen.version);
            if matches!(hold.phase, Phase::Claimed { .. }) && seen.is_some() && hold.version.as_ref() == seen
            {
                hold.check.confirmed = hold.check.confirmed.max(issued);
                self.reconsider.insert(shard.clone());
            }
        }
    }

    /// All node records were read, by a request that was issued then, and `meta` after them.
    pub(super) fn nodes_were_read(&mut self, issued: u64) {
        self.publishing.read_issued = self.publishing.read_issued.max(issued);
        self.reconsider.append(&mut self.publishing.unread);
    }

    /// A renewal landed: what waited for its publication is considered again.
    pub(super) fn published(&mut self) {
        let waiting = self.holds.iter().filter(|(_, hold)| matches!(hold.phase, Phase::Claimed { .. }));
        let waiting: Vec<ShardId> = waiting.map(|(shard, _)| shard.clone()).collect();
        self.reconsider.extend(waiting);
    }

    /// The session is over: nobody waits for anything any more.
    pub(super) fn forget_publishing(&mut self) {
        let Publishing { epochs, salt, .. } = std::mem::take(&mut self.publishing);
        self.publishing = Publishing { epochs, salt, ..Publishing::default() };
    }
}

impl Hold {
    /// Whether its record has named us. A claim that is under way has not, and may be taken over while it hangs.
    fn is_ours(&self) -> bool {
        self.phase != Phase::Claiming || self.version.is_some()
    }

    /// Whether its work may run, or may start by what is under way.
    fn is_published(&self) -> bool {
        match self.phase {
            Phase::Asking | Phase::Releasing | Phase::Stopped { .. } => false,
            Phase::Claiming
            | Phase::Claimed { .. }
            | Phase::Running
            | Phase::Stopping { .. }
            | Phase::Resting { .. }
            | Phase::Quarantined => true,
        }
    }
}
