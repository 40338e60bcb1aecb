//! The view that follows from mirror and plan, without anything that only one node knows.

use std::collections::BTreeMap;

use super::problems::{Problem, ProblemKind, node_problems, record_problems, settling};
use super::silence::{self, Silent};
use super::{
    DrainAsked, GroupView, Hearing, NodePhase, NodeView, SettingsSource, ShardKey, ShardPhase, ShardView,
    View,
};
use crate::event::Located;
use crate::mirror::Mirror;
use crate::name::{Epoch, GroupName, NodeName, ShardId, natural_cmp};
use crate::plan::{GroupSettings, Plan, Roster};
use crate::record::{ShardState, WorkState};
use crate::time::Now;

/// All of it.
pub fn of_mirror(
    mirror: &Mirror,
    roster: &Roster,
    settings: &BTreeMap<GroupName, GroupSettings>,
    plan: &Plan,
    hearing: Hearing,
    now: Now,
) -> View {
    let wanted = plan.wanted_counts();
    let silent = match hearing {
        Hearing::Hears => silence::of_nodes(mirror, now),
        Hearing::Deaf => Silent::new(),
    };
    let mut held: BTreeMap<&NodeName, usize> = BTreeMap::new();
    let mut at_risk: BTreeMap<&GroupName, usize> = BTreeMap::new();
    let mut unowned: BTreeMap<&GroupName, usize> = BTreeMap::new();
    let mut problems = Vec::new();
    let mut ids: Vec<&ShardId> = plan.iter().map(|(shard, _)| shard).chain(mirror.shards().keys()).collect();
    ids.sort_unstable_by(|a, b| a.natural_cmp(b));
    ids.dedup();
    let mut shards = Vec::with_capacity(ids.len());
    for id in ids {
        let mut shard = shard_view(mirror, plan, id, &mut problems);
        shard.kept_for = kept_for(mirror, id, now);
        let nobodys =
            shard.holder.is_none() && matches!(shard.state, ShardPhase::Unowned | ShardPhase::Retired);
        if nobodys && !is_known(mirror, roster, settings, &id.group) {
            continue;
        }
        match (&shard.holder, shard.state) {
            (None, ShardPhase::Unowned) => *unowned.entry(&id.group).or_default() += 1,
            (None, _) => {}
            (Some(_), _) => {
                if let Some(holder) = mirror.holder(id) {
                    *held.entry(&holder.node).or_default() += 1;
                    shard.at_risk = silent.contains_key(&holder.node);
                    *at_risk.entry(&id.group).or_default() += usize::from(shard.at_risk);
                }
            }
        }
        shards.push(shard);
    }
    let control = mirror.control();
    let mut nodes: Vec<NodeView> = (mirror.nodes().iter())
        .filter_map(|(name, node)| {
            let record = node.seen.as_ref()?.good()?;
            let member = roster.get(name);
            let held = held.get(name).copied().unwrap_or(0);
            let drain = match control.is_some_and(|control| control.drain.contains_key(name)) {
                true => DrainAsked::Yes,
                false => DrainAsked::No,
            };
            let mut commands = Vec::new();
            if let Some(control) = control {
                commands.extend(
                    control
                        .drain
                        .get(name)
                        .map(|command| format!("drain {}", command.note).trim().to_owned()),
                );
                commands.extend(control.weights.get(name).map(|weight| format!("weight {weight}")));
            }
            let silence = silent.get(name).copied();
            let phase = NodePhase::of(record, mirror, drain, held);
            Some(NodeView {
                name: name.clone(),
                session: record.session,
                state: if silence.is_some() && phase.is_alive() { NodePhase::Silent } else { phase },
                accepting: record.accepting,
                weight: member.map_or(record.weight, |member| member.weight),
                capacity: record.capacity,
                zone: record.zone.clone(),
                address: record.address.clone(),
                labels: record.labels.clone(),
                ttl_ms: record.ttl_ms,
                seen_to_renew: node.first_seen_at > node.session_seen_at,
                silent_for_ms: now.at.since(node.first_seen_at).as_millis() as u64,
                silence,
                renewed_ago_ms: silence::renewed_ago_ms(record, now),
                session_state: record.report.session_state.clone(),
                outage: record.report.outage.clone(),
                shards: held,
                wanted: wanted.get(name).copied().unwrap_or(0),
                agrees: record.view == plan.view,
                commands,
            })
        })
        .collect();
    nodes.sort_by(|a, b| natural_cmp(a.name.as_str(), b.name.as_str()));
    let groups = settings.iter().map(|(name, group)| GroupView {
        group: name.clone(),
        shards: group.set,
        policy: group.policy.clone(),
        source: if group.from_store { SettingsSource::Store } else { SettingsSource::Static },
        unowned: unowned.get(name).copied().unwrap_or(0),
        at_risk: at_risk.get(name).copied().unwrap_or(0),
        frozen: control.and_then(|control| control.freeze_groups.get(name)).cloned(),
    });
    let mut groups: Vec<GroupView> = groups.collect();
    groups.sort_by(|a, b| natural_cmp(a.group.as_str(), b.group.as_str()));
    problems.extend(record_problems(mirror, plan));
    problems.extend(silence::problems(mirror, &silent, &held));
    problems.extend(node_problems(mirror, &silent));
    problems.extend(settling(mirror));
    View {
        me: None,
        ready: mirror.is_ready(),
        frozen: control.and_then(|control| control.freeze.clone()),
        nodes,
        groups,
        shards,
        problems,
    }
}

/// Whether there is a group of that name, with settings that can be read or not. Records of shards outlive a group that
/// was deleted: their epochs go on should it come back.
fn is_known(
    mirror: &Mirror,
    roster: &Roster,
    settings: &BTreeMap<GroupName, GroupSettings>,
    group: &GroupName,
) -> bool {
    settings.contains_key(group)
        || mirror.groups().contains_key(group)
        || roster
            .values()
            .any(|member| member.groups.contains_key(group) && !mirror.is_process_gone(&member.session))
}

fn shard_view(mirror: &Mirror, plan: &Plan, id: &ShardId, problems: &mut Vec<Problem>) -> ShardView {
    let wanted = plan.wanted(id).cloned();
    let seen = mirror.shards().get(id);
    let record = seen.and_then(|seen| seen.good());
    let holder = record.and_then(|record| record.holder()).filter(|holder| {
        let node = mirror.node_record(&holder.node);
        let replaced = node.is_some_and(|node| node.session != holder.session);
        let dead = mirror.is_proved_over(&holder.session) || mirror.is_process_gone(&holder.session);
        !replaced && !dead
    });
    let work = record.map_or(WorkState::Runs, |record| record.work);
    let state = match (seen.map(|seen| &seen.record), record.map(|record| &record.state)) {
        (Some(Err(_)), _) => ShardPhase::Corrupt,
        (_, Some(ShardState::Retired)) => ShardPhase::Retired,
        _ if holder.is_some() && work == WorkState::Quarantined => ShardPhase::Quarantined,
        _ if holder.is_some() && work == WorkState::Done => ShardPhase::Done,
        _ if holder.is_some_and(|holder| tells_stuck(mirror, &holder.node, id)) => ShardPhase::Stuck,
        _ if holder.is_some() => ShardPhase::Held,
        _ => ShardPhase::Unowned,
    };
    if state == ShardPhase::Quarantined {
        problems.push(Problem {
            kind: ProblemKind::Quarantined,
            subject: id.to_string(),
            message: "its work kept failing, so the holder does not run it; fix the work, then unquarantine the shard"
                .into(),
        });
    }
    if state == ShardPhase::Stuck {
        problems.push(Problem::stuck(id, record.map_or(Epoch(0), |record| record.epoch)));
    }
    let control = mirror.control();
    ShardView {
        id: ShardKey(id.clone()),
        holder: holder.map(|holder| holder.node.clone()),
        session: holder.map(|holder| holder.session),
        epoch: record.map_or(Epoch(0), |record| record.epoch),
        wanted,
        pinned_to: control.and_then(|control| control.pins.get(id)).cloned(),
        kept_for: None,
        state,
        at_risk: false,
    }
}

/// The node that a shard is reserved for in a restart grace. Each observer counts from when it first saw the record; one that
/// has just started also uses the time that the writer's clock gives.
fn kept_for(mirror: &Mirror, shard: &ShardId, now: Now) -> Option<NodeName> {
    let seen = mirror.shards().get(shard)?;
    let record = seen.good()?;
    let ShardState::Vacant { successor: Some(successor), reserved_ms: Some(reserved_ms) } = &record.state
    else {
        return None;
    };
    let over = now.at.since(seen.first_seen_at).as_millis() as u64 >= *reserved_ms
        || now.unix_ms >= record.written_unix_ms.saturating_add(*reserved_ms);
    (!over).then(|| successor.clone())
}

/// Whether a node said with its last renewal that the work of a shard does not stop.
fn tells_stuck(mirror: &Mirror, node: &NodeName, shard: &ShardId) -> bool {
    let record = mirror.nodes().get(node).and_then(|node| node.seen.as_ref()?.good());
    record.is_some_and(|record| record.report.stuck.contains(shard))
}

/// Which node holds a shard.
pub fn whereabouts(mirror: &Mirror, shard: &ShardId) -> Located {
    let view = shard_view(mirror, &Plan::default(), shard, &mut Vec::new());
    let node = view.holder.as_ref().and_then(|name| mirror.nodes().get(name)?.seen.as_ref()?.good());
    let address = node.and_then(|record| record.address.clone());
    Located { shard: shard.clone(), node: view.holder, address, epoch: view.epoch }
}
