//! Waits until a request is carried out, or until the cluster has reached a goal.

use std::time::Duration;

use leasehold::Client;
use leasehold::clock::Clock;
use leasehold_cli_common::failure::{Code, Failure};
use leasehold_cli_common::plural::count;
use leasehold_cli_common::settings::{Settings, span};
use leasehold_core::view::NodePhase;
use leasehold_core::{Epoch, GroupName, Moment, NodeName, ShardId, View};

use crate::args::{NodeGoal, Timeout};
use crate::inspect::{is_owned, lasting_client};

/// How often the view is looked at: time alone changes it, too.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How often a store or a namespace that is not there is tried again.
const OPEN_EVERY: Duration = Duration::from_millis(300);

/// What to wait for.
#[derive(Debug)]
pub(crate) enum Goal {
    /// Every shard, or every one of a group, is held by a node that renews.
    Owned(Option<String>),
    /// A node is in a state.
    Node(NodeName, NodeGoal),
    /// A node holds a shard.
    HeldBy(ShardId, NodeName),
    /// A shard was started again after this epoch.
    Restarted(ShardId, Epoch),
    /// Every shard of a group is where the nodes that agree on the plan want it.
    InPlace(GroupName),
}

impl Goal {
    /// Whether it is reached; otherwise what is missing.
    fn look(&self, view: &View) -> Result<(), String> {
        match self {
            Goal::Owned(group) => is_owned(view, group.as_deref()),
            Goal::Node(name, goal) => node(view, name, *goal),
            Goal::HeldBy(id, node) => {
                let shard = view.shards.iter().find(|shard| shard.id.0 == *id);
                match shard.and_then(|shard| shard.holder.as_ref()) {
                    Some(holder) if holder == node => Ok(()),
                    Some(holder) => Err(format!("{holder} holds {id}")),
                    None => Err(format!("no node holds {id}")),
                }
            }
            Goal::Restarted(id, before) => {
                let shard = view.shards.iter().find(|shard| shard.id.0 == *id);
                match shard {
                    Some(shard) if shard.epoch > *before && shard.holder.is_some() => Ok(()),
                    Some(shard) if shard.epoch > *before => Err(format!("no node holds {id}")),
                    _ => Err(format!("{id} still has the epoch {before}")),
                }
            }
            Goal::InPlace(group) => in_place(view, group),
        }
    }
}

fn node(view: &View, name: &NodeName, goal: NodeGoal) -> Result<(), String> {
    let Some(node) = view.nodes.iter().find(|node| node.name == *name) else {
        return match goal {
            NodeGoal::Attached => Err(format!("there is no node {name}")),
            NodeGoal::Drained | NodeGoal::Gone => Ok(()),
        };
    };
    let state = node.state;
    let reached = match goal {
        NodeGoal::Attached => {
            // A record alone does not show that its writer lives.
            let lives = state.is_alive() && state != NodePhase::Silent && node.seen_to_renew;
            lives && node.session_state.is_none()
        }
        NodeGoal::Drained => node.shards == 0 && (state == NodePhase::Drained || !state.is_alive()),
        NodeGoal::Gone => !state.is_alive(),
    };
    match (reached, &node.session_state) {
        (true, _) => Ok(()),
        (false, Some(recovers)) if goal == NodeGoal::Attached => Err(format!("node {name} is {recovers}")),
        (false, None) if goal == NodeGoal::Attached => {
            Err(format!("node {name} is {state} and was not seen to renew"))
        }
        (false, _) => Err(format!("node {name} is {state} and holds {}", count(node.shards, "shard"))),
    }
}

fn in_place(view: &View, group: &GroupName) -> Result<(), String> {
    let shards = view.shards.iter().filter(|shard| shard.id.0.group == *group);
    let elsewhere = shards.filter(|shard| shard.holder != shard.wanted).count();
    let late =
        view.nodes.iter().filter(|node| node.state.is_alive() && node.wanted > 0 && !node.agrees).count();
    match (elsewhere, late) {
        (0, 0) => Ok(()),
        (0, _) => Err(format!("{} not planning with the change yet", count(late, "node"))),
        _ => Err(format!("{} of {group} not where planned", count(elsewhere, "shard"))),
    }
}

/// Waits until the goal is reached.
pub(crate) async fn wait(client: &Client, goal: &Goal, timeout: Timeout) -> Result<(), Failure> {
    let clock = Clock::boot();
    wait_until(client, goal, clock.now() + timeout.0, timeout, &clock).await
}

async fn wait_until(
    client: &Client,
    goal: &Goal,
    until: Moment,
    timeout: Timeout,
    clock: &Clock,
) -> Result<(), Failure> {
    loop {
        let missing = match (goal.look(&client.view_now()), client.last_error()) {
            (Ok(()), None) => return Ok(()),
            // What was true when the store was last heard of may not be true now.
            (_, Some(error)) => format!("the store is unreachable: {error}"),
            (Err(missing), None) => missing,
        };
        if clock.now() >= until {
            return Err(timed_out(timeout, &missing));
        }
        clock.sleep(LOOK_EVERY.min(until.since(clock.now()))).await;
    }
}

/// The same for a store and a namespace that may not be there yet.
pub(crate) async fn wait_from_start(
    settings: &Settings,
    goal: &Goal,
    timeout: Timeout,
) -> Result<(), Failure> {
    let clock = Clock::boot();
    let until = clock.now() + timeout.0;
    loop {
        let failure = match clock.timeout_at(until, lasting_client(settings)).await {
            Some(Ok(client)) => return wait_until(&client, goal, until, timeout, &clock).await,
            Some(Err(failure)) if matches!(failure.code, Code::Store | Code::NotFound) => failure,
            Some(Err(failure)) => return Err(failure),
            None => return Err(timed_out(timeout, "the store did not answer")),
        };
        if clock.now() >= until {
            return Err(timed_out(timeout, failure.message.lines().next().unwrap_or_default()));
        }
        clock.sleep(OPEN_EVERY.min(until.since(clock.now()))).await;
    }
}

fn timed_out(Timeout(after): Timeout, missing: &str) -> Failure {
    Failure::new(Code::TimedOut, format!("gave up after {}: {missing}", span::show(after)))
}
