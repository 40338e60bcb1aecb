//! What the store says of each shard, and since when: the truth that ownership is judged by.

use std::collections::BTreeMap;
use std::fmt;

use leasehold_core::record::{GroupRecord, Record, ShardRecord, ShardSet, ShardState};
use leasehold_core::store::Key;
use leasehold_core::{NodeName, SessionId};

use crate::store::SimStore;
use crate::world::clock::Instant;
use crate::world::newer_version::refuses;
use crate::world::scenario::Scenario;

/// What the store says of each shard.
#[derive(Clone, Debug, Default)]
pub(crate) struct Records {
    shards: Vec<RecordStatus>,
    /// How many slots the group's record says that there are, if it says so.
    slots: Option<u32>,
    /// Shards that a node may hold without a record that says so, until a node has written their record again.
    losses: BTreeMap<usize, Loss>,
    /// Since when `meta` keeps this version out.
    refuses_since: Option<Instant>,
}

/// What was done to a shard's record, or to that of its holder, by anything but a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Loss {
    #[default]
    Nothing,
    /// It was damaged, deleted, or replaced by an older one.
    Lost,
    /// It names a holder that does not exist.
    Usurped,
}

/// What the store says of one shard.
#[derive(Clone, Debug)]
pub(crate) struct RecordStatus {
    pub(crate) state: RecordState,
    pub(crate) since: Instant,
}

/// What a shard's record says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RecordState {
    Missing,
    Held { node: NodeName, session: SessionId },
    Vacant { reserved: bool },
    Retired,
    Corrupt,
}

impl fmt::Display for RecordState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecordState::Missing => f.write_str("missing"),
            RecordState::Held { node, session } => write!(f, "held by {node} (session {session:?})"),
            RecordState::Vacant { reserved: false } => f.write_str("vacant"),
            RecordState::Vacant { reserved: true } => f.write_str("vacant and reserved"),
            RecordState::Retired => f.write_str("retired"),
            RecordState::Corrupt => f.write_str("damaged"),
        }
    }
}

impl Records {
    pub(crate) fn get(&self, shard: usize) -> &RecordStatus {
        const NONE: &RecordStatus = &RecordStatus { state: RecordState::Missing, since: 0 };
        self.shards.get(shard).unwrap_or(NONE)
    }

    /// How many slots the group's record says that there are, if it can be read.
    pub(crate) fn slots(&self) -> Option<u32> {
        self.slots
    }

    /// Since when `meta` keeps this version out, if it does.
    pub(crate) fn refuses_since(&self) -> Option<Instant> {
        self.refuses_since
    }

    /// What was done to the record of a shard and has not been put right by a node.
    pub(crate) fn loss(&self, shard: usize) -> Loss {
        self.losses.get(&shard).copied().unwrap_or_default()
    }

    /// The worst of all shards.
    pub(crate) fn worst_loss(&self) -> Loss {
        self.losses.values().copied().max().unwrap_or_default()
    }

    /// Something other than a node changed a record.
    pub(crate) fn tampered(&mut self, scenario: &Scenario, key: &Key, loss: Loss) {
        match key {
            Key::Shard(shard) => {
                self.losses.insert(scenario.number_of(shard), loss);
            }
            // Without it, no node knows what became of the holder.
            Key::Node(name) => {
                let held = |status: &RecordStatus| matches!(&status.state, RecordState::Held { node, .. } if node == name);
                let shards = self.shards.iter().enumerate().filter(|(_, status)| held(status));
                self.losses.extend(shards.map(|(shard, _)| (shard, loss)));
            }
            Key::Meta | Key::Control | Key::Group(_) => {}
        }
    }

    /// A node wrote a record.
    pub(crate) fn written(&mut self, at: Instant, scenario: &Scenario, key: &Key, value: Option<&[u8]>) {
        if let Key::Shard(shard) = key {
            self.losses.remove(&scenario.number_of(shard));
        }
        self.changed(at, scenario, key, value);
    }

    /// A record has changed.
    pub(crate) fn changed(&mut self, at: Instant, scenario: &Scenario, key: &Key, value: Option<&[u8]>) {
        if matches!(key, Key::Group(group) if *group == scenario.group) {
            self.slots = value.and_then(slots_of);
        }
        if *key == Key::Meta {
            let since = self.refuses_since.unwrap_or(at);
            self.refuses_since = value.is_some_and(refuses).then_some(since);
        }
        let Key::Shard(shard) = key else { return };
        let number = scenario.number_of(shard);
        if self.shards.len() <= number {
            self.shards.resize(number + 1, RecordStatus { state: RecordState::Missing, since: 0 });
        }
        self.shards[number] = RecordStatus { state: read(value), since: at };
    }

    /// The whole store was replaced.
    pub(crate) fn read_all(&mut self, at: Instant, scenario: &Scenario, store: &SimStore) {
        self.losses.extend((0..self.shards.len()).map(|shard| (shard, Loss::Lost)));
        self.shards.clear();
        self.slots = None;
        self.refuses_since = None;
        for (key, stored) in store.records() {
            self.changed(at, scenario, key, Some(&stored.value));
        }
    }
}

fn slots_of(value: &[u8]) -> Option<u32> {
    match GroupRecord::decode(value).ok()?.shards {
        ShardSet::Numbered(slots) => Some(slots),
        ShardSet::Named => None,
    }
}

fn read(value: Option<&[u8]>) -> RecordState {
    let Some(value) = value else { return RecordState::Missing };
    match ShardRecord::decode(value) {
        Err(_) => RecordState::Corrupt,
        Ok(record) => match record.state {
            ShardState::Held { holder } => RecordState::Held { node: holder.node, session: holder.session },
            ShardState::Vacant { reserved_ms, .. } => RecordState::Vacant { reserved: reserved_ms.is_some() },
            ShardState::Retired => RecordState::Retired,
        },
    }
}
