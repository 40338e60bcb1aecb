//! Many seeds over several threads.

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::invariants::Violation;
use crate::options::Options;
use crate::outcome::{Outcome, Stats};
use crate::run;

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

/// What became of many seeds.
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

/// Runs all seeds of the range on so many threads; `tell` is called now and then.
pub fn run_many(
    options: &Options,
    seeds: Range<u64>,
    jobs: usize,
    after_failure: AfterFailure,
    tell: impl Fn(&Progress) + Sync,
) -> Summary {
    let next = AtomicU64::new(seeds.start);
    let stop = AtomicBool::new(false);
    let of = seeds.end.saturating_sub(seeds.start);
    let summary = Mutex::new(Summary::default());
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        return;
                    }
                    let Outcome { stats, violation, .. } = run(options, seed);
                    let mut summary = summary.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                    summary.seeds += 1;
                    summary.stats.add(&stats);
                    if let Some(violation) = violation {
                        summary.failures.push((seed, violation));
                        stop.fetch_or(after_failure == AfterFailure::Stop, Ordering::Relaxed);
                    }
                    tell(&Progress { done: summary.seeds, of, failed: summary.failures.len() as u64 });
                }
            });
        }
    });
    let mut summary = summary.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    summary.failures.sort_by_key(|(seed, _)| *seed);
    summary
}
