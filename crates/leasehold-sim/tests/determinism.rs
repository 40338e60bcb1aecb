//! One seed decides everything.

use std::time::Duration;

use leasehold_sim::{Options, StoreKind, Tracing, run, transcript};

#[test]
fn the_same_seed_twice_gives_the_same_bytes() {
    for kind in StoreKind::ALL {
        for seed in 0..4 {
            let options = Options { store: Some(kind), tracing: Tracing::On, ..Options::default() };
            let (once, again) = (run(&options, seed), run(&options, seed));
            assert!(once.trace.len() > 100, "a story is told: {} lines", once.trace.len());
            assert_eq!(transcript(&once.trace), transcript(&again.trace), "seed {seed} on {kind}");
            assert_eq!(once.stats, again.stats, "seed {seed} on {kind}");
        }
    }
}

#[test]
fn telling_the_story_changes_nothing() {
    let told = run(&Options { tracing: Tracing::On, ..Options::default() }, 7);
    let untold = run(&Options::default(), 7);
    assert_eq!(told.stats, untold.stats);
    assert!(untold.trace.is_empty());
}

#[test]
fn other_seeds_are_other_runs() {
    let options = Options { faults_for: Duration::from_secs(20), ..Options::default() };
    let mut digests: Vec<u64> = (0..50).map(|seed| run(&options, seed).stats.digest).collect();
    digests.sort_unstable();
    digests.dedup();
    assert_eq!(digests.len(), 50);
}
