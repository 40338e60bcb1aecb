//! How what happens is put into words.

use std::time::Duration;

use leasehold_core::event::Action;
use leasehold_core::notice::Notice;
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
                Some(Action::Tell(notice @ Notice::Started { shard: told, epoch: under, .. })),
            ) if (shard, epoch) == (told, under) => {
                at += 1;
                notice.to_string()
            }
            (Action::Start { shard, epoch }, _) => format!("started {shard} epoch {epoch} without a notice"),
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

/// What the node told people, unless the story leaves it out.
fn told(world: &World, notice: &Notice) -> Option<String> {
    match notice {
        Notice::Retried { .. } => None,
        Notice::Renewed { .. } if !world.traced.contains("renewals") => None,
        _ => Some(world.names.shorten(&notice.to_string())),
    }
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
