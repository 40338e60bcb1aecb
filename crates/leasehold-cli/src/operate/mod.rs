//! What operators ask for. Wishes go into the store; running nodes see them there and act by themselves.

mod group;
mod keys;
mod repair;

use std::time::Duration;

use leasehold::Client;
use leasehold::clock::Clock;
use leasehold_core::View;
use leasehold_core::view::{ShardPhase, ShardView};

pub(crate) use group::{delete as delete_group, set as set_group, show as show_group};
pub(crate) use keys::{Others, keys, register};
pub(crate) use repair::{repair, repair_control};

use crate::args::Wish;
use crate::failure::{Code, Failure};
use crate::look::{count, known_node, known_shard_of};
use crate::settings::Settings;

/// How long to wait until the wish shows in the view.
const SHOWN_WITHIN: Duration = Duration::from_secs(2);

/// Asks for something, and says what was asked.
pub(crate) async fn ask(settings: &Settings, client: &Client, wish: &Wish) -> Result<String, Failure> {
    let view = client.view();
    let shard = |text: &str| known_shard_of(settings, &view, text);
    Ok(match wish {
        Wish::Drain { node, note } => {
            let node = known_node(&view, node)?;
            client.drain(&node, note).await?;
            let held = held_by(&view, node.as_str());
            let others =
                view.nodes.iter().filter(|other| other.name != node && other.state.is_alive()).count();
            let warning = if others == 0 && held > 0 {
                "\nnobody else is there: its shards run on until somebody can take them"
            } else {
                ""
            };
            format!(
                "asked {node} to hand over its {} and to take no more{warning}\nundo with: leasehold undrain {node}",
                count(held, "shard")
            )
        }
        Wish::Undrain { node } => {
            let node = known_node(&view, node)?;
            client.undrain(&node).await?;
            format!("asked {node} to take shards again")
        }
        Wish::Weight { node, weight } => {
            let node = known_node(&view, node)?;
            client.set_weight(&node, weight.0).await?;
            match weight.0 {
                Some(weight) => {
                    format!("asked for weight {weight} on {node}\nundo with: leasehold weight {node} own")
                }
                None => format!("{node} has its own weight again"),
            }
        }
        Wish::Pin { shard: text, node } => {
            let (shard, node) = (shard(text)?, known_node(&view, node)?);
            client.pin(&shard, &node).await?;
            if !view.nodes.iter().any(|seen| seen.name == node && seen.state.is_alive()) {
                return Ok(format!(
                    "pinned {shard} to {node}, which is not there now: the pin counts once that node is there\nundo \
                     with: leasehold unpin {shard}"
                ));
            }
            format!(
                "pinned {shard} to {node} for as long as that node is there\nundo with: leasehold unpin {shard}"
            )
        }
        Wish::Unpin { shard: text } => {
            let shard = shard(text)?;
            client.unpin(&shard).await?;
            format!("{shard} goes where the plan wants it")
        }
        Wish::Freeze { note } => {
            client.freeze(note).await?;
            "froze voluntary moves; unowned shards are still taken\nundo with: leasehold unfreeze".to_owned()
        }
        Wish::Unfreeze => {
            client.thaw().await?;
            "voluntary moves are allowed again".to_owned()
        }
        Wish::Release { shard: text } => {
            let shard = shard(text)?;
            client.release(&shard).await?;
            let asked = format!("asked the holder of {shard} to give it up once");
            if client.explain(&shard).is_some_and(|explanation| explanation.quarantined) {
                return Ok(format!(
                    "{asked}; it is quarantined, and stays so: whoever takes it does not run it\nlet it run again with: \
                     leasehold unquarantine {shard}"
                ));
            }
            format!("{asked}; it starts anew with a higher epoch")
        }
        Wish::Unquarantine { shard: text } => {
            let shard = shard(text)?;
            let quarantined = |seen: &ShardView| seen.id.0 == shard && seen.state == ShardPhase::Quarantined;
            if !view.shards.iter().any(quarantined) {
                return Err(Failure::new(
                    Code::Failed,
                    format!("{shard} is not quarantined; nothing was asked for"),
                ));
            }
            client.unquarantine(&shard).await?;
            format!("asked for {shard} to run again")
        }
    })
}

fn held_by(view: &View, node: &str) -> usize {
    view.nodes.iter().find(|seen| seen.name.as_str() == node).map_or(0, |seen| seen.shards)
}

/// Waits until the view is as wanted, though not for long: the wish is in the store either way.
pub(super) async fn settle(client: &Client, wanted: impl FnMut(&View) -> bool) {
    let clock = Clock::boot();
    let _ = clock.timeout_at(clock.now() + SHOWN_WITHIN, client.until(wanted)).await;
}
