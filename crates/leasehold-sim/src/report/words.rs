//! What the trace says, in words.

use leasehold_core::record::{
    Control, GroupRecord, Meta, MetaState, NodeRecord, NodeState, Record, RecordError, ShardRecord, ShardSet,
    ShardState, WorkState,
};
use leasehold_core::store::{Key, Swap, Swapped};

use crate::oracle::RunEnd;

/// How work ended.
pub(crate) fn of_end(how: RunEnd) -> &'static str {
    match how {
        RunEnd::Stopped => "it stopped",
        RunEnd::Crashed => "it crashed",
        RunEnd::Killed => "it was killed",
        RunEnd::KilledOnWaking => "its process was paused past its deadline",
        RunEnd::Died => "its process died",
    }
}

/// A write, and its outcome.
pub(crate) fn of_swap(swap: &Swap, outcome: &Swapped) -> String {
    let what = swap.value.as_deref().map_or("is removed".to_owned(), |value| of_record(&swap.key, value));
    let over = swap.expect.as_ref().map_or("nothing", |version| version.as_str());
    let became = match outcome {
        Swapped::Applied(version) => format!("applied as {}", version.as_str()),
        Swapped::Lost(Some(there)) => format!("lost to {}", there.version.as_str()),
        Swapped::Lost(None) => "lost: there is no record".to_owned(),
        Swapped::Unknown => "outcome unknown".to_owned(),
    };
    format!("writes {} over {over}: it {what}; {became}", swap.key)
}

fn of_record(key: &Key, value: &[u8]) -> String {
    let words = match key {
        Key::Shard(_) => ShardRecord::decode(value).map(|record| of_shard(&record)),
        Key::Group(_) => GroupRecord::decode(value).map(|record| match record.shards {
            ShardSet::Numbered(shards) => {
                format!("has {shards} shards and epochs above {}", record.epoch_floor)
            }
            ShardSet::Named => format!("has named shards and epochs above {}", record.epoch_floor),
        }),
        Key::Meta => Meta::decode(value).map(|record| {
            let state = if record.state == MetaState::Open { "open" } else { "settling" };
            let (incarnation, floor) = (record.incarnation, record.epoch_floor);
            format!("is {state} in incarnation {incarnation:?} with epochs above {floor}")
        }),
        Key::Control => Control::decode(value).map(|record| of_control(&record)),
        Key::Node(_) => NodeRecord::decode(value).map(|record| {
            let state = match record.state {
                NodeState::Left => "has left",
                NodeState::Fenced => "is fenced",
                _ => "is alive",
            };
            format!("{state} (session {:?}, renewal {})", record.session, record.seq)
        }),
    };
    words.unwrap_or_else(|error: RecordError| format!("cannot be read ({error})"))
}

fn of_shard(record: &ShardRecord) -> String {
    let ShardRecord { epoch, why, .. } = record;
    let work = match record.work {
        WorkState::Runs => "",
        WorkState::Trial => ", tried once",
        WorkState::Quarantined => ", quarantined",
        WorkState::Done => ", done",
        _ => ", ?",
    };
    match &record.state {
        ShardState::Held { holder } => {
            let (node, session) = (&holder.node, &holder.session);
            format!("is held by {node} (session {session:?}) under epoch {epoch}{work} ({why})")
        }
        ShardState::Vacant { successor, reserved_ms } => {
            let whom = successor.as_ref().map_or(String::new(), |node| format!(", for {node}"));
            let only = reserved_ms.map_or(String::new(), |ms| format!(", reserved for {ms} ms"));
            format!("is vacant after epoch {epoch}{whom}{only} ({why})")
        }
        ShardState::Retired => format!("is retired after epoch {epoch} ({why})"),
    }
}

fn of_control(record: &Control) -> String {
    let Control { pins, drain, release, .. } = record;
    let frozen = if record.freeze.is_some() { ", freezes moves" } else { "" };
    format!("pins {}, drains {}, releases {}{frozen}", pins.len(), drain.len(), release.len())
}

#[cfg(test)]
mod tests {
    use crate::{Options, Tracing, run};

    /// What `Debug` writes and people do not: fields in braces, variants with arguments, quoted escapes.
    fn is_raw(text: &str) -> bool {
        ["{", "}", "Some(", "None", "Ok(", "Err(", "\\\"", "::"].iter().any(|sign| text.contains(sign))
    }

    #[test]
    fn traces_have_no_debug_output() {
        for seed in 0..30 {
            let outcome = run(&Options { tracing: Tracing::On, ..Options::default() }, seed);
            for line in &outcome.trace {
                assert!(!is_raw(&line.what), "seed {seed}: {}", line.what);
            }
        }
    }
}
