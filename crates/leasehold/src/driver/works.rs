//! The work that runs here: starting, telling to stop, cutting off, and saying when nothing of it runs any more.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use futures::FutureExt;
use leasehold_core::event::Ended;
use leasehold_core::{Deadlines, Epoch, Event, GroupName, Moment, ShardId};
use tokio::runtime::Handle;
use tokio::sync::mpsc::UnboundedSender;
use tokio_util::sync::CancellationToken;

use super::Input;
use crate::clock::Clock;
use crate::deadman::Alarm;
use crate::grant::Grant;
use crate::group::{Handler, Outcome};
use crate::session::{Session, SessionLost};
use crate::tasks;
use crate::watchdog::Watchdog;

/// The grants that are out, for `owned` and `owns`. The lock is never held across anything that waits.
#[derive(Debug, Default)]
pub(crate) struct Grants(RwLock<BTreeMap<ShardId, Grant>>);

impl Grants {
    pub(crate) fn get(&self, shard: &ShardId) -> Option<Grant> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(shard).cloned()
    }

    pub(crate) fn all(&self) -> Vec<Grant> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    fn put(&self, grant: Grant) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(grant.shard().clone(), grant);
    }

    fn remove(&self, shard: &ShardId) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).remove(shard);
    }
}

/// All work of one node.
pub(crate) struct Works<A> {
    pub(crate) clock: Clock,
    /// Where user code runs.
    pub(crate) runtime: Handle,
    pub(crate) inputs: UnboundedSender<Input>,
    pub(crate) grants: Arc<Grants>,
    pub(crate) watchdog: Watchdog,
    pub(crate) alarm: A,
    /// How much earlier than the dead-man timer work is cut off from inside.
    pub(crate) kill_early: Duration,
    /// How long the other handlers of a shard have to stop when one of them failed.
    pub(crate) siblings_stop_within: Duration,
    pub(crate) handlers: BTreeMap<GroupName, Vec<Handler>>,
    pub(crate) session: Option<Arc<Session>>,
    pub(crate) running: BTreeMap<ShardId, Work>,
}

/// The work of one shard: all handlers of its group under one grant.
pub(crate) struct Work {
    grant: Grant,
    kill: CancellationToken,
    handlers_left: usize,
    failure: Option<String>,
}

impl<A: Alarm> Works<A> {
    /// A new session begins: the former one is over.
    pub(crate) fn open_session(&mut self) {
        if let Some(session) = self.session.take() {
            session.lose();
        }
    }

    /// The session's deadlines moved forward; fails if it was lost before it could be told.
    pub(crate) fn extend(&mut self, deadlines: Deadlines) -> Result<(), SessionLost> {
        let Some(session) = &self.session else {
            let session = Arc::new(Session::new(self.clock.clone(), deadlines, self.kill_early));
            self.watchdog.guard(session.clone());
            self.session = Some(session);
            return Ok(());
        };
        // The kernel's timer moves first: it must never stand behind what the grants believe.
        if !self.running.is_empty()
            && let Err(error) = self.alarm.set(deadlines.kill_at)
        {
            tracing::error!(%error, "the dead-man timer cannot be moved: the session is left to run out");
            return Ok(());
        }
        session.extend(deadlines)
    }

    /// The session is lost for good.
    pub(crate) fn lose(&mut self) {
        if let Some(session) = &self.session {
            session.lose();
        }
    }

    /// Starts the work of a shard; the answer is what to tell the core if it did not start.
    pub(crate) fn start(&mut self, shard: ShardId, epoch: Epoch) -> Option<Event> {
        if self.running.contains_key(&shard) {
            tracing::error!(%shard, %epoch, "refused to start a shard whose former work has not ended");
            return Some(ended(shard, epoch, Ended::Failed("its former work has not ended".to_owned())));
        }
        let Some(session) = self.session.clone().filter(|session| session.holds()) else {
            return Some(ended(shard, epoch, Ended::Finished));
        };
        if self.running.is_empty()
            && let Err(error) = self.alarm.set(session.die_at())
        {
            return Some(ended(
                shard,
                epoch,
                Ended::Failed(format!("the dead-man timer cannot be set: {error}")),
            ));
        }
        let grant = Grant::new(shard.clone(), epoch, self.clock.clone(), session.clone());
        let kill = session.killed().child_token();
        let handlers = self.handlers.get(&shard.group).cloned().unwrap_or_default();
        let work = Work { grant: grant.clone(), kill, handlers_left: handlers.len(), failure: None };
        self.grants.put(grant);
        for handler in handlers {
            self.spawn(handler, &work);
        }
        self.running.insert(shard, work);
        None
    }

    /// Says so when the runtime of user code is shut down, until `end`.
    pub(crate) fn watch_runtime(&self, end: CancellationToken) {
        let mut sentinel = Sentinel(Some(self.inputs.clone()));
        tasks::spawn_on(&self.runtime, async move {
            end.cancelled().await;
            drop(sentinel.0.take());
        });
    }

    /// Adds a handler to a group, also to its shards that run already.
    pub(crate) fn add_handler(&mut self, group: GroupName, handler: Handler) {
        for (shard, work) in self.running.iter_mut().filter(|(shard, _)| shard.group == group) {
            if !work.grant.stopping().is_cancelled() {
                tracing::debug!(%shard, "a handler joins running work");
                work.handlers_left += 1;
            }
        }
        for work in self.running.values().filter(|work| *work.grant.group() == group) {
            if !work.grant.stopping().is_cancelled() {
                self.spawn(handler.clone(), work);
            }
        }
        self.handlers.entry(group).or_default().push(handler);
    }

    /// Tells the work of a shard to stop; the answer is what to tell the core if nothing of it runs.
    pub(crate) fn stop(&mut self, shard: &ShardId, epoch: Epoch, kill_at: Option<Moment>) -> Option<Event> {
        let Some(work) = self.running.get(shard).filter(|work| work.grant.epoch() == epoch) else {
            return Some(ended(shard.clone(), epoch, Ended::Finished));
        };
        work.grant.stop();
        if work.handlers_left == 0 {
            return Some(self.end(shard));
        }
        if let Some(kill_at) = kill_at {
            let session = work.grant.session();
            // The watchdog cuts off a lost session as a whole.
            if session.holds() || kill_at < session.die_at() {
                self.watchdog.kill_at(kill_at - self.kill_early, work.kill.clone());
            }
        }
        None
    }

    /// One handler of a shard is gone; the answer is what to tell the core if it was the last.
    pub(crate) fn handler_ended(&mut self, shard: &ShardId, epoch: Epoch, how: Ended) -> Option<Event> {
        let work = self.running.get_mut(shard).filter(|work| work.grant.epoch() == epoch)?;
        work.handlers_left -= 1;
        let told_to_stop = work.grant.stopping().is_cancelled();
        if let Ended::Failed(error) = how
            && !told_to_stop
        {
            work.failure = Some(error);
            work.grant.stop();
            if work.handlers_left > 0 {
                self.watchdog.kill_at(self.clock.now() + self.siblings_stop_within, work.kill.clone());
            }
        }
        (work.handlers_left == 0).then(|| self.end(shard))
    }

    /// Cuts off everything, for the end of the driver. What is stuck in a thread stays under the dead-man timer.
    pub(crate) fn kill_all(&mut self) {
        if let Some(session) = &self.session {
            session.kill();
        }
        self.running.values().for_each(|work| {
            work.grant.session().kill();
            work.kill.cancel();
        });
    }

    fn end(&mut self, shard: &ShardId) -> Event {
        let work = self.running.remove(shard).expect("only work that runs can end");
        // The grant ends before anybody hears that the work has, because then the shard may be given away.
        work.grant.end();
        self.grants.remove(shard);
        if self.running.is_empty()
            && let Err(error) = self.alarm.off()
        {
            tracing::error!(%error, "the dead-man timer cannot be switched off: this process will be killed");
        }
        ended(shard.clone(), work.grant.epoch(), work.failure.map_or(Ended::Finished, Ended::Failed))
    }

    fn spawn(&self, handler: Handler, work: &Work) {
        let report = Report {
            inputs: self.inputs.clone(),
            shard: work.grant.shard().clone(),
            epoch: work.grant.epoch(),
            how: Some(Ended::Failed(
                "it was dropped: its runtime was shut down, or its drop panicked".to_owned(),
            )),
        };
        tasks::spawn_on(&self.runtime, supervise(report, handler, work.grant.clone(), work.kill.clone()));
    }
}

fn ended(shard: ShardId, epoch: Epoch, how: Ended) -> Event {
    Event::Ended { shard, epoch, how }
}

/// Runs one handler until it returns or is cut off, and reports when nothing of it is left. `report` comes first, so
/// that it is dropped last, wherever the task is dropped.
async fn supervise(mut report: Report, handler: Handler, grant: Grant, kill: CancellationToken) {
    let how = tokio::select! {
        biased;
        () = kill.cancelled() => Ended::Finished,
        how = AssertUnwindSafe(guarded(handler, grant)).catch_unwind() => match how {
            Ok(Ok(())) => Ended::Finished,
            Ok(Err(error)) => Ended::Failed(error.to_string()),
            Err(panic) => Ended::Failed(format!("panicked: {}", panic_text(&*panic))),
        },
    };
    report.how = Some(how);
}

/// The time may have passed while the task waited to run: user code is only called under a grant that holds.
async fn guarded(handler: Handler, grant: Grant) -> Outcome {
    if grant.is_lost() {
        return Ok(());
    }
    handler.call(grant).await
}

/// What a panic said.
pub(crate) fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
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

/// Says that one handler is gone, when it is dropped.
struct Report {
    inputs: UnboundedSender<Input>,
    shard: ShardId,
    epoch: Epoch,
    how: Option<Ended>,
}

impl Drop for Report {
    fn drop(&mut self) {
        if let Some(how) = self.how.take() {
            let _ =
                self.inputs.send(Input::HandlerEnded { shard: self.shard.clone(), epoch: self.epoch, how });
        }
    }
}
