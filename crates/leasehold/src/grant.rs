//! What user code gets for a shard that it holds.

use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use leasehold_core::event::{Command, StopReason};
use leasehold_core::{Epoch, GroupName, Moment, ShardId};
use tokio_util::sync::CancellationToken;
use tracing::Span;

use crate::clock::Clock;
use crate::owned::Owned;
use crate::session::Session;

/// The right to work on one shard, for as long as it is valid.
///
/// A grant is cheap to clone and can be given to anything that acts for the shard. It ends when the node cannot prove
/// its session in time, when the shard moves to another node, or when the shard's handlers have returned. It never
/// becomes valid again; a new start comes with a new grant of a higher [`epoch`](Grant::epoch).
///
/// Call [`check`](Grant::check) right before every side effect, and put the epoch into the write itself where the
/// target can compare it: an effect that was already sent cannot be taken back.
///
/// # What Leasehold can see
///
/// Leasehold sees the handler itself, and what is started by [`spawn`](Grant::spawn),
/// [`spawn_blocking`](Grant::spawn_blocking) or under a [`guard`](Grant::guard). The shard is released, and the
/// dead-man timer switched off, only when all of that is gone. **Everything else that a handler starts is invisible:**
/// a `tokio::spawn`, a `tokio::task::spawn_blocking`, a thread, a child process. When the handler returns or is cut
/// off, the shard goes to the next holder, and such work keeps running beside it.
///
/// ```
/// # async fn crunch(grant: leasehold::Grant) -> leasehold::Outcome {
/// let crunching = grant.spawn_blocking(|grant| {
///     while grant.check().is_ok() && !grant.stopping().is_cancelled() {
///         // … a piece of work that blocks
///     }
/// })?;
/// crunching.await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Grant(Arc<Inner>);

struct Inner {
    shard: ShardId,
    epoch: Epoch,
    clock: Clock,
    session: Arc<Session>,
    owned: Owned,
    /// None of the work may run any more, because its end was reported.
    over: AtomicBool,
    /// Why the work was told to stop, unless the session is lost.
    why: OnceLock<StopReason>,
    stopping: CancellationToken,
    lost: CancellationToken,
    kill: CancellationToken,
    span: Span,
}

/// The grant is over: another node may be working on the shard, now or soon.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "this node no longer holds shard {shard} (epoch {epoch}) because {why}: stop, and write nothing more for it"
)]
#[non_exhaustive]
pub struct Lost {
    /// Which shard.
    pub shard: ShardId,
    /// The epoch under which it was held.
    pub epoch: Epoch,
    /// What ended the grant.
    pub why: LostReason,
}

impl From<Lost> for std::io::Error {
    fn from(lost: Lost) -> Self {
        std::io::Error::other(lost)
    }
}

/// What ended a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LostReason {
    /// The node could not prove its session in time, or learned that the session is over.
    Session,
    /// The shard's work on this node has ended.
    Ended,
}

impl fmt::Display for LostReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LostReason::Session => "the session of this node has ended",
            LostReason::Ended => "the work has ended",
        })
    }
}

impl Grant {
    pub(crate) fn new(
        shard: ShardId,
        epoch: Epoch,
        clock: Clock,
        session: Arc<Session>,
        owned: Owned,
    ) -> Self {
        let stopping = session.stopping().child_token();
        let lost = session.lost().child_token();
        let kill = session.killed().child_token();
        let over = AtomicBool::new(false);
        let why = OnceLock::new();
        // At this level a filter such as `warn,myapp=info` keeps it.
        let span = tracing::error_span!("leasehold.shard", group = %shard.group, shard = %shard.name, epoch = epoch.0);
        Grant(Arc::new(Inner { shard, epoch, clock, session, owned, over, why, stopping, lost, kill, span }))
    }

    /// The shard.
    pub fn shard(&self) -> &ShardId {
        &self.0.shard
    }

    /// The shard's group.
    pub fn group(&self) -> &GroupName {
        &self.0.shard.group
    }

    /// The slot number, if the shard belongs to a numbered group.
    pub fn slot(&self) -> Option<u32> {
        self.0.shard.name.as_slot()
    }

    /// The fencing token: above that of every earlier start of this shard on any node. Put it into conditional writes.
    pub fn epoch(&self) -> Epoch {
        self.0.epoch
    }

    /// When the work is told to stop unless the session is renewed, on this machine's boot clock. It moves forward
    /// with every renewal; for a lost grant it is [`Moment::ZERO`].
    pub fn deadline(&self) -> Moment {
        if self.0.over.load(Ordering::Acquire) { Moment::ZERO } else { self.0.session.stop_at() }
    }

    /// The time until [`deadline`](Grant::deadline); zero if the grant is lost.
    pub fn remaining(&self) -> Duration {
        self.deadline().since(self.0.clock.now())
    }

    /// Whether the work may go on. Call it before every side effect; it costs two atomic loads and a clock read.
    ///
    /// It fails from `stop_at` on, even if every task and thread that should report it is stuck. Once it has failed,
    /// it always fails. While the work is being stopped for a planned move it still succeeds: the shard is held
    /// until the work has ended.
    #[inline]
    pub fn check(&self) -> Result<(), Lost> {
        if self.0.session.holds() && !self.0.over.load(Ordering::Acquire) {
            return Ok(());
        }
        Err(self.why_lost())
    }

    #[cold]
    pub(crate) fn why_lost(&self) -> Lost {
        let why = if self.0.over.load(Ordering::Acquire) { LostReason::Ended } else { LostReason::Session };
        Lost { shard: self.0.shard.clone(), epoch: self.0.epoch, why }
    }

    /// Whether the grant is over.
    pub fn is_lost(&self) -> bool {
        self.check().is_err()
    }

    /// Waits until the grant is over.
    pub async fn lost(&self) -> Lost {
        if !self.is_lost() {
            self.0.lost.cancelled().await;
        }
        self.why_lost()
    }

    /// Cancelled when the work must stop: the shard moves, the node drains, or the session is over. Work that has not
    /// returned in time is cut off.
    pub fn stopping(&self) -> &CancellationToken {
        &self.0.stopping
    }

    /// Waits until the work is told to stop.
    pub async fn stopped(&self) {
        self.0.stopping.cancelled().await;
    }

    /// Why the work must stop; `None` while it may go on.
    ///
    /// After a planned stop ([`StopReason::is_planned`]) the shard is still held until the work has returned: finish
    /// what was begun, flush, commit. After a loss another node may already be starting: write nothing more. A planned
    /// stop turns into a loss if the session is lost meanwhile.
    ///
    /// ```
    /// # async fn flush(_: &leasehold::Grant) {}
    /// # async fn work(grant: leasehold::Grant) {
    /// grant.stopped().await;
    /// match grant.stop_reason() {
    ///     Some(why) if why.is_planned() => flush(&grant).await, // the shard is still ours
    ///     _ => {}                                               // lost: drop everything, write nothing
    /// }
    /// # }
    /// ```
    pub fn stop_reason(&self) -> Option<StopReason> {
        if !self.0.session.holds() {
            return Some(StopReason::Detached);
        }
        if self.0.over.load(Ordering::Acquire) {
            // The end of the work itself is no reason to have stopped it.
            return self.0.why.get().copied();
        }
        self.0.stopping.is_cancelled().then(|| self.0.why.get().copied().unwrap_or(StopReason::Detached))
    }

    /// Asks for the shard to be given to another node: the work is told to stop ([`StopReason::SteppedDown`]), the next
    /// node in rank takes the shard, and this one declines it for `pause`, counted from the end of the work. If no other
    /// node can take it, nobody holds it until then, and it comes back here.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # async fn lead(_: &leasehold::Grant) -> Result<(), leasehold::BoxError> { Ok(()) }
    /// # async fn work(grant: leasehold::Grant) -> leasehold::Outcome {
    /// if lead(&grant).await.is_err() {
    ///     grant.step_down(Duration::from_secs(60))?; // somebody else may do better
    ///     grant.stopped().await;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn step_down(&self, pause: Duration) -> Result<(), Lost> {
        self.check()?;
        let (shard, epoch) = (self.0.shard.clone(), self.0.epoch);
        self.0.owned.ask(Command::StepDown { shard, epoch, pause });
        Ok(())
    }

    /// Runs a future for as long as the grant is valid. When the grant is lost, the future is dropped at its current
    /// `await`, and the result is [`Lost`]. A planned stop does not end it: to end with that, use
    /// `grant.stopping().run_until_cancelled(future)`.
    ///
    /// ```
    /// # async fn copy_everything() -> u64 { 7 }
    /// # async fn work(grant: leasehold::Grant) -> leasehold::Outcome {
    /// let copied = grant.hold(copy_everything()).await?;
    /// # assert_eq!(copied, 7);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn hold<F: Future>(&self, work: F) -> Result<F::Output, Lost> {
        tokio::select! {
            biased;
            lost = self.lost() => Err(lost),
            output = work => Ok(output),
        }
    }

    /// The span `leasehold.shard`, with the fields `group`, `shard` and `epoch`. Handlers and what is started by
    /// [`spawn`](Grant::spawn) and [`spawn_blocking`](Grant::spawn_blocking) run inside it, so that their log lines
    /// name the shard. Enter it for other work that acts for the shard.
    ///
    /// Its level is `ERROR`, so that a filter such as `warn,myapp=info` keeps it. One that names only your own crate leaves
    /// it out: add `leasehold=warn`.
    pub fn span(&self) -> &Span {
        &self.0.span
    }

    /// Tells the work to stop.
    pub(crate) fn stop(&self, why: StopReason) {
        let _ = self.0.why.set(why);
        self.0.stopping.cancel();
    }

    /// Ends the grant, because none of its handlers is left. Called before that end is reported. Returns false if work
    /// that the grant owns still runs: then the grant stays valid.
    pub(crate) fn end(&self) -> bool {
        if !self.0.owned.close() {
            return false;
        }
        self.0.over.store(true, Ordering::Release);
        self.0.lost.cancel();
        self.0.stopping.cancel();
        true
    }

    /// What the grant owns in addition to its handlers.
    pub(crate) fn owns(&self) -> &Owned {
        &self.0.owned
    }

    /// Cancelled when work that still runs is cut off.
    pub(crate) fn killed(&self) -> &CancellationToken {
        &self.0.kill
    }

    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.0.session
    }
}

impl fmt::Debug for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grant")
            .field("shard", &self.0.shard)
            .field("epoch", &self.0.epoch)
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use leasehold_core::Deadlines;
    use tokio::runtime::Handle;
    use tokio::sync::mpsc::unbounded_channel;

    fn grant(stop_after_ms: u64) -> Grant {
        let clock = Clock::virtual_time();
        let stop_at = clock.now() + Duration::from_millis(stop_after_ms);
        let deadlines = Deadlines { stop_at, kill_at: stop_at, valid_until: stop_at };
        let session = Arc::new(Session::new(clock.clone(), deadlines, Duration::ZERO));
        let owned = Owned::new(Handle::current(), unbounded_channel().0);
        Grant::new("orders/3".parse().unwrap(), Epoch(7), clock, session, owned)
    }

    #[tokio::test(start_paused = true)]
    async fn check_fails_at_the_deadline_with_nobody_there_to_say_so() {
        let grant = grant(100);
        assert_eq!((grant.slot(), grant.epoch(), grant.group().as_str()), (Some(3), Epoch(7), "orders"));
        assert_eq!(grant.remaining(), Duration::from_millis(100));
        assert_eq!(grant.check(), Ok(()));
        tokio::time::advance(Duration::from_millis(100)).await;
        let lost = grant.check().unwrap_err();
        assert_eq!(lost.why, LostReason::Session);
        assert!(lost.to_string().contains("orders/3 (epoch 7)") && lost.to_string().contains("stop"));
        assert_eq!((grant.deadline(), grant.remaining()), (Moment::ZERO, Duration::ZERO));
    }

    #[tokio::test(start_paused = true)]
    async fn work_that_is_told_to_stop_still_holds_until_it_ended() {
        let (grant, other) = (grant(1000), grant(1000));
        assert_eq!(grant.stop_reason(), None);
        grant.stop(StopReason::Moving);
        grant.stopped().await;
        assert_eq!(grant.stop_reason(), Some(StopReason::Moving));
        assert_eq!(grant.check(), Ok(()));
        assert!(grant.end());
        assert_eq!(grant.lost().await.why, LostReason::Ended);
        assert!(grant.is_lost());
        assert_eq!(other.check(), Ok(()), "one shard's end is its own");
        assert!(!other.stopping().is_cancelled());
    }

    #[tokio::test(start_paused = true)]
    async fn losing_the_session_wakes_those_who_wait() {
        let grant = grant(1000);
        let waiting = {
            let grant = grant.clone();
            async move { grant.lost().await }
        };
        let losing = async {
            tokio::time::sleep(Duration::from_millis(5)).await;
            grant.session().lose();
        };
        let (lost, ()) = tokio::join!(waiting, losing);
        assert_eq!(lost.why, LostReason::Session);
        assert!(grant.stopping().is_cancelled());
        assert_eq!(grant.stop_reason(), Some(StopReason::Detached));
    }

    #[tokio::test(start_paused = true)]
    async fn a_planned_stop_turns_into_a_loss_when_the_session_is_lost() {
        let grant = grant(100);
        grant.stop(StopReason::Draining);
        assert_eq!(grant.stop_reason(), Some(StopReason::Draining));
        tokio::time::advance(Duration::from_millis(100)).await;
        assert_eq!(grant.stop_reason(), Some(StopReason::Detached));
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_grant_holds_ends_with_the_loss_and_not_with_a_planned_stop() {
        let grant = grant(1000);
        grant.stop(StopReason::Moving);
        let slow = tokio::time::sleep(Duration::from_millis(5));
        assert_eq!(grant.hold(slow).await, Ok(()));
        let losing = async {
            tokio::time::sleep(Duration::from_millis(5)).await;
            grant.session().lose();
        };
        let (held, ()) = tokio::join!(grant.hold(std::future::pending::<()>()), losing);
        assert_eq!(held.unwrap_err().why, LostReason::Session);
        assert!(grant.hold(async {}).await.is_err(), "nothing begins under a lost grant");
    }
}
