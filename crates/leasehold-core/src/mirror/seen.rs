//! One record as we last saw it, how we learned of it, and what changed.

use std::time::Duration;

use xxhash_rust::xxh3::xxh3_64;

use crate::name::{Epoch, SessionId};
use crate::record::{GroupRecord, Holder, NodeRecord, RecordError, Slots};
use crate::store::{Stored, Version};
use crate::time::Moment;

/// A record as we last saw it.
#[derive(Clone, Debug)]
pub struct Seen<R> {
    /// Its version in the store.
    pub version: Version,
    /// A checksum of its bytes: a program that writes around the store may leave the version as it is.
    pub(super) sum: u64,
    /// What it says, or why that cannot be read.
    pub record: Result<R, RecordError>,
    /// When we first saw this version.
    pub first_seen_at: Moment,
    /// Our logical time when we first saw it.
    pub order: u64,
    /// What it said when it last could be read, if it cannot be now.
    pub before: Option<R>,
}

impl<R> Seen<R> {
    /// The record, or else what it said when it last could be read.
    pub fn best(&self) -> Option<&R> {
        self.good().or(self.before.as_ref())
    }

    /// Whether this is what is stored.
    pub(super) fn is(&self, stored: &Stored) -> bool {
        self.version == stored.version && self.sum == xxh3_64(&stored.value)
    }

    /// Whether this was seen after something else was asked for, which now shows another state.
    pub(super) fn crosses(&self, source: Source, stored: Option<&Stored>) -> bool {
        matches!(source, Source::Fresh(issued) if issued < self.order)
            && stored.is_none_or(|stored| !self.is(stored))
    }

    /// The record, if it can be read.
    pub fn good(&self) -> Option<&R> {
        self.record.as_ref().ok()
    }
}

/// A node's record, or its absence.
#[derive(Clone, Debug)]
pub struct SeenNode {
    /// The record; `None` since it vanished or if it never was there.
    pub seen: Option<Seen<Box<NodeRecord>>>,
    /// When we first saw this state.
    pub first_seen_at: Moment,
    /// Our logical time when the newest read that showed this state was issued.
    pub read_issued: u64,
    /// From when on its silence counts: later than `first_seen_at` if our own reads failed since.
    pub silent_from: Moment,
    /// When we first saw the session that it names.
    pub session_seen_at: Moment,
    /// What it said when it last could be read, since it vanished. It stays while another session lives under the name that
    /// could not prove that this one is over.
    pub last: Option<Box<NodeRecord>>,
    /// When it vanished, if it was damaged: a session may live under the name that nobody could read. It stays while the record
    /// is that of another session that could not prove that all before it are over.
    pub vanished_damaged_at: Option<Moment>,
    /// The longest ttl that it was ever seen with, also in the records of shards that it holds.
    pub ttl_longest: Duration,
    /// A checksum of the stored bytes without the heartbeat, if they could be divided.
    pub(super) rest_sum: Option<u64>,
}

impl SeenNode {
    /// The record, if it is there and can be read.
    pub fn record(&self) -> Option<&NodeRecord> {
        self.seen.as_ref()?.good().map(Box::as_ref)
    }

    /// The session that the record names, if it can be read.
    pub(super) fn session(&self) -> Option<SessionId> {
        Some(self.seen.as_ref()?.good()?.session)
    }

    /// The session of a record that vanished, if it was alive and published anything.
    pub fn lost(&self) -> Option<&NodeRecord> {
        self.last.as_deref().filter(|last| {
            last.state.is_alive() && last.publishes.as_ref().is_none_or(|published| !published.is_empty())
        })
    }

    /// What the record says, or said before it was damaged, and what the record of a former session said that vanished.
    pub fn said(&self) -> impl Iterator<Item = &NodeRecord> {
        self.seen.iter().filter_map(|seen| seen.best().map(Box::as_ref)).chain(self.last.as_deref())
    }

    /// The session that is alive as far as the record says, or said before it was damaged.
    pub fn alive(&self) -> Option<SessionId> {
        let record = self.seen.as_ref()?.best()?;
        record.state.is_alive().then_some(record.session)
    }
}

/// What was once true of a group and stays so, also when its record is gone, damaged or written over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lasting {
    /// Every new epoch in this group is above this.
    pub epoch_floor: Epoch,
    /// These slots have had a record.
    pub filled: Slots,
}

impl Lasting {
    pub(super) fn take_in(&mut self, record: &GroupRecord) {
        self.epoch_floor = self.epoch_floor.max(record.epoch_floor);
        if self.filled != record.filled {
            self.filled = self.filled.union(&record.filled);
        }
    }
}

/// The session that a shard's record named before the record was damaged or vanished.
#[derive(Clone, Debug)]
pub struct LostHolder {
    /// The session.
    pub holder: Holder,
    /// Since when no record of the shard names it.
    pub since: Moment,
}

/// What another session may do with a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Hold it.
    Hold,
    /// Start it, without saying more than it has said.
    Start,
}

/// How something was observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The watch: in order, but perhaps late.
    Watch,
    /// A read, a listing or the answer to a lost swap that was issued at this logical time and shows the newest state.
    Fresh(u64),
    /// A listing that may be behind.
    Lagging,
    /// Our own write, confirmed.
    Mine,
}

/// What an observation changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Nothing, or it was older than what we knew.
    None,
    /// The record changed.
    Changed,
    /// It is not what we knew, but may be older: a reason to read it, and nothing more.
    Doubtful,
    /// A state that we know to be over came back: the store lost writes.
    RolledBack(String),
}
