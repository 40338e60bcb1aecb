//! Operators' commands. They are written into the store; running nodes see them there and act on them.

mod group;
mod keys;
mod register;
mod repair;

use std::time::Duration;

use leasehold::Client;
use leasehold::clock::Clock;
use leasehold_cli_common::failure::{Code, Failure};
use leasehold_cli_common::plural::count;
use leasehold_cli_common::settings::Settings;
use leasehold_core::View;
use leasehold_core::record::WorkState;
use leasehold_core::view::ShardPhase;

pub(crate) use group::{
    create as create_group, delete as delete_group, set as set_group, show as show_group,
};
pub(crate) use keys::{keys, watch_keys};
pub(crate) use register::{Keys as KeysToRegister, Others, pauses, register};
pub(crate) use repair::{repair, repair_control};

use crate::args::{OperatorRequest, Unquarantine};
use crate::inspect::{known_group, known_node, known_shard_of};

/// How long to wait until the request shows in the view.
const SHOWN_WITHIN: Duration = Duration::from_secs(2);

/// Asks for something, and says what was asked.
pub(crate) async fn ask(
    settings: &Settings,
    client: &Client,
    request: &OperatorRequest,
) -> Result<String, Failure> {
    let view = client.view();
    let shard = |text: &str| known_shard_of(settings, &view, text);
    Ok(match request {
        OperatorRequest::Drain { node, note } => {
            let node = known_node(&view, node)?;
            client.drain(&node, note).await?;
            let held = held_by(&view, node.as_str());
            let others =
                view.nodes.iter().filter(|other| other.name != node && other.state.is_alive()).count();
            let warning = if others == 0 && held > 0 {
                "\nno other node is live: its shards keep running here until another node can take them"
            } else {
                ""
            };
            format!(
                "draining {node}: it hands over its {} and takes no new ones{warning}\nto undo: leasehold undrain {node}",
                count(held, "shard")
            )
        }
        OperatorRequest::Undrain { node } => {
            let node = known_node(&view, node)?;
            client.undrain(&node).await?;
            format!("undrained {node}: it takes shards again")
        }
        OperatorRequest::Weight { node, weight } => {
            let node = known_node(&view, node)?;
            client.set_weight(&node, weight.0).await?;
            match weight.0 {
                Some(weight) => {
                    format!("set the weight of {node} to {weight}\nto undo: leasehold weight {node} own")
                }
                None => format!("removed the weight override of {node}"),
            }
        }
        OperatorRequest::Pin { shard: text, node } => {
            let (shard, node) = (shard(text)?, known_node(&view, node)?);
            client.pin(&shard, &node).await?;
            if !view.nodes.iter().any(|seen| seen.name == node && seen.state.is_alive()) {
                return Ok(format!(
                    "pinned {shard} to {node}, which is not live: the pin takes effect when the node joins\nto \
                     undo: leasehold unpin {shard}"
                ));
            }
            format!("pinned {shard} to {node}\nto undo: leasehold unpin {shard}")
        }
        OperatorRequest::Unpin { shard: text } => {
            let shard = shard(text)?;
            client.unpin(&shard).await?;
            format!("unpinned {shard}")
        }
        OperatorRequest::Freeze { note } => {
            client.freeze(note).await?;
            "froze voluntary moves; failover continues\nto undo: leasehold unfreeze".to_owned()
        }
        OperatorRequest::Unfreeze => {
            client.unfreeze().await?;
            "resumed voluntary moves".to_owned()
        }
        OperatorRequest::Release { shard: text } => {
            let shard = shard(text)?;
            client.release(&shard).await?;
            let asked = format!("asked the holder of {shard} to release it once");
            if client.explain(&shard).is_some_and(|explanation| explanation.work == WorkState::Quarantined) {
                return Ok(format!(
                    "{asked}; it stays quarantined, so the next holder does not run it\nto run it again: \
                     leasehold unquarantine {shard}"
                ));
            }
            format!("{asked}; it then starts again with a higher epoch")
        }
        OperatorRequest::Unquarantine { which: Unquarantine { shard: Some(text), .. } } => {
            let shard = shard(text)?;
            let idle = |state| matches!(state, ShardPhase::Quarantined | ShardPhase::Done);
            if !view.shards.iter().any(|seen| seen.id.0 == shard && idle(seen.state)) {
                return Err(Failure::new(
                    Code::Failed,
                    format!("{shard} is not quarantined; nothing was changed"),
                ));
            }
            client.unquarantine(&shard).await?;
            format!("unquarantined {shard}: its holder runs it again")
        }
        OperatorRequest::Unquarantine { which: Unquarantine { group, .. } } => {
            let shards = match group {
                Some(name) => client.unquarantine_group(known_group(&view, name)?.as_str()).await?,
                None => client.unquarantine_all().await?,
            };
            match shards.len() {
                0 => "no shard is quarantined; nothing was changed".to_owned(),
                many => format!("unquarantined {}: their holders run them again", count(many, "shard")),
            }
        }
    })
}

fn held_by(view: &View, node: &str) -> usize {
    view.nodes.iter().find(|seen| seen.name.as_str() == node).map_or(0, |seen| seen.shards)
}

/// Waits until the view is as wanted, though not for long: the request is in the store either way.
pub(super) async fn until_shown(client: &Client, wanted: impl FnMut(&View) -> bool) {
    let clock = Clock::boot();
    let _ = clock.timeout_at(clock.now() + SHOWN_WITHIN, client.until(wanted)).await;
}
