//! Random numbers from a seed. Every purpose has its own stream, so that removing a fault from a schedule
//! does not reshuffle the rest of the run: a shrunk schedule stays close to the one that failed.

use leasehold_core::splitmix::SplitMix64;
pub(crate) use leasehold_core::splitmix::mix;

/// What a random stream is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Setting = 1,
    Swarm,
    Fault,
    Machine,
    Core,
    Network,
    Driver,
    Work,
    Watch,
    Store,
    Operator,
    Reading,
    World,
    Neighbours,
    Parts,
}

/// One random stream, in integers only.
#[derive(Clone, Debug)]
pub(crate) struct Rng {
    stream: SplitMix64,
}

impl Rng {
    pub(crate) fn new(seed: u64, purpose: Purpose, key: u64) -> Self {
        Rng { stream: SplitMix64::new(mix(seed ^ mix((purpose as u64) << 48 ^ key))) }
    }

    pub(crate) fn draw(&mut self) -> u64 {
        self.stream.draw()
    }

    /// From zero up to, and without, `limit`; zero if `limit` is zero.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.stream.below(limit)
    }

    /// From `low` up to, and without, `high`.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low))
    }

    /// True this many times in a thousand.
    pub(crate) fn permille(&mut self, permille: u32) -> bool {
        self.below(1000) < u64::from(permille)
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_repeat_and_differ() {
        let draw = |purpose, key| Rng::new(7, purpose, key).draw();
        assert_eq!(draw(Purpose::Network, 1), draw(Purpose::Network, 1));
        assert_ne!(draw(Purpose::Network, 1), draw(Purpose::Network, 2));
        assert_ne!(draw(Purpose::Network, 1), draw(Purpose::Work, 1));
    }

    #[test]
    fn stays_within_limits() {
        let mut rng = Rng::new(1, Purpose::Setting, 0);
        assert!((0..1000).all(|_| (5..9).contains(&rng.between(5, 9))));
        assert_eq!(rng.below(0), 0);
        let hits = (0..10_000).filter(|_| rng.permille(250)).count();
        assert!((2300..2700).contains(&hits), "{hits} of 10000 at 250 in a thousand");
    }
}
