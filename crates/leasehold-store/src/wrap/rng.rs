use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// A stream of random bits that its seed decides (splitmix64), shared by the calls of one wrapper.
#[derive(Debug)]
pub(crate) struct Rng(Mutex<u64>);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Rng(Mutex::new(seed))
    }

    pub(crate) fn bits(&self) -> u64 {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = *state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// One of `0..bound`.
    pub(crate) fn below(&self, bound: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(bound)) >> 64) as u64
    }

    /// Somewhere from `least` to `most`.
    pub(crate) fn between(&self, least: Duration, most: Duration) -> Duration {
        let span = u64::try_from(most.saturating_sub(least).as_nanos()).unwrap_or(u64::MAX - 1);
        least + Duration::from_nanos(self.below(span.saturating_add(1)))
    }
}
