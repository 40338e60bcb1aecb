//! Ids and jitter from a seed that the driver takes from the system's randomness. The core has no other source of randomness.

use std::time::Duration;

use xxhash_rust::xxh3::xxh3_128_with_seed;

/// A stream of random bits, decided by its seed.
#[derive(Clone, Debug)]
pub(crate) struct Rng {
    seed: [u8; 32],
    drawn: u64,
}

impl Rng {
    pub(crate) fn new(seed: [u8; 32]) -> Self {
        Rng { seed, drawn: 0 }
    }

    pub(crate) fn bits(&mut self) -> u128 {
        self.drawn += 1;
        xxh3_128_with_seed(&self.seed, self.drawn)
    }

    /// Somewhere from zero to `span`, in integers, so that every platform gets the same.
    pub(crate) fn up_to(&mut self, span: Duration) -> Duration {
        let fraction = self.bits() & 0xffff_ffff;
        let nanos = (span.as_nanos().min(u128::from(u64::MAX)) * fraction) >> 32;
        Duration::from_nanos(nanos as u64)
    }
}
