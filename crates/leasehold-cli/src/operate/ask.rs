//! What operators ask of the nodes, through the record `control`.

use leasehold::Client;
use leasehold_cli_common::failure::{Code, Failure};
use leasehold_cli_common::plural::count;
use leasehold_cli_common::settings::Settings;
use leasehold_core::record::{Control, DrainRequest, WorkState};
use leasehold_core::view::ShardPhase;
use leasehold_core::{Epoch, ShardId, View};
use serde_json::{Value, json};

use super::dry_run;
use super::wait::{Goal, wait};
use crate::args::{NodeGoal, OperatorRequest, Timeout, Unquarantine};
use crate::inspect::{known_group, known_node, known_shard_of};
use crate::reply::Reply;

/// A request, understood.
struct Asked {
    /// The command.
    command: &'static str,
    /// What it does, for errors.
    doing: String,
    /// What it changes in `control`.
    change: Box<dyn Fn(&mut Control)>,
    /// What it is about, for programs.
    facts: Value,
    /// What it does, for people.
    text: String,
    /// When it is carried out.
    goal: Option<Goal>,
}

/// Asks for something, and says what was asked.
pub(crate) async fn ask(
    settings: &Settings,
    client: &Client,
    request: &OperatorRequest,
    dry: bool,
    timeout: Option<Timeout>,
) -> Result<Reply, Failure> {
    let asked = understand(settings, client, request)?;
    if dry {
        return dry_run::of_control(client, &asked.text, asked.facts, &asked.change);
    }
    if let OperatorRequest::Unquarantine { which: Unquarantine { shard: None, group, .. } } = request {
        return unquarantine_many(client, group.as_deref()).await;
    }
    client.control(&asked.doing, &asked.change).await?;
    let mut text = asked.text;
    if let (Some(goal), Some(timeout)) = (&asked.goal, timeout) {
        wait(client, goal, timeout).await?;
        text.push_str("\ndone");
    }
    Ok(Reply::done(asked.command, asked.facts, text))
}

fn understand(settings: &Settings, client: &Client, request: &OperatorRequest) -> Result<Asked, Failure> {
    let view = client.view();
    let shard = |text: &str| known_shard_of(settings, &view, text);
    Ok(match request {
        OperatorRequest::Drain { node, note } => drain(&view, node, note)?,
        OperatorRequest::Undrain { node } => {
            let node = known_node(&view, node)?;
            Asked {
                command: "undrain",
                doing: format!("undraining {node}"),
                facts: json!({ "node": node }),
                text: format!("undrained {node}: it takes shards again"),
                goal: None,
                change: Box::new(move |control| drop(control.drain.remove(&node))),
            }
        }
        OperatorRequest::Weight { node, weight } => {
            let (node, weight) = (known_node(&view, node)?, weight.0);
            Asked {
                command: "weight",
                doing: format!("setting the weight of {node}"),
                facts: json!({ "node": node, "weight": weight }),
                text: match weight {
                    Some(weight) => {
                        format!("set the weight of {node} to {weight}\nto undo: leasehold weight {node} own")
                    }
                    None => format!("removed the weight override of {node}"),
                },
                goal: None,
                change: Box::new(move |control| {
                    match weight {
                        Some(weight) => control.weights.insert(node.clone(), weight),
                        None => control.weights.remove(&node),
                    };
                }),
            }
        }
        OperatorRequest::Pin { shard: text, node } => {
            let (shard, node) = (shard(text)?, known_node(&view, node)?);
            let live = view.nodes.iter().any(|seen| seen.name == node && seen.state.is_alive());
            let later =
                if live { "" } else { ", which is not live: the pin takes effect when the node joins" };
            Asked {
                command: "pin",
                doing: format!("pinning {shard}"),
                facts: json!({ "shard": shard, "node": node }),
                text: format!("pinned {shard} to {node}{later}\nto undo: leasehold unpin {shard}"),
                goal: Some(Goal::HeldBy(shard.clone(), node.clone())),
                change: Box::new(move |control| {
                    control.pins.insert(shard.clone(), node.clone());
                }),
            }
        }
        OperatorRequest::Unpin { shard: text } => {
            let shard = shard(text)?;
            Asked {
                command: "unpin",
                doing: format!("unpinning {shard}"),
                facts: json!({ "shard": shard }),
                text: format!("unpinned {shard}"),
                goal: None,
                change: Box::new(move |control| drop(control.pins.remove(&shard))),
            }
        }
        OperatorRequest::Freeze { group, note } => freeze(&view, group.as_deref(), note)?,
        OperatorRequest::Unfreeze { group } => unfreeze(client, &view, group.as_deref())?,
        OperatorRequest::Release { shard: text } => release(client, &view, shard(text)?)?,
        OperatorRequest::Unquarantine { which } => {
            let shards = quarantined(settings, &view, which)?;
            let names: Vec<ShardId> = shards.iter().map(|(shard, _)| shard.clone()).collect();
            Asked {
                command: "unquarantine",
                doing: "unquarantining".to_owned(),
                facts: json!({ "shards": names }),
                text: match &which.shard {
                    Some(_) => format!("unquarantined {}: its holder runs it again", names[0]),
                    None => unquarantined(&names),
                },
                goal: None,
                change: Box::new(move |control| control.unquarantine.extend(shards.iter().cloned())),
            }
        }
    })
}

fn drain(view: &View, node: &str, note: &str) -> Result<Asked, Failure> {
    let node = known_node(view, node)?;
    let held = view.nodes.iter().find(|seen| seen.name == node).map_or(0, |seen| seen.shards);
    let others = view.nodes.iter().filter(|other| other.name != node && other.state.is_alive()).count();
    let warning = if others == 0 && held > 0 {
        "\nno other node is live: its shards keep running here until another node can take them"
    } else {
        ""
    };
    let (drained, note) = (node.clone(), note.to_owned());
    Ok(Asked {
        command: "drain",
        doing: format!("draining {node}"),
        facts: json!({ "node": node, "shards": held }),
        text: format!(
            "draining {node}: it hands over its {} and takes no new ones{warning}\nto undo: leasehold undrain {node}",
            count(held, "shard")
        ),
        goal: Some(Goal::Node(node, NodeGoal::Drained)),
        change: Box::new(move |control| {
            let wish = || DrainRequest { note: note.clone(), ..DrainRequest::default() };
            control.drain.entry(drained.clone()).or_insert_with(wish);
        }),
    })
}

fn freeze(view: &View, group: Option<&str>, note: &str) -> Result<Asked, Failure> {
    let group = group.map(|group| known_group(view, group)).transpose()?;
    let (of, undo) = match &group {
        Some(group) => (format!(" of {group}"), format!("unfreeze {group}")),
        None => (String::new(), "unfreeze".to_owned()),
    };
    let facts = json!({ "group": group, "note": note });
    let note = note.to_owned();
    Ok(Asked {
        command: "freeze",
        doing: format!("freezing voluntary moves{of}"),
        facts,
        text: format!("froze voluntary moves{of}; failover continues\nto undo: leasehold {undo}"),
        goal: None,
        change: match group {
            Some(group) => Box::new(move |control| {
                control.freeze_groups.insert(group.clone(), note.clone());
            }),
            None => Box::new(move |control| control.freeze = Some(note.clone())),
        },
    })
}

fn unfreeze(client: &Client, view: &View, group: Option<&str>) -> Result<Asked, Failure> {
    let frozen = client.asked().freeze_groups;
    let Some(name) = group else {
        let still: Vec<String> = frozen.keys().map(ToString::to_string).collect();
        let but = match still.is_empty() {
            true => String::new(),
            false => format!(", but not of the frozen {}", still.join(", ")),
        };
        return Ok(Asked {
            command: "unfreeze",
            doing: "unfreezing".to_owned(),
            facts: json!({ "still_frozen": still }),
            text: format!("resumed voluntary moves{but}"),
            goal: None,
            change: Box::new(|control| control.freeze = None),
        });
    };
    // It may have been deleted since.
    let known = frozen.keys().find(|frozen| frozen.as_str() == name).cloned();
    let group = known.map_or_else(|| known_group(view, name), Ok)?;
    Ok(Asked {
        command: "unfreeze",
        doing: format!("unfreezing {group}"),
        facts: json!({ "group": group }),
        text: format!("resumed voluntary moves of {group}"),
        goal: None,
        change: Box::new(move |control| drop(control.freeze_groups.remove(&group))),
    })
}

fn release(client: &Client, view: &View, shard: ShardId) -> Result<Asked, Failure> {
    let seen = view.shards.iter().find(|seen| seen.id.0 == shard);
    if seen.is_some_and(|seen| seen.state == ShardPhase::Corrupt) {
        let what =
            format!("the record of {shard} is damaged; nothing was changed\n  run: leasehold repair {shard}");
        return Err(Failure::new(Code::Store, what));
    }
    if seen.is_none_or(|seen| seen.holder.is_none()) {
        return Err(Failure::new(Code::Failed, format!("no node holds {shard}; nothing was changed")));
    }
    let epoch = seen.map(|seen| seen.epoch).unwrap_or_default();
    let quarantined =
        client.explain(&shard).is_some_and(|explanation| explanation.work == WorkState::Quarantined);
    let asked = format!("asked the holder of {shard} to release it once");
    let text = match quarantined {
        true => format!(
            "{asked}; it stays quarantined, so the next holder does not run it\nto run it again: \
             leasehold unquarantine {shard}"
        ),
        false => format!("{asked}; it then starts again with a higher epoch"),
    };
    Ok(Asked {
        command: "release",
        doing: format!("releasing {shard}"),
        facts: json!({ "shard": shard, "epoch": epoch }),
        text,
        goal: Some(Goal::Restarted(shard.clone(), epoch)),
        change: Box::new(move |control| {
            control.release.insert(shard.clone(), epoch);
        }),
    })
}

/// The shards that are quarantined, or done if they are named.
fn quarantined(
    settings: &Settings,
    view: &View,
    which: &Unquarantine,
) -> Result<Vec<(ShardId, Epoch)>, Failure> {
    let all = view.shards.iter();
    if let Some(text) = &which.shard {
        let shard = known_shard_of(settings, view, text)?;
        let idle = |state| matches!(state, ShardPhase::Quarantined | ShardPhase::Done);
        let mut found = all.filter(|seen| seen.id.0 == shard && idle(seen.state));
        return match found.next() {
            Some(seen) => Ok(vec![(shard, seen.epoch)]),
            None => {
                let what = format!("{shard} is not quarantined; nothing was changed");
                Err(Failure::new(Code::Failed, what))
            }
        };
    }
    let group = which.group.as_ref().map(|name| known_group(view, name)).transpose()?;
    let wanted = |shard: &ShardId| group.as_ref().is_none_or(|group| shard.group == *group);
    let found = all.filter(|seen| seen.state == ShardPhase::Quarantined && wanted(&seen.id.0));
    Ok(found.map(|seen| (seen.id.0.clone(), seen.epoch)).collect())
}

/// The store is asked which shards are quarantined: the view may lag behind.
async fn unquarantine_many(client: &Client, group: Option<&str>) -> Result<Reply, Failure> {
    let shards = match group {
        Some(group) => client.unquarantine_group(group).await?,
        None => client.unquarantine_all().await?,
    };
    Ok(Reply::done("unquarantine", json!({ "shards": shards }), unquarantined(&shards)))
}

fn unquarantined(shards: &[ShardId]) -> String {
    match shards.len() {
        0 => "no shard is quarantined; nothing was changed".to_owned(),
        many => format!("unquarantined {}: their holders run them again", count(many, "shard")),
    }
}
