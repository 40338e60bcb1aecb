//! How long things took, as the history tells it.

use std::time::Duration;

use serde::Serialize;

use crate::history::{End, History, Run};

/// A set of durations, to be asked for its middle and its extremes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spans(Vec<Duration>);

impl Spans {
    /// Puts them in order.
    pub fn of(spans: impl IntoIterator<Item = Duration>) -> Spans {
        let mut spans: Vec<Duration> = spans.into_iter().collect();
        spans.sort_unstable();
        Spans(spans)
    }

    /// The one that so many thousandths of all do not exceed; `None` if there are none.
    pub fn at(&self, permille: usize) -> Option<Duration> {
        let last = self.0.len().checked_sub(1)?;
        self.0.get((last * permille).div_ceil(1000)).copied()
    }

    /// All of them, the shortest first.
    pub fn all(&self) -> &[Duration] {
        &self.0
    }
}

impl Serialize for Spans {
    /// Count, median, 99th percentile and maximum, in milliseconds.
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Summary {
            count: usize,
            median_ms: Option<f64>,
            p99_ms: Option<f64>,
            max_ms: Option<f64>,
        }
        let ms = |permille| self.at(permille).map(|span: Duration| span.as_micros() as f64 / 1000.0);
        Summary { count: self.0.len(), median_ms: ms(500), p99_ms: ms(990), max_ms: ms(1000) }
            .serialize(serializer)
    }
}

/// How long shards stood still between two runs on one machine, by how the first one ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gaps {
    /// After a planned move: told to stop, stopped, handed on.
    pub moved: Spans,
    /// After the node's session was lost, or it stood still.
    pub detached: Spans,
    /// After the process was killed: from the kill to the next start.
    pub killed: Spans,
    /// After the work ended or failed by itself.
    pub ended: Spans,
}

/// The word that workers write when they stopped because they were told to, with a good grant.
pub const MOVING: &str = "moving";
/// The word that workers write when their grant was lost.
pub const DETACHED: &str = "detached";
/// The word that is written for workers that were cut off because they had not returned in time.
pub const CUT_OFF: &str = "cut_off";

impl Gaps {
    /// Finds the gaps in which that is true of the runs around them.
    pub fn of(history: &History, wanted: impl Fn(&Run, &Run) -> bool) -> Gaps {
        let (mut moved, mut detached, mut killed, mut ended) = (vec![], vec![], vec![], vec![]);
        for runs in history.by_shard().into_values() {
            for pair in runs.windows(2).filter(|pair| wanted(pair[0], pair[1])) {
                let Some(to) = pair[0].to_ns.filter(|to| *to <= pair[1].from_ns) else { continue };
                let gap = Duration::from_nanos(pair[1].from_ns - to);
                match &pair[0].end {
                    End::Gone => killed.push(gap),
                    End::Stopped(Some(why)) if why == MOVING => moved.push(gap),
                    End::Stopped(Some(why)) if why == DETACHED || why == CUT_OFF => detached.push(gap),
                    End::Stopped(_) | End::Failed | End::Open => ended.push(gap),
                }
            }
        }
        Gaps {
            moved: Spans::of(moved),
            detached: Spans::of(detached),
            killed: Spans::of(killed),
            ended: Spans::of(ended),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::tests::history;

    #[test]
    fn gaps_are_sorted_by_what_ended_the_run_before() {
        let history = history(&[
            "started a 1 0",
            "stopped a 1 10 why=moving",
            "started b 2 12",
            "stopped b 2 20 why=detached",
            "started a 3 25",
            "gone a 30",
            "started b 4 37",
        ]);
        let gaps = Gaps::of(&history, |_, _| true);
        let ms = |spans: &Spans| spans.all().iter().map(Duration::as_millis).collect::<Vec<_>>();
        assert_eq!((ms(&gaps.moved), ms(&gaps.detached), ms(&gaps.killed)), (vec![2], vec![5], vec![7]));
        let none = Gaps::of(&history, |before, _| before.epoch > 4);
        assert_eq!(none, Gaps::default());
    }

    #[test]
    fn the_middle_and_the_end_are_found() {
        let spans = Spans::of((1..=100).rev().map(Duration::from_millis));
        assert_eq!(spans.at(500), Some(Duration::from_millis(51)));
        assert_eq!(spans.at(990), Some(Duration::from_millis(100)));
        assert_eq!(Spans::default().at(500), None);
        let json = serde_json::to_value(&spans).unwrap();
        assert_eq!((json["count"].as_u64(), json["max_ms"].as_f64()), (Some(100), Some(100.0)));
    }
}
