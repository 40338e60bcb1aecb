//! The work that runs here: the decisions of the core's `work` module, carried out by a executor.

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold_core::event::{Ended, StopReason};
use leasehold_core::work::{self, SessionLost};
use leasehold_core::{Deadlines, Epoch, Event, GroupName, Moment, ShardId};
use tokio::sync::mpsc::UnboundedSender;
use tokio_util::sync::CancellationToken;

use super::Input;
use super::executor::Executor;
use crate::deadman::Alarm;
use crate::handler::AnyHandler;
use crate::tasks;

/// All work of one node.
pub(crate) struct Works<A> {
    decisions: work::Works,
    pub(crate) executor: Executor<A>,
}

impl<A: Alarm> Works<A> {
    /// Nothing runs yet. When a part of a shard's work failed, the rest has `siblings_stop_within` to stop.
    pub(crate) fn new(executor: Executor<A>, siblings_stop_within: Duration) -> Self {
        Works { decisions: work::Works::new(executor.kill_early, siblings_stop_within), executor }
    }

    /// How many shards have work that has not ended.
    pub(crate) fn running(&self) -> usize {
        self.decisions.running().len()
    }

    /// The same, by group.
    pub(crate) fn running_by_group(&self) -> BTreeMap<GroupName, usize> {
        let mut groups: BTreeMap<&GroupName, usize> = BTreeMap::new();
        for (shard, _) in self.decisions.running() {
            *groups.entry(&shard.group).or_default() += 1;
        }
        groups.into_iter().map(|(group, count)| (group.clone(), count)).collect()
    }

    /// A new session begins: the former one is over.
    pub(crate) fn open_session(&mut self) {
        self.decisions.open_session(&mut self.executor);
    }

    /// The session's deadlines moved forward; fails if the session was lost before that.
    pub(crate) fn extend(&mut self, deadlines: Deadlines) -> Result<(), SessionLost> {
        self.decisions.extend(deadlines, &mut self.executor)
    }

    /// The session is lost for good.
    pub(crate) fn lose(&mut self) {
        self.decisions.lose(&mut self.executor);
    }

    /// Starts the work of a shard; returns what to tell the core if it did not start.
    pub(crate) fn start(&mut self, shard: ShardId, epoch: Epoch) -> Option<Event> {
        let refused = self.decisions.start(shard, epoch, &mut self.executor);
        if let Some(Event::Ended { shard, how: Ended::Failed(why), .. }) = &refused {
            tracing::error!(%shard, %epoch, why, "the shard was not started");
        }
        refused
    }

    /// Tells the work of a shard to stop; returns what to tell the core if none of it runs.
    pub(crate) fn stop(
        &mut self,
        shard: &ShardId,
        epoch: Epoch,
        why: StopReason,
        kill_at: Option<Moment>,
    ) -> Option<Event> {
        self.decisions.stop(shard, epoch, why, kill_at, &mut self.executor)
    }

    /// One handler of a shard is gone; returns what to tell the core if none of the work is left.
    pub(crate) fn handler_ended(&mut self, shard: &ShardId, epoch: Epoch, how: Ended) -> Option<Event> {
        let now = self.executor.clock.now();
        self.decisions.handler_ended(now, shard, epoch, how, &mut self.executor)
    }

    /// Nothing that a grant owns is left, or a part of it failed; returns what to tell the core if none of the work is
    /// left.
    pub(crate) fn owned_ended(&mut self, shard: &ShardId, epoch: Epoch, how: Ended) -> Option<Event> {
        let now = self.executor.clock.now();
        self.decisions.owned_ended(now, shard, epoch, how, &mut self.executor)
    }

    /// Adds a handler to a group, and to its shards that already run.
    pub(crate) fn add_handler(&mut self, group: GroupName, handler: AnyHandler) {
        let joins = self.decisions.join(&group, &mut self.executor);
        self.executor.add_handler(group, handler, &joins);
    }

    /// Cuts off everything, for the end of the driver. Work that is stuck in a thread stays under the dead-man timer.
    pub(crate) fn kill_all(&mut self) {
        self.executor.kill_all();
    }

    /// Reports when the runtime of user code is shut down, until `end`.
    pub(crate) fn watch_runtime(&self, end: CancellationToken) {
        let mut sentinel = Sentinel(Some(self.executor.inputs.clone()));
        tasks::spawn_on(&self.executor.runtime, async move {
            end.cancelled().await;
            drop(sentinel.0.take());
        });
    }
}

/// Lives in a task that a runtime only drops when it is shut down.
struct Sentinel(Option<UnboundedSender<Input>>);

impl Drop for Sentinel {
    fn drop(&mut self) {
        if let Some(inputs) = self.0.take() {
            let _ = inputs.send(Input::RuntimeGone);
        }
    }
}
