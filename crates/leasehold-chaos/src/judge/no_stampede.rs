//! After an outage of the store every shard starts once, and no node takes what the others come back for.
//!
//! A node that takes everything because it is the first to be back gives most of it away again a little later: every
//! shard then starts twice, and for a while one node carries the load of all.

use std::collections::BTreeMap;

use super::Violation;
use crate::history::{History, Run, seconds};

/// The name of the expectation.
pub const NAME: &str = "no_stampede";

/// An outage that affected all nodes, in nanoseconds on the boot clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outage {
    /// When the nodes were cut off from the store.
    pub from_ns: u64,
    /// When the store could be reached again.
    pub to_ns: u64,
    /// Until when starts count as caused by the outage: by then moves are over, and no node was asked to leave.
    pub until_ns: u64,
    /// When each node had a healthy session again; `None` if it never had.
    pub back_at_ns: BTreeMap<String, Option<u64>>,
}

/// What one node may hold once all are back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// The most that placement lets a node have when all nodes are there.
    pub bounded_share: usize,
    /// How many more are tolerated.
    pub slack: usize,
}

/// What an outage did, by what the workers recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Aftermath {
    /// Each node, in the order of their names.
    pub nodes: Vec<NodeAftermath>,
    /// How often each shard started since the outage began: one number a shard, the smallest first.
    pub starts: Vec<usize>,
    /// The most that one node ran at any moment after the outage.
    pub largest: Share,
    /// The most that one node ran at any moment at which all nodes were back; `None` if they never were.
    pub largest_with_all_back: Option<Share>,
    /// How long after the outage the last shard ran again; `None` if one never did.
    pub all_owned_after_ns: Option<u64>,
}

/// What an outage did to one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeAftermath {
    /// Its name.
    pub node: String,
    /// How many shards it ran when the outage began.
    pub held: usize,
    /// How long after the outage began the last of them had stopped; `None` if one ran through it.
    pub stopped_after_ns: Option<u64>,
    /// How long after the outage ended it had a healthy session again; `None` if it never had.
    pub back_after_ns: Option<u64>,
    /// The most that it ran at any moment after the outage.
    pub largest: usize,
    /// How many shards it ran at the end.
    pub held_at_the_end: usize,
}

/// How many shards one node ran, and since when.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// Whose.
    pub node: String,
    /// How many.
    pub shards: usize,
    /// When it first ran so many.
    pub at_ns: u64,
}

impl Aftermath {
    /// Reads it from a history of these shards.
    pub fn of(history: &History, shards: impl IntoIterator<Item = String>, outage: &Outage) -> Aftermath {
        let names = outage.back_at_ns.keys();
        let all_back_at = outage.back_at_ns.values().copied().collect::<Option<Vec<_>>>();
        let all_back_at = all_back_at.map(|moments| moments.into_iter().fold(outage.to_ns, u64::max));
        let largest_since = |from_ns: u64| {
            let shares = names.clone().map(|node| largest(history, node, from_ns, outage.until_ns));
            // Of equals the first in time counts.
            shares.min_by_key(|share| (usize::MAX - share.shards, share.at_ns)).unwrap_or_default()
        };
        let (starts, all_owned_after_ns) = starts(history, shards, outage);
        Aftermath {
            nodes: names.clone().map(|node| NodeAftermath::of(history, node, outage)).collect(),
            starts,
            largest: largest_since(outage.to_ns),
            largest_with_all_back: all_back_at.map(largest_since),
            all_owned_after_ns,
        }
    }

    /// How many shards started more than once.
    pub fn started_more_than_once(&self) -> usize {
        self.starts.iter().filter(|starts| **starts > 1).count()
    }
}

impl NodeAftermath {
    fn of(history: &History, node: &str, outage: &Outage) -> NodeAftermath {
        let mine = || history.runs.iter().filter(|run| run.node == node);
        let held: Vec<&Run> = mine().filter(|run| run.ran_at(outage.from_ns)).collect();
        let ends = held.iter().map(|run| run.to_ns.filter(|to| *to < outage.to_ns));
        let stopped_at = ends.collect::<Option<Vec<_>>>().map(|ends| ends.into_iter().max());
        let back_at = outage.back_at_ns.get(node).copied().flatten();
        NodeAftermath {
            node: node.to_owned(),
            held: held.len(),
            stopped_after_ns: stopped_at.map(|at| at.unwrap_or(outage.from_ns) - outage.from_ns),
            back_after_ns: back_at.map(|at| at.saturating_sub(outage.to_ns)),
            largest: largest(history, node, outage.to_ns, outage.until_ns).shards,
            held_at_the_end: mine().filter(|run| run.ran_at(outage.until_ns)).count(),
        }
    }
}

/// The starts of each shard in the time that counts, and how long after the outage the last of them ran again.
fn starts(
    history: &History,
    shards: impl IntoIterator<Item = String>,
    outage: &Outage,
) -> (Vec<usize>, Option<u64>) {
    let mut starts: BTreeMap<String, (usize, Option<u64>)> =
        shards.into_iter().map(|shard| (shard, (0, None))).collect();
    for run in history.runs.iter().filter(|run| run.from_ns <= outage.until_ns) {
        let Some((count, first)) = starts.get_mut(&run.shard) else { continue };
        *count += usize::from(run.from_ns > outage.from_ns);
        if run.to_ns.is_none_or(|to| to >= outage.to_ns) {
            let from = run.from_ns.max(outage.to_ns) - outage.to_ns;
            *first = Some(first.map_or(from, |known: u64| known.min(from)));
        }
    }
    let owned_after = starts.values().map(|(_, first)| *first).collect::<Option<Vec<u64>>>();
    let mut counts: Vec<usize> = starts.into_values().map(|(count, _)| count).collect();
    counts.sort_unstable();
    (counts, owned_after.map(|all| all.into_iter().max().unwrap_or(0)))
}

/// The most that a node ran at once between two moments.
fn largest(history: &History, node: &str, from_ns: u64, to_ns: u64) -> Share {
    let mut changes: Vec<(u64, i64)> = Vec::new();
    let within = |run: &&Run| run.from_ns <= to_ns && run.to_ns.is_none_or(|to| to >= from_ns);
    for run in history.runs.iter().filter(|run| run.node == node).filter(within) {
        changes.push((run.from_ns.max(from_ns), 1));
        changes.extend(run.to_ns.map(|to| (to, -1)));
    }
    // At one moment ends come first: a shard that is handed on in that moment is not held twice.
    changes.sort_unstable();
    let (mut running, mut most) = (0, Share { node: node.to_owned(), shards: 0, at_ns: from_ns });
    for (at_ns, change) in changes {
        running += change;
        let shards = usize::try_from(running).unwrap_or(0);
        if shards > most.shards {
            most = Share { shards, at_ns, ..most };
        }
    }
    most
}

/// What went wrong after an outage.
pub fn judge(aftermath: &Aftermath, outage: &Outage, limit: Limit) -> Vec<Violation> {
    let violation =
        |at_ns: u64, message: String| Violation { invariant: NAME, shard: String::new(), at_ns, message };
    let mut violations = Vec::new();
    let more = aftermath.started_more_than_once();
    if more > 0 {
        let most = aftermath.starts.last().copied().unwrap_or(0);
        let all = aftermath.starts.len();
        violations.push(violation(
            outage.to_ns,
            format!(
                "{more} of {all} shards started more than once because of the outage, up to {most} times"
            ),
        ));
    }
    if let Some(share) = &aftermath.largest_with_all_back
        && share.shards > limit.bounded_share + limit.slack
    {
        violations.push(violation(
            share.at_ns,
            format!(
                "{} ran {} shards {} after the outage, when all nodes were back; its bounded share is {}, and {} more are tolerated",
                share.node,
                share.shards,
                seconds(share.at_ns.saturating_sub(outage.to_ns)),
                limit.bounded_share,
                limit.slack
            ),
        ));
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::tests::line;

    const LIMIT: Limit = Limit { bounded_share: 2, slack: 0 };

    /// Four shards on two nodes. The store is away from 100 ms to 200 ms, and everything is over at 900 ms. A line is
    /// `SHARD started a 1 0`.
    fn after(back: [Option<u64>; 2], lines: &[&str]) -> (Aftermath, Vec<Violation>) {
        let before = ["0 started a 1 0", "1 started a 1 0", "2 started b 1 0", "3 started b 1 0"];
        let lost = ["0 stopped a 1 160", "1 stopped a 1 170", "2 stopped b 1 165", "3 stopped b 1 165"];
        let mut text = String::new();
        for told in before.iter().chain(&lost).chain(lines) {
            let (shard, rest) = told.split_once(' ').unwrap();
            text += &line(rest).replace("\"shard\":\"0\"", &format!("\"shard\":\"{shard}\""));
            text.push('\n');
        }
        let history = History::read([("x", text.as_str())]);
        assert!(history.problems.is_empty(), "{:?}", history.problems);
        let ns = |ms: u64| ms * 1_000_000;
        let names = ["a", "b"].map(str::to_owned);
        let outage = Outage {
            from_ns: ns(100),
            to_ns: ns(200),
            until_ns: ns(900),
            back_at_ns: names.into_iter().zip(back.map(|at| at.map(ns))).collect(),
        };
        let aftermath = Aftermath::of(&history, (0..4).map(|slot| slot.to_string()), &outage);
        let violations = judge(&aftermath, &outage, LIMIT);
        (aftermath, violations)
    }

    #[test]
    fn a_node_that_takes_its_share_once_is_fine() {
        let (aftermath, violations) = after(
            [Some(240), Some(260)],
            &["0 started a 2 250", "1 started a 2 250", "2 started b 2 270", "3 started b 2 280"],
        );
        assert_eq!(violations, []);
        assert_eq!((aftermath.starts, aftermath.all_owned_after_ns), (vec![1; 4], Some(80_000_000)));
        assert_eq!(aftermath.largest, Share { node: "a".to_owned(), shards: 2, at_ns: 250_000_000 });
        let a = NodeAftermath {
            node: "a".to_owned(),
            held: 2,
            stopped_after_ns: Some(70_000_000),
            back_after_ns: Some(40_000_000),
            largest: 2,
            held_at_the_end: 2,
        };
        assert_eq!(aftermath.nodes[0], a);
    }

    /// Finding 8: the first node that is back takes everything, and gives half of it away again.
    #[test]
    fn a_node_that_takes_everything_is_noticed_twice() {
        let (aftermath, violations) = after(
            [Some(240), Some(260)],
            &[
                "0 started a 2 250",
                "1 started a 2 250",
                "2 started a 2 250",
                "3 started a 2 251",
                "2 stopped a 2 600 why=moving",
                "3 stopped a 2 600 why=moving",
                "2 started b 3 601",
                "3 started b 3 601",
            ],
        );
        let told: Vec<&str> = violations.iter().map(|violation| violation.message.as_str()).collect();
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(
            told[0].starts_with("2 of 4 shards started more than once") && told[0].ends_with("up to 2 times")
        );
        assert!(told[1].starts_with("a ran 4 shards 0.060000 s after the outage"), "{}", told[1]);
        assert_eq!((aftermath.largest.shards, aftermath.largest.at_ns), (4, 251_000_000));
        assert_eq!((aftermath.starts, aftermath.nodes[0].held_at_the_end), (vec![1, 1, 2, 2], 2));
    }

    #[test]
    fn what_nobody_else_was_there_to_take_counts_only_once_all_are_back() {
        let everything = ["0 started a 2 250", "1 started a 2 250", "2 started a 2 250", "3 started a 2 250"];
        let (alone, violations) = after([Some(240), None], &everything);
        assert_eq!((alone.largest_with_all_back, violations), (None, Vec::new()));
        assert_eq!(alone.largest.shards, 4);
        let (_, violations) = after([Some(240), Some(800)], &everything);
        assert_eq!(violations.len(), 1, "it still holds everything");
        let mut given_back = everything.to_vec();
        given_back.extend([
            "2 stopped a 2 700",
            "3 stopped a 2 700",
            "2 started b 3 750",
            "3 started b 3 750",
        ]);
        let (late, violations) = after([Some(240), Some(720)], &given_back);
        assert_eq!(late.largest_with_all_back.unwrap().shards, 2);
        assert_eq!(violations.len(), 1, "but shards started twice");
    }

    #[test]
    fn starts_count_from_the_outage_to_the_end_of_what_it_caused() {
        let (aftermath, violations) =
            after([Some(240), Some(240)], &["0 started a 2 250", "0 stopped a 2 910", "0 started b 3 920"]);
        assert_eq!((aftermath.starts, violations), (vec![0, 0, 0, 1], Vec::new()));
        assert_eq!(aftermath.all_owned_after_ns, None, "three shards never ran again");
    }

    #[test]
    fn a_shard_that_ran_through_the_outage_is_told() {
        let text = format!("{}\n{}\n", line("started a 1 0"), line("stopped a 1 400"));
        let history = History::read([("x", text.as_str())]);
        let back_at_ns = BTreeMap::from([("a".to_owned(), Some(250))]);
        let outage = Outage { from_ns: 100, to_ns: 200, until_ns: 300, back_at_ns };
        let aftermath = Aftermath::of(&history, ["0".to_owned()], &outage);
        assert_eq!(aftermath.nodes[0].stopped_after_ns, None);
        assert_eq!((aftermath.all_owned_after_ns, aftermath.starts), (Some(0), vec![0]));
    }
}
