//! The one place where clocks are read.
//!
//! Ownership is decided on the boot clock, which also advances while the machine is suspended. `Instant` and tokio's
//! timers stand still then, so nothing here trusts a timer alone: after every sleep, compare the clock before acting.

use std::future::Future;
use std::time::Duration;

use leasehold_core::{Moment, Now};

/// The longest sleep on tokio's timers in one go. It bounds how late a sleeper can be after a suspend.
const SLICE: Duration = Duration::from_millis(250);

/// The time source of a node: the boot clock, or, with the feature `test-util`, tokio's paused clock.
#[derive(Clone, Debug, Default)]
pub struct Clock(Source);

#[derive(Clone, Debug, Default)]
enum Source {
    #[default]
    Boot,
    #[cfg(feature = "test-util")]
    Virtual { origin: tokio::time::Instant },
}

/// What a virtual wall clock shows at the start: an easily recognised date (2026-01-01).
#[cfg(feature = "test-util")]
const VIRTUAL_UNIX_MS: u64 = 1_767_225_600_000;

impl Clock {
    /// The boot clock of this machine.
    pub fn boot() -> Self {
        Clock(Source::Boot)
    }

    /// The clock of the current tokio runtime, for tests (feature `test-util`) under `tokio::time::pause`. It starts one hour after boot.
    #[cfg(feature = "test-util")]
    #[allow(clippy::disallowed_methods, reason = "a paused clock is what this is for")]
    pub fn virtual_time() -> Self {
        Clock(Source::Virtual { origin: tokio::time::Instant::now() })
    }

    /// The current moment.
    #[inline]
    #[allow(clippy::disallowed_methods, reason = "a paused clock is what the virtual source is for")]
    pub fn now(&self) -> Moment {
        match &self.0 {
            Source::Boot => now(),
            #[cfg(feature = "test-util")]
            Source::Virtual { origin } => Moment::from_millis(3_600_000) + origin.elapsed(),
        }
    }

    /// Milliseconds since 1970, for people, and to notice that the boot clock stood still.
    pub fn unix_ms(&self) -> u64 {
        match &self.0 {
            Source::Boot => unix_ms(),
            #[cfg(feature = "test-util")]
            Source::Virtual { .. } => VIRTUAL_UNIX_MS + self.now().as_millis(),
        }
    }

    /// Both clocks, in the form that the core takes.
    pub fn read(&self) -> Now {
        Now { at: self.now(), unix_ms: self.unix_ms() }
    }

    /// Sleeps until a moment. It never returns early, and after a suspend it is at most 250 ms late.
    pub async fn sleep_until(&self, at: Moment) {
        loop {
            let left = at.since(self.now());
            if left.is_zero() {
                return;
            }
            // tokio counts in whole milliseconds and rounds up, which is never early.
            tokio::time::sleep(left.min(SLICE)).await;
        }
    }

    /// Sleeps for a duration that also passes while the machine is suspended.
    pub async fn sleep(&self, span: Duration) {
        self.sleep_until(self.now() + span).await;
    }

    /// Awaits the future, and gives up at a moment.
    pub async fn timeout_at<F: Future>(&self, at: Moment, future: F) -> Option<F::Output> {
        tokio::select! {
            biased;
            output = future => Some(output),
            () = self.sleep_until(at) => None,
        }
    }
}

/// The current moment on the boot clock.
#[inline]
pub fn now() -> Moment {
    machine::boot()
}

/// The wall clock, in milliseconds since 1970. For display; no ownership decision uses it.
pub fn unix_ms() -> u64 {
    machine::unix_ms()
}

#[cfg(unix)]
mod machine {
    use super::Moment;
    use rustix::time::{ClockId, clock_gettime};

    /// The clock that counts suspend. On Linux that is `CLOCK_BOOTTIME`; on macOS the monotonic clock already does.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    const BOOT: ClockId = ClockId::Boottime;
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    const BOOT: ClockId = ClockId::Monotonic;

    #[inline]
    pub(super) fn boot() -> Moment {
        let time = clock_gettime(BOOT);
        Moment::from_nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
    }

    pub(super) fn unix_ms() -> u64 {
        let time = clock_gettime(ClockId::Realtime);
        u64::try_from(time.tv_sec).unwrap_or(0) * 1000 + time.tv_nsec as u64 / 1_000_000
    }
}

/// Without Unix clocks: the best that the standard library has. Nothing promises that `Instant` counts suspend.
#[cfg(not(unix))]
#[allow(clippy::disallowed_methods, reason = "there is no other clock to read here")]
mod machine {
    use super::Moment;
    use std::sync::LazyLock;
    use std::time::{Instant, SystemTime, UNIX_EPOCH};

    /// The first reading, which counts as one hour after boot.
    static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);

    pub(super) fn boot() -> Moment {
        Moment::from_millis(3_600_000) + ORIGIN.elapsed()
    }

    pub(super) fn unix_ms() -> u64 {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since_1970.as_millis()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_boot_clock_only_goes_forward() {
        let first = now();
        let second = now();
        assert!(first > Moment::ZERO && second >= first);
        assert!(unix_ms() > 1_600_000_000_000, "the wall clock is set");
    }

    #[tokio::test(start_paused = true)]
    async fn a_virtual_sleep_is_exact_and_never_early() {
        let clock = Clock::virtual_time();
        let start = clock.now();
        clock.sleep(Duration::from_millis(12_345)).await;
        assert_eq!(clock.now().since(start), Duration::from_millis(12_345));
        clock.sleep_until(start).await;
        assert_eq!(
            clock.now().since(start),
            Duration::from_millis(12_345),
            "a moment that is past is not waited for"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_timeout_gives_up_at_its_moment_and_not_before() {
        let clock = Clock::virtual_time();
        let start = clock.now();
        let late = clock.timeout_at(start + Duration::from_secs(1), std::future::pending::<()>()).await;
        assert!(late.is_none());
        assert_eq!(clock.now().since(start), Duration::from_secs(1));
        let ready = clock.timeout_at(start, async { 7 }).await;
        assert_eq!(ready, Some(7), "an answer that is there counts, even at the last moment");
    }
}
