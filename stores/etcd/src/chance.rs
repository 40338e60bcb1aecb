//! The one place where randomness is taken from the system.

use std::time::Duration;

/// Any number. Without randomness it is zero, which only makes clients of one cluster less spread.
#[allow(clippy::disallowed_methods, reason = "the one place where this crate takes the system's randomness")]
pub(crate) fn number() -> u32 {
    let mut bits = [0; 4];
    match rustix::rand::getrandom(&mut bits, rustix::rand::GetRandomFlags::empty()) {
        Ok(4) => u32::from_ne_bytes(bits),
        _ => 0,
    }
}

/// Somewhere from zero to `span`.
pub(crate) fn up_to(span: Duration) -> Duration {
    span.mul_f64(f64::from(number()) / f64::from(u32::MAX))
}
