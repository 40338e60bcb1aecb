//! The only use of the system's randomness: for ids that must never repeat, and for pauses that must differ between
//! processes.

use std::time::Duration;

use leasehold_core::store::{StoreError, StoreErrorKind};

/// 128 random bits.
#[allow(clippy::disallowed_methods, reason = "the one place where the system's randomness is taken")]
pub fn bits() -> Result<u128, StoreError> {
    let mut bytes = [0; 16];
    match getrandom::fill(&mut bytes) {
        Ok(()) => Ok(u128::from_ne_bytes(bytes)),
        Err(_) => Err(StoreError::new(
            StoreErrorKind::Unreachable,
            "the system returned no randomness; nothing was written; the call will be tried again",
        )),
    }
}

/// Such bits as 32 hexadecimal digits.
pub fn fresh_id() -> Result<String, StoreError> {
    Ok(format!("{:032x}", bits()?))
}

/// A random duration from zero to `span`; all of it if the system has no randomness, which does no harm.
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
