//! The system's randomness, taken in one place: for marks that must never repeat, and for pauses that must not be the
//! same everywhere.

use std::time::Duration;

use leasehold_core::store::{StoreError, StoreErrorKind};

/// 128 bits that nobody had before.
#[allow(clippy::disallowed_methods, reason = "the one place where the system's randomness is taken")]
pub fn bits() -> Result<u128, StoreError> {
    let mut bytes = [0; 16];
    loop {
        match rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()) {
            Ok(16) => return Ok(u128::from_ne_bytes(bytes)),
            Err(rustix::io::Errno::INTR) => {}
            _ => {
                return Err(StoreError::new(
                    StoreErrorKind::Unreachable,
                    "the system gave no randomness; nothing was written; it is tried again",
                ));
            }
        }
    }
}

/// Such bits as 32 hexadecimal digits.
pub fn fresh_id() -> Result<String, StoreError> {
    Ok(format!("{:032x}", bits()?))
}

/// Somewhere from zero to `span`; all of it if the system has no randomness, which does no harm.
pub fn up_to(span: Duration) -> Duration {
    bits().map_or(span, |bits| span.mul_f64(f64::from(bits as u32) / f64::from(u32::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chance_differs_and_stays_in_its_span() {
        assert_ne!(bits(), bits());
        assert_ne!(fresh_id(), fresh_id());
        let span = Duration::from_millis(100);
        assert!((0..100).all(|_| up_to(span) <= span));
    }
}
