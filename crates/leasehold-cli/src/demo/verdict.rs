//! What the workers' own notes show: whether two of them ever ran one shard at once, and how long shards stood still.

use std::collections::BTreeMap;
use std::time::Duration;

use super::diary::Ran;

/// What the notes show.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Verdict {
    /// How often a shard started.
    pub(super) starts: usize,
    /// How often a shard went to another node.
    pub(super) moves: usize,
    /// How often a worker started while another one of the same shard had not ended: must be zero.
    pub(super) double_owners: usize,
    /// How often an epoch was not above the one before: must be zero.
    pub(super) epochs_not_rising: usize,
    /// How long shards stood still between two workers, in order.
    pub(super) gaps: Vec<Duration>,
}

impl Verdict {
    /// Judges the notes of all nodes.
    pub(super) fn of(mut ran: Vec<Ran>) -> Verdict {
        let mut verdict = Verdict { starts: ran.len(), ..Verdict::default() };
        ran.sort_by_key(|ran| (ran.shard, ran.from, ran.epoch));
        let mut by_shard: BTreeMap<u32, Vec<Ran>> = BTreeMap::new();
        for one in ran {
            by_shard.entry(one.shard).or_default().push(one);
        }
        for runs in by_shard.values() {
            let mut latest = runs[0];
            for next in &runs[1..] {
                if next.from <= latest.to {
                    verdict.double_owners += 1;
                } else {
                    verdict.gaps.push(next.from.since(latest.to));
                }
                verdict.moves += usize::from(next.node != latest.node);
                verdict.epochs_not_rising += usize::from(next.epoch <= latest.epoch);
                if next.to > latest.to {
                    latest = *next;
                }
            }
        }
        verdict.gaps.sort();
        verdict
    }

    /// The gap that so many thousandths of all gaps do not exceed.
    pub(super) fn gap(&self, permille: usize) -> Option<Duration> {
        let last = self.gaps.len().checked_sub(1)?;
        self.gaps.get((last * permille).div_ceil(1000)).copied()
    }

    /// Whether the promise was kept.
    pub(super) fn is_clean(&self) -> bool {
        self.double_owners == 0 && self.epochs_not_rising == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use leasehold_core::{Epoch, Moment};

    fn ran(shard: u32, node: usize, epoch: u64, from: u64, to: u64) -> Ran {
        Ran { shard, node, epoch: Epoch(epoch), from: Moment::from_millis(from), to: Moment::from_millis(to) }
    }

    #[test]
    fn gaps_and_moves_are_counted() {
        let verdict = Verdict::of(vec![
            ran(0, 1, 2, 30, 50),
            ran(0, 0, 1, 0, 20),
            ran(1, 0, 1, 0, 90),
            ran(0, 1, 3, 60, 70),
        ]);
        assert_eq!((verdict.starts, verdict.moves, verdict.double_owners), (4, 1, 0));
        assert_eq!(verdict.gaps, [Duration::from_millis(10), Duration::from_millis(10)]);
        assert_eq!(
            (verdict.gap(500), verdict.gap(990)),
            (Some(Duration::from_millis(10)), Some(Duration::from_millis(10)))
        );
        assert!(verdict.is_clean());
    }

    #[test]
    fn two_owners_are_seen_also_when_a_third_started_in_between() {
        assert_eq!(Verdict::of(vec![ran(0, 0, 1, 0, 20), ran(0, 1, 2, 20, 30)]).double_owners, 1);
        let verdict = Verdict::of(vec![ran(0, 0, 1, 0, 100), ran(0, 1, 2, 10, 20), ran(0, 2, 3, 50, 60)]);
        assert_eq!(verdict.double_owners, 2);
        assert!(!verdict.is_clean());
        assert!(
            !Verdict::of(vec![ran(0, 0, 2, 0, 5), ran(0, 1, 2, 10, 20)]).is_clean(),
            "the epoch must rise"
        );
    }

    #[test]
    fn nothing_is_clean_and_has_no_gap() {
        let verdict = Verdict::of(Vec::new());
        assert!(verdict.is_clean() && verdict.gap(500).is_none());
    }
}
