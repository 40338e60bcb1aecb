//! Shards that nobody owns: since when, and since when it is whose turn to take them.

use std::collections::{BTreeMap, BTreeSet};

use crate::name::ShardId;
use crate::time::Moment;

/// Shards that nobody owns.
#[derive(Debug, Default)]
pub(super) struct Vacancies {
    unowned_since: BTreeMap<ShardId, Moment>,
    /// Since when an unowned shard has been wanted by some other node.
    turn_since: BTreeMap<ShardId, Moment>,
    /// Shards that would be claimed if there was room.
    roomless: BTreeSet<ShardId>,
    /// Until when we look at what should be here and is not, in case the watch is silent.
    look_until: Moment,
}

impl Vacancies {
    pub(super) fn unowned_since(&self, shard: &ShardId) -> Option<Moment> {
        self.unowned_since.get(shard).copied()
    }

    /// A shard may be claimed. Counts from the first time.
    pub(super) fn note_unowned(&mut self, shard: &ShardId, at: Moment) {
        if !self.unowned_since.contains_key(shard) {
            self.unowned_since.insert(shard.clone(), at);
        }
    }

    /// The time without an owner starts again, or is over. Says since when it ran.
    pub(super) fn restart(&mut self, shard: &ShardId) -> Option<Moment> {
        self.unowned_since.remove(shard)
    }

    /// A shard has an owner, or should have none. Says since when it was unowned.
    pub(super) fn taken(&mut self, shard: &ShardId) -> Option<Moment> {
        self.turn_since.remove(shard);
        self.unowned_since.remove(shard)
    }

    /// Since when it has been the turn of some other node.
    pub(super) fn turn_since(&self, shard: &ShardId) -> Option<Moment> {
        self.turn_since.get(shard).copied()
    }

    /// It is the turn of some other node. Counts from the first time.
    pub(super) fn begin_turn(&mut self, shard: &ShardId, at: Moment) {
        if !self.turn_since.contains_key(shard) {
            self.turn_since.insert(shard.clone(), at);
        }
    }

    /// The plan gives it to nobody, so nobody is late.
    pub(super) fn forget_turn(&mut self, shard: &ShardId) {
        self.turn_since.remove(shard);
    }

    /// Nobody was late until now: all turns start again.
    pub(super) fn restart_turns(&mut self) {
        self.turn_since.clear();
    }

    /// Nobody could take anything until now: all times without an owner start again.
    pub(super) fn restart_all(&mut self) {
        self.unowned_since.clear();
    }

    /// A shard would be claimed if there was room.
    pub(super) fn note_roomless(&mut self, shard: &ShardId) {
        self.roomless.insert(shard.clone());
    }

    /// There is room again: the shards that waited for it.
    pub(super) fn take_roomless(&mut self) -> BTreeSet<ShardId> {
        std::mem::take(&mut self.roomless)
    }

    /// Until when we look at what should be here and is not.
    pub(super) fn look_until(&self) -> Moment {
        self.look_until
    }

    pub(super) fn set_look_until(&mut self, until: Moment) {
        self.look_until = until;
    }

    /// The session is over: the next one counts from its own start.
    pub(super) fn clear(&mut self) {
        self.unowned_since.clear();
        self.turn_since.clear();
        self.roomless.clear();
    }
}
