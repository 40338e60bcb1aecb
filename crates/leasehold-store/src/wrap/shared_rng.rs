use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use leasehold_core::splitmix::SplitMix64;

/// A stream of random numbers that its seed decides, shared by the calls of one wrapper.
#[derive(Debug)]
pub(crate) struct SharedRng(Mutex<SplitMix64>);

impl SharedRng {
    pub(crate) fn new(seed: u64) -> Self {
        SharedRng(Mutex::new(SplitMix64::new(seed)))
    }

    /// One of `0..bound`.
    pub(crate) fn below(&self, bound: u64) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).below(bound)
    }

    /// A duration from `least` to `most`.
    pub(crate) fn between(&self, least: Duration, most: Duration) -> Duration {
        let span = u64::try_from(most.saturating_sub(least).as_nanos()).unwrap_or(u64::MAX - 1);
        least + Duration::from_nanos(self.below(span.saturating_add(1)))
    }
}
