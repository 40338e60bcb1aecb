//! The view of a cluster as text.

use std::fmt::Write as _;

use leasehold_cli_common::plural::count;
use leasehold_cli_common::sanitize::sanitize;
use leasehold_core::record::ShardSet;
use leasehold_core::view::{NodePhase, NodeView, Problem, ProblemKind, ShardKey, ShardPhase, ShardView};
use leasehold_core::{ShardId, View};

use super::Table;
use crate::args::{InspectShards, ShardState};

/// Everything at a glance.
pub(crate) fn status(view: &View) -> String {
    let mut text = headline(view);
    if let Some(note) = &view.frozen {
        let _ = writeln!(text, "voluntary moves are frozen: {}", sanitize(note));
    }
    for group in &view.groups {
        if let Some(note) = &group.frozen {
            let _ = writeln!(text, "voluntary moves of {} are frozen: {}", group.group, sanitize(note));
        }
    }
    text.push_str(&pins(view));
    text.push('\n');
    text.push_str(&nodes(view.nodes.iter()));
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

/// How many nodes and shards there are, counted as the tables show them.
fn headline(view: &View) -> String {
    let alive = view.nodes.iter().filter(|node| node.state.is_alive()).count();
    let silent = view.nodes.iter().filter(|node| node.state == NodePhase::Silent).count();
    let shards = || view.shards.iter().filter(|shard| shard.state != ShardPhase::Retired);
    let held = || shards().filter(|shard| shard.holder.is_some());
    let in_state = |state| shards().filter(|shard| shard.state == state).count();
    let some = |parts: &[(usize, &str)]| {
        let parts = parts.iter().filter(|(number, _)| *number > 0);
        parts.map(|(number, what)| format!("{number} {what}")).collect::<Vec<_>>().join(", ")
    };
    let within = |parts: String| if parts.is_empty() { parts } else { format!(" ({parts})") };
    let of_held = some(&[
        (held().filter(|shard| shard.at_risk).count(), "at risk"),
        (in_state(ShardPhase::Stuck), "stuck"),
        (in_state(ShardPhase::Quarantined), "quarantined"),
        (in_state(ShardPhase::Done), "done"),
    ]);
    let others =
        some(&[(in_state(ShardPhase::Unowned), "unowned"), (in_state(ShardPhase::Corrupt), "corrupt")]);
    format!(
        "{}{}, {}, {} held{}{}{others}\n",
        count(alive, "live node"),
        within(some(&[(silent, "silent")])),
        count(shards().count(), "shard"),
        held().count(),
        within(of_held),
        if others.is_empty() { "" } else { ", " },
    )
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
pub(crate) fn nodes<'v>(nodes: impl Iterator<Item = &'v NodeView>) -> String {
    let mut table = Table::new(&[
        "NODE", "STATE", "RENEWS", "WEIGHT", "CAPACITY", "ZONE", "SHARDS", "WANTED", "ADDRESS", "REQUESTS",
    ]);
    let mut any = false;
    for node in nodes {
        any = true;
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
    if any { table.show() } else { "no nodes\n".to_owned() }
}

/// Whether a node shows that it lives. A record stays when its writer dies, so one look says nothing of it but what the
/// writer's clock said.
fn renews(node: &NodeView) -> String {
    let seconds = |ms: u64| ms as f64 / 1000.0;
    match (node.state.is_alive(), node.seen_to_renew, node.silence) {
        (false, ..) => "-".to_owned(),
        (true, _, Some(silence)) => {
            let doubt = if silence.watched { "" } else { " (its clock)" };
            format!("silent {:.1} s of {:.1} s{doubt}", seconds(silence.for_ms), seconds(node.ttl_ms))
        }
        (true, true, None) => "yes".to_owned(),
        (true, false, None) => match node.renewed_ago_ms {
            Some(ms) => format!("{} s ago (its clock)", ms / 1000),
            None => "not seen yet".to_owned(),
        },
    }
}

/// The shards of a group, node or state.
pub(crate) fn shard_rows<'v>(
    view: &'v View,
    wanted: &'v InspectShards,
) -> impl Iterator<Item = &'v ShardView> {
    let group = wanted.group.as_ref().or(wanted.group_flag.as_ref());
    let is_in = |shard: &ShardView, state| match state {
        ShardState::AtRisk => shard.at_risk,
        ShardState::Phase(phase) => shard.state == phase,
    };
    let is_on =
        |shard: &ShardView, node: &str| shard.holder.as_ref().is_some_and(|held| held.as_str() == node);
    view.shards.iter().filter(move |shard| {
        group.is_none_or(|group| shard.id.0.group.as_str() == group)
            && wanted.node.as_ref().is_none_or(|node| is_on(shard, node))
            && wanted.state.is_none_or(|state| is_in(shard, state))
    })
}

/// The shards as a table.
pub(crate) fn shards<'v>(shards: impl Iterator<Item = &'v ShardView>) -> String {
    let mut table = Table::new(&["SHARD", "STATE", "HOLDER", "EPOCH", "WANTED", "PINNED TO"]);
    let mut any = false;
    for shard in shards {
        any = true;
        table.row(vec![
            shard.id.0.to_string(),
            match &shard.kept_for {
                Some(node) => format!("{}, reserved for {node}", shard.state),
                None if shard.at_risk => format!("{}, at risk", shard.state),
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
    let mut table = Table::new(&["GROUP", "SHARDS", "UNOWNED", "AT RISK", "BALANCE", "SETTINGS FROM"]);
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
            group.at_risk.to_string(),
            format!("{}.{:02}", balance / 1000, balance % 1000 / 10),
            group.source.to_string(),
        ]);
    }
    table.show()
}

fn or_dash(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}
