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

/// 128 bits of the system's randomness, in hexadecimal.
#[allow(clippy::disallowed_methods, reason = "the one place where this crate takes the system's randomness")]
pub(crate) fn random_id() -> Result<String, leasehold_store::StoreError> {
    let mut bytes = [0u8; 16];
    let got = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    match got {
        Ok(16) => Ok(format!("{:032x}", u128::from_be_bytes(bytes))),
        _ => Err(leasehold_store::StoreError::new(
            leasehold_store::StoreErrorKind::Unreachable,
            "the system gave no randomness; nothing was written; it is tried again",
        )),
    }
}
