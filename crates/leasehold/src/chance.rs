//! The one place where randomness is taken from the system.

use std::time::Duration;

use leasehold_core::name::WriteId;

/// Fills the bytes from the system's randomness. Panics if the system has none, which no supported one ever says.
#[allow(clippy::disallowed_methods, reason = "the one place where this crate takes the system's randomness")]
fn fill(bytes: &mut [u8]) {
    let mut filled = 0;
    while filled < bytes.len() {
        match rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty()) {
            Ok(count) => filled += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => panic!("the system has no randomness: {error}"),
        }
    }
}

/// A seed for the core.
pub(crate) fn seed() -> [u8; 32] {
    let mut seed = [0; 32];
    fill(&mut seed);
    seed
}

/// A write id.
pub(crate) fn write_id() -> WriteId {
    let mut bits = [0; 16];
    fill(&mut bits);
    WriteId::from_bits(u128::from_ne_bytes(bits))
}

/// Somewhere from zero to `span`.
pub(crate) fn up_to(span: Duration) -> Duration {
    let mut bits = [0; 4];
    fill(&mut bits);
    span.mul_f64(f64::from(u32::from_ne_bytes(bits)) / f64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chance_differs_and_stays_in_its_span() {
        assert_ne!(seed(), seed());
        assert_ne!(write_id(), write_id());
        let span = Duration::from_millis(100);
        assert!((0..100).all(|_| up_to(span) <= span));
    }
}
