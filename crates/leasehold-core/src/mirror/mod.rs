//! What the store says, as far as we have seen: decoded records with their versions and when we saw them.
//!
//! `seen` is one record as we last saw it. `observe` takes in what was read: watches may be late and listings may cross
//! each other, so it judges by content which of two states of a record is the newer one, and keeps the newer.

mod observe;
mod seen;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::name::{Epoch, GroupName, NodeName, SessionId, ShardId};
use crate::record::{Control, GroupRecord, Holder, Meta, NodeRecord, ShardRecord};
use crate::time::Moment;

pub use seen::{Change, Lasting, LostHolder, Reach, Seen, SeenNode, Source};

/// What the store says, as far as we have seen.
#[derive(Clone, Debug, Default)]
pub struct Mirror {
    /// `meta`
    meta: Option<Seen<Meta>>,
    /// `control`
    control: Option<Seen<Control>>,
    /// `groups/…`
    groups: BTreeMap<GroupName, Seen<GroupRecord>>,
    /// What the records of groups said, and what holds whatever becomes of them.
    lasting: BTreeMap<GroupName, Lasting>,
    /// `nodes/…`, also of nodes whose record vanished.
    nodes: BTreeMap<NodeName, SeenNode>,
    /// Sessions whose process is gone, as proved by the kernel. Only for clients that watch; nodes fence such sessions instead.
    gone: BTreeSet<SessionId>,
    /// `shards/…`
    shards: BTreeMap<ShardId, Seen<ShardRecord>>,
    /// Shard records that were there and vanished: when we saw that, and their last epoch.
    vanished: BTreeMap<ShardId, (Moment, Epoch)>,
    /// The longest ttl that shard records named for a node whose own record was not seen.
    ttl_named: BTreeMap<NodeName, Duration>,
    /// The sessions that shard records named before they were damaged or vanished.
    lost_holders: BTreeMap<ShardId, Vec<LostHolder>>,
    /// Sessions that are proved to be over.
    dead: BTreeMap<SessionId, Moment>,
    /// Keys in our namespace that Leasehold did not write.
    foreign: Vec<String>,
    /// Places in the store that cannot be read.
    unreadable: Vec<String>,
    /// The highest epoch seen anywhere.
    epoch_seen: Epoch,
    /// The highest store revision seen.
    revision_seen: u64,
    /// Our logical time when we first saw it.
    revision_order: u64,
    /// Whether a listing has arrived.
    ready: bool,
    clock: u64,
    /// How many answers about `meta` or a node were not taken in; see [`Mirror::crossings`].
    crossings: u64,
}

impl Mirror {
    /// Advances the logical time: requests issued from now on are later than everything seen so far.
    pub fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// `meta`, as we last saw it.
    pub fn meta(&self) -> Option<&Seen<Meta>> {
        self.meta.as_ref()
    }

    /// `control`, as we last saw it.
    pub fn control_record(&self) -> Option<&Seen<Control>> {
        self.control.as_ref()
    }

    /// `groups/…`
    pub fn groups(&self) -> &BTreeMap<GroupName, Seen<GroupRecord>> {
        &self.groups
    }

    /// What the records of a group said, and what holds whatever becomes of them.
    pub fn lasting(&self, group: &GroupName) -> Option<&Lasting> {
        self.lasting.get(group)
    }

    /// `nodes/…`, also of nodes whose record vanished.
    pub fn nodes(&self) -> &BTreeMap<NodeName, SeenNode> {
        &self.nodes
    }

    /// `shards/…`
    pub fn shards(&self) -> &BTreeMap<ShardId, Seen<ShardRecord>> {
        &self.shards
    }

    /// When we saw that a shard's record had vanished, and its last epoch.
    pub fn vanished(&self, shard: &ShardId) -> Option<&(Moment, Epoch)> {
        self.vanished.get(shard)
    }

    /// The sessions that a shard's record named before it was damaged or vanished, if no record tells what became of them,
    /// and from when on none of them can have renewed.
    pub fn unaccounted_holders(&self, shard: &ShardId) -> impl Iterator<Item = (&Holder, Moment)> {
        let lost = self.lost_holders.get(shard).into_iter().flatten();
        lost.filter_map(|LostHolder { holder, since }| {
            if self.is_proved_over(&holder.session) {
                return None;
            }
            let node = self.nodes.get(&holder.node);
            // Its own record says what it holds. That of another session tells the same as a proof, unless it began over a
            // record that was lost as well.
            let record = node.and_then(SeenNode::record);
            if record.is_some_and(|record| record.session == holder.session || !record.unproved) {
                return None;
            }
            Some((holder, node.map_or(*since, |node| node.session_seen_at.max(*since))))
        })
    }

    /// Whether a session is proved to be over.
    pub fn is_proved_over(&self, session: &SessionId) -> bool {
        self.dead.contains_key(session)
    }

    /// Whether the kernel proved that a session's process is gone. Only for clients that watch; nodes fence such sessions.
    pub fn is_process_gone(&self, session: &SessionId) -> bool {
        self.gone.contains(session)
    }

    /// Keys in our namespace that Leasehold did not write.
    pub fn foreign(&self) -> &[String] {
        &self.foreign
    }

    /// Places in the store that cannot be read.
    pub fn unreadable(&self) -> &[String] {
        &self.unreadable
    }

    /// The highest epoch seen anywhere.
    pub fn epoch_seen(&self) -> Epoch {
        self.epoch_seen
    }

    /// Whether a listing has arrived.
    pub fn is_ready(&self) -> bool {
        self.ready
    }

    /// The operators' commands, from the last readable state of the record.
    pub fn control(&self) -> Option<&Control> {
        self.control.as_ref().and_then(|seen| seen.best())
    }

    /// A node's record, if it is there and can be read.
    pub fn node_record(&self, node: &NodeName) -> Option<&NodeRecord> {
        self.nodes.get(node).and_then(SeenNode::record)
    }

    /// A shard's record, if it is there and can be read.
    pub fn shard_record(&self, shard: &ShardId) -> Option<&ShardRecord> {
        self.shards.get(shard).and_then(|seen| seen.good())
    }

    /// The holder named by a shard's record, whether or not its session is over.
    pub fn holder(&self, shard: &ShardId) -> Option<&Holder> {
        self.shard_record(shard)?.holder()
    }

    /// How many answers about `meta` or a node were dropped so far, because something else was seen after they were asked for
    /// and nothing tells which of the two is newer. Such a request proves nothing: the watch that it crossed may be late.
    pub fn crossings(&self) -> u64 {
        self.crossings
    }

    /// Forgets the current state of the store, but not which sessions are over or how high epochs were.
    pub fn forget(&mut self) {
        *self = Mirror {
            dead: std::mem::take(&mut self.dead),
            epoch_seen: self.epoch_seen,
            clock: self.clock,
            crossings: self.crossings,
            ..Mirror::default()
        };
    }

    /// Forgets everything but whose processes are gone.
    pub fn start_over(&mut self) {
        *self = Mirror { gone: std::mem::take(&mut self.gone), ..Mirror::default() };
    }

    /// The kernel proved that a session's process is gone; `true` if that is new.
    pub fn note_process_gone(&mut self, session: SessionId) -> bool {
        self.gone.insert(session)
    }

    /// Changes from when on the silence of each node counts.
    pub fn count_silence_from(&mut self, change: impl Fn(Moment) -> Moment) {
        for node in self.nodes.values_mut() {
            node.silent_from = change(node.silent_from);
        }
    }

    /// Whether a live session under this name holds a shard; with [`Reach::Start`], or may start it at any moment. An
    /// unreadable record, and one of a version that published nothing, may stand for anything.
    /// `silent`: whether it has not changed for so long that no session can be alive in it.
    pub fn may_run(&self, node: &SeenNode, shard: &ShardId, reach: Reach, silent: bool) -> bool {
        match node.seen.as_ref().map(|seen| &seen.record) {
            Some(Ok(record)) => {
                self.publishes(record, shard, reach) || self.former_may_run(node, shard, reach, silent)
            }
            // Also where the last session that we know of is over: another one may have joined before the record was
            // damaged. One that only a newer version can read is never fenced, and counts for as long as it may be alive.
            Some(Err(_)) => !silent,
            None => {
                node.lost().is_some_and(|last| self.publishes(last, shard, reach))
                    || (node.vanished_damaged_at.is_some() && !silent)
            }
        }
    }

    /// The same, of former sessions of this name that the one in its record may live beside. They cannot renew any more, and are
    /// over once that was long ago (`silent`).
    pub fn former_may_run(&self, node: &SeenNode, shard: &ShardId, reach: Reach, silent: bool) -> bool {
        let lost = || node.lost().is_some_and(|last| self.publishes(last, shard, reach));
        node.record().is_some() && !silent && (node.vanished_damaged_at.is_some() || lost())
    }

    /// Whether a session is alive, as far as this record says, and publishes a shard.
    fn publishes(&self, record: &NodeRecord, shard: &ShardId, reach: Reach) -> bool {
        let live = record.state.is_alive() && !self.dead.contains_key(&record.session);
        live && match (&record.publishes, reach) {
            (None, _) => true,
            (Some(published), Reach::Hold) => published.holds(shard),
            (Some(published), Reach::Start) => published.has(shard),
        }
    }

    /// Remembers since when we know that a session is over.
    pub fn note_over(&mut self, now: Moment, session: SessionId) {
        let since = self.dead.entry(session).or_insert(now);
        *since = now.min(*since);
    }

    /// Whether a session may be alive under this name: only a record can say that none is.
    pub fn may_live(&self, node: &SeenNode) -> bool {
        match node.seen.as_ref().map(|seen| &seen.record) {
            Some(Ok(record)) => record.state.is_alive() && !self.dead.contains_key(&record.session),
            Some(Err(_)) | None => true,
        }
    }

    /// Remembers since when we know that a node has no record.
    pub fn note_absent(&mut self, now: Moment, name: &NodeName) {
        let absent = SeenNode {
            seen: None,
            first_seen_at: now,
            read_issued: 0,
            silent_from: now,
            session_seen_at: now,
            last: None,
            vanished_damaged_at: None,
            ttl_longest: Duration::ZERO,
            rest_sum: None,
        };
        self.nodes.entry(name.clone()).or_insert(absent);
    }

    /// Sessions that are over and that no record names any more are forgotten after a while.
    pub fn prune(&mut self, older_than: Moment) {
        self.nodes.retain(|_, node| node.seen.is_some() || node.first_seen_at >= older_than);
        self.lost_holders.retain(|_, lost| {
            lost.retain(|lost| lost.since >= older_than);
            !lost.is_empty()
        });
        if self.dead.values().all(|learned_at| *learned_at >= older_than) {
            return;
        }
        let named: std::collections::BTreeSet<SessionId> = (self.shards.values())
            .filter_map(|seen| seen.good()?.holder().map(|holder| holder.session))
            .collect();
        self.dead.retain(|session, learned_at| *learned_at >= older_than || named.contains(session));
    }
}
