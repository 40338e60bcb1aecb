use std::time::{Duration, Instant};

/// Measures how long something took, for people to read in a report. Nothing is decided by it.
pub(super) struct Stopwatch(Instant);

impl Stopwatch {
    #[allow(clippy::disallowed_methods, reason = "for display: a suspended machine only spoils a number")]
    pub(super) fn start() -> Self {
        Stopwatch(Instant::now())
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}
