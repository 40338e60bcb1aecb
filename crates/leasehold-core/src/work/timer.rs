//! When the kernel must have killed the process: the earliest moment by which something that still runs must be gone.

use std::collections::{BTreeMap, BTreeSet};

use super::SessionNo;
use crate::name::ShardId;
use crate::time::Moment;

/// The moments that the dead-man timer has to keep.
#[derive(Debug, Default)]
pub(super) struct Timer {
    /// What the kernel was told last.
    armed: Option<Moment>,
    /// Work that must be gone before its session's deadline.
    hurried: BTreeSet<(Moment, ShardId)>,
    sessions: BTreeMap<SessionNo, Kept>,
}

/// A session as the timer knows it.
#[derive(Debug)]
struct Kept {
    kill_at: Moment,
    /// How many shards run under it.
    running: usize,
}

impl Timer {
    pub(super) fn open(&mut self, session: SessionNo, kill_at: Moment) {
        self.sessions.insert(session, Kept { kill_at, running: 0 });
    }

    pub(super) fn kill_at(&self, session: SessionNo) -> Moment {
        self.sessions.get(&session).map_or(Moment::ZERO, |kept| kept.kill_at)
    }

    pub(super) fn set_kill_at(&mut self, session: SessionNo, kill_at: Moment) {
        if let Some(kept) = self.sessions.get_mut(&session) {
            kept.kill_at = kill_at;
        }
    }

    /// A session is over. It counts for as long as something runs under it.
    pub(super) fn forget_if_idle(&mut self, session: SessionNo) {
        if self.sessions.get(&session).is_some_and(|kept| kept.running == 0) {
            self.sessions.remove(&session);
        }
    }

    pub(super) fn began(&mut self, session: SessionNo) {
        if let Some(kept) = self.sessions.get_mut(&session) {
            kept.running += 1;
        }
    }

    pub(super) fn ended(&mut self, session: SessionNo, shard: &ShardId, gone_by: Moment) {
        self.hurried.remove(&(gone_by, shard.clone()));
        if let Some(kept) = self.sessions.get_mut(&session) {
            kept.running -= 1;
        }
    }

    /// Work must be gone by then, and not by what was said before.
    pub(super) fn hurry(&mut self, shard: &ShardId, before: Moment, gone_by: Moment) {
        self.hurried.remove(&(before, shard.clone()));
        self.hurried.insert((gone_by, shard.clone()));
    }

    /// What the kernel must be told, if that is something new.
    pub(super) fn change(&self) -> Option<Option<Moment>> {
        let busy = self.sessions.values().filter(|kept| kept.running > 0).map(|kept| kept.kill_at);
        let due = busy.chain(self.hurried.first().map(|(gone_by, _)| *gone_by)).min();
        (due != self.armed).then_some(due)
    }

    pub(super) fn told(&mut self, armed: Option<Moment>) {
        self.armed = armed;
    }

    pub(super) fn armed(&self) -> Option<Moment> {
        self.armed
    }
}
