//! Explains where a shard runs and why, and what a change would move, with the functions that make the plan.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::mirror::Mirror;
use crate::name::{Epoch, GroupName, NodeName, SessionId, ShardId};
use crate::plan::{self, GroupSettings, Member, Plan, Planning, Roster};
use crate::record::{Control, MoveReason, NodeState, Policy, Served, ShardSet, WorkState};
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
    /// Its score for this shard, with six decimals: the lower, the better. A placement of the user's own has none.
    #[serde(serialize_with = "as_number")]
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

/// A score as the number that it is.
fn as_number<S: serde::Serializer>(score: &Option<String>, serializer: S) -> Result<S::Ok, S::Error> {
    score.as_ref().and_then(|score| score.parse::<f64>().ok()).serialize(serializer)
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
    /// Operators ask for something else: what is in this record.
    Control(Box<Control>),
    /// A group has other settings, or is new.
    Group {
        /// Its name.
        group: GroupName,
        /// Its shards.
        shards: ShardSet,
        /// Its rules.
        policy: Box<Policy>,
    },
}

/// What a change would do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Difference {
    /// The shards that would move, ordered by group and name, slots by their number.
    pub moves: Vec<Move>,
    /// Shards per node.
    pub loads: BTreeMap<NodeName, Load>,
    /// Shards that would have no node.
    pub homeless: usize,
}

/// The shards that the plan gives to a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Load {
    /// Now.
    pub now: usize,
    /// After the change.
    pub then: usize,
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
    let mut control_then = control;
    let mut settings_then = settings.clone();
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
        WhatIf::Control(asked) => {
            changed = plan::roster_under(mirror, Some(asked));
            control_then = Some(asked);
        }
        WhatIf::Group { group, shards, policy } => {
            let known = settings.get(group);
            let wanted = GroupSettings {
                set: *shards,
                shards: planning.afresh().shards(mirror, group, *shards),
                policy: Policy::clone(policy),
                epoch_floor: known.map(|known| known.epoch_floor).unwrap_or_default(),
                filled: known.map(|known| known.filled.clone()).unwrap_or_default(),
                from_store: true,
            };
            settings_then.insert(group.clone(), wanted);
        }
    }
    let before = planning.afresh().plan(roster, settings, control);
    let after = planning.afresh().plan(&changed, &settings_then, control_then);
    // A change of a group may add shards, or remove some.
    let (from, to): (BTreeMap<_, _>, BTreeMap<_, _>) = (before.iter().collect(), after.iter().collect());
    let shards: BTreeSet<&ShardId> = from.keys().chain(to.keys()).copied().collect();
    let places = shards.into_iter().map(|shard| {
        let at = |places: &BTreeMap<_, Option<&NodeName>>| places.get(shard).copied().flatten().cloned();
        Move { shard: shard.clone(), from: at(&from), to: at(&to) }
    });
    let mut moves: Vec<Move> = places.filter(|place| place.from != place.to).collect();
    moves.sort_unstable_by(|a, b| a.shard.natural_cmp(&b.shard));
    let (counts_before, counts_after) = (before.wanted_counts(), after.wanted_counts());
    let names = roster.keys().chain(changed.keys());
    let count = |counts: &BTreeMap<NodeName, usize>, name: &NodeName| counts.get(name).copied().unwrap_or(0);
    let load = |name| Load { now: count(&counts_before, name), then: count(&counts_after, name) };
    let loads = names.map(|name| (name.clone(), load(name))).collect();
    let homeless = after.iter().filter(|(_, to)| to.is_none()).count();
    Ok(Difference { moves, loads, homeless })
}
