//! Carries out what [`leasehold_core::work::Works`] decides: handlers on the user's runtime, grants, the watchdog and
//! the dead-man timer.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, PoisonError, RwLock};

use futures::FutureExt;
use leasehold_core::event::{Ended, StopReason};
use leasehold_core::work::{Hands, SessionLost, SessionNo};
use leasehold_core::{Deadlines, Epoch, GroupName, Moment, ShardId};
use tokio::runtime::Handle;
use tokio::sync::mpsc::UnboundedSender;
use tracing::Instrument;

use super::Input;
use crate::clock::Clock;
use crate::deadman::{Alarm, Leash};
use crate::grant::Grant;
use crate::handler::{self, AnyHandler, Outcome};
use crate::owned::Owned;
use crate::session::Session;
use crate::tasks;
use crate::watchdog::Watchdog;

/// The current grants, for `owned` and `owns`. The lock is never held across an `await`.
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

/// Runs work, tells it to stop and cuts it off.
pub(crate) struct Executor<A> {
    pub(crate) clock: Clock,
    /// Where user code runs.
    pub(crate) runtime: Handle,
    pub(crate) inputs: UnboundedSender<Input>,
    pub(crate) grants: Arc<Grants>,
    pub(crate) watchdog: Watchdog,
    pub(crate) alarm: Leash<A>,
    pub(crate) kill_early: std::time::Duration,
    pub(crate) handlers: BTreeMap<GroupName, Vec<AnyHandler>>,
    /// The sessions under which something runs, and the newest one.
    pub(crate) sessions: BTreeMap<SessionNo, Arc<Session>>,
}

impl<A: Alarm> Hands for Executor<A> {
    fn arm(&mut self, at: Option<Moment>) -> Result<(), String> {
        self.alarm.set(at).map_err(|error| {
            match at {
                Some(_) => tracing::error!(%error, "cannot set the dead-man timer"),
                None => tracing::error!(
                    %error,
                    "cannot turn off the dead-man timer: this process will be killed"
                ),
            }
            error.to_string()
        })
    }

    fn open(&mut self, session: SessionNo, deadlines: Deadlines) {
        let grants = self.grants.all();
        self.sessions.retain(|_, known| grants.iter().any(|grant| Arc::ptr_eq(grant.session(), known)));
        let opened = Arc::new(Session::new(self.clock.clone(), deadlines, self.kill_early));
        self.watchdog.guard(opened.clone());
        self.sessions.insert(session, opened);
    }

    fn extend(&mut self, session: SessionNo, deadlines: Deadlines) -> Result<(), SessionLost> {
        self.sessions.get(&session).ok_or(SessionLost)?.extend(deadlines)
    }

    fn lose(&mut self, session: SessionNo) {
        if let Some(session) = self.sessions.get(&session) {
            session.lose();
        }
    }

    fn holds(&mut self, session: SessionNo) -> bool {
        self.sessions.get(&session).is_some_and(|session| session.holds())
    }

    fn run(&mut self, session: SessionNo, shard: &ShardId, epoch: Epoch) -> usize {
        let session = self.sessions.get(&session).expect("work starts only in a session that is open");
        let owned = Owned::new(self.runtime.clone(), self.inputs.clone());
        let grant = Grant::new(shard.clone(), epoch, self.clock.clone(), session.clone(), owned);
        self.grants.put(grant.clone());
        let handlers = self.handlers.get(&shard.group).cloned().unwrap_or_default();
        for handler in &handlers {
            self.spawn(handler.clone(), grant.clone());
        }
        handlers.len()
    }

    fn tell(&mut self, shard: &ShardId, epoch: Epoch, why: StopReason) {
        if let Some(grant) = self.grant(shard, epoch) {
            grant.stop(why);
        }
    }

    fn cut_off_at(&mut self, shard: &ShardId, epoch: Epoch, at: Moment) {
        if let Some(grant) = self.grant(shard, epoch) {
            self.watchdog.kill_at(at, grant.killed().clone());
        }
    }

    fn close(&mut self, shard: &ShardId, epoch: Epoch) -> bool {
        let Some(grant) = self.grant(shard, epoch) else { return true };
        // The grant ends before the end of the work is reported, because the shard may be given away after that.
        let ended = grant.end();
        if ended {
            self.grants.remove(shard);
        }
        ended
    }
}

impl<A> Executor<A> {
    fn grant(&self, shard: &ShardId, epoch: Epoch) -> Option<Grant> {
        self.grants.get(shard).filter(|grant| grant.epoch() == epoch)
    }

    /// Starts one handler under a grant.
    pub(crate) fn spawn(&self, handler: AnyHandler, grant: Grant) {
        let report = Report {
            inputs: self.inputs.clone(),
            shard: grant.shard().clone(),
            epoch: grant.epoch(),
            how: Some(Ended::Failed(
                "it was dropped: its runtime was shut down, or its drop panicked".to_owned(),
            )),
        };
        let span = grant.span().clone();
        tasks::spawn_on(&self.runtime, supervise(report, handler, grant).instrument(span));
    }

    /// Adds a handler to a group, and to its shards that run here.
    pub(crate) fn add_handler(&mut self, group: GroupName, handler: AnyHandler, joins: &[(ShardId, Epoch)]) {
        for (shard, epoch) in joins {
            if let Some(grant) = self.grant(shard, *epoch) {
                tracing::debug!(%shard, "a handler joins running work");
                self.spawn(handler.clone(), grant);
            }
        }
        self.handlers.entry(group).or_default().push(handler);
    }

    /// Cuts off everything.
    pub(crate) fn kill_all(&self) {
        self.sessions.values().for_each(|session| session.kill());
    }
}

/// Runs one handler until it returns or is cut off, and reports when none of it is left. `report` is the first
/// parameter so that it is dropped last, wherever the task is dropped.
async fn supervise(mut report: Report, handler: AnyHandler, grant: Grant) {
    let kill = grant.killed().clone();
    let how = tokio::select! {
        biased;
        () = kill.cancelled() => Ended::Finished,
        how = AssertUnwindSafe(guarded(handler, grant)).catch_unwind() => match how {
            Ok(Ok(())) => Ended::Finished,
            Ok(Err(error)) => Ended::Failed(handler::chain(&*error)),
            Err(panic) => Ended::Failed(format!("panicked: {}", panic_text(&*panic))),
        },
    };
    report.how = Some(how);
}

/// The time may have passed while the task waited to run: user code is only called under a valid grant.
async fn guarded(handler: AnyHandler, grant: Grant) -> Outcome {
    if grant.is_lost() {
        return Ok(());
    }
    handler.call(grant).await
}

/// The message of a panic.
pub(crate) fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}

/// Reports that one handler is gone, when it is dropped.
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
