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
    /// What the boot clock read at `since`.
    pub(crate) boot: u64,
    /// From when on it runs at this rate.
    pub(crate) since: Instant,
    /// Nanoseconds of the boot clock per million of true time: within the stated drift of a million.
    pub(crate) rate: u64,
    /// What the wall clock read when the run began, in milliseconds since 1970; moved by steps.
    pub(crate) wall_ms: u64,
    /// For how long the boot clock stood still. Only a sabotaged clock ever does.
    pub(crate) stood_still: u64,
    /// At which rates it ran before, oldest first.
    pub(crate) former: Vec<Piece>,
    /// The machine is frozen since `since`, and the boot clock with it.
    pub(crate) frozen: bool,
    /// When the wall clock last made a step.
    pub(crate) stepped_at: Instant,
}

/// A time in which a clock ran at one rate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    boot: u64,
    since: Instant,
    rate: u64,
}

impl Piece {
    fn shows(self, at: Instant) -> u64 {
        self.boot + (u128::from(at - self.since) * u128::from(self.rate) / MILLION) as u64
    }

    fn when(self, shown: u64) -> Instant {
        let ran = u128::from(shown.saturating_sub(self.boot)) * MILLION;
        let at = u128::from(self.since) + ran.div_ceil(u128::from(self.rate));
        u64::try_from(at).unwrap_or(Instant::MAX)
    }
}

impl Clock {
    fn piece(&self) -> Piece {
        Piece { boot: self.boot, since: self.since, rate: self.rate }
    }

    pub(crate) fn moment(&self, at: Instant) -> Moment {
        let at = if self.frozen { at.min(self.since) } else { at };
        let before = || self.former.iter().rfind(|piece| piece.since <= at).copied();
        let piece = if at >= self.since { self.piece() } else { before().unwrap_or(self.piece()) };
        Moment::from_nanos(piece.shows(at) - self.stood_still)
    }

    /// The machine is frozen.
    pub(crate) fn freeze(&mut self, at: Instant) {
        self.set_rate(at, self.rate);
        self.frozen = true;
    }

    /// The machine goes on, and its boot clock from where it stood.
    pub(crate) fn thaw(&mut self, at: Instant) {
        if std::mem::take(&mut self.frozen) {
            self.since = at;
        }
    }

    /// From now on it runs at another rate.
    pub(crate) fn set_rate(&mut self, at: Instant, rate: u64) {
        if self.frozen {
            self.rate = rate;
            return;
        }
        self.former.push(self.piece());
        (self.boot, self.since, self.rate) = (self.piece().shows(at), at, rate);
    }

    pub(crate) fn now(&self, at: Instant) -> Now {
        Now { at: self.moment(at), unix_ms: self.wall_ms + at / MS }
    }

    /// The first instant at which the boot clock shows `moment` or more.
    pub(crate) fn when(&self, moment: Moment) -> Instant {
        if moment == Moment::NEVER {
            return Instant::MAX;
        }
        let shown = moment.as_nanos() + self.stood_still;
        if shown >= self.boot || self.former.is_empty() {
            return self.piece().when(shown);
        }
        let before = self.former.iter().rfind(|piece| piece.boot <= shown).or(self.former.first());
        before.map_or(0, |piece| piece.when(shown))
    }

    /// A step of the wall clock, which must change nothing.
    pub(crate) fn step_wall(&mut self, at: Instant, by_ms: i64) {
        self.stepped_at = at;
        self.wall_ms = self.wall_ms.saturating_add_signed(by_ms);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steady(rate: u64) -> Clock {
        Clock {
            boot: 77 * SECOND + 13,
            since: 0,
            rate,
            wall_ms: 0,
            stood_still: 0,
            former: Vec::new(),
            frozen: false,
            stepped_at: 0,
        }
    }

    #[test]
    fn there_and_back() {
        for rate in [990_000, 999_983, 1_000_000, 1_010_000] {
            let mut clock = steady(rate);
            clock.set_rate(3 * SECOND, 1_000_000);
            clock.set_rate(9 * SECOND, rate);
            for at in [0, 1, 999, 3 * SECOND, 5 * SECOND + 7, 9 * SECOND - 1, 200 * SECOND] {
                let moment = clock.moment(at);
                let when = clock.when(moment);
                assert!(when <= at && clock.moment(when) >= moment, "rate {rate}, at {at}");
                let next = Moment::from_nanos(moment.as_nanos() + 1);
                assert!(clock.when(next) > at && clock.moment(clock.when(next)) >= next);
            }
        }
    }

    #[test]
    fn a_frozen_clock_goes_on_from_where_it_stood() {
        let mut clock = steady(1_010_000);
        let (before, stood) = (clock.moment(2 * SECOND), clock.moment(3 * SECOND));
        clock.freeze(3 * SECOND);
        clock.set_rate(4 * SECOND, 1_000_000);
        assert_eq!(clock.moment(8 * SECOND), stood);
        assert_eq!(clock.now(8 * SECOND).unix_ms, 8000, "the wall clock runs on");
        clock.thaw(10 * SECOND);
        assert_eq!(clock.moment(10 * SECOND), stood);
        assert_eq!(clock.moment(11 * SECOND).as_nanos(), stood.as_nanos() + SECOND);
        assert_eq!((clock.moment(2 * SECOND), clock.when(before)), (before, 2 * SECOND));
        let after = clock.moment(12 * SECOND);
        assert_eq!(clock.when(after), 12 * SECOND);
    }
}
