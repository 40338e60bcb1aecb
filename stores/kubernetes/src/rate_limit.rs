use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use leasehold_core::Moment;

use crate::clock;

/// A token bucket: an average rate of writes a second, and a burst. Renewals do not use it.
#[derive(Debug)]
pub(crate) struct RateLimit {
    every: Duration,
    burst: Duration,
    /// When the bucket will be full again if no token is taken.
    full_at: Mutex<Moment>,
}

impl RateLimit {
    pub(crate) fn new(per_second: u32, burst: u32) -> Self {
        let every = Duration::from_secs(1) / per_second.max(1);
        RateLimit { every, burst: every * burst.max(1), full_at: Mutex::new(Moment::ZERO) }
    }

    /// Waits for a token.
    pub(crate) async fn turn(&self) {
        let wait_for = self.take(clock::now());
        if !wait_for.is_zero() {
            tokio::time::sleep(wait_for).await;
        }
    }

    /// Takes a token now, and says how long to wait before it may be used.
    fn take(&self, now: Moment) -> Duration {
        let mut full_at = self.full_at.lock().unwrap_or_else(PoisonError::into_inner);
        *full_at = (*full_at).max(now) + self.every;
        full_at.since(now).saturating_sub(self.burst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_and_the_rest_is_spread() {
        let rate_limit = RateLimit::new(50, 10);
        let now = Moment::from_nanos(1_000_000_000);
        let waits: Vec<u128> = (0..13).map(|_| rate_limit.take(now).as_millis()).collect();
        assert_eq!(waits[..10], [0; 10]);
        assert_eq!(waits[10..], [20, 40, 60]);
        assert_eq!(rate_limit.take(now + Duration::from_secs(1)), Duration::ZERO, "the bucket fills again");
    }
}
