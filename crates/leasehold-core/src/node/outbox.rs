//! Which shard records are to be written, and which are to be read because they may not be ours any more. The writes
//! themselves are with the holds.

use std::collections::BTreeSet;

use crate::name::ShardId;

/// Which shard records are to be written or read next.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    unsent: BTreeSet<ShardId>,
    doubtful: BTreeSet<ShardId>,
}

impl Outbox {
    /// A shard has a write that is to be sent.
    pub(super) fn add(&mut self, shard: &ShardId) {
        self.unsent.insert(shard.clone());
    }

    pub(super) fn remove(&mut self, shard: &ShardId) {
        self.unsent.remove(shard);
    }

    pub(super) fn contains(&self, shard: &ShardId) -> bool {
        self.unsent.contains(shard)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.unsent.is_empty()
    }

    /// The next shard whose write is sent.
    pub(super) fn next(&mut self) -> Option<ShardId> {
        self.unsent.pop_first()
    }

    /// An observation that may be late differs from what we hold: the records of these shards are read.
    pub(super) fn doubt(&mut self, shards: impl IntoIterator<Item = ShardId>) {
        self.doubtful.extend(shards);
    }

    pub(super) fn has_doubts(&self) -> bool {
        !self.doubtful.is_empty()
    }

    pub(super) fn take_doubtful(&mut self) -> BTreeSet<ShardId> {
        std::mem::take(&mut self.doubtful)
    }

    /// The session is over: nothing of it is written or read any more.
    pub(super) fn clear(&mut self) {
        *self = Outbox::default();
    }
}
