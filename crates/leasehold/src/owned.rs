//! Work that a grant owns: it counts as running until it is gone, whatever happens to the handler that started it.

use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use futures::FutureExt;
use leasehold_core::event::{Command, Ended, Event};
use tokio::runtime::Handle;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;
use tracing::Instrument;

use crate::driver::{Input, panic_text};
use crate::grant::{Grant, Lost};
use crate::tasks;

/// Set in the count once the grant has ended: nothing more can be added.
const CLOSED: usize = 1 << (usize::BITS - 1);

/// How much a grant owns right now, and where to report when that becomes zero.
#[derive(Debug)]
pub(crate) struct Owned {
    count: AtomicUsize,
    runtime: Handle,
    inputs: UnboundedSender<Input>,
}

impl Owned {
    pub(crate) fn new(runtime: Handle, inputs: UnboundedSender<Input>) -> Self {
        Owned { count: AtomicUsize::new(0), runtime, inputs }
    }

    /// Adds one, unless the grant has ended.
    fn enter(&self) -> bool {
        let add = |count: usize| (count & CLOSED == 0).then_some(count + 1);
        self.count.fetch_update(Ordering::AcqRel, Ordering::Acquire, add).is_ok()
    }

    /// Sends a command to the node. Once the driver is gone there is nobody to hear it, and the grant ends by itself.
    pub(crate) fn ask(&self, command: Command) {
        let _ = self.inputs.send(Input::Core(Event::Command(command)));
    }

    /// Closes it for good, if nothing is owned.
    pub(crate) fn close(&self) -> bool {
        self.count.compare_exchange(0, CLOSED, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

/// Makes a shard's work count as running until the guard is dropped.
///
/// While the guard lives, the shard is not released, its end is not reported, and the dead-man timer stays armed. Give
/// it to anything that acts for the shard outside of a handler: a thread, a connection, a child process. It does not
/// stop anything by itself, so its owner must check the [`Grant`].
#[must_use = "the work counts as running only while this is kept"]
pub struct WorkGuard {
    grant: Grant,
    how: Ended,
}

impl WorkGuard {
    /// The grant that this guard belongs to.
    pub fn grant(&self) -> &Grant {
        &self.grant
    }

    /// Reports that this part of the work failed. The rest is told to stop, and the shard's work counts as failed.
    pub fn fail(mut self, why: impl Into<String>) {
        self.how = Ended::Failed(why.into());
    }
}

impl Drop for WorkGuard {
    fn drop(&mut self) {
        let owned = self.grant.owns();
        let how = std::mem::replace(&mut self.how, Ended::Finished);
        let last = owned.count.fetch_sub(1, Ordering::AcqRel) == 1;
        if last || how != Ended::Finished {
            let (shard, epoch) = (self.grant.shard().clone(), self.grant.epoch());
            let _ = owned.inputs.send(Input::OwnedEnded { shard, epoch, how });
        }
    }
}

impl fmt::Debug for WorkGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WorkGuard").field(self.grant.shard()).finish()
    }
}

/// A task or closure started by [`Grant::spawn`] or [`Grant::spawn_blocking`]. Await it for the result; dropping it
/// changes nothing.
#[derive(Debug)]
pub struct Task<T>(oneshot::Receiver<T>);

/// A task of a grant ended without a result: it was cut off, it panicked, or the grant was lost before it began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the task was cancelled, panicked, or was not started before its grant was lost")]
pub struct CutOff;

impl<T> Future for Task<T> {
    type Output = Result<T, CutOff>;
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(context).map_err(|_| CutOff)
    }
}

impl Grant {
    /// Makes the work count as running until the guard is dropped: for threads, connections, child processes and
    /// anything else that cannot be started by [`spawn`](Grant::spawn) or [`spawn_blocking`](Grant::spawn_blocking).
    /// Fails once the grant is over.
    pub fn guard(&self) -> Result<WorkGuard, Lost> {
        self.check()?;
        if !self.owns().enter() {
            return Err(self.why_lost());
        }
        Ok(WorkGuard { grant: self.clone(), how: Ended::Finished })
    }

    /// Starts a task that belongs to the shard's work, on the runtime of the handlers.
    ///
    /// The work has ended only when the task is gone as well, even if its handler returned or was cut off earlier. At
    /// the deadline the task is cut off at its next `await`, like a handler. If it panics, the work counts as failed.
    pub fn spawn<F>(&self, task: F) -> Result<Task<F::Output>, Lost>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let guard = self.guard()?;
        let (done, result) = oneshot::channel();
        tasks::spawn_on(&self.owns().runtime, supervise(guard, done, task).instrument(self.span().clone()));
        Ok(Task(result))
    }

    /// Runs a blocking closure on the thread pool of the handlers' runtime.
    ///
    /// A thread cannot be cut off from inside: the work has ended, and the shard is released, only when the closure
    /// has returned. So call [`check`](Grant::check) in every loop of the closure, and set
    /// [`dead_man_timer`](crate::Builder::dead_man_timer) to let the kernel end a process whose closure does not
    /// return in time. A closure that has not begun when the grant is lost never begins. If it panics, the work counts
    /// as failed.
    pub fn spawn_blocking<F, T>(&self, work: F) -> Result<Task<T>, Lost>
    where
        F: FnOnce(Grant) -> T + Send + 'static,
        T: Send + 'static,
    {
        let guard = self.guard()?;
        let (done, result) = oneshot::channel();
        tasks::block_on_pool(&self.owns().runtime, move || {
            let grant = guard.grant.clone();
            if grant.is_lost() {
                return;
            }
            let span = grant.span().clone();
            match catch_unwind(AssertUnwindSafe(|| span.in_scope(|| work(grant)))) {
                Ok(output) => drop(done.send(output)),
                Err(panic) => guard.fail(format!("panicked: {}", panic_text(&*panic))),
            }
        });
        Ok(Task(result))
    }
}

/// Runs a task until it returns or is cut off. `guard` is the first parameter so that it is dropped last, wherever the
/// task is dropped.
async fn supervise<F: Future>(guard: WorkGuard, done: oneshot::Sender<F::Output>, task: F) {
    // The time may have passed while the task waited to run.
    if guard.grant.is_lost() {
        return;
    }
    let kill = guard.grant.killed().clone();
    let ended = tokio::select! {
        biased;
        () = kill.cancelled() => return,
        ended = AssertUnwindSafe(task).catch_unwind() => ended,
    };
    match ended {
        Ok(output) => drop(done.send(output)),
        Err(panic) => guard.fail(format!("panicked: {}", panic_text(&*panic))),
    }
}
