//! No fault is only planned: every kind is met by somebody, in a number of schedules that every test run has.

use leasehold_sim::{AfterFailure, Options, Peril, run_many};

/// How many plain schedules it takes until every kind was met, at the very least this often.
const SEEDS: u64 = 300;
const FELT_MIN: u64 = 20;

#[test]
fn every_kind_of_fault_is_felt() {
    // From where the other tests do not look.
    let summary = run_many(&Options::default(), 1_000_000..1_000_000 + SEEDS, 2, AfterFailure::GoOn, |_| {});
    let seldom: Vec<String> = Peril::all()
        .map(|peril| (peril, summary.stats.felt.of(peril)))
        .filter(|(_, felt)| *felt < FELT_MIN)
        .map(|(peril, felt)| format!("{} {felt}", peril.as_str()))
        .collect();
    assert!(seldom.is_empty(), "felt less than {FELT_MIN} times in {SEEDS} schedules: {seldom:?}");
}
