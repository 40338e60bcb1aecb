//! Whether a cluster needs an operator.

use std::time::Duration;

use leasehold::Client;
use leasehold::clock::Clock;
use leasehold_cli_common::plural::count;
use leasehold_core::View;
use leasehold_core::view::{NodePhase, NodeView, ProblemKind, ShardPhase};

use super::settled_view;
use crate::args::Status;

/// How long shards without an owner may be on their way.
const ON_THEIR_WAY: Duration = Duration::from_secs(1);

/// What needs an operator, if anything does. Shards that are being handed over have no owner for a moment: they are given
/// some time.
pub(crate) async fn check(client: &Client, limits: &Status) -> (View, Vec<String>) {
    let view = settled_view(client).await;
    let in_limit = |view: &View| unowned(view) <= limits.max_unowned;
    if in_limit(&view) {
        let wrong = judge(&view, limits);
        return (view, wrong);
    }
    let clock = Clock::boot();
    let _ = clock.timeout_at(clock.now() + ON_THEIR_WAY, client.until(in_limit)).await;
    let view = client.view_now();
    let wrong = judge(&view, limits);
    (view, wrong)
}

fn unowned(view: &View) -> usize {
    view.shards.iter().filter(|shard| shard.state == ShardPhase::Unowned).count()
}

fn judge(view: &View, limits: &Status) -> Vec<String> {
    let mut wrong = Vec::new();
    if !view.nodes.iter().any(|node| node.state.is_alive()) {
        wrong.push("no node is live".to_owned());
    }
    let unowned = unowned(view);
    if unowned > limits.max_unowned {
        wrong.push(format!("{} without an owner (limit {})", count(unowned, "shard"), limits.max_unowned));
    }
    for node in view.nodes.iter().filter(|node| node.state.is_alive()) {
        let age = age(node);
        let too_old = match limits.max_age {
            Some(limit) => age > limit,
            None => node.state == NodePhase::Silent,
        };
        if too_old {
            wrong.push(format!("node {} renewed {:.1} s ago", node.name, age.as_secs_f64()));
        }
    }
    let mut kinds: Vec<(ProblemKind, usize)> = Vec::new();
    // The limits above are about silent nodes.
    for problem in view.problems.iter().filter(|problem| problem.kind != ProblemKind::SilentNode) {
        match kinds.iter_mut().find(|(kind, _)| *kind == problem.kind) {
            Some((_, number)) => *number += 1,
            None => kinds.push((problem.kind, 1)),
        }
    }
    kinds.sort_by_key(|(kind, _)| kind.as_str());
    wrong.extend(kinds.into_iter().map(|(kind, number)| format!("{number} {kind}")));
    wrong
}

/// The time since a node renewed, as far as it can be known.
fn age(node: &NodeView) -> Duration {
    let told_ms = node.renewed_ago_ms.filter(|_| !node.seen_to_renew).unwrap_or(0);
    Duration::from_millis(node.silent_for_ms.max(told_ms))
}

/// Whether every shard, or every one of a group, is held by a node that renews; otherwise how many are not.
pub(crate) fn is_owned(view: &View, group: Option<&str>) -> Result<(), String> {
    let of_group = |name: &str| group.is_none_or(|group| name == group);
    if !view.groups.iter().any(|known| of_group(known.group.as_str())) {
        return Err(
            group.map_or("there are no groups".to_owned(), |group| format!("there is no group {group}"))
        );
    }
    let shards = view
        .shards
        .iter()
        .filter(|shard| of_group(shard.id.0.group.as_str()) && shard.state != ShardPhase::Retired);
    let (mut unowned, mut at_risk) = (0, 0);
    for shard in shards {
        unowned += usize::from(shard.holder.is_none());
        at_risk += usize::from(shard.at_risk);
    }
    match (unowned, at_risk) {
        (0, 0) => Ok(()),
        (0, _) => Err(format!("the holder of {} is silent", count(at_risk, "shard"))),
        (_, 0) => Err(format!("{} without an owner", count(unowned, "shard"))),
        _ => Err(format!("{} without an owner, and {at_risk} with a silent holder", count(unowned, "shard"))),
    }
}
