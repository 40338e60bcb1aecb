//! The system's randomness.

use std::time::Duration;

use leasehold_store::{StoreError, StoreErrorKind};

use crate::trouble::failed;

/// 128 bits in hexadecimal: an id that never was and never will be given again.
pub(crate) fn fresh_id() -> Result<String, StoreError> {
    Ok(format!("{:032x}", bits()?))
}

/// Some time from half of `at_most` to all of it, so that those who met once do not meet again.
pub(crate) fn pause_of(at_most: Duration) -> Duration {
    let part = bits().map_or(1 << 15, |bits| (bits as u32) & 0xffff);
    at_most / 2 + (at_most / 2).saturating_mul(part) / 0x1_0000
}

#[allow(clippy::disallowed_methods, reason = "the one place where this crate takes the system's randomness")]
fn bits() -> Result<u128, StoreError> {
    let mut bytes = [0u8; 16];
    match rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()) {
        Ok(16) => Ok(u128::from_be_bytes(bytes)),
        _ => Err(failed(
            StoreErrorKind::Unreachable,
            "the system gave no randomness; nothing was written; it is tried again",
        )),
    }
}
