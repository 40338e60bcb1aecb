//! Random choices from a seed.

use leasehold_core::splitmix::SplitMix64;

/// A stream of random choices: the same seed gives the same choices on every machine.
#[derive(Clone, Debug)]
pub struct Rng(SplitMix64);

impl Rng {
    /// The stream of a seed.
    pub fn of(seed: u64) -> Rng {
        Rng(SplitMix64::new(seed))
    }

    /// A number below `sides`.
    ///
    /// # Panics
    /// If there are no sides.
    pub fn roll(&mut self, sides: u64) -> u64 {
        self.0.draw() % sides
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.roll(high.max(low) - low + 1)
    }

    /// Puts things in another order.
    pub fn shuffle<T>(&mut self, things: &mut [T]) {
        for end in (1..things.len()).rev() {
            things.swap(end, self.roll(end as u64 + 1) as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_choices() {
        let rolls = |seed| {
            let mut rng = Rng::of(seed);
            (0..5).map(|_| rng.roll(1000)).collect::<Vec<_>>()
        };
        assert_eq!(rolls(7), rolls(7));
        assert_ne!(rolls(7), rolls(8));
        let mut things = [1, 2, 3, 4, 5, 6];
        Rng::of(3).shuffle(&mut things);
        assert_ne!(things, [1, 2, 3, 4, 5, 6]);
        things.sort_unstable();
        assert_eq!(things, [1, 2, 3, 4, 5, 6]);
        assert!((0..100).all(|seed| (4..=6).contains(&Rng::of(seed).between(4, 6))));
    }
}
