//! Problems that need an operator.

use serde::Serialize;

use super::silence::Silent;
use crate::mirror::{Mirror, SeenNode};
use crate::name::{Epoch, GroupName, NodeName, ShardId};
use crate::plan::Plan;
use crate::record::{MetaState, RecordError};
use crate::store::Key;
use crate::warning::Warning;

/// What kind of problem it is. As text, and in JSON, the name in snake case: `corrupt_record`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ProblemKind {
    /// A record is damaged, or in a newer format.
    CorruptRecord,
    /// The record of a shard that is held is missing.
    MissingRecord,
    /// A key that was not written by Leasehold.
    ForeignKey,
    /// Shards without a node that can take them.
    NoRoom,
    /// Work that was told to stop and has not.
    Stuck,
    /// A shard whose work kept failing.
    Quarantined,
    /// A node whose process is gone, and whose shards nobody has taken over.
    GoneNode,
    /// A node that does not renew.
    SilentNode,
    /// A node that had no session, and gets no shards yet.
    RecoveringNode,
    /// A group that a node was to serve and cannot.
    UnservedGroup,
    /// A namespace in which nobody may own anything yet.
    Settling,
    /// Another process has this node's name.
    NameTaken,
    /// A placement plug-in that failed.
    Placement,
    /// Nodes that place shards by different rules.
    PlacementsDiffer,
    /// A node with a longer ttl than its `ttl_max`.
    TtlAboveMax,
    /// A group whose deleted settings came back from a node's own.
    GroupRecreated,
}

impl ProblemKind {
    /// The fixed word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            ProblemKind::CorruptRecord => "corrupt_record",
            ProblemKind::MissingRecord => "missing_record",
            ProblemKind::ForeignKey => "foreign_key",
            ProblemKind::NoRoom => "no_room",
            ProblemKind::Stuck => "stuck",
            ProblemKind::Quarantined => "quarantined",
            ProblemKind::GoneNode => "gone_node",
            ProblemKind::SilentNode => "silent_node",
            ProblemKind::RecoveringNode => "recovering_node",
            ProblemKind::UnservedGroup => "unserved_group",
            ProblemKind::Settling => "settling",
            ProblemKind::NameTaken => "name_taken",
            ProblemKind::Placement => "placement",
            ProblemKind::PlacementsDiffer => "placements_differ",
            ProblemKind::TtlAboveMax => "ttl_above_max",
            ProblemKind::GroupRecreated => "group_recreated",
        }
    }
}

impl std::fmt::Display for ProblemKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

/// A problem that needs an operator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Problem {
    /// What kind of problem.
    pub kind: ProblemKind,
    /// What it is about: a shard, a node, a key.
    pub subject: String,
    /// What is wrong, and what to do.
    pub message: String,
}

impl Problem {
    /// A problem of this kind.
    pub fn new(kind: ProblemKind, subject: impl Into<String>, message: impl Into<String>) -> Problem {
        Problem { kind, subject: subject.into(), message: message.into() }
    }

    pub(crate) fn of_warning(warning: &Warning) -> Problem {
        Problem { kind: warning.kind(), subject: warning.subject(), message: warning.to_string() }
    }

    pub(crate) fn stuck(shard: &ShardId, epoch: Epoch) -> Problem {
        Problem { kind: ProblemKind::Stuck, subject: shard.to_string(), message: stuck(epoch) }
    }
}

/// The problem with work that does not stop.
pub(crate) fn stuck(epoch: Epoch) -> String {
    format!(
        "its work (epoch {epoch}) was told to stop and has not stopped, so the node keeps the shard; find out why"
    )
}

/// The live node whose own record says that it holds a shard.
fn holder_by_publication<'m>(mirror: &'m Mirror, shard: &ShardId) -> Option<&'m NodeName> {
    let holds = |node: &SeenNode| {
        let record = node.record();
        record.is_some_and(|record| {
            record.state.is_alive()
                && !mirror.is_proved_over(&record.session)
                && record.publishes.as_ref().is_some_and(|published| published.holds(shard))
        })
    };
    mirror.nodes().iter().find(|(_, node)| holds(node)).map(|(name, _)| name)
}

/// What is wrong with a record that cannot be used, and how it is repaired.
pub fn unusable(key: &Key, error: &RecordError) -> String {
    if error.is_newer() {
        return error.to_string();
    }
    let mended = match key {
        Key::Control => "repair it with: leasehold repair --control".to_owned(),
        Key::Shard(shard) => format!("repair it with: leasehold repair {shard}"),
        Key::Meta | Key::Node(_) => {
            "a running node repairs it within about one ttl: start a node if none runs".to_owned()
        }
        Key::Group(_) => {
            "a running node that has read it before repairs it; other nodes use their own settings".to_owned()
        }
    };
    format!("{error}; {mended}")
}

pub(super) fn record_problems(mirror: &Mirror, plan: &Plan) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut corrupt = |key: Key, error: &RecordError| {
        problems.push(Problem {
            kind: ProblemKind::CorruptRecord,
            subject: key.to_string(),
            message: unusable(&key, error),
        });
    };
    if let Some(Err(error)) = mirror.meta().map(|seen| &seen.record) {
        corrupt(Key::Meta, error);
    }
    if let Some(Err(error)) = mirror.control_record().map(|seen| &seen.record) {
        corrupt(Key::Control, error);
    }
    for (group, seen) in mirror.groups() {
        if let Err(error) = &seen.record {
            corrupt(Key::Group(group.clone()), error);
        }
    }
    for (node, seen) in mirror.nodes() {
        if let Some(Err(error)) = seen.seen.as_ref().map(|seen| &seen.record) {
            corrupt(Key::Node(node.clone()), error);
        }
    }
    let mut bad: Vec<(&ShardId, &RecordError)> = mirror
        .shards()
        .iter()
        .filter_map(|(shard, seen)| Some((shard, seen.record.as_ref().err()?)))
        .collect();
    bad.sort_unstable_by(|(a, _), (b, _)| a.natural_cmp(b));
    for (shard, error) in bad {
        corrupt(Key::Shard(shard.clone()), error);
    }
    let planned = plan.iter().map(|(shard, _)| shard);
    let mut missing: Vec<&ShardId> = planned.filter(|shard| !mirror.shards().contains_key(*shard)).collect();
    missing.sort_unstable_by(|a, b| a.natural_cmp(b));
    for shard in missing {
        if let Some(node) = holder_by_publication(mirror, shard) {
            let message = format!(
                "its record is missing in the store; node {node} runs it and writes the record again at its next listing"
            );
            problems.push(Problem { kind: ProblemKind::MissingRecord, subject: shard.to_string(), message });
        }
    }
    for (name, group) in &plan.groups {
        let homeless = group.answer.to.iter().filter(|to| to.is_none()).count();
        if homeless > 0 {
            let shards =
                if homeless == 1 { "1 shard has".to_owned() } else { format!("{homeless} shards have") };
            let message = if group.question.nodes.is_empty() {
                let advice = drained(mirror, name).unwrap_or_default();
                format!("{shards} no node: no node that serves the group takes shards{advice}")
            } else {
                format!("{shards} no node: every node is full or declines them; add nodes or raise capacity")
            };
            problems.push(Problem { kind: ProblemKind::NoRoom, subject: name.to_string(), message });
        }
    }
    for place in mirror.unreadable() {
        problems.push(Problem {
            kind: ProblemKind::CorruptRecord,
            subject: place.clone(),
            message: "it is missing or unreadable, so its records are unknown. Nodes write the records of the shards \
                      that they hold again; repair every other shard that you know of with: leasehold repair SHARD"
                .into(),
        });
    }
    for key in mirror.foreign() {
        problems.push(Problem {
            kind: ProblemKind::ForeignKey,
            subject: key.clone(),
            message: "this key was not written by Leasehold and is ignored".into(),
        });
    }
    problems
}

/// The nodes of a group that operators drained, and what lets them take shards again.
fn drained(mirror: &Mirror, group: &GroupName) -> Option<String> {
    let control = mirror.control_record()?.best()?;
    let serves = |name: &&NodeName| {
        let node = mirror.nodes().get(*name);
        let record = node.and_then(|node| node.seen.as_ref()?.good());
        node.and_then(|node| node.alive()).is_some_and(|session| !mirror.is_proved_over(&session))
            && record.is_some_and(|record| record.groups.contains_key(group))
    };
    let mut names: Vec<&str> = control.drain.keys().filter(serves).map(NodeName::as_str).collect();
    let first = *names.first()?;
    let more = names.len().saturating_sub(DRAINED_NAMED);
    names.truncate(DRAINED_NAMED);
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    Some(format!("; operators drained {}{more}; to undo: leasehold undrain {first}", names.join(", ")))
}

/// How many drained nodes are named.
const DRAINED_NAMED: usize = 5;

/// Why nobody may own anything yet.
pub(super) fn settling(mirror: &Mirror) -> Option<Problem> {
    let meta = mirror.meta()?.good().filter(|meta| meta.state == MetaState::Settling)?;
    Some(Problem {
        kind: ProblemKind::Settling,
        subject: Key::Meta.to_string(),
        message: format!(
            "the namespace is new, or its store was replaced: no shard has an owner for up to {:.1} s, in case earlier \
             holders are still running",
            meta.max_ttl_ms as f64 / 1000.0
        ),
    })
}

/// What is wrong with nodes, apart from silence.
pub(super) fn node_problems(mirror: &Mirror, silent: &Silent) -> Vec<Problem> {
    let mut problems: Vec<Problem> = Warning::of_placements(mirror).iter().map(Problem::of_warning).collect();
    for (name, node) in mirror.nodes() {
        let Some(session) = node.alive().filter(|session| !mirror.is_proved_over(session)) else {
            continue;
        };
        let Some(record) = node.record() else { continue };
        let mut problem = |kind, message| problems.push(Problem { kind, subject: name.to_string(), message });
        if mirror.is_process_gone(&session) {
            let what = "its process is gone, and no other node has taken over its shards: start a node";
            problem(ProblemKind::GoneNode, what.into());
        } else if silent.contains_key(name) {
            // Said by itself.
        } else if let (Some(session_state), Some(outage)) =
            (&record.report.session_state, &record.report.outage)
        {
            problem(
                ProblemKind::RecoveringNode,
                format!(
                    "{session_state}: it had no session for {:.1} s ({}); it gets no shards until its new session has been \
                     healthy for recover_window",
                    outage.for_ms as f64 / 1000.0,
                    outage.cause,
                ),
            );
        }
        for (group, why) in &record.report.unserved {
            problem(
                ProblemKind::UnservedGroup,
                format!(
                    "it takes no shards of the group {group}: {why}; start the node with another group or with \
                     that kind of shards, or, once no node holds shards of the group, run: leasehold group delete {group}"
                ),
            );
        }
    }
    problems
}
