//! The boot clock.

use leasehold_core::Moment;
use rustix::time::{ClockId, clock_gettime};

/// Now, on the clock that goes on while the machine sleeps.
pub(crate) fn now() -> Moment {
    let time = clock_gettime(ClockId::Boottime);
    Moment::from_nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}
