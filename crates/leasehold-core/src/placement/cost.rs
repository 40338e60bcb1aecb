//! The cost of a pair: how far it is from a perfect draw, on a logarithmic scale, in integers.
//!
//! A node's score for a shard is cost divided by weight, and the smallest score wins. When costs are distributed like
//! `-log2(u)` of a uniform `u`, each node wins in proportion to its weight, and a change of one weight moves only
//! shards to or from that node. The logarithm is a table with straight lines in between: no platform can round it
//! another way, and it is never zero and never infinite.

use std::cmp::Ordering;

/// Fraction bits of a cost.
pub(super) const COST_BITS: u32 = 48;

/// The table has `2^INDEX_BITS` steps.
const INDEX_BITS: u32 = 10;
const STEPS: usize = 1 << INDEX_BITS;
/// The bits of the hash below those that choose the step.
const REST_BITS: u32 = 63 - INDEX_BITS;

static LOG2: [u64; STEPS + 1] = log2_table();

/// `LOG2[i]` is `log2(1 + i / 1024)` with 48 fraction bits, rounded down, found bit by bit by squaring.
const fn log2_table() -> [u64; STEPS + 1] {
    let mut table = [0; STEPS + 1];
    let mut i = 0;
    while i < STEPS {
        let mut x = ((STEPS + i) as u64) << REST_BITS;
        let mut bit = COST_BITS;
        while bit > 0 {
            bit -= 1;
            let square = (x as u128 * x as u128) >> 63;
            if square >> 64 == 0 {
                x = square as u64;
            } else {
                x = (square >> 1) as u64;
                table[i] |= 1 << bit;
            }
        }
        i += 1;
    }
    table[STEPS] = 1 << COST_BITS;
    table
}

/// The cost of a pair with this hash: `-log2(hash / 2^64)` with 48 fraction bits. At least 1, at most 64 × 2^48; a
/// larger hash never costs more.
#[inline]
pub fn cost(hash: u64) -> u64 {
    let hash = hash | 1;
    let zeros = hash.leading_zeros();
    let fraction = (hash << zeros) & (u64::MAX >> 1);
    let step = (fraction >> REST_BITS) as usize;
    let rest = fraction & ((1 << REST_BITS) - 1);
    let (low, high) = (LOG2[step], LOG2[step + 1]);
    let log2 = low + ((u128::from(high - low) * u128::from(rest)) >> REST_BITS) as u64;
    (u64::from(zeros + 1) << COST_BITS) - log2
}

/// Compares `cost / weight` of two pairs, exactly.
#[inline]
pub(super) fn compare_scores(cost_a: u64, weight_a: u32, cost_b: u64, weight_b: u32) -> Ordering {
    (u128::from(cost_a) * u128::from(weight_b)).cmp(&(u128::from(cost_b) * u128::from(weight_a)))
}

// A bound that needs no logarithm. Most pairs are so far from winning that the bound already tells. It is in units of
// `cost × 2^15 / weight`, and only ever used to leave out pairs that cannot win.

/// `log2(e) × 2^63`, rounded down.
const LOG2_E: u64 = 0xB8AA_3B29_5C17_F0BB;

/// What [`least_score`] needs to know of a weight, which must not be 0.
pub(super) fn inverse(weight: u32) -> u64 {
    LOG2_E / u64::from(weight)
}

/// At most the score of a pair with this hash: `-log2(u)` is at least `log2(e) × (1 - u)`, and the table's straight
/// lines lie above the curve.
#[inline(always)]
pub(super) fn least_score(hash: u64, inverse: u64) -> u64 {
    ((u128::from(!hash) * u128::from(inverse)) >> 64) as u64
}

/// At least the score of a pair, from its [`least_score`] and without a logarithm: above one half, `-log2(u)` is at
/// most `2 × (1 - u)`, and so at most 1.39 times the least score, apart from the rounding.
#[inline(always)]
pub(super) fn greatest_score_of(hash: u64, least_score: u64) -> u64 {
    if hash >> 63 == 0 { u64::MAX } else { least_score + (least_score >> 1) + (1 << 17) }
}

/// At least the score of a pair: one whose [`least_score`] is above this one is worse.
#[inline(always)]
pub(super) fn greatest_score(cost: u64, weight: u32) -> u64 {
    ((cost << 9) / u64::from(weight) + 1).saturating_mul(64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hashes at and around every place where something changes.
    fn telling_hashes() -> Vec<u64> {
        let mut hashes = vec![0, 1, 2, 3, u64::MAX, u64::MAX - 1];
        for zeros in 0..64 {
            for step in [0, 1, 2, 511, 512, 1022, 1023] {
                let edge = (((STEPS as u64 + step) << REST_BITS) >> zeros).max(1);
                hashes.extend([edge - 1, edge, edge.saturating_add(1)]);
            }
        }
        let mut x = 1u64;
        for _ in 0..20_000 {
            x = super::super::hash::pair_hash(x, 0x9E37_79B9_7F4A_7C15);
            hashes.extend([x, x >> (x & 63), !(x >> (x & 63))]);
        }
        hashes.sort_unstable();
        hashes
    }

    #[test]
    fn the_table_is_the_logarithm_rounded_down() {
        for (i, &entry) in LOG2.iter().enumerate() {
            let exact = (1.0 + i as f64 / STEPS as f64).log2() * 2f64.powi(48);
            assert!((entry as f64 - exact).abs() < 1.5, "{i}: {entry} is not {exact}");
        }
    }

    #[test]
    fn costs_are_never_zero_never_infinite_and_fall_as_hashes_rise() {
        assert_eq!(cost(u64::MAX), 1);
        assert_eq!(cost(0), 64 << COST_BITS);
        for pair in telling_hashes().windows(2) {
            assert!(cost(pair[0]) >= cost(pair[1]), "{pair:?}");
        }
    }

    #[test]
    fn costs_are_close_to_the_logarithm() {
        for hash in telling_hashes() {
            let exact = 64.0 - ((hash | 1) as f64).log2();
            let found = cost(hash) as f64 / 2f64.powi(48);
            assert!((found - exact).abs() <= 5e-4 * exact + 1e-13, "{hash:x}: {found} is not {exact}");
        }
    }

    #[test]
    fn the_bounds_hold() {
        for hash in telling_hashes() {
            for weight in [1, 2, 3, 7, 100, 65_537, u32::MAX - 1, u32::MAX] {
                let score = (u128::from(cost(hash)) << 15) / u128::from(weight);
                let least = least_score(hash, inverse(weight));
                assert!(u128::from(least) <= score, "{hash:x} / {weight}");
                let greatest = greatest_score_of(hash, least);
                assert!(u128::from(greatest) > score || greatest == u64::MAX, "{hash:x} / {weight}");
                assert!(
                    u128::from(greatest_score(cost(hash), weight)) > score
                        || greatest_score(cost(hash), weight) == u64::MAX,
                    "{hash:x} / {weight}"
                );
            }
        }
    }

    #[test]
    fn the_largest_weights_do_not_wrap() {
        assert_eq!(compare_scores(64 << COST_BITS, u32::MAX, 1, 1), Ordering::Greater);
        assert_eq!(compare_scores(64 << COST_BITS, u32::MAX, 64 << COST_BITS, 1), Ordering::Less);
        assert_eq!(compare_scores(5, 10, 1, 2), Ordering::Equal);
    }
}
