//! For tests of a program (feature `test-util`): a grant without a node, a store in memory, stores that fail on purpose,
//! and the suite for stores of one's own.
//!
//! [`docs/testing.md`](https://github.com/leasehold-dev/leasehold/blob/main/docs/testing.md) is the guide. Whole nodes run
//! under virtual time with [`Builder::virtual_time`](crate::Builder::virtual_time).

use std::future::{Future, poll_fn};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_core::event::{Ended, StopReason};
use leasehold_core::{Command, Deadlines, Epoch, Event, Moment};
use tokio::runtime::Handle;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tracing::Instrument;

pub use leasehold_store::{Memory, MemoryServer, conformance, wrap};

use crate::clock::Clock;
use crate::driver::Input;
use crate::grant::{Grant, Lost};
use crate::handler::{IntoOutcome, Outcome};
use crate::owned::Owned;
use crate::session::Session;
use crate::tasks::RunsOn;
use crate::watchdog::Watchdog;

/// How long after a loss work that still runs is cut off.
pub const CUT_OFF_AFTER: Duration = Duration::from_secs(1);

impl Grant {
    /// A grant without a node, and the other end of it, with which a test plays the node (feature `test-util`).
    ///
    /// It is valid for `valid_for`, unless [`TestLease::renew`] moves that on. Its clock is that of the current tokio
    /// runtime: in a test with `start_paused = true` nothing waits for real, and time passes by `tokio::time::sleep` and
    /// `tokio::time::advance`. Grant and lease are made of the parts that a node is made of.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// use std::time::Duration;
    /// use leasehold::{Grant, StopReason};
    ///
    /// async fn handler(grant: Grant) {
    ///     grant.stopped().await;
    /// }
    ///
    /// let (grant, lease) = Grant::for_test("orders/3", 7, Duration::from_secs(10));
    /// lease.stop(StopReason::Moving);
    /// lease.run(handler).await.unwrap();
    /// assert!(grant.is_lost(), "the shard is given away once its work has ended");
    /// # }
    /// ```
    ///
    /// # Panics
    ///
    /// If `shard` is not of the form `group/shard`, and outside of a tokio runtime with time.
    pub fn for_test(shard: &str, epoch: u64, valid_for: Duration) -> (Grant, TestLease) {
        let shard = shard.parse().unwrap_or_else(|error| panic!("{shard:?} is no shard: {error}"));
        let clock = Clock::virtual_time();
        let watchdog = Watchdog::start(RunsOn::CurrentRuntime, clock.clone(), || {})
            .expect("a watchdog that is a task needs nothing of the machine");
        let session = Session::new(clock.clone(), deadlines(clock.now() + valid_for), Duration::ZERO);
        let session = Arc::new(session);
        watchdog.guard(session.clone());
        let (inputs, inbox) = unbounded_channel();
        let owned = Owned::new(Handle::current(), inputs);
        let grant = Grant::new(shard, Epoch(epoch), clock.clone(), session, owned);
        let heard = Mutex::new(Heard { inbox, failed: None, stepped_down: None });
        (grant.clone(), TestLease { grant, clock, watchdog, heard })
    }
}

fn deadlines(stop_at: Moment) -> Deadlines {
    let kill_at = stop_at + CUT_OFF_AFTER;
    Deadlines { stop_at, kill_at, valid_until: kill_at + CUT_OFF_AFTER }
}

/// The other end of a grant that [`Grant::for_test`] made: it plays the node.
///
/// When it is dropped, the grant is lost, and what the grant owns is cut off, as when a node is gone.
#[derive(Debug)]
#[must_use = "the grant is lost when this is dropped"]
pub struct TestLease {
    grant: Grant,
    clock: Clock,
    watchdog: Watchdog,
    heard: Mutex<Heard>,
}

/// What the work told its node.
#[derive(Debug)]
struct Heard {
    inbox: UnboundedReceiver<Input>,
    failed: Option<String>,
    stepped_down: Option<Duration>,
}

impl TestLease {
    /// The clock that the grant uses.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Plays a renewal: from now on the grant is valid for this long, or for as long as it was, whichever is later. A
    /// grant that is lost stays lost.
    pub fn renew(&self, valid_for: Duration) -> Result<(), Lost> {
        let renewed = self.grant.session().extend(deadlines(self.clock.now() + valid_for));
        renewed.map_err(|_| self.grant.why_lost())
    }

    /// Tells the work to stop. After a planned stop ([`StopReason::is_planned`]) the grant stays valid until the work has
    /// returned, and nothing cuts the work off, unless a test does ([`cut_off`](TestLease::cut_off)). Other reasons are
    /// played as a loss of the shard: see [`lose`](TestLease::lose).
    pub fn stop(&self, why: StopReason) {
        match why {
            StopReason::Detached => self.lose(),
            _ => {
                self.grant.stop(why);
                if !why.is_planned() {
                    self.cut_off_soon();
                }
            }
        }
    }

    /// Plays a lost lease, as when no renewal was confirmed in time: [`Grant::check`] fails from now on, and work that has
    /// not returned within [`CUT_OFF_AFTER`] is cut off.
    pub fn lose(&self) {
        self.grant.session().lose();
        self.cut_off_soon();
    }

    /// Cuts off whatever still runs, at its next `await`. The grant is lost.
    pub fn cut_off(&self) {
        self.grant.session().kill();
    }

    /// Runs a handler to its end, as a node does: in the span of the shard, cut off when its time is up, and with all
    /// that the grant owns ([`Grant::spawn`], [`Grant::spawn_blocking`], [`Grant::guard`]). Then the grant is over.
    ///
    /// The result is the handler's, or an error if it was cut off, or if a part of its work panicked or failed. To play
    /// the node meanwhile, run both at once, for example with `tokio::join!`. A panic of the handler itself fails the
    /// test.
    pub async fn run<F, Fut>(&self, work: F) -> Outcome
    where
        F: FnOnce(Grant) -> Fut,
        Fut: Future<Output: IntoOutcome>,
    {
        let mut outcome = tokio::select! {
            biased;
            () = self.grant.killed().cancelled() => {
                Err("the handler was cut off: it did not return in time after it was told to stop".into())
            }
            output = work(self.grant.clone()).instrument(self.grant.span().clone()) => output.into_outcome(),
            () = self.listen() => Ok(()),
        };
        if outcome.is_err() {
            self.grant.stop(StopReason::Failed);
        }
        while !self.grant.end() {
            self.hear().await;
        }
        if let Some(why) = self.heard().failed.take() {
            outcome = outcome.and(Err(why.into()));
        }
        outcome
    }

    /// For how long the work asked this node not to take the shard again, if it called [`Grant::step_down`].
    pub fn stepped_down(&self) -> Option<Duration> {
        while let Some(input) = self.next() {
            self.take(input);
        }
        self.heard().stepped_down
    }

    fn cut_off_soon(&self) {
        self.watchdog.kill_at(self.clock.now() + CUT_OFF_AFTER, self.grant.killed().clone());
    }

    /// Hears for as long as the handler runs.
    async fn listen(&self) {
        loop {
            self.hear().await;
        }
    }

    async fn hear(&self) {
        // The grant keeps a sender.
        if let Some(input) = poll_fn(|context| self.heard().inbox.poll_recv(context)).await {
            self.take(input);
        }
    }

    fn next(&self) -> Option<Input> {
        self.heard().inbox.try_recv().ok()
    }

    /// Does what a node does when its work says something.
    fn take(&self, input: Input) {
        match input {
            Input::OwnedEnded { how: Ended::Failed(why), .. } => {
                self.heard().failed.get_or_insert(why);
                self.grant.stop(StopReason::Failed);
            }
            Input::Core(Event::Command(Command::StepDown { pause, .. })) => {
                self.heard().stepped_down = Some(pause);
                self.grant.stop(StopReason::SteppedDown);
            }
            _ => {}
        }
    }

    fn heard(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
