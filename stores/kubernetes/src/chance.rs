//! The system's randomness, for pauses that must not be the same everywhere and for marks that must not repeat.

use std::time::Duration;

/// Somewhere from zero to `span`.
#[allow(clippy::disallowed_methods, reason = "the one place where this crate takes the system's randomness")]
pub(crate) fn up_to(span: Duration) -> Duration {
    let mut bits = [0; 4];
    // Without randomness the pause is the longest one, which does no harm.
    match rustix::rand::getrandom(&mut bits, rustix::rand::GetRandomFlags::empty()) {
        Ok(4) => span.mul_f64(f64::from(u32::from_ne_bytes(bits)) / f64::from(u32::MAX)),
        _ => span,
    }
}

/// A mark that never was before. Panics if the system has no randomness, which no supported one ever says.
#[allow(clippy::disallowed_methods, reason = "the one place where this crate takes the system's randomness")]
pub(crate) fn mark() -> String {
    let mut bits = [0; 12];
    let mut filled = 0;
    while filled < bits.len() {
        match rustix::rand::getrandom(&mut bits[filled..], rustix::rand::GetRandomFlags::empty()) {
            Ok(count) => filled += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => panic!("the system has no randomness: {error}"),
        }
    }
    bits.iter().map(|byte| format!("{byte:02x}")).collect()
}
