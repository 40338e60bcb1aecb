//! What a node knows and does, as plain data: the one source for the API, the program, the pages and the
//! simulator's checks.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::event::{Located, shard_of};
use crate::mirror::Mirror;
use crate::name::{Epoch, GroupName, NodeName, SessionId, ShardId};
use crate::plan::{GroupSettings, Plan, Roster};
use crate::record::{MetaState, NodeRecord, NodeState, Outage, Policy, RecordError, ShardSet, ShardState};
use crate::store::Key;
use crate::time::Now;

/// Everything that a node, or a client that only watches, knows at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct View {
    /// The node itself; a client that only watches has none.
    pub me: Option<Me>,
    /// Whether a first listing has arrived, so that the rest means something.
    pub ready: bool,
    /// Why voluntary moves are frozen, if they are.
    pub frozen: Option<String>,
    /// The nodes, ordered by name, with those that went not long ago.
    pub nodes: Vec<NodeView>,
    /// The groups, ordered by name.
    pub groups: Vec<GroupView>,
    /// The shards, ordered by group and name.
    pub shards: Vec<ShardView>,
    /// What somebody should look at.
    pub problems: Vec<Problem>,
}

/// The node that the view is from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Me {
    /// Its name.
    pub node: NodeName,
    /// Its session, if it has one.
    pub session: Option<SessionId>,
    /// `joining`, `attached`, `degraded`, `detached`, `recovering` or `left`.
    pub standing: &'static str,
    /// For how long, in milliseconds.
    pub standing_for_ms: u64,
    /// Why, in words.
    pub cause: String,
    /// What it waits for, if it does.
    pub waiting_for: Option<String>,
    /// How long until its work is told to stop unless a renewal is confirmed, in milliseconds.
    pub stop_in_ms: Option<u64>,
    /// Renewals that failed in a row.
    pub renewals_failed: u32,
    /// Whether it is handing everything over.
    pub draining: bool,
    /// Shards that it holds.
    pub held: usize,
    /// Shards that the plan gives to it.
    pub wanted: usize,
}

/// A node as the store shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NodeView {
    /// Its name.
    pub name: NodeName,
    /// Its session.
    pub session: SessionId,
    /// What it is doing, or how it ended.
    pub state: NodePhase,
    /// Whether it takes new shards.
    pub accepting: bool,
    /// Its weight in the plan, after what operators asked for.
    pub weight: u32,
    /// Its capacity in all.
    pub capacity: Option<u32>,
    /// Where it stands.
    pub zone: Option<String>,
    /// Where callers reach it.
    pub address: Option<String>,
    /// What its owner wrote on it.
    pub labels: BTreeMap<String, String>,
    /// Its ttl, in milliseconds.
    pub ttl_ms: u64,
    /// Whether we have seen it renew. A record alone does not show whether anybody still renews it.
    pub seen_to_renew: bool,
    /// For how long its record has not changed, as we saw it, in milliseconds.
    pub silent_for_ms: u64,
    /// How long ago it renewed, by what its clock and ours say, in milliseconds: a hint, for people.
    pub renewed_ago_ms: Option<u64>,
    /// How it stood with the store at its last renewal, unless all was well.
    pub standing: Option<String>,
    /// When its process last had no session.
    pub outage: Option<Outage>,
    /// Shards that it holds.
    pub shards: usize,
    /// Shards that the plan gives to it.
    pub wanted: usize,
    /// Whether it plans with the same view as we do.
    pub agrees: bool,
    /// What operators asked of it.
    pub wishes: Vec<String>,
}

/// What a node is doing, or how it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NodePhase {
    /// It takes shards.
    Active,
    /// It keeps what it has, and takes no more.
    NotAccepting,
    /// It hands everything over.
    Draining,
    /// It was asked to hand everything over, and has.
    Drained,
    /// It left by itself.
    Left,
    /// Somebody proved that its session is over.
    Fenced,
    /// The kernel proves that its process is gone; nobody has fenced its session yet.
    Gone,
}

impl NodePhase {
    /// Whether its session goes on, as far as we know.
    pub fn is_alive(self) -> bool {
        !matches!(self, NodePhase::Left | NodePhase::Fenced | NodePhase::Gone)
    }

    fn of(record: &NodeRecord, mirror: &Mirror, drain: DrainAsked, held: usize) -> NodePhase {
        match record.state {
            NodeState::Left => NodePhase::Left,
            NodeState::Fenced => NodePhase::Fenced,
            _ if mirror.dead.contains_key(&record.session) => NodePhase::Fenced,
            _ if mirror.gone.contains(&record.session) => NodePhase::Gone,
            _ if drain == DrainAsked::Yes && held == 0 => NodePhase::Drained,
            NodeState::Draining => NodePhase::Draining,
            NodeState::Active if drain == DrainAsked::Yes => NodePhase::Draining,
            NodeState::Active if record.accepting => NodePhase::Active,
            NodeState::Active => NodePhase::NotAccepting,
        }
    }
}

/// Whether an operator asked a node to hand everything over.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DrainAsked {
    Yes,
    No,
}

/// A group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GroupView {
    /// Its name.
    pub group: GroupName,
    /// Its shards.
    pub shards: ShardSet,
    /// Its rules.
    pub policy: Policy,
    /// `store` or `static`: where the settings are from.
    pub source: &'static str,
    /// Shards that nobody holds.
    pub unowned: usize,
}

/// A shard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ShardView {
    /// Its id.
    #[serde(flatten)]
    pub id: ShardKey,
    /// Who holds it, if its session is not known to be dead.
    pub holder: Option<NodeName>,
    /// The session of the holder.
    pub session: Option<SessionId>,
    /// Its epoch.
    pub epoch: Epoch,
    /// Who should hold it.
    pub wanted: Option<NodeName>,
    /// Where an operator pinned it to.
    pub pinned_to: Option<NodeName>,
    /// The node that left to restart and for which nobody else takes it yet.
    pub kept_for: Option<NodeName>,
    /// What it is doing.
    pub state: ShardPhase,
}

/// A shard's id, as two fields.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ShardKey(pub ShardId);

impl Serialize for ShardKey {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct;
        let mut fields = serializer.serialize_struct("shard", 2)?;
        fields.serialize_field("group", &self.0.group)?;
        fields.serialize_field("shard", &self.0.name)?;
        fields.end()
    }
}

/// What a shard is doing. The finer states are only known of shards that this node holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ShardPhase {
    /// Nobody holds it.
    Unowned,
    /// This node is trying to get it.
    Claiming,
    /// A live session holds it.
    Held,
    /// Its work runs here.
    Running,
    /// Its work was told to stop here.
    Stopping,
    /// Its work did not stop in time.
    Stuck,
    /// Its work ended here and will be started again.
    Backoff,
    /// Its work kept crashing; it is held and not run.
    Quarantined,
    /// It is being given up here.
    Releasing,
    /// Nobody should hold it.
    Retired,
    /// Its record is damaged: it counts as held by an unknown session.
    Corrupt,
}

/// Something that somebody should look at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// A fixed word: `corrupt_record`, `foreign_key`, `no_room`, `stuck`, `quarantined`, `gone_node`, `recovering_node`,
    /// `silent_node`, `unserved_group`, `settling` or `name_taken`.
    pub kind: &'static str,
    /// What it is about: a shard, a node, a key.
    pub subject: String,
    /// What is wrong, and what to do.
    pub message: String,
}

impl Problem {
    pub(crate) fn stuck(shard: &ShardId, epoch: Epoch) -> Problem {
        Problem {
            kind: "stuck",
            subject: shard.to_string(),
            message: format!(
                "its work (epoch {epoch}) was told to stop and has not: it stays held; look why it does not end"
            ),
        }
    }
}

/// What the mirror and the plan show, without anything that only one node knows.
pub fn of_mirror(
    mirror: &Mirror,
    roster: &Roster,
    settings: &BTreeMap<GroupName, GroupSettings>,
    plan: &Plan,
    now: Now,
) -> View {
    let wanted = plan.wanted_counts();
    let mut held: BTreeMap<&NodeName, usize> = BTreeMap::new();
    let mut unowned: BTreeMap<&GroupName, usize> = BTreeMap::new();
    let mut problems = Vec::new();
    let ids: std::collections::BTreeSet<&ShardId> =
        plan.iter().map(|(shard, _)| shard).chain(mirror.shards.keys()).collect();
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
                if let Some(holder) = mirror.shards.get(id).and_then(|seen| seen.good()?.holder()) {
                    *held.entry(&holder.node).or_default() += 1;
                }
            }
        }
        shards.push(shard);
    }
    let control = mirror.control.as_ref().and_then(|seen| seen.best());
    let nodes = (mirror.nodes.iter())
        .filter_map(|(name, node)| {
            let record = node.seen.as_ref()?.good()?;
            let member = roster.get(name);
            let held = held.get(name).copied().unwrap_or(0);
            let drain = match control.is_some_and(|control| control.drain.contains_key(name)) {
                true => DrainAsked::Yes,
                false => DrainAsked::No,
            };
            let mut wishes = Vec::new();
            if let Some(control) = control {
                wishes.extend(
                    control.drain.get(name).map(|wish| format!("drain {}", wish.note).trim().to_owned()),
                );
                wishes.extend(control.weights.get(name).map(|weight| format!("weight {weight}")));
            }
            Some(NodeView {
                name: name.clone(),
                session: record.session,
                state: NodePhase::of(record, mirror, drain, held),
                accepting: record.accepting,
                weight: member.map_or(record.weight, |member| member.weight),
                capacity: record.capacity,
                zone: record.zone.clone(),
                address: record.address.clone(),
                labels: record.labels.clone(),
                ttl_ms: record.ttl_ms,
                seen_to_renew: node.first_seen_at > node.session_seen_at,
                silent_for_ms: now.at.since(node.first_seen_at).as_millis() as u64,
                renewed_ago_ms: renewed_ago_ms(record, now),
                standing: record.report.standing.clone(),
                outage: record.report.outage.clone(),
                shards: held,
                wanted: wanted.get(name).copied().unwrap_or(0),
                agrees: record.view == plan.view,
                wishes,
            })
        })
        .collect();
    let groups = settings.iter().map(|(name, group)| GroupView {
        group: name.clone(),
        shards: group.set,
        policy: group.policy.clone(),
        source: if group.from_store { "store" } else { "static" },
        unowned: unowned.get(name).copied().unwrap_or(0),
    });
    problems.extend(record_problems(mirror, plan));
    problems.extend(node_problems(mirror, now));
    problems.extend(settling(mirror));
    View {
        me: None,
        ready: mirror.ready,
        frozen: control.and_then(|control| control.freeze.clone()),
        nodes,
        groups: groups.collect(),
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
        || mirror.groups.contains_key(group)
        || roster
            .values()
            .any(|member| member.groups.contains_key(group) && !mirror.gone.contains(&member.session))
}

fn shard_view(mirror: &Mirror, plan: &Plan, id: &ShardId, problems: &mut Vec<Problem>) -> ShardView {
    let wanted = plan.wanted(id).cloned();
    let seen = mirror.shards.get(id);
    let record = seen.and_then(|seen| seen.good());
    let holder = record.and_then(|record| record.holder()).filter(|holder| {
        let node = mirror.nodes.get(&holder.node).and_then(|n| n.seen.as_ref()).and_then(|seen| seen.good());
        let replaced = node.is_some_and(|node| node.session != holder.session);
        let dead = mirror.dead.contains_key(&holder.session) || mirror.gone.contains(&holder.session);
        !replaced && !dead
    });
    let state = match (seen.map(|seen| &seen.record), record.map(|record| &record.state)) {
        (Some(Err(_)), _) => ShardPhase::Corrupt,
        (_, Some(ShardState::Retired)) => ShardPhase::Retired,
        _ if holder.is_some() && record.is_some_and(|record| record.quarantined) => ShardPhase::Quarantined,
        _ if holder.is_some_and(|holder| tells_stuck(mirror, &holder.node, id)) => ShardPhase::Stuck,
        _ if holder.is_some() => ShardPhase::Held,
        _ => ShardPhase::Unowned,
    };
    if state == ShardPhase::Quarantined {
        problems.push(Problem {
            kind: "quarantined",
            subject: id.to_string(),
            message: "its work kept crashing: it is held and not run; mend it, then unquarantine the shard"
                .into(),
        });
    }
    if state == ShardPhase::Stuck {
        problems.push(Problem::stuck(id, record.map_or(Epoch(0), |record| record.epoch)));
    }
    let control = mirror.control.as_ref().and_then(|seen| seen.best());
    ShardView {
        id: ShardKey(id.clone()),
        holder: holder.map(|holder| holder.node.clone()),
        session: holder.map(|holder| holder.session),
        epoch: record.map_or(Epoch(0), |record| record.epoch),
        wanted,
        pinned_to: control.and_then(|control| control.pins.get(id)).cloned(),
        kept_for: None,
        state,
    }
}

/// Whom a shard is kept for in a restart grace. Each observer counts from when it first saw the record; who has just come
/// has also the word of its writer's clock.
fn kept_for(mirror: &Mirror, shard: &ShardId, now: Now) -> Option<NodeName> {
    let seen = mirror.shards.get(shard)?;
    let record = seen.good()?;
    let ShardState::Vacant { successor: Some(successor), reserved_ms: Some(reserved_ms) } = &record.state
    else {
        return None;
    };
    let over = now.at.since(seen.first_seen_at).as_millis() as u64 >= *reserved_ms
        || now.unix_ms >= record.written_unix_ms.saturating_add(*reserved_ms);
    (!over).then(|| successor.clone())
}

/// What is wrong with a record that cannot be used, and who mends it.
pub fn unusable(key: &Key, error: &RecordError) -> String {
    if error.is_newer() {
        return error.to_string();
    }
    let mended = match key {
        Key::Control => "mend it with: leasehold repair --control".to_owned(),
        Key::Shard(shard) => format!("mend it with: leasehold repair {shard}"),
        Key::Meta | Key::Node(_) => {
            "a running node mends it by itself in about a ttl: start one if there is none".to_owned()
        }
        Key::Group(_) => {
            "a running node that read it before mends it by itself; others use their own settings".to_owned()
        }
    };
    format!("{error}; {mended}")
}

fn record_problems(mirror: &Mirror, plan: &Plan) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut corrupt = |key: Key, error: &RecordError| {
        problems.push(Problem {
            kind: "corrupt_record",
            subject: key.to_string(),
            message: unusable(&key, error),
        });
    };
    if let Some(Err(error)) = mirror.meta.as_ref().map(|seen| &seen.record) {
        corrupt(Key::Meta, error);
    }
    if let Some(Err(error)) = mirror.control.as_ref().map(|seen| &seen.record) {
        corrupt(Key::Control, error);
    }
    for (group, seen) in &mirror.groups {
        if let Err(error) = &seen.record {
            corrupt(Key::Group(group.clone()), error);
        }
    }
    for (node, seen) in &mirror.nodes {
        if let Some(Err(error)) = seen.seen.as_ref().map(|seen| &seen.record) {
            corrupt(Key::Node(node.clone()), error);
        }
    }
    for (shard, seen) in &mirror.shards {
        if let Err(error) = &seen.record {
            corrupt(Key::Shard(shard.clone()), error);
        }
    }
    for (name, group) in &plan.groups {
        let homeless = group.answer.to.iter().filter(|to| to.is_none()).count();
        if homeless > 0 {
            let message = if group.question.nodes.is_empty() {
                let advice = drained(mirror, name).unwrap_or_default();
                format!("{homeless} shards have no node: none that serves the group takes shards{advice}")
            } else {
                format!(
                    "{homeless} shards have no node: every node is full or declines; add nodes or raise capacity"
                )
            };
            problems.push(Problem { kind: "no_room", subject: name.to_string(), message });
        }
    }
    for place in &mirror.unreadable {
        problems.push(Problem {
            kind: "corrupt_record",
            subject: place.clone(),
            message: "it cannot be read, and which records are in it is not known: they count as held. Restore it, or mend \
                      each that you know of with: leasehold repair SHARD"
                .into(),
        });
    }
    for key in &mirror.foreign {
        problems.push(Problem {
            kind: "foreign_key",
            subject: key.clone(),
            message: "this key in our namespace was not written by Leasehold; it is ignored".into(),
        });
    }
    problems
}

/// The nodes of a group that operators drained, and what lets them take shards again.
fn drained(mirror: &Mirror, group: &GroupName) -> Option<String> {
    let control = mirror.control.as_ref()?.best()?;
    let serves = |name: &&NodeName| {
        let node = mirror.nodes.get(*name);
        let record = node.and_then(|node| node.seen.as_ref()?.good());
        node.and_then(|node| node.alive()).is_some_and(|session| !mirror.dead.contains_key(&session))
            && record.is_some_and(|record| record.groups.contains_key(group))
    };
    let mut names: Vec<&str> = control.drain.keys().filter(serves).map(NodeName::as_str).collect();
    let first = *names.first()?;
    let more = names.len().saturating_sub(DRAINED_NAMED);
    names.truncate(DRAINED_NAMED);
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    Some(format!("; operators drained {}{more}: undo it with: leasehold undrain {first}", names.join(", ")))
}

/// How many drained nodes are named.
const DRAINED_NAMED: usize = 5;

/// Why nobody may own anything yet.
fn settling(mirror: &Mirror) -> Option<Problem> {
    let meta = mirror.meta.as_ref()?.good().filter(|meta| meta.state == MetaState::Settling)?;
    Some(Problem {
        kind: "settling",
        subject: Key::Meta.to_string(),
        message: format!(
            "the namespace is new, or its store was replaced: nobody owns anything until no earlier holder can be \
             running, which takes up to {:.1} s",
            meta.max_ttl_ms as f64 / 1000.0
        ),
    })
}

/// How long ago a record was written, by what its writer's clock and ours say.
fn renewed_ago_ms(record: &NodeRecord, now: Now) -> Option<u64> {
    (record.written_unix_ms > 0).then(|| now.unix_ms.saturating_sub(record.written_unix_ms))
}

fn node_problems(mirror: &Mirror, now: Now) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (name, node) in &mirror.nodes {
        let Some(session) = node.alive().filter(|session| !mirror.dead.contains_key(session)) else {
            continue;
        };
        let Some(record) = node.seen.as_ref().and_then(|seen| seen.good()) else { continue };
        let mut problem = |kind, message| problems.push(Problem { kind, subject: name.to_string(), message });
        let silent_for_ms = now.at.since(node.silent_from).as_millis() as u64;
        let seconds = |ms: u64| ms as f64 / 1000.0;
        // Who has not looked for long enough to see a renewal has only the word of its writer's clock.
        let unseen = node.first_seen_at <= node.session_seen_at;
        let outlived_ms = renewed_ago_ms(record, now).filter(|ago_ms| unseen && *ago_ms > record.ttl_ms);
        if mirror.gone.contains(&session) {
            let what = "its process is gone, and no other node has taken over what it held: start one";
            problem("gone_node", what.into());
        } else if silent_for_ms > record.ttl_ms / 2 {
            problem(
                "silent_node",
                format!(
                    "it has not renewed for {:.1} s of its {:.1} s: it stands still, is gone, or cannot reach the store",
                    seconds(silent_for_ms),
                    seconds(record.ttl_ms),
                ),
            );
        } else if let Some(ago_ms) = outlived_ms {
            problem(
                "silent_node",
                format!(
                    "it last renewed {:.1} s ago by its clock, longer than its ttl of {:.1} s: it stands still, is gone, \
                     cannot reach the store, or its clock is wrong; watching for a ttl shows which",
                    seconds(ago_ms),
                    seconds(record.ttl_ms),
                ),
            );
        } else if let (Some(standing), Some(outage)) = (&record.report.standing, &record.report.outage) {
            problem(
                "recovering_node",
                format!(
                    "it is {standing}: it had no session for {:.1} s ({}), and is given nothing until it has been \
                     healthy for a while",
                    outage.for_ms as f64 / 1000.0,
                    outage.cause,
                ),
            );
        }
        for (group, why) in &record.report.unserved {
            problem(
                "unserved_group",
                format!(
                    "it takes nothing of the group {group}: {why}; start it with another group or with shards of that kind, or \
                     remove the group's settings once nobody holds any of it, with: leasehold group delete {group}"
                ),
            );
        }
    }
    problems
}

/// Whether a node said with its last renewal that the work of a shard does not stop.
fn tells_stuck(mirror: &Mirror, node: &NodeName, shard: &ShardId) -> bool {
    let record = mirror.nodes.get(node).and_then(|node| node.seen.as_ref()?.good());
    record.is_some_and(|record| record.report.stuck.contains(shard))
}

/// Which shard of a numbered group a key belongs to, and who has it.
pub fn locate(
    mirror: &Mirror,
    settings: &BTreeMap<GroupName, GroupSettings>,
    group: &GroupName,
    key: &[u8],
) -> Option<Located> {
    let ShardSet::Numbered(slots) = settings.get(group)?.set else { return None };
    if slots == 0 {
        return None;
    }
    Some(whereabouts(mirror, &shard_of(group, slots, key)))
}

/// Who has a shard.
pub fn whereabouts(mirror: &Mirror, shard: &ShardId) -> Located {
    let view = shard_view(mirror, &Plan::default(), shard, &mut Vec::new());
    let node = view.holder.as_ref().and_then(|name| mirror.nodes.get(name)?.seen.as_ref()?.good());
    let address = node.and_then(|record| record.address.clone());
    Located { shard: shard.clone(), node: view.holder, address, epoch: view.epoch }
}
