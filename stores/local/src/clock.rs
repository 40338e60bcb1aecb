//! The boot clock, and which boot and machine this is.

use std::fs;

use leasehold_core::Moment;
use rustix::time::{ClockId, clock_gettime};

/// Now, on the clock that goes on while the machine sleeps.
pub(crate) fn now() -> Moment {
    let time = clock_gettime(ClockId::Boottime);
    Moment::from_nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// The kernel's name for this boot; moments of two boots must not be compared. Empty if it does not say.
pub(crate) fn boot_id() -> String {
    line_of("/proc/sys/kernel/random/boot_id")
}

/// The name that this machine keeps over boots. Empty if it has none, as in many containers.
pub(crate) fn machine_id() -> String {
    line_of("/etc/machine-id")
}

fn line_of(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}
