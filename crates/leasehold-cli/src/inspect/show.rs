//! The view of a cluster as text.

use std::fmt::Write as _;

use leasehold_cli_common::plural::count;
use leasehold_cli_common::sanitize::sanitize;
use leasehold_core::record::ShardSet;
use leasehold_core::view::{NodeView, Problem, ProblemKind, ShardKey, ShardPhase, ShardView};
use leasehold_core::{ShardId, View};

use super::Table;

/// Everything at a glance.
pub(crate) fn status(view: &View) -> String {
    let alive = view.nodes.iter().filter(|node| node.state.is_alive()).count();
    let held = view.shards.iter().filter(|shard| shard.holder.is_some()).count();
    let shards = view.shards.iter().filter(|shard| shard.state != ShardPhase::Retired).count();
    let silent = match view.problems.iter().filter(|problem| problem.kind == ProblemKind::SilentNode).count()
    {
        0 => String::new(),
        silent => format!(" ({silent} silent)"),
    };
    let mut text =
        format!("{}{silent}, {}, {held} held\n", count(alive, "live node"), count(shards, "shard"));
    if let Some(note) = &view.frozen {
        let _ = writeln!(text, "voluntary moves are frozen: {}", sanitize(note));
    }
    text.push_str(&pins(view));
    text.push('\n');
    text.push_str(&nodes(view));
    text.push('\n');
    text.push_str(&groups(view));
    if view.problems.is_empty() {
        text.push_str("\nno problems\n");
    } else {
        let _ = writeln!(text, "\n{}", count(view.problems.len(), "problem"));
        let mut problems: Vec<&Problem> = view.problems.iter().collect();
        problems.sort_by_cached_key(|problem| (problem.kind.as_str(), shard_of(problem).map(ShardKey)));
        for problem in problems {
            let _ = writeln!(
                text,
                "  {} {}: {}",
                problem.kind,
                sanitize(&problem.subject),
                sanitize(&problem.message)
            );
            if let Some(advice) = advice(problem) {
                let _ = writeln!(text, "      {advice}");
            }
        }
    }
    text
}

/// How many pins are named at a glance; `shards` shows them all.
const PINS_NAMED: usize = 5;

/// What operators pinned, in a line.
fn pins(view: &View) -> String {
    let pinned = |shard: &ShardView| Some(format!("{} to {}", shard.id.0, shard.pinned_to.as_ref()?));
    let pins: Vec<String> = view.shards.iter().filter_map(pinned).collect();
    match pins.len() {
        0 => String::new(),
        number if number <= PINS_NAMED => format!("pinned: {}\n", pins.join(", ")),
        number => format!("pinned: {}, and {} more\n", pins[..PINS_NAMED].join(", "), number - PINS_NAMED),
    }
}

/// The shard that a problem is about.
fn shard_of(problem: &Problem) -> Option<ShardId> {
    match problem.kind {
        ProblemKind::CorruptRecord => problem.subject.strip_prefix("shards/")?.parse().ok(),
        ProblemKind::Quarantined | ProblemKind::Stuck => problem.subject.parse().ok(),
        _ => None,
    }
}

/// The command that helps.
fn advice(problem: &Problem) -> Option<String> {
    // Others say it in their message.
    (problem.kind == ProblemKind::Quarantined).then(|| format!("leasehold unquarantine {}", problem.subject))
}

/// The nodes.
pub(crate) fn nodes(view: &View) -> String {
    if view.nodes.is_empty() {
        return "no nodes\n".to_owned();
    }
    let mut table = Table::new(&[
        "NODE", "STATE", "RENEWS", "WEIGHT", "CAPACITY", "ZONE", "SHARDS", "WANTED", "ADDRESS", "REQUESTS",
    ]);
    for node in &view.nodes {
        table.row(vec![
            node.name.to_string(),
            node.state.to_string(),
            renews(node),
            node.weight.to_string(),
            or_dash(node.capacity),
            or_dash(node.zone.as_ref()),
            node.shards.to_string(),
            node.wanted.to_string(),
            or_dash(node.address.as_ref()),
            if node.commands.is_empty() { "-".to_owned() } else { node.commands.join(", ") },
        ]);
    }
    table.show()
}

/// Whether a node shows that it lives. A record stays when its writer dies, so one look says nothing of it but what the
/// writer's clock said.
fn renews(node: &NodeView) -> String {
    match (node.state.is_alive(), node.seen_to_renew) {
        (false, _) => "-".to_owned(),
        (true, _) if node.silent_for_ms > node.ttl_ms => {
            format!("silent for {} s", node.silent_for_ms / 1000)
        }
        (true, true) => "yes".to_owned(),
        (true, false) => match node.renewed_ago_ms {
            Some(ms) => format!("{} s ago (its clock)", ms / 1000),
            None => "not seen yet".to_owned(),
        },
    }
}

/// The shards, of one group or of all.
pub(crate) fn shards(view: &View, group: Option<&str>) -> String {
    let wanted = |shard: &&ShardView| group.is_none_or(|group| shard.id.0.group.as_str() == group);
    let mut table = Table::new(&["SHARD", "STATE", "HOLDER", "EPOCH", "WANTED", "PINNED TO"]);
    let mut any = false;
    for shard in view.shards.iter().filter(wanted) {
        any = true;
        table.row(vec![
            shard.id.0.to_string(),
            match &shard.kept_for {
                Some(node) => format!("{}, reserved for {node}", shard.state),
                None => shard.state.to_string(),
            },
            or_dash(shard.holder.as_ref()),
            or_dash((shard.state != ShardPhase::Corrupt).then_some(&shard.epoch)),
            or_dash(shard.wanted.as_ref()),
            or_dash(shard.pinned_to.as_ref()),
        ]);
    }
    if any { table.show() } else { "no shards\n".to_owned() }
}

/// The groups.
pub(crate) fn groups(view: &View) -> String {
    if view.groups.is_empty() {
        return "no groups\n".to_owned();
    }
    let mut table = Table::new(&["GROUP", "SHARDS", "UNOWNED", "BALANCE", "SETTINGS FROM"]);
    for group in &view.groups {
        let shards = match group.shards {
            ShardSet::Numbered(slots) => slots.to_string(),
            ShardSet::Named => "named".to_owned(),
        };
        let balance = group.policy.balance_permille;
        table.row(vec![
            group.group.to_string(),
            shards,
            group.unowned.to_string(),
            format!("{}.{:02}", balance / 1000, balance % 1000 / 10),
            group.source.to_string(),
        ]);
    }
    table.show()
}

fn or_dash(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}
