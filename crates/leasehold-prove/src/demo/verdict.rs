//! What the workers' own notes show: whether two of them ever ran one shard at once, and how long shards were interrupted.

use std::time::Duration;

use leasehold_chaos::history::History;
use leasehold_chaos::judge;
use leasehold_chaos::measure::{Gaps, Spans};

/// What the notes show.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Verdict {
    /// How often a shard started.
    pub(super) starts: usize,
    /// How often a shard went to another node.
    pub(super) moves: usize,
    /// How often a worker started while another one of the same shard had not ended: must be zero.
    pub(super) double_owners: usize,
    /// How often another promise was broken: must be zero.
    pub(super) otherwise_broken: usize,
    /// How long shards were interrupted between two workers.
    gaps: Spans,
}

impl Verdict {
    /// Judges the notes of all nodes.
    pub(super) fn of(history: &History) -> Verdict {
        let broken = judge::judge(history);
        let double_owners =
            broken.iter().filter(|violation| violation.invariant == "at_most_one_running_worker").count();
        let pairs = history.by_shard();
        let moves = pairs.values().flat_map(|runs| runs.windows(2)).filter(|two| two[0].node != two[1].node);
        let Gaps { moved, detached, killed, ended } = Gaps::of(history, |_, _| true);
        let gaps = [moved, detached, killed, ended]
            .iter()
            .flat_map(|spans| spans.all().to_vec())
            .collect::<Vec<_>>();
        Verdict {
            starts: history.runs.len(),
            moves: moves.count(),
            double_owners,
            otherwise_broken: broken.len() - double_owners + history.problems.len(),
            gaps: Spans::of(gaps),
        }
    }

    /// The gap that this many thousandths of all gaps do not exceed.
    pub(super) fn gap(&self, permille: usize) -> Option<Duration> {
        self.gaps.at(permille)
    }

    /// Whether the promises were kept.
    pub(super) fn is_clean(&self) -> bool {
        self.double_owners == 0 && self.otherwise_broken == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(runs: &[(&str, u64, u64, u64)]) -> Verdict {
        let line = |event: &str, node: &str, epoch: u64, at: u64| {
            let at_ns = at * 1_000_000;
            format!(
                "{{\"event\":\"{event}\",\"shard\":\"0\",\"node\":\"{node}\",\"epoch\":{epoch},\"at_ns\":{at_ns}}}\n"
            )
        };
        let lines = runs.iter().map(|(node, epoch, from, to)| {
            line("started", node, *epoch, *from) + &line("stopped", node, *epoch, *to)
        });
        Verdict::of(&History::read([("x", lines.collect::<String>().as_str())]))
    }

    #[test]
    fn gaps_and_moves_are_counted() {
        let verdict = verdict(&[("b", 2, 30, 50), ("a", 1, 0, 20), ("b", 3, 60, 70)]);
        assert_eq!((verdict.starts, verdict.moves, verdict.double_owners), (3, 1, 0));
        assert_eq!(
            (verdict.gap(500), verdict.gap(990)),
            (Some(Duration::from_millis(10)), Some(Duration::from_millis(10)))
        );
        assert!(verdict.is_clean());
    }

    #[test]
    fn broken_promises_are_seen() {
        assert_eq!(verdict(&[("a", 1, 0, 20), ("b", 2, 20, 30)]).double_owners, 1);
        assert!(!verdict(&[("a", 2, 0, 5), ("b", 2, 10, 20)]).is_clean(), "the epoch must rise");
        let nothing = Verdict::of(&History::default());
        assert!(nothing.is_clean() && nothing.gap(500).is_none());
    }
}
