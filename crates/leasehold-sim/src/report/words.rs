//! What the trace says, in words.

use std::time::Duration;

use leasehold_core::notice::{Differing, Gone, Notice, OperatorCommand};
use leasehold_core::record::{
    Control, GroupRecord, Meta, MetaState, NodeRecord, NodeState, Record, RecordError, ShardRecord, ShardSet,
    ShardState,
};
use leasehold_core::store::{Key, Swap, Swapped};

use crate::oracle::RunEnd;

fn ms(span: &Duration) -> u128 {
    span.as_millis()
}

/// What a core tells people.
pub(crate) fn of_notice(notice: &Notice) -> String {
    match notice {
        Notice::StateChanged { from, to, cause, after } => {
            format!("is {to}, after {} ms as {from}: {cause}", ms(after))
        }
        Notice::Waiting { why, for_up_to } => format!("waits for up to {} ms: {why}", ms(for_up_to)),
        Notice::NameTaken { session, .. } => {
            format!("finds its name in use by session {session:?} and does not run")
        }
        Notice::Incarnation { why, epoch_floor } => {
            format!("began a new incarnation, with epochs above {epoch_floor}: {why}")
        }
        Notice::Renewed { took } => format!("renewed within {} ms", ms(took)),
        Notice::RenewalFailed { streak, error } => {
            format!("could not renew, {streak} times in a row: {error}")
        }
        Notice::NodeJoined { node, session } => format!("sees that {node} is there (session {session:?})"),
        Notice::NodeGone { node, session, how } => {
            let how = match how {
                Gone::Left => "has left",
                Gone::Fenced => "was fenced",
                Gone::Vanished => "has lost its record",
            };
            format!("sees that {node} {how} (session {session:?})")
        }
        Notice::Fenced { node, session, silent_for } => {
            format!("ended session {session:?} of {node}, which was silent for {} ms", ms(silent_for))
        }
        Notice::Started { shard, epoch, why, unowned_for } => {
            let unowned = unowned_for.map_or(String::new(), |it| format!(", unowned for {} ms", ms(&it)));
            format!("has {shard} under epoch {epoch}: {why}{unowned}")
        }
        Notice::Stopping { shard, epoch, why } => format!("stops {shard} (epoch {epoch}): {why}"),
        Notice::WorkEnded { shard, epoch, error, again_after } => {
            let how = error.as_deref().unwrap_or("it was done");
            format!(
                "sees the work of {shard} (epoch {epoch}) ended: {how}; again after {} ms",
                ms(again_after)
            )
        }
        Notice::Released { shard, epoch, why, successor } => {
            let whom = successor.as_ref().map_or(String::new(), |node| format!(" for {node}"));
            format!("gave {shard} (epoch {epoch}) up{whom}: {why}")
        }
        Notice::Stuck { shard, epoch } => format!("keeps {shard} (epoch {epoch}): its work does not stop"),
        Notice::Quarantined { shard, epoch } => {
            format!("keeps {shard} (epoch {epoch}) without running it: its work crashes again and again")
        }
        Notice::Retried { shards } => format!("looks again for {shards} shards that it should have"),
        Notice::RetriesExhausted { shards } => format!("did not get {shards} shards that it should have"),
        Notice::NoRoom { group, shards } => format!("sees no room for {shards} shards of {group}"),
        Notice::RoomAgain { group } => format!("sees room for all shards of {group} again"),
        Notice::SettingsDiffer { group, settings } => {
            format!("uses the store's settings of {group}: {}", Differing::in_words(settings))
        }
        Notice::OperatorCommand(asked) => match asked {
            OperatorCommand::Drain { note } => format!("is drained by an operator: {note}"),
            OperatorCommand::Undrain => "is no longer drained by an operator".to_owned(),
            OperatorCommand::Weight(weight) => format!("has weight {weight} by an operator"),
            OperatorCommand::OwnWeight => "has its own weight again".to_owned(),
            OperatorCommand::Freeze { note } => format!("moves nothing, as an operator asked: {note}"),
            OperatorCommand::Unfreeze => "may move shards again, as an operator asked".to_owned(),
            OperatorCommand::Pin { shard, to } => format!("sees {shard} pinned to {to} by an operator"),
            OperatorCommand::Unpin { shard } => format!("sees {shard} no longer pinned"),
        },
        Notice::OtherKind { group, ours, stored } => {
            format!(
                "takes nothing of {group}: it has {} shards here and {} in the store",
                ours.kind(),
                stored.kind()
            )
        }
        Notice::KindAgrees { group } => format!("takes shards of {group}: its kind agrees with the store"),
        Notice::Frozen { vanished, of } => {
            format!("moves nothing: {vanished} of {of} nodes vanished at once")
        }
        Notice::Warning(warning) => format!("warns: {warning}"),
        Notice::Unfrozen => "moves shards again".to_owned(),
        Notice::NoReceiver { shards } => format!("has no node to hand {shards} shards to"),
        Notice::CorruptRecord { key, error } => format!("cannot read {key}: {error}"),
        Notice::StoreTrouble { error } => format!("has trouble with the store: {error}"),
    }
}

/// How work ended.
pub(crate) fn of_end(how: RunEnd) -> &'static str {
    match how {
        RunEnd::Stopped => "it stopped",
        RunEnd::Crashed => "it crashed",
        RunEnd::Killed => "it was killed",
        RunEnd::KilledOnWaking => "its process had stood still past the deadline",
        RunEnd::Died => "its process died",
    }
}

/// A write, and what became of it.
pub(crate) fn of_swap(swap: &Swap, outcome: &Swapped) -> String {
    let what = swap.value.as_deref().map_or("is removed".to_owned(), |value| of_record(&swap.key, value));
    let over = swap.expect.as_ref().map_or("nothing", |version| version.as_str());
    let became = match outcome {
        Swapped::Applied(version) => format!("is now {}", version.as_str()),
        Swapped::Lost(Some(there)) => format!("refused, there is {}", there.version.as_str()),
        Swapped::Lost(None) => "refused, there is nothing".to_owned(),
        Swapped::Unknown => "outcome unknown".to_owned(),
    };
    format!("writes that {} {what}, over {over}: {became}", swap.key)
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
    let quarantined = if record.quarantined { ", not to be run" } else { "" };
    match &record.state {
        ShardState::Held { holder } => {
            let (node, session) = (&holder.node, &holder.session);
            format!("is held by {node} (session {session:?}) under epoch {epoch}{quarantined} ({why})")
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
