//! One session as its grants see it: a few atomics and three tokens, no lock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold_core::work::{SessionLost, SessionStatus};
use leasehold_core::{Deadlines, Moment};
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;

/// The value of `stop_at` once the session is lost: no clock shows an earlier time, so every check fails from then on.
const LOST: u64 = 0;

/// The deadlines of one session, shared by its grants, the driver and the watchdog.
///
/// `stop_at` is the arbiter: extending it and losing it are compare-and-swaps of the same word. So once anything has
/// seen the session lost, by the clock or because the core said so, it is lost for good, and an extension that comes
/// too late fails.
#[derive(Debug)]
pub(crate) struct Session {
    clock: Clock,
    stop_at: AtomicU64,
    kill_at: AtomicU64,
    kill_early: Duration,
    stopping: CancellationToken,
    lost: CancellationToken,
    kill: CancellationToken,
}

impl Session {
    /// A session with its first deadlines. Its work is cut off `kill_early` before `kill_at`, so that a dead-man timer
    /// set to `kill_at` finds nothing left to do.
    pub(crate) fn new(clock: Clock, deadlines: Deadlines, kill_early: Duration) -> Self {
        Session {
            clock,
            stop_at: AtomicU64::new(deadlines.stop_at.as_nanos()),
            kill_at: AtomicU64::new(deadlines.kill_at.as_nanos()),
            kill_early,
            stopping: CancellationToken::new(),
            lost: CancellationToken::new(),
            kill: CancellationToken::new(),
        }
    }

    /// Whether the session is valid right now: one atomic load and one clock read. Passing `stop_at` latches.
    #[inline]
    pub(crate) fn holds(&self) -> bool {
        loop {
            // The clock is read last, so that time spent between the two readings counts against the grant.
            let stop_at = self.stop_at.load(Ordering::Acquire);
            let now = self.clock.now().as_nanos();
            if now < stop_at {
                return true;
            }
            if stop_at == LOST || self.latch(stop_at) {
                return false;
            }
        }
    }

    #[cold]
    fn latch(&self, seen: u64) -> bool {
        self.stop_at.compare_exchange(seen, LOST, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Moves the deadlines forward, unless the session is already lost.
    pub(crate) fn extend(&self, deadlines: Deadlines) -> Result<(), SessionLost> {
        // Still valid by the clock? If not, this latches the loss, and the new deadlines come too late.
        if !self.holds() {
            return Err(SessionLost);
        }
        let stop_at = deadlines.stop_at.as_nanos();
        self.stop_at
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |old| {
                (old != LOST).then_some(old.max(stop_at))
            })
            .map_err(|_| SessionLost)?;
        self.kill_at.fetch_max(deadlines.kill_at.as_nanos(), Ordering::AcqRel);
        Ok(())
    }

    /// Ends the session for good: first latches it, then tells all work.
    pub(crate) fn lose(&self) {
        self.stop_at.store(LOST, Ordering::Release);
        self.lost.cancel();
        self.stopping.cancel();
    }

    /// Cuts off all work of the session.
    pub(crate) fn kill(&self) {
        self.lose();
        self.kill.cancel();
    }

    /// When work is told to stop; `Moment::ZERO` once the session is lost.
    pub(crate) fn stop_at(&self) -> Moment {
        Moment::from_nanos(self.stop_at.load(Ordering::Acquire))
    }

    /// When work that still runs is cut off from inside.
    pub(crate) fn kill_at(&self) -> Moment {
        self.die_at() - self.kill_early
    }

    /// When work must be gone, by any means.
    pub(crate) fn die_at(&self) -> Moment {
        Moment::from_nanos(self.kill_at.load(Ordering::Acquire))
    }

    /// Its current state, for the watchdog.
    pub(crate) fn look(&self) -> SessionStatus {
        let good_until = self.holds().then(|| self.stop_at());
        SessionStatus { good_until, told: self.is_told(), kill_at: self.kill_at() }
    }

    /// Whether all work was told that it is lost.
    pub(crate) fn is_told(&self) -> bool {
        self.lost.is_cancelled()
    }

    /// Cancelled when all work of the session must stop.
    pub(crate) fn stopping(&self) -> &CancellationToken {
        &self.stopping
    }

    /// Cancelled when the session is lost.
    pub(crate) fn lost(&self) -> &CancellationToken {
        &self.lost
    }

    /// Cancelled when work that still runs is cut off.
    pub(crate) fn killed(&self) -> &CancellationToken {
        &self.kill
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deadlines(stop_ms: u64) -> Deadlines {
        let base = 3_600_000;
        Deadlines {
            stop_at: Moment::from_millis(base + stop_ms),
            kill_at: Moment::from_millis(base + stop_ms + 100),
            valid_until: Moment::from_millis(base + stop_ms + 200),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn it_holds_until_stop_at_and_never_again() {
        let session = Session::new(Clock::virtual_time(), deadlines(100), Duration::ZERO);
        assert!(session.holds());
        tokio::time::advance(Duration::from_millis(99)).await;
        assert!(session.holds());
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(!session.holds(), "stop_at itself is too late");
        assert_eq!(session.extend(deadlines(1000)), Err(SessionLost));
        assert!(!session.holds(), "a late renewal revives nothing");
        assert_eq!(session.stop_at(), Moment::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn an_extension_that_comes_after_stop_at_is_refused_although_nobody_looked() {
        let session = Session::new(Clock::virtual_time(), deadlines(100), Duration::ZERO);
        tokio::time::advance(Duration::from_millis(100)).await;
        assert_eq!(session.extend(deadlines(1000)), Err(SessionLost));
        assert!(!session.holds());
    }

    #[tokio::test(start_paused = true)]
    async fn deadlines_only_move_forward() {
        let session = Session::new(Clock::virtual_time(), deadlines(100), Duration::ZERO);
        session.extend(deadlines(500)).unwrap();
        session.extend(deadlines(300)).unwrap();
        assert_eq!(session.stop_at(), deadlines(500).stop_at);
        assert_eq!(session.kill_at(), deadlines(500).kill_at);
    }

    #[tokio::test(start_paused = true)]
    async fn losing_tells_everybody_and_killing_implies_losing() {
        let session = Session::new(Clock::virtual_time(), deadlines(100), Duration::from_millis(30));
        let work = session.stopping().child_token();
        session.lose();
        assert!(work.is_cancelled() && session.is_told() && !session.holds());
        assert!(!session.killed().is_cancelled());
        session.kill();
        assert!(session.killed().is_cancelled());
        assert_eq!(session.kill_at(), deadlines(70).kill_at, "cut off a little before the kernel would");
    }

    /// Readers race with an extender at the very deadline: no reader may see the session lost and then valid again.
    #[test]
    fn lost_is_a_latch_also_when_threads_race() {
        let clock = Clock::boot();
        for round in 0..200u32 {
            let at = clock.now() + Duration::from_micros(u64::from(round % 20) * 10);
            let span = |at: Moment| Deadlines { stop_at: at, kill_at: at, valid_until: at };
            let session = Session::new(clock.clone(), span(at), Duration::ZERO);
            std::thread::scope(|scope| {
                for _ in 0..2 {
                    scope.spawn(|| {
                        while session.holds() {}
                        for _ in 0..100 {
                            assert!(!session.holds(), "a lost session came back");
                        }
                    });
                }
                let extended = session.extend(span(clock.now() + Duration::from_micros(200)));
                if extended.is_err() {
                    assert!(!session.holds());
                }
            });
        }
    }
}
