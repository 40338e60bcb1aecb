//! Explains where a shard runs and why, and what a change would move.

use std::fmt::Write as _;

use leasehold_cli_common::plural::count;
use leasehold_cli_common::sanitize::sanitize;
use leasehold_core::explain::{Difference, Explanation, Move};
use leasehold_core::name::natural_cmp;
use leasehold_core::record::WorkState;

use super::Table;

/// Why a shard is where it is.
pub(crate) fn explain(explanation: &Explanation) -> String {
    let Explanation { shard, epoch, .. } = explanation;
    let mut text = match (&explanation.holder, &explanation.unusable) {
        (_, Some(why)) => {
            format!(
                "{shard} counts as held, but its holder is unknown: its record is unusable\n  {}",
                sanitize(why)
            )
        }
        (Some(holder), None) => format!("{shard} is held by {holder}, epoch {epoch}"),
        (None, None) => format!("{shard} is not held by any node; last epoch {epoch}"),
    };
    if let Some(why) = explanation.moved_because {
        let _ = write!(text, " (last move: {why})");
    }
    text.push('\n');
    match explanation.work {
        WorkState::Quarantined => drop(writeln!(
            text,
            "it is quarantined: its work kept failing, so the holder does not run it; fix the work, then run:\n  \
             leasehold unquarantine {shard}"
        )),
        WorkState::Trial => text.push_str("its work failed too often before and is on trial\n"),
        WorkState::Done => drop(writeln!(
            text,
            "its work is done, so no node runs it; to run it once more:\n  leasehold unquarantine {shard}"
        )),
        _ => {}
    }
    match (&explanation.wanted, &explanation.holder) {
        (Some(wanted), Some(holder)) if wanted == holder => text.push_str("this matches the plan\n"),
        (Some(wanted), _) => drop(writeln!(text, "planned node: {wanted}")),
        (None, _) => {
            text.push_str("planned node: none, because no node that serves the group has room for it\n")
        }
    }
    if let Some(node) = &explanation.pinned_to {
        let _ = writeln!(text, "pinned to {node} by an operator");
    }
    if let Some(why) = &explanation.unmoved_because {
        let _ = writeln!(text, "it has not moved because {}", sanitize(why));
    }
    if !explanation.ranking.is_empty() {
        let mut table = Table::new(&["RANK", "NODE", "SCORE", "WEIGHT", "PLANNED", "LIMIT", "FULL"]);
        for (at, ranked) in explanation.ranking.iter().enumerate() {
            table.row(vec![
                (at + 1).to_string(),
                ranked.node.to_string(),
                ranked.score.clone().unwrap_or_else(|| "-".to_owned()),
                ranked.weight.to_string(),
                ranked.load.to_string(),
                ranked.cap.map_or_else(|| "-".to_owned(), |cap| cap.to_string()),
                if ranked.full { "yes" } else { "no" }.to_owned(),
            ]);
        }
        let _ = write!(text, "\n{}", table.show());
        let pinned_first =
            explanation.pinned_to.as_ref().is_some_and(|node| *node == explanation.ranking[0].node);
        text.push_str(match pinned_first {
            true => "the node of the pin comes first; the others are ranked by score, lowest first\n",
            false => "nodes are ranked by score, lowest first; a full node passes the shard to the next\n",
        });
    }
    for left_out in &explanation.left_out {
        let _ = writeln!(text, "{} {}", left_out.node, left_out.why);
    }
    text
}

/// What a change would do.
pub(crate) fn what_if(difference: &Difference) -> String {
    let mut text = String::new();
    let with_node: usize = difference.loads.values().map(|load| load.then).sum();
    let total = with_node + difference.homeless;
    let of = |from: bool, to: bool| {
        let alike = |step: &&Move| (step.from.is_some(), step.to.is_some()) == (from, to);
        difference.moves.iter().filter(alike).count()
    };
    let (moved, found, lost) = (of(true, true), of(false, true), of(true, false));
    let _ = writeln!(text, "{moved} of {} would move", count(total, "shard"));
    // Every shard is counted in one line, and the change is not blamed for those that have no node anyway.
    for (shards, what) in [
        (found, "without a node would get one"),
        (lost, "would have no node"),
        (difference.homeless.saturating_sub(lost), "without a node would still have none"),
    ] {
        if shards > 0 {
            let _ = writeln!(text, "{} {what}", count(shards, "shard"));
        }
    }
    let mut loads = Table::new(&["NODE", "NOW", "THEN"]);
    let mut nodes: Vec<_> = difference.loads.iter().collect();
    nodes.sort_by(|(a, _), (b, _)| natural_cmp(a.as_str(), b.as_str()));
    for (node, load) in nodes {
        loads.row(vec![node.to_string(), load.now.to_string(), load.then.to_string()]);
    }
    let _ = write!(text, "\n{}", loads.show());
    if !difference.moves.is_empty() {
        let mut moves = Table::new(&["SHARD", "FROM", "TO"]);
        let dash = |node: &Option<leasehold_core::NodeName>| {
            node.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string)
        };
        for step in &difference.moves {
            moves.row(vec![step.shard.to_string(), dash(&step.from), dash(&step.to)]);
        }
        let _ = write!(text, "\n{}", moves.show());
    }
    text
}
