//! A machine's clocks: one boot clock with its own beginning and rate, and one wall clock that may step.

use leasehold_core::{Moment, Now};

/// True time of the world, in nanoseconds since the run began. Nobody inside the world can read it.
pub type Instant = u64;

/// A millisecond of true time.
pub const MS: Instant = 1_000_000;
/// A second of true time.
pub const SECOND: Instant = 1_000_000_000;

const MILLION: u128 = 1_000_000;

/// How the clocks of one machine run.
#[derive(Clone, Debug)]
pub(crate) struct Clock {
    /// What the boot clock read when the run began.
    pub(crate) boot: u64,
    /// Nanoseconds of the boot clock per million of true time: within the stated drift of a million.
    pub(crate) rate: u64,
    /// What the wall clock read when the run began, in milliseconds since 1970; moved by steps.
    pub(crate) wall_ms: u64,
    /// For how long the boot clock stood still. Only a sabotaged clock ever does.
    pub(crate) stood_still: u64,
}

impl Clock {
    pub(crate) fn moment(&self, at: Instant) -> Moment {
        let ran = (u128::from(at) * u128::from(self.rate) / MILLION) as u64;
        Moment::from_nanos(self.boot + ran - self.stood_still)
    }

    pub(crate) fn now(&self, at: Instant) -> Now {
        Now { at: self.moment(at), unix_ms: self.wall_ms + at / MS }
    }

    /// The first instant at which the boot clock shows `moment` or more.
    pub(crate) fn when(&self, moment: Moment) -> Instant {
        if moment == Moment::NEVER {
            return Instant::MAX;
        }
        let ran = (moment.as_nanos() + self.stood_still).saturating_sub(self.boot);
        let at = (u128::from(ran) * MILLION).div_ceil(u128::from(self.rate));
        u64::try_from(at).unwrap_or(Instant::MAX)
    }

    /// A step of the wall clock, which must change nothing.
    pub(crate) fn step_wall(&mut self, by_ms: i64) {
        self.wall_ms = self.wall_ms.saturating_add_signed(by_ms);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back() {
        for rate in [990_000, 999_983, 1_000_000, 1_010_000] {
            let clock = Clock { boot: 77 * SECOND + 13, rate, wall_ms: 0, stood_still: 0 };
            for at in [0, 1, 999, 5 * SECOND + 7, 200 * SECOND] {
                let moment = clock.moment(at);
                let when = clock.when(moment);
                assert!(when <= at && clock.moment(when) >= moment, "rate {rate}, at {at}");
                let next = Moment::from_nanos(moment.as_nanos() + 1);
                assert!(clock.when(next) > at && clock.moment(clock.when(next)) >= next);
            }
        }
    }
}
