//! Explains where a shard runs and why, and what a change would move, with the functions that make the plan.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::mirror::Mirror;
use crate::name::{Epoch, GroupName, NodeName, SessionId, ShardId};
use crate::plan::{GroupSettings, Member, Plan, Planning, Roster};
use crate::record::{MoveReason, NodeState, Served, WorkState};
use crate::store::Key;
use crate::view;

/// Explains where a shard runs and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Explanation {
    /// The shard.
    pub shard: ShardId,
    /// The node that holds it.
    pub holder: Option<NodeName>,
    /// Its epoch.
    pub epoch: Epoch,
    /// Why its record cannot be used, and what repairs it. Its holder and epoch are then unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unusable: Option<String>,
    /// Whether its holder runs its work, or why not.
    pub work: WorkState,
    /// Why it last moved.
    pub moved_because: Option<MoveReason>,
    /// The node that should hold it.
    pub wanted: Option<NodeName>,
    /// Whether an operator pinned it, and where.
    pub pinned_to: Option<NodeName>,
    /// The candidates, best first.
    pub ranking: Vec<Ranked>,
    /// Nodes that are not candidates, and why.
    pub left_out: Vec<LeftOut>,
    /// Why it has not moved to its planned node, as reported by its holder; other nodes know this from its last renewal.
    pub unmoved_because: Option<String>,
}

/// A candidate for a shard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Ranked {
    /// The node.
    pub node: NodeName,
    /// Its score for this shard: the lower, the better. A placement of the user's own has none.
    pub score: Option<String>,
    /// Its weight.
    pub weight: u32,
    /// How many shards of the group the plan gives it.
    pub load: usize,
    /// The most that it may have, by balance and capacity.
    pub cap: Option<u32>,
    /// Whether that is reached.
    pub full: bool,
}

/// A node that cannot have the shard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct LeftOut {
    /// The node.
    pub node: NodeName,
    /// Why.
    pub why: LeftOutReason,
}

/// A change to try out.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WhatIf {
    /// A node is gone.
    Down(NodeName),
    /// A node hands everything over.
    Drained(NodeName),
    /// A node is added, serving the groups of the others.
    Added {
        /// Its name.
        node: NodeName,
        /// Its weight.
        weight: u32,
        /// Its capacity.
        capacity: Option<u32>,
        /// Its zone.
        zone: Option<String>,
    },
    /// A node has another weight.
    Weight(NodeName, u32),
}

/// What a change would do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Difference {
    /// The shards that would move, ordered by group and name, slots by their number.
    pub moves: Vec<Move>,
    /// Shards per node: wanted now, and then.
    pub loads: BTreeMap<NodeName, (usize, usize)>,
    /// Shards that would have no node.
    pub homeless: usize,
}

/// Why a node cannot have a shard. As text, the end of a sentence about the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum LeftOutReason {
    /// It does not serve the group.
    DoesNotServe,
    /// Its acquire gate refuses the whole group.
    RefusesGroup,
    /// It hands everything over.
    Draining,
    /// It takes no shards: it is unhealthy or recovering.
    NotAccepting,
    /// Its weight is 0.
    NoWeight,
    /// It declines this shard: its acquire gate refused it, or it was not engaged there.
    Declines,
}

impl std::fmt::Display for LeftOutReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            LeftOutReason::DoesNotServe => "does not serve the group",
            LeftOutReason::RefusesGroup => "refuses the group by its acquire gate",
            LeftOutReason::Draining => "is draining",
            LeftOutReason::NotAccepting => "takes no shards (unhealthy or recovering)",
            LeftOutReason::NoWeight => "has weight 0",
            LeftOutReason::Declines => "declines this shard",
        })
    }
}

/// A shard that would move.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Move {
    /// Which.
    pub shard: ShardId,
    /// The node that holds it now, or should.
    pub from: Option<NodeName>,
    /// The node that would hold it.
    pub to: Option<NodeName>,
}

/// Explains where a shard runs and why; `None` if there is no such shard.
pub fn explain(
    mirror: &Mirror,
    roster: &Roster,
    planning: &Planning,
    plan: &Plan,
    shard: &ShardId,
) -> Option<Explanation> {
    let seen = mirror.shards().get(shard);
    let record = seen.and_then(|seen| seen.good());
    let error = seen.and_then(|seen| seen.record.as_ref().err());
    let group = plan.groups.get(&shard.group);
    if seen.is_none() && !plan.has(shard) {
        return None;
    }
    let held = view::whereabouts(mirror, shard);
    let mut ranking = Vec::new();
    if let Some(group) = group {
        let caps = planning.caps(plan, &shard.group);
        for ranked in planning.ranked(plan, shard) {
            let Some(candidate) = group.question.nodes.get(ranked.node as usize) else { continue };
            let load = group.answer.to.iter().filter(|to| **to == Some(ranked.node)).count();
            let cap = caps.get(ranked.node as usize).copied().flatten();
            ranking.push(Ranked {
                node: candidate.name.clone(),
                score: ranked.score.map(|score| format!("{score:.6}")),
                weight: candidate.weight,
                load,
                cap,
                full: cap.is_some_and(|cap| load >= cap as usize),
            });
        }
    }
    let left_out = (roster.iter())
        .filter_map(|(node, member)| Some(LeftOut { node: node.clone(), why: left_out(member, shard)? }))
        .collect();
    let control = mirror.control();
    let report = held.node.as_ref().and_then(|node| mirror.nodes().get(node)?.seen.as_ref()?.good());
    Some(Explanation {
        shard: shard.clone(),
        holder: held.node,
        epoch: held.epoch,
        unusable: error.map(|error| view::unusable(&Key::Shard(shard.clone()), error)),
        work: record.map_or(WorkState::Runs, |record| record.work),
        moved_because: record.map(|record| record.why),
        wanted: plan.wanted(shard).cloned(),
        pinned_to: control.and_then(|control| control.pins.get(shard)).cloned(),
        ranking,
        left_out,
        unmoved_because: report.and_then(|record| {
            let stuck = record.report.stuck.contains(shard).then(|| view::stuck(held.epoch));
            stuck.or_else(|| record.report.unmoved.get(shard).cloned())
        }),
    })
}

fn left_out(member: &Member, shard: &ShardId) -> Option<LeftOutReason> {
    match member.groups.get(&shard.group) {
        None => Some(LeftOutReason::DoesNotServe),
        Some(Served { declined: true, .. }) => Some(LeftOutReason::RefusesGroup),
        _ if member.state == NodeState::Draining => Some(LeftOutReason::Draining),
        _ if !member.accepting && !member.returning => Some(LeftOutReason::NotAccepting),
        _ if member.weight == 0 => Some(LeftOutReason::NoWeight),
        _ if member.declines(shard) => Some(LeftOutReason::Declines),
        _ => None,
    }
}

/// What would move if something changed.
pub fn what_if(
    mirror: &Mirror,
    roster: &Roster,
    settings: &BTreeMap<GroupName, GroupSettings>,
    planning: &Planning,
    change: &WhatIf,
) -> Result<Difference, String> {
    let control = mirror.control();
    let mut changed = roster.clone();
    let known = |node: &NodeName| match roster.contains_key(node) {
        true => Ok(()),
        false => {
            let names: Vec<&str> = roster.keys().map(NodeName::as_str).collect();
            Err(format!("unknown live node {node}; live nodes: {}", names.join(", ")))
        }
    };
    match change {
        WhatIf::Down(node) => {
            known(node)?;
            changed.remove(node);
        }
        WhatIf::Drained(node) => {
            known(node)?;
            changed.entry(node.clone()).and_modify(|member| member.state = NodeState::Draining);
        }
        WhatIf::Weight(node, weight) => {
            known(node)?;
            changed.entry(node.clone()).and_modify(|member| member.weight = *weight);
        }
        WhatIf::Added { node, weight, capacity, zone } => {
            if roster.contains_key(node) {
                return Err(format!("the node {node} is already live: choose another name"));
            }
            let groups = settings.keys().map(|group| (group.clone(), Served::default())).collect();
            let member = Member {
                session: SessionId::from_bits(0),
                state: NodeState::Active,
                accepting: true,
                returning: false,
                weight: *weight,
                capacity: *capacity,
                zone: zone.clone(),
                groups,
                declined: Default::default(),
                view: 0,
                ttl_ms: 0,
            };
            changed.insert(node.clone(), member);
        }
    }
    let before = planning.afresh().plan(roster, settings, control);
    let after = planning.afresh().plan(&changed, settings, control);
    let mut moves: Vec<Move> = (before.iter().zip(after.iter()))
        .filter(|((_, from), (_, to))| from != to)
        .map(|((shard, from), (_, to))| Move { shard: shard.clone(), from: from.cloned(), to: to.cloned() })
        .collect();
    moves.sort_unstable_by(|a, b| a.shard.natural_cmp(&b.shard));
    let (counts_before, counts_after) = (before.wanted_counts(), after.wanted_counts());
    let names = roster.keys().chain(changed.keys());
    let count = |counts: &BTreeMap<NodeName, usize>, name: &NodeName| counts.get(name).copied().unwrap_or(0);
    let loads =
        names.map(|name| (name.clone(), (count(&counts_before, name), count(&counts_after, name)))).collect();
    let homeless = after.iter().filter(|(_, to)| to.is_none()).count();
    Ok(Difference { moves, loads, homeless })
}
