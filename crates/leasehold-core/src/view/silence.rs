//! Nodes that miss their renewals.

use std::collections::BTreeMap;

use super::Silence;
use super::problems::{Problem, ProblemKind};
use crate::mirror::{Mirror, SeenNode};
use crate::name::NodeName;
use crate::record::NodeRecord;
use crate::time::Now;

/// The silent nodes.
pub(super) type Silent = BTreeMap<NodeName, Silence>;

/// How long a node may be silent: two renewals and some time for slow ones, in milliseconds.
fn silent_max_ms(record: &NodeRecord) -> u64 {
    let renew_every_ms = record.report.renew_every_ms.unwrap_or(record.ttl_ms / 5);
    renew_every_ms.saturating_mul(2).saturating_add(record.ttl_ms / 20)
}

/// How long ago a record was written, according to its writer's clock and ours.
pub(super) fn renewed_ago_ms(record: &NodeRecord, now: Now) -> Option<u64> {
    (record.written_unix_ms > 0).then(|| now.unix_ms.saturating_sub(record.written_unix_ms))
}

/// The live session of a node, if there is one that might renew.
fn may_renew<'m>(mirror: &Mirror, node: &'m SeenNode) -> Option<&'m NodeRecord> {
    let session = node.alive()?;
    let over = mirror.is_proved_over(&session) || mirror.is_process_gone(&session);
    node.record().filter(|_| !over)
}

/// The silence of a node. Who has not watched for long enough to see a renewal has only the writer's clock to go by.
fn of_node(node: &SeenNode, record: &NodeRecord, now: Now) -> Option<Silence> {
    let max_ms = silent_max_ms(record);
    let seen_ms = now.at.since(node.silent_from).as_millis() as u64;
    let seen_to_renew = node.first_seen_at > node.session_seen_at;
    let told_ms = renewed_ago_ms(record, now).filter(|_| !seen_to_renew);
    let for_ms = seen_ms.max(told_ms.unwrap_or(0));
    (for_ms > max_ms).then_some(Silence { for_ms, watched: seen_ms > max_ms })
}

/// All silent nodes.
pub(super) fn of_nodes(mirror: &Mirror, now: Now) -> Silent {
    let of = |(name, node): (&NodeName, &SeenNode)| {
        let silence = of_node(node, may_renew(mirror, node)?, now)?;
        Some((name.clone(), silence))
    };
    mirror.nodes().iter().filter_map(of).collect()
}

/// The problems with silent nodes, and what becomes of their shards.
pub(super) fn problems(mirror: &Mirror, silent: &Silent, held: &BTreeMap<&NodeName, usize>) -> Vec<Problem> {
    let problem = |(name, silence): (&NodeName, &Silence)| {
        let record = mirror.node_record(name)?;
        let heir = mirror.nodes().iter().any(|(other, node)| {
            !silent.contains_key(other) && may_renew(mirror, node).is_some_and(|other| shares(other, record))
        });
        let shards = held.get(name).copied().unwrap_or(0);
        let message = told(*silence, record.ttl_ms, shards, heir);
        Some(Problem { kind: ProblemKind::SilentNode, subject: name.to_string(), message })
    };
    silent.iter().filter_map(problem).collect()
}

/// Whether two nodes serve a group in common.
fn shares(a: &NodeRecord, b: &NodeRecord) -> bool {
    a.groups.keys().any(|group| b.groups.contains_key(group))
}

/// What to say of a silent node.
fn told(silence: Silence, ttl_ms: u64, shards: usize, heir: bool) -> String {
    let seconds = |ms: u64| ms as f64 / 1000.0;
    let mut text = format!("silent {:.1} s of {:.1} s", seconds(silence.for_ms), seconds(ttl_ms));
    if !silence.watched {
        text.push_str(" by its own clock, which may be wrong");
    }
    let count = if shards == 1 { "1 shard".to_owned() } else { format!("{shards} shards") };
    // The survivors wait for a little longer than the ttl, because clocks drift.
    let left_ms = (ttl_ms + ttl_ms / 100).saturating_sub(silence.for_ms);
    text.push_str(&match (shards, heir, left_ms.div_ceil(1000)) {
        (0, ..) => "; it holds no shards".to_owned(),
        (_, false, _) => {
            format!("; {count} at risk, and no other live node serves its groups: start a node")
        }
        (_, true, 0) => format!("; {count} at risk, taken over at any moment"),
        (_, true, left_s) => format!("; {count} at risk, taken over in about {left_s} s"),
    });
    text + ". The node hangs, is gone, or cannot reach the store"
}
