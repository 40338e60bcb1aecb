//! The shards here: those that this node holds, is getting or is giving up, and work of an earlier session that has not
//! ended yet.

use std::collections::BTreeMap;

use super::context::Context;
use super::hold::{Hold, Phase};
use crate::event::{Action, StopReason};
use crate::name::{Epoch, ShardId};
use crate::time::Moment;

/// The shards here.
#[derive(Debug, Default)]
pub(super) struct Holds {
    held: BTreeMap<ShardId, Hold>,
    /// Work of an earlier session that was told to stop and has not confirmed it.
    orphans: BTreeMap<ShardId, Epoch>,
    /// The last epoch at which each shard started here, in all sessions of this process.
    started: BTreeMap<ShardId, Epoch>,
}

impl Holds {
    pub(super) fn get(&self, shard: &ShardId) -> Option<&Hold> {
        self.held.get(shard)
    }

    pub(super) fn get_mut(&mut self, shard: &ShardId) -> Option<&mut Hold> {
        self.held.get_mut(shard)
    }

    pub(super) fn contains(&self, shard: &ShardId) -> bool {
        self.held.contains_key(shard)
    }

    pub(super) fn insert(&mut self, shard: &ShardId, hold: Hold) {
        self.held.insert(shard.clone(), hold);
    }

    pub(super) fn remove(&mut self, shard: &ShardId) -> Option<Hold> {
        self.held.remove(shard)
    }

    pub(super) fn len(&self) -> usize {
        self.held.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&ShardId, &Hold)> {
        self.held.iter()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (&ShardId, &mut Hold)> {
        self.held.iter_mut()
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &ShardId> {
        self.held.keys()
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &Hold> {
        self.held.values()
    }

    /// Claimed shards are looked at in this step: what they waited for may have happened.
    pub(super) fn look_at_claimed(&self, ctx: &mut Context) {
        let claimed = self.held.iter().filter(|(_, hold)| hold.is_claimed());
        ctx.agenda.extend(claimed.map(|(shard, _)| shard.clone()));
    }

    /// The work of a shard runs from now on.
    pub(super) fn run(&mut self, shard: &ShardId, at: Moment) {
        if let Some(hold) = self.held.get_mut(shard) {
            hold.run(at);
            self.started.insert(shard.clone(), hold.epoch());
        }
    }

    /// The last epoch at which a shard started here.
    pub(super) fn last_epoch(&self, shard: &ShardId) -> Option<Epoch> {
        self.started.get(shard).copied()
    }

    /// Nothing of a shard runs any more.
    pub(super) fn stopped(&mut self, shard: &ShardId, why: Option<StopReason>) {
        if let Some(hold) = self.held.get_mut(shard) {
            hold.stopped(why);
        }
    }

    /// Shards without a record are forgotten, once there are many of them.
    pub(super) fn prune(&mut self, shards: usize, has_record: impl Fn(&ShardId) -> bool) {
        if self.started.len() > shards {
            self.started.retain(|shard, _| has_record(shard));
        }
    }

    /// Forgets the shards that only the gate was asked about.
    pub(super) fn forget_asking(&mut self) {
        self.held.retain(|_, hold| hold.phase() != Phase::Asking);
    }

    /// The time to leave is over: work that still runs is killed.
    pub(super) fn kill_all(&mut self, ctx: &mut Context) {
        let why = StopReason::Draining;
        for (shard, hold) in self.held.iter_mut().filter(|(_, hold)| hold.has_work()) {
            let (shard, epoch, kill_at) = (shard.clone(), hold.epoch(), Some(ctx.now.at));
            ctx.out.push(Action::Stop { shard, epoch, why, kill_at });
            hold.stuck(why, ctx.now.at);
        }
    }

    /// The session is over: nothing is held any more. Work that runs is an orphan until it has ended; says which.
    pub(super) fn orphan_all(&mut self) -> Vec<(ShardId, Epoch)> {
        let held = std::mem::take(&mut self.held).into_iter();
        let running: Vec<_> =
            held.filter(|(_, hold)| hold.has_work()).map(|(shard, hold)| (shard, hold.epoch())).collect();
        self.orphans.extend(running.iter().cloned());
        running
    }

    /// Whether work of an earlier session may still run for this shard.
    pub(super) fn is_orphaned(&self, shard: &ShardId) -> bool {
        self.orphans.contains_key(shard)
    }

    pub(super) fn has_orphans(&self) -> bool {
        !self.orphans.is_empty()
    }

    /// Work has ended; `true` if it was an orphan.
    pub(super) fn orphan_ended(&mut self, shard: &ShardId, epoch: Epoch) -> bool {
        let ended = self.orphans.get(shard) == Some(&epoch);
        if ended {
            self.orphans.remove(shard);
        }
        ended
    }

    /// Counts work that still runs as an orphan, although its shard is held.
    #[cfg(feature = "sabotage")]
    pub(super) fn orphan(&mut self, shard: &ShardId, epoch: Epoch) {
        self.orphans.insert(shard.clone(), epoch);
    }
}
