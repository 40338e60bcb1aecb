//! What the scenario `outage` shows: all nodes are cut off from the store for longer than the ttl.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use leasehold_chaos::history::History;
use leasehold_chaos::judge::no_stampede::{self, Aftermath, Limit, NodeAftermath, Outage, Share};
use serde_json::{Value, json};

use super::findings::{Promise, people};
use super::lines::{Lines, Suffered};
use super::plan::Plan;
use super::trial::Outcome;
use crate::cluster::GROUP;

/// The outage as it happened, and what it caused.
#[derive(Debug)]
pub(super) struct Summary {
    outage: Outage,
    limit: Limit,
    aftermath: Aftermath,
    /// How many times two workers of one shard ran at once, in the whole history.
    pub(super) overlaps: usize,
}

/// The most shards that placement lets a node have when all are there, and a tenth of the fair share more: a node that
/// was late for a moment may have left others a few shards.
pub(super) fn limit(shards: u32, nodes: usize, balance_permille: u32) -> Limit {
    let (shards, balance) = (shards as usize, balance_permille as usize);
    let fair = shards.div_ceil(nodes);
    Limit { bounded_share: fair.max(shards * balance / (1000 * nodes)), slack: fair.div_ceil(10) }
}

impl Summary {
    /// Reads it from what was recorded; `None` if nothing was cut.
    pub(super) fn of(plan: &Plan, outcome: &Outcome, history: &History, lines: &Lines) -> Option<Summary> {
        let outage = Outage {
            from_ns: lines.faults.iter().map(|fault| fault.from_ns).min()?,
            to_ns: lines.faults.iter().map(|fault: &Suffered| fault.to_ns).max()?,
            until_ns: outcome.rest.1.as_nanos(),
            back_at_ns: BTreeMap::new(),
        };
        let back_at = |node: &String| (node.clone(), lines.back_at(node, outage.from_ns, outage.to_ns));
        let outage = Outage { back_at_ns: lines.nodes().iter().map(back_at).collect(), ..outage };
        let shards = (0..plan.template.shards).map(|slot| format!("{GROUP}/{slot}"));
        let aftermath = Aftermath::of(history, shards, &outage);
        let limit = limit(plan.template.shards, plan.nodes, plan.template.policy.balance_permille);
        Some(Summary { outage, limit, aftermath, overlaps: 0 })
    }

    /// Whether each shard started once, and no node took the share of another.
    pub(super) fn promise(&self) -> Promise {
        let once = self.aftermath.starts.iter().filter(|starts| **starts == 1).count();
        let share = match &self.aftermath.largest_with_all_back {
            Some(share) => format!("{} ran at most {} of them", share.node, share.shards),
            None => "not all nodes attached again".to_owned(),
        };
        let told = format!(
            "{once} of {} shards started once; with all nodes back, {share} (limit per node {}, tolerance {})",
            self.aftermath.starts.len(),
            self.limit.bounded_share,
            self.limit.slack
        );
        let broken = no_stampede::judge(&self.aftermath, &self.outage, self.limit);
        let broken = broken.into_iter().map(|violation| violation.message).collect();
        Promise { name: no_stampede::NAME, told, broken }
    }

    /// Titles and values, for people.
    pub(super) fn rows(&self) -> Vec<(&'static str, String)> {
        let Aftermath { starts, largest, all_owned_after_ns, .. } = &self.aftermath;
        let at = |place: usize| starts.get(place).copied().unwrap_or(0);
        vec![
            ("store unreachable for", after(self.outage.to_ns - self.outage.from_ns)),
            (
                "starts per shard since the outage",
                format!(
                    "min {}, median {}, max {}; {} of {} shards started more than once",
                    at(0),
                    at(starts.len() / 2),
                    at(starts.len().saturating_sub(1)),
                    self.aftermath.started_more_than_once(),
                    starts.len()
                ),
            ),
            ("largest share of a node after the outage", self.share(largest)),
            (
                "largest share with all nodes back",
                self.aftermath
                    .largest_with_all_back
                    .as_ref()
                    .map_or_else(|| "not all nodes attached again".to_owned(), |share| self.share(share)),
            ),
            (
                "all shards ran again",
                all_owned_after_ns.map_or_else(|| "never".to_owned(), |ns| after(ns) + " after the outage"),
            ),
            ("overlaps", self.overlaps.to_string()),
        ]
    }

    fn share(&self, share: &Share) -> String {
        format!(
            "{} shards on {}, {} after the outage; limit per node {}",
            share.shards,
            share.node,
            after(share.at_ns - self.outage.to_ns),
            self.limit.bounded_share
        )
    }

    /// What became of each node: its name, what it ran, when it had stopped, when it was back, what it ran then.
    pub(super) fn nodes(&self) -> Vec<[String; 6]> {
        let row = |node: &NodeAftermath| {
            [
                node.node.clone(),
                node.held.to_string(),
                node.stopped_after_ns.map_or_else(|| "never".to_owned(), after),
                node.back_after_ns.map_or_else(|| "never".to_owned(), after),
                node.largest.to_string(),
                node.held_at_the_end.to_string(),
            ]
        };
        self.aftermath.nodes.iter().map(row).collect()
    }

    /// What the columns of [`Summary::nodes`] are.
    pub(super) const COLUMNS: [&str; 6] =
        ["node", "shards before", "stopped after", "back after", "most after", "at the end"];

    /// All of it as text.
    pub(super) fn text(&self) -> String {
        let mut text = String::from("\nOutage (stopped: time since its start; back: time since its end)\n");
        for row in std::iter::once(Self::COLUMNS.map(str::to_owned)).chain(self.nodes()) {
            let [name, cells @ ..] = row;
            let _ = write!(text, "  {name:<8}");
            for cell in cells {
                let _ = write!(text, "{cell:>15}");
            }
            text.push('\n');
        }
        for (title, value) in self.rows() {
            let _ = writeln!(text, "  {title:<40} {value}");
        }
        text
    }

    /// For programs.
    pub(super) fn as_json(&self) -> Value {
        let Aftermath { nodes, starts, largest, largest_with_all_back, all_owned_after_ns } = &self.aftermath;
        let ms = |ns: u64| ns / 1_000_000;
        let share = |share: &Share| json!({"node": share.node, "shards": share.shards, "after_ms": ms(share.at_ns - self.outage.to_ns)});
        let nodes: Vec<Value> = nodes
            .iter()
            .map(|node| {
                json!({
                    "node": node.node, "held_before": node.held,
                    "stopped_after_ms": node.stopped_after_ns.map(ms), "back_after_ms": node.back_after_ns.map(ms),
                    "largest_share": node.largest, "held_at_the_end": node.held_at_the_end,
                })
            })
            .collect();
        json!({
            "lasted_ms": ms(self.outage.to_ns - self.outage.from_ns),
            "nodes": nodes,
            "starts_per_shard": {
                "min": starts.first(), "median": starts.get(starts.len() / 2), "max": starts.last(),
                "shards_started_more_than_once": self.aftermath.started_more_than_once(),
            },
            "largest_share": share(largest),
            "largest_share_with_all_back": largest_with_all_back.as_ref().map(share),
            "bounded_share": self.limit.bounded_share, "slack": self.limit.slack,
            "all_owned_after_ms": all_owned_after_ns.map(ms),
            "overlaps": self.overlaps,
        })
    }
}

fn after(ns: u64) -> String {
    people(Duration::from_nanos(ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_the_cap_of_placement_and_a_tenth_more() {
        for (shards, nodes, expected) in
            [(2048, 3, (750, 69)), (24, 3, (8, 1)), (10, 3, (4, 1)), (7, 1, (7, 1))]
        {
            let limit = limit(shards, nodes, 1100);
            assert_eq!((limit.bounded_share, limit.slack), expected, "{shards} on {nodes}");
        }
    }
}
