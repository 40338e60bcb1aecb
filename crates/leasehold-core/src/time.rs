//! Moments on the boot clock. The core never reads a clock: its driver says what time it is.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

/// A moment on this machine's boot clock (`CLOCK_BOOTTIME`), which also advances while the machine is suspended.
///
/// Moments of two machines, or of two boots, must never be compared.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Moment(u64);

impl Moment {
    /// The first moment: nothing is earlier.
    pub const ZERO: Moment = Moment(0);
    /// A moment that never comes.
    pub const NEVER: Moment = Moment(u64::MAX);

    /// The moment that many nanoseconds after boot.
    pub const fn from_nanos(nanos: u64) -> Self {
        Moment(nanos)
    }

    /// The moment that many milliseconds after boot.
    pub const fn from_millis(millis: u64) -> Self {
        Moment(millis.saturating_mul(1_000_000))
    }

    /// Nanoseconds since boot.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Whole milliseconds since boot.
    pub const fn as_millis(self) -> u64 {
        self.0 / 1_000_000
    }

    /// How long after `earlier` this is; zero when it is not after it.
    pub const fn since(self, earlier: Moment) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Moment {
    type Output = Moment;
    fn add(self, after: Duration) -> Moment {
        Moment(self.0.saturating_add(u64::try_from(after.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl Sub<Duration> for Moment {
    type Output = Moment;
    fn sub(self, before: Duration) -> Moment {
        Moment(self.0.saturating_sub(u64::try_from(before.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl fmt::Debug for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Moment::NEVER {
            return f.write_str("never");
        }
        write!(f, "{}.{:03}s", self.0 / 1_000_000_000, self.0 / 1_000_000 % 1_000)
    }
}

/// What the driver's clocks say as it calls the core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// The boot clock: the only clock that decides anything.
    pub at: Moment,
    /// The wall clock, in milliseconds since 1970: for display, for the epoch floor of a new incarnation, and to
    /// notice that the boot clock stood still (a virtual machine that was frozen).
    pub unix_ms: u64,
}

impl Now {
    /// How far the wall clock is ahead of the boot clock, in milliseconds. It grows only if the wall clock steps forward, or
    /// if the boot clock stands still.
    pub(crate) fn wall_ahead_ms(self) -> i64 {
        self.unix_ms.cast_signed().saturating_sub(self.at.as_millis().cast_signed())
    }
}
