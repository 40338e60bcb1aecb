//! What the store says of each shard, and since when: the truth that ownership is judged by.

use leasehold_core::SessionId;
use leasehold_core::record::{GroupRecord, Record, ShardRecord, ShardSet, ShardState};
use leasehold_core::store::Key;

use crate::clock::Instant;
use crate::setting::Setting;
use crate::store::SimStore;

/// What the store says of each shard.
#[derive(Clone, Debug, Default)]
pub(crate) struct Records {
    shards: Vec<Told>,
    /// How many slots the group's record says that there are, if it says so.
    slots: Option<u32>,
}

/// What the store says of one shard.
#[derive(Clone, Debug)]
pub(crate) struct Told {
    pub(crate) state: RecordState,
    pub(crate) since: Instant,
}

/// What a shard's record says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RecordState {
    Missing,
    Held { session: SessionId },
    Vacant { reserved: bool },
    Retired,
    Corrupt,
}

impl Records {
    pub(crate) fn get(&self, shard: usize) -> &Told {
        const NONE: &Told = &Told { state: RecordState::Missing, since: 0 };
        self.shards.get(shard).unwrap_or(NONE)
    }

    /// How many slots the group's record says that there are, if it can be read.
    pub(crate) fn slots(&self) -> Option<u32> {
        self.slots
    }

    /// A record was written.
    pub(crate) fn changed(&mut self, at: Instant, setting: &Setting, key: &Key, value: Option<&[u8]>) {
        if matches!(key, Key::Group(group) if *group == setting.group) {
            self.slots = value.and_then(slots_of);
        }
        let Key::Shard(shard) = key else { return };
        let number = setting.number_of(shard);
        if self.shards.len() <= number {
            self.shards.resize(number + 1, Told { state: RecordState::Missing, since: 0 });
        }
        self.shards[number] = Told { state: read(value), since: at };
    }

    /// The store became another one.
    pub(crate) fn read_all(&mut self, at: Instant, setting: &Setting, store: &SimStore) {
        self.shards.clear();
        self.slots = None;
        for (key, stored) in store.records() {
            self.changed(at, setting, key, Some(&stored.value));
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
            ShardState::Held { holder } => RecordState::Held { session: holder.session },
            ShardState::Vacant { reserved_ms, .. } => RecordState::Vacant { reserved: reserved_ms.is_some() },
            ShardState::Retired => RecordState::Retired,
        },
    }
}
