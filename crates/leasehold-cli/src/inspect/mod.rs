//! Commands that inspect a cluster and change nothing.

mod explain;
mod show;
mod table;
mod watch;

use leasehold::Client;
use leasehold_cli_common::failure::{Code, Failure};
use leasehold_cli_common::plural::count;
use leasehold_cli_common::settings::{Settings, nearest};
use leasehold_cli_common::stores::{self, Missing, not_found};
use leasehold_core::{GroupName, NodeName, ShardId, View};

pub(crate) use explain::{explain, what_if};
pub(crate) use show::{groups, nodes, shards, status};
pub(crate) use table::Table;
pub(crate) use watch::{Format, Watching, present, print_changed};

/// A client on the cluster of the settings.
pub(crate) async fn client(settings: &Settings) -> Result<Client, Failure> {
    Ok(Client::open(stores::open(settings, Missing::Refuse)?).await?)
}

/// The shard that was meant and is there: `orders/3`, or `3` with the group from the settings, or with the only one.
pub(crate) fn known_shard_of(settings: &Settings, view: &View, text: &str) -> Result<ShardId, Failure> {
    let only = match view.groups.as_slice() {
        [only] => Some(only.group.as_str()),
        _ => None,
    };
    known_shard(view, shard_in(settings.text("group").or(only), text)?)
}

/// The shard that was meant: `orders/3`, or `3` with the group from the settings.
pub(crate) fn shard_of(settings: &Settings, text: &str) -> Result<ShardId, Failure> {
    shard_in(settings.text("group"), text)
}

fn shard_in(group: Option<&str>, text: &str) -> Result<ShardId, Failure> {
    let whole = match (text.contains('/'), group) {
        (false, Some(group)) => format!("{group}/{text}"),
        _ => text.to_owned(),
    };
    whole.parse().map_err(|_| {
        Failure::new(
            Code::Usage,
            format!("invalid shard {text:?}\n  use the form GROUP/SHARD, for example orders/3"),
        )
    })
}

/// The name of a node that is there, or a failure with those that are.
pub(crate) fn known_node(view: &View, text: &str) -> Result<NodeName, Failure> {
    let name = NodeName::new(text).map_err(|error| Failure::new(Code::Usage, error.to_string()))?;
    if view.nodes.iter().any(|node| node.name == name) {
        return Ok(name);
    }
    Err(missing("node", text, view.nodes.iter().map(|node| node.name.as_str())))
}

/// A shard that is there, or a failure.
fn known_shard(view: &View, shard: ShardId) -> Result<ShardId, Failure> {
    if view.shards.iter().any(|seen| seen.id.0 == shard) {
        return Ok(shard);
    }
    let Some(group) = view.groups.iter().find(|group| group.group == shard.group) else {
        return Err(missing_group(view, shard.group.as_str()));
    };
    let shards = view.shards.iter().filter(|seen| seen.id.0.group == group.group).count();
    Err(not_found(format!(
        "unknown shard {shard}\n  the group {} has {}",
        group.group,
        count(shards, "shard")
    )))
}

/// Whether a group exists: it has settings, or at least records of shards.
pub(crate) fn check_group(view: &View, name: &str) -> Result<(), Failure> {
    let known = view.groups.iter().any(|group| group.group.as_str() == name)
        || view.shards.iter().any(|shard| shard.id.0.group.as_str() == name);
    if known { Ok(()) } else { Err(missing_group(view, name)) }
}

/// Says that a group is not there, and which are.
pub(crate) fn missing_group(view: &View, name: &str) -> Failure {
    missing("group", name, view.groups.iter().map(|group| group.group.as_str()))
}

/// The group of that name.
pub(crate) fn known_group(view: &View, name: &str) -> Result<GroupName, Failure> {
    let found = view.groups.iter().find(|seen| seen.group.as_str() == name);
    found.map(|seen| seen.group.clone()).ok_or_else(|| missing_group(view, name))
}

/// Says that there are no groups.
pub(crate) fn no_group() -> Failure {
    not_found("the namespace has no groups; check the store and the namespace")
}

/// Says that something is not there, and what is.
fn missing<'a>(what: &str, name: &str, known: impl Iterator<Item = &'a str> + Clone) -> Failure {
    let advice = match (nearest(name, known.clone()), known.clone().next()) {
        (Some(near), _) => format!("did you mean {near}?"),
        (None, Some(_)) => format!("choose one of: {}", known.collect::<Vec<_>>().join(", ")),
        (None, None) => format!("the namespace has no {what}s; check the store and the namespace"),
    };
    not_found(format!("unknown {what} {name}\n  {advice}"))
}
