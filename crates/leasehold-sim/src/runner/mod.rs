//! Runs many seeds on several threads. [`options`] says what a run is asked to be, [`shrink`] shortens a schedule that
//! failed.

pub(crate) mod options;
pub(crate) mod shrink;

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::invariants::Violation;
use crate::report::outcome::{Outcome, Stats};
use crate::run;
use crate::runner::options::Options;

/// How far it is.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    /// Seeds that are done.
    pub done: u64,
    /// Seeds in all.
    pub of: u64,
    /// Seeds that broke a promise.
    pub failed: u64,
}

/// The result of many seeds.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// How many seeds ran.
    pub seeds: u64,
    /// What happened in all of them.
    pub stats: Stats,
    /// The seeds that broke a promise, in order, with what they broke.
    pub failures: Vec<(u64, Violation)>,
}

/// Whether to go on after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterFailure {
    /// Run all seeds.
    GoOn,
    /// Begin no more seeds.
    Stop,
}

/// Runs all seeds of the range on so many threads; `tell` is called after each.
pub fn run_many(
    options: &Options,
    seeds: Range<u64>,
    jobs: usize,
    after_failure: AfterFailure,
    tell: impl Fn(&Progress) + Sync,
) -> Summary {
    let tell = |progress: &Progress, stop: &AtomicBool| {
        tell(progress);
        stop.fetch_or(after_failure == AfterFailure::Stop && progress.failed > 0, Ordering::Relaxed);
    };
    run_until(options, seeds, jobs, &AtomicBool::new(false), tell)
}

/// The same, until `stop` is set: then no more seeds are begun.
pub fn run_until(
    options: &Options,
    seeds: Range<u64>,
    jobs: usize,
    stop: &AtomicBool,
    tell: impl Fn(&Progress, &AtomicBool) + Sync,
) -> Summary {
    let next = AtomicU64::new(seeds.start);
    let take = || {
        let after = |seed: u64| (seed < seeds.end).then(|| seed + 1);
        next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, after).ok()
    };
    let of = seeds.end.saturating_sub(seeds.start);
    let summary = Mutex::new(Summary::default());
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed)
                    && let Some(seed) = take()
                {
                    let Outcome { stats, violation, .. } = run(options, seed);
                    let mut summary = summary.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                    summary.seeds += 1;
                    summary.stats.add(&stats);
                    summary.failures.extend(violation.map(|violation| (seed, violation)));
                    let failed = summary.failures.len() as u64;
                    tell(&Progress { done: summary.seeds, of, failed }, stop);
                }
            });
        }
    });
    let mut summary = summary.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    summary.failures.sort_by_key(|(seed, _)| *seed);
    summary
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn small() -> Options {
        Options { nodes: 1, shards: 1, faults_for: Duration::from_secs(5), ..Options::default() }
    }

    #[test]
    fn the_last_seed_there_is_ends_it() {
        let summary = run_many(&small(), u64::MAX - 2..u64::MAX, 3, AfterFailure::GoOn, |_| {});
        assert_eq!(summary.seeds, 2);
    }

    #[test]
    fn told_to_stop_it_begins_no_more_and_keeps_what_ran() {
        let stop = AtomicBool::new(false);
        let tell = |progress: &Progress, stop: &AtomicBool| {
            stop.store(progress.done >= 2, Ordering::Relaxed);
        };
        let summary = run_until(&small(), 0..1000, 1, &stop, tell);
        assert_eq!(summary.seeds, 2);
        assert!(summary.stats.steps > 0);
    }
}
