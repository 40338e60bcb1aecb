//! Many schedules, all promises kept. `leasehold-sim --seeds A..B` runs more of them.

use leasehold_sim::{AfterFailure, FaultKind, Options, Profile, Summary, report, run, run_many, shrink};

/// How many schedules of each test below: all of them together take well under a minute on two cores.
const SEEDS: u64 = 1000;

fn all_kept(options: &Options, seeds: std::ops::Range<u64>) -> Summary {
    let summary = run_many(options, seeds, 2, AfterFailure::GoOn, |_| {});
    if let Some((seed, _)) = summary.failures.first() {
        let options = Options { tracing: leasehold_sim::Tracing::On, ..options.clone() };
        let shrunk = shrink(&options, &run(&options, *seed));
        panic!("{}\n{}", report::totals(&summary), report::failure(&options, &shrunk));
    }
    summary
}

#[test]
fn every_fault() {
    let summary = all_kept(&Options::default(), 0..SEEDS);
    let stats = &summary.stats;
    // The runs must have been worth something.
    assert!(stats.faults > 10 * SEEDS, "{} faults", stats.faults);
    assert!(stats.starts > 30 * SEEDS, "{} starts", stats.starts);
    assert!(stats.detachments > SEEDS, "{} detachments", stats.detachments);
    assert!(stats.fenced > SEEDS, "{} sessions fenced", stats.fenced);
    assert!(stats.incarnations > SEEDS / 10, "{} incarnations", stats.incarnations);
    assert!(stats.sink_rejected > SEEDS / 10, "{} late writes refused", stats.sink_rejected);
}

#[test]
fn no_faults() {
    let summary = all_kept(&Options { faults: Profile::none(), ..Options::default() }, 0..SEEDS / 10);
    assert_eq!(summary.stats.detachments, 0);
    assert_eq!(summary.stats.fenced, 0);
}

#[test]
fn one_node_and_two_nodes() {
    all_kept(&Options { nodes: 1, shards: 3, ..Options::default() }, 0..SEEDS / 10);
    all_kept(&Options { nodes: 2, shards: 5, ..Options::default() }, 0..SEEDS / 10);
}

#[test]
fn one_kind_of_fault_at_a_time_and_much_of_it() {
    for kind in FaultKind::all() {
        let options = Options { faults: Profile::only([(kind, 6000)]), ..Options::default() };
        all_kept(&options, 0..SEEDS / 100);
    }
}
