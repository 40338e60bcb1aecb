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
pub(super) fn cost(hash: u64) -> u64 {
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
