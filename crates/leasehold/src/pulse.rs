//! Signs of progress from user code.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold_core::Moment;

use crate::clock::Clock;
use crate::hooks::Health;

/// A heartbeat of the work itself, so that a healthy thread in a broken process does not keep its shards here.
///
/// The work calls [`beat`](Pulse::beat) whenever it has made progress, and the node gets the pulse with
/// [`Builder::pulse`](crate::Builder::pulse). If no beat came for longer than agreed, the node counts as unhealthy: it
/// takes no new shards and hands over those that others can take, until the next beat.
#[derive(Clone, Debug)]
pub struct Pulse(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    clock: Clock,
    within: Duration,
    last_ns: AtomicU64,
}

impl Pulse {
    /// A pulse that must beat at least this often. Its first beat is now.
    pub fn within(within: Duration) -> Self {
        Pulse::new(Clock::boot(), within)
    }

    /// The same on another clock, for tests (feature `test-util`).
    #[cfg(feature = "test-util")]
    pub fn on(clock: Clock, within: Duration) -> Self {
        Pulse::new(clock, within)
    }

    fn new(clock: Clock, within: Duration) -> Self {
        let last_ns = AtomicU64::new(clock.now().as_nanos());
        Pulse(Arc::new(Inner { clock, within, last_ns }))
    }

    /// Records progress. It costs one clock read and one atomic write: cheap enough for every message.
    pub fn beat(&self) {
        self.0.last_ns.fetch_max(self.0.clock.now().as_nanos(), Ordering::Relaxed);
    }

    /// How long ago the last beat was.
    pub fn silent_for(&self) -> Duration {
        self.0.clock.now().since(Moment::from_nanos(self.0.last_ns.load(Ordering::Relaxed)))
    }

    /// The answer for a health hook.
    pub fn health(&self) -> Health {
        if self.silent_for() <= self.0.within { Health::Healthy } else { Health::Unhealthy }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_pulse_that_stops_is_unhealthy_until_it_beats_again() {
        let pulse = Pulse::on(Clock::virtual_time(), Duration::from_secs(5));
        assert_eq!(pulse.health(), Health::Healthy, "it begins with a beat");
        tokio::time::advance(Duration::from_secs(5)).await;
        assert_eq!(pulse.health(), Health::Healthy);
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!((pulse.health(), pulse.silent_for()), (Health::Unhealthy, Duration::from_millis(5001)));
        pulse.clone().beat();
        assert_eq!(pulse.health(), Health::Healthy, "clones are one pulse");
    }
}
