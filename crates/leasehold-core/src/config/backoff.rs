use std::time::Duration;

/// How pauses grow.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Backoff {
    /// Always the same.
    Fixed(Duration),
    /// Twice as long each time, up to a limit.
    Doubling {
        /// The first pause.
        first: Duration,
        /// The longest pause.
        max: Duration,
    },
    /// These pauses in order, then the last one again and again.
    Steps(Vec<Duration>),
}

impl Backoff {
    /// The pause before try `tries + 1`, without jitter.
    pub fn pause(&self, tries: u32) -> Duration {
        match self {
            Backoff::Fixed(pause) => *pause,
            Backoff::Doubling { first, max } => first.saturating_mul(1 << tries.min(30)).min(*max),
            Backoff::Steps(steps) => {
                steps.get(tries as usize).or(steps.last()).copied().unwrap_or(Duration::ZERO)
            }
        }
    }

    /// The longest pause that it ever makes, without jitter.
    pub fn longest(&self) -> Duration {
        match self {
            Backoff::Fixed(pause) => *pause,
            Backoff::Doubling { max, .. } => *max,
            Backoff::Steps(steps) => steps.iter().max().copied().unwrap_or(Duration::ZERO),
        }
    }

    /// The shortest pause that it ever makes, without jitter.
    pub fn shortest(&self) -> Duration {
        match self {
            Backoff::Fixed(pause) => *pause,
            Backoff::Doubling { first, max } => *first.min(max),
            Backoff::Steps(steps) => steps.iter().min().copied().unwrap_or(Duration::ZERO),
        }
    }
}
