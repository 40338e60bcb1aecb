//! Properties of the core: what holds for any input, tried with many random ones.
//!
//! `mirror` compares the clever mirror with a dumb twin that keeps the whole history of the store. `records` looks at
//! what is read and written. `may_move` compares the stabilisers with a twin that looks at each by itself. `garbage` feeds a node with everything that a store, a watch or a driver must never send.
//! `names` looks at the order in which people count, `view` at what they see of nodes that do not renew.

mod garbage;
mod make;
mod may_move;
mod mirror;
mod names;
mod records;
mod view;

use proptest::test_runner::{Config, RngSeed};

/// So many cases, the same ones every time. `PROPTEST_RNG_SEED` and `PROPTEST_CASES` choose others and more.
fn trying(cases: u32) -> Config {
    let default = Config::default();
    let rng_seed = match default.rng_seed {
        RngSeed::Random => RngSeed::Fixed(20),
        given => given,
    };
    let cases = if std::env::var_os("PROPTEST_CASES").is_some() { default.cases } else { cases };
    Config { cases, rng_seed, max_shrink_iters: 400, failure_persistence: None, ..default }
}
