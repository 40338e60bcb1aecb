//! How what happens is put into words.

use std::time::Duration;

use leasehold_core::event::Action;
use leasehold_core::notice::{Differing, Gone, Notice, OperatorCommand};
use leasehold_core::store::{Answer, Lane, Op, Request, Swapped};

use crate::world::World;

/// A span as people write it, whole milliseconds.
pub(crate) fn span(span: Duration) -> String {
    let ms = span.as_millis();
    match ms {
        0..1000 => format!("{ms}ms"),
        _ if ms.is_multiple_of(1000) => format!("{}s", ms / 1000),
        _ => format!("{}.{:03}s", ms / 1000, ms % 1000),
    }
}

/// Says what a node did in one step, except what is only noise.
pub(crate) fn actions(world: &mut World, name: &str, actions: &[Action]) {
    let mut at = 0;
    while let Some(action) = actions.get(at) {
        let next = actions.get(at + 1);
        at += 1;
        let line = match (action, next) {
            (
                Action::Start { shard, epoch },
                Some(Action::Tell(Notice::Started { why, unowned_for, .. })),
            ) => {
                at += 1;
                let gap = unowned_for.map_or(String::new(), |gap| format!(", unowned for {}", span(gap)));
                format!("start {shard} epoch {epoch} ({why}{gap})")
            }
            (Action::Start { shard, epoch }, _) => format!("start {shard} epoch {epoch} (untold)"),
            (Action::Stop { shard, epoch, why, kill_at }, next) => {
                if matches!(next, Some(Action::Tell(Notice::Stopping { .. }))) {
                    at += 1;
                }
                let kill = kill_at.map_or(String::new(), |kill_at| format!(", killed at {kill_at}"));
                format!("stop {shard} epoch {epoch} ({why}{kill})")
            }
            (Action::OpenSession(session), _) => {
                let session = world.names.opened(name, *session);
                format!("open session {session}")
            }
            (Action::Deadlines(deadlines), _) => match world.traced.contains("deadlines") {
                true => format!(
                    "deadlines: stop at {}, kill at {}, valid until {}",
                    deadlines.stop_at, deadlines.kill_at, deadlines.valid_until
                ),
                false => continue,
            },
            (Action::Lose, _) => "LOSE all grants".into(),
            (Action::AskGate(shard), _) => format!("asks the gate about {shard}"),
            (Action::Done, _) => "DONE".into(),
            (Action::Ask(_), _) => continue,
            (Action::Tell(notice), _) => match told(world, notice) {
                Some(line) => line,
                None => continue,
            },
        };
        world.say(name, line);
    }
}

fn told(world: &World, notice: &Notice) -> Option<String> {
    let session = |id| world.names.session(id);
    Some(match notice {
        Notice::StateChanged { from, to, cause, after } => {
            format!("{from} -> {to} after {}: {cause}", span(*after))
        }
        Notice::Waiting { why, for_up_to } => format!("waits up to {}: {why}", span(*for_up_to)),
        Notice::NameTaken { node, session: id } => format!("NAME TAKEN: {node} is session {}", session(*id)),
        Notice::Incarnation { why, epoch_floor } => {
            format!("new incarnation, epochs above {epoch_floor}: {why}")
        }
        Notice::Renewed { took } if world.traced.contains("renewals") => {
            format!("renewed in {}", span(*took))
        }
        Notice::Renewed { .. } => return None,
        Notice::RenewalFailed { streak, error } => format!("renewal failed ({streak} in a row): {error}"),
        Notice::NodeJoined { node, session: id } => format!("sees {node} join as {}", session(*id)),
        Notice::NodeGone { session: id, how, .. } => match how {
            Gone::Left => format!("sees {} leave", session(*id)),
            Gone::Vanished => format!("sees the record of {} gone", session(*id)),
            Gone::Fenced => format!("sees {} dead", session(*id)),
        },
        Notice::Fenced { session: id, silent_for, .. } => {
            format!("FENCES {}, silent for {}", session(*id), span(*silent_for))
        }
        Notice::Started { shard, epoch, .. } => format!("untold start of {shard} {epoch}"),
        Notice::Stopping { shard, epoch, why } => {
            format!("stopping {shard} epoch {epoch} ({why})")
        }
        Notice::WorkEnded { shard, epoch, again_after, .. } => {
            format!("work {shard} epoch {epoch} ended by itself, again in {}", span(*again_after))
        }
        Notice::Released { shard, epoch, why, successor } => {
            let to = successor.as_ref().map_or(String::new(), |node| format!(", for {node}"));
            format!("released {shard} epoch {epoch} ({why}{to})")
        }
        Notice::Stuck { shard, epoch } => format!("STUCK {shard} epoch {epoch}"),
        Notice::Quarantined { shard, epoch } => format!("QUARANTINED {shard} epoch {epoch}"),
        Notice::Retried { .. } => return None,
        Notice::RetriesExhausted { shards } => format!("retries exhausted for {shards} shards"),
        Notice::NoRoom { group, shards } => format!("NO ROOM for {shards} shards of {group}"),
        Notice::RoomAgain { group } => format!("room again for {group}"),
        Notice::SettingsDiffer { group, settings } => {
            format!("the store's settings of {group} hold: {}", Differing::in_words(settings))
        }
        Notice::OperatorCommand(asked) => match asked {
            OperatorCommand::Drain { note } => format!("an operator drains it: {note}"),
            OperatorCommand::Undrain => "no operator drains it any more".into(),
            OperatorCommand::Weight(weight) => format!("an operator gives it weight {weight}"),
            OperatorCommand::OwnWeight => "no operator gives it a weight any more".into(),
            OperatorCommand::Freeze { note } => format!("an operator freezes voluntary moves: {note}"),
            OperatorCommand::Unfreeze => "no operator freezes voluntary moves any more".into(),
            OperatorCommand::Pin { shard, to } => format!("an operator pins {shard} to {to}"),
            OperatorCommand::Unpin { shard } => format!("no operator pins {shard} any more"),
        },
        Notice::OtherKind { group, ours, stored } => {
            format!("OTHER KIND: {group} is {} here and {} in the store", ours.kind(), stored.kind())
        }
        Notice::KindAgrees { group } => format!("serves {group}: its kind agrees with the store"),
        Notice::Frozen { vanished, of } => format!("FROZEN: {vanished} of {of} nodes vanished"),
        Notice::Warning(warning) => format!("WARNING {}: {warning}", warning.kind()),
        Notice::Unfrozen => "thawed".into(),
        Notice::NoReceiver { shards } => format!("nobody to hand {shards} shards to: goes on running them"),
        Notice::CorruptRecord { key, error } => format!("CORRUPT {key}: {error}"),
        Notice::StoreTrouble { error } => format!("store trouble: {error}"),
    })
}

/// A request, in short.
pub(crate) fn request(world: &mut World, request: &Request) -> String {
    let what = match &request.op {
        Op::Read(keys) => format!("read {}", joined(keys)),
        Op::List => "list".into(),
        Op::ListNodes => "list nodes".into(),
        Op::Swap(swaps) => {
            let swaps: Vec<String> = swaps
                .iter()
                .map(|swap| {
                    let expect =
                        swap.expect.as_ref().map_or("nothing".into(), |version| format!("{version:?}"));
                    let mut value = swap.value.as_ref().and_then(|v| serde_json::from_slice(v).ok());
                    value.iter_mut().for_each(|value| world.names.gc(value));
                    let state = value.map_or("removed".into(), |value| brief(&value));
                    format!("{} from {expect} to {state}", swap.key)
                })
                .collect();
            format!("swap {}", swaps.join(", "))
        }
    };
    let lane = if request.lane == Lane::Renewal { " (renewal lane)" } else { "" };
    format!("asks #{}{lane}: {what}", request.id.0)
}

fn brief(value: &serde_json::Value) -> String {
    let shown = ["session", "state", "seq", "epoch", "why", "incarnation"];
    let parts: Vec<String> =
        shown.iter().filter_map(|name| Some(format!("{name} {}", value.get(*name)?))).collect();
    parts.join(" ").replace('"', "")
}

fn joined(keys: &[leasehold_core::store::Key]) -> String {
    keys.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

/// What the store did with a request.
pub(crate) fn answer(request: &Request, answer: &Answer, heard: bool) -> String {
    let what = match answer {
        Answer::Read { found, .. } => {
            let found: Vec<String> = found
                .iter()
                .map(|stored| stored.as_ref().map_or("nothing".into(), |s| format!("{:?}", s.version)))
                .collect();
            found.join(" ")
        }
        Answer::Listed(listing) => format!("{} records", listing.entries.len()),
        Answer::Swapped { outcomes, .. } => {
            let outcomes: Vec<String> = outcomes
                .iter()
                .map(|outcome| match outcome {
                    Swapped::Applied(version) => format!("applied {version:?}"),
                    Swapped::Lost(None) => "lost to nothing".into(),
                    Swapped::Lost(Some(stored)) => format!("lost to {:?}", stored.version),
                    Swapped::Unknown => "unknown".into(),
                })
                .collect();
            outcomes.join(", ")
        }
        Answer::Failed(error) => error.to_string(),
    };
    format!("store does #{}: {what}{}", request.id.0, if heard { "" } else { " (and the answer is lost)" })
}
