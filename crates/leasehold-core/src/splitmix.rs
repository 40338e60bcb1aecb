//! SplitMix64: a stream of numbers that its seed decides, the same on every machine. For simulators, faults and choices in
//! tests; a node draws from the system's randomness instead.

/// One stream.
#[derive(Clone, Debug)]
pub struct SplitMix64 {
    state: u64,
}

impl SplitMix64 {
    /// The stream of a seed.
    pub fn new(seed: u64) -> Self {
        SplitMix64 { state: seed }
    }

    /// The next 64 bits.
    pub fn draw(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.state)
    }

    /// A number from zero up to, and without, `limit`; zero if `limit` is zero.
    pub fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.draw()) * u128::from(limit)) >> 64) as u64
    }
}

/// Spreads every bit over all the others.
pub fn mix(bits: u64) -> u64 {
    let bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_the_published_numbers() {
        // The first numbers of https://prng.di.unimi.it/splitmix64.c with the seed 1234567.
        let mut stream = SplitMix64::new(1_234_567);
        assert_eq!([stream.draw(), stream.draw()], [6_457_827_717_110_365_317, 3_203_168_211_198_807_973]);
        assert_eq!(stream.below(0), 0);
    }
}
