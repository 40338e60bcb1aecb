//! Which shards are looked at again, in this step or at a moment. Looking too often does no harm, so nothing is ever
//! taken off the list.

use std::collections::{BTreeMap, BTreeSet};

use crate::name::ShardId;
use crate::time::Moment;

/// Which shards are looked at again.
#[derive(Debug, Default)]
pub(super) struct Agenda {
    /// In this step.
    due: BTreeSet<ShardId>,
    /// In this step, all of them.
    everything: bool,
    /// At a moment, in order of time.
    wake: BTreeSet<(Moment, ShardId)>,
    /// The same, in order of shards. Each shard has one moment, the earliest.
    waking: BTreeMap<ShardId, Moment>,
}

impl Agenda {
    /// Looks at a shard in this step.
    pub(super) fn add(&mut self, shard: ShardId) {
        self.due.insert(shard);
    }

    pub(super) fn extend(&mut self, shards: impl IntoIterator<Item = ShardId>) {
        self.due.extend(shards);
    }

    /// Looks at all shards in this step.
    pub(super) fn add_everything(&mut self) {
        self.everything = true;
    }

    /// Whether all shards are to be looked at; asks once.
    pub(super) fn take_everything(&mut self) -> bool {
        std::mem::take(&mut self.everything)
    }

    /// The next shard to look at in this step.
    pub(super) fn next(&mut self) -> Option<ShardId> {
        self.due.pop_first()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.due.is_empty() && !self.everything
    }

    /// Looks at a shard at that moment, or earlier if that was wanted before.
    pub(super) fn wake_at(&mut self, shard: &ShardId, at: Moment) {
        if at == Moment::NEVER {
            return;
        }
        match self.waking.get(shard) {
            Some(known) if *known <= at => return,
            Some(known) => {
                self.wake.remove(&(*known, shard.clone()));
            }
            None => {}
        }
        self.waking.insert(shard.clone(), at);
        self.wake.insert((at, shard.clone()));
    }

    /// When the next shard is to be looked at; [`Moment::NEVER`] if none is.
    pub(super) fn next_wake_at(&self) -> Moment {
        self.wake.first().map_or(Moment::NEVER, |(at, _)| *at)
    }

    /// Shards whose moment has come are looked at in this step.
    pub(super) fn wake_until(&mut self, at: Moment) {
        while self.next_wake_at() <= at
            && let Some((_, shard)) = self.wake.pop_first()
        {
            self.waking.remove(&shard);
            self.due.insert(shard);
        }
    }
}
