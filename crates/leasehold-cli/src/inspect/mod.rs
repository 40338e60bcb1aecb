//! Commands that inspect a cluster and change nothing.

mod check;
mod explain;
mod show;
mod table;
mod watch;

use std::time::Duration;

use leasehold::clock::Clock;
use leasehold::{Client, ClientOptions};
use leasehold_cli_common::failure::{Code, Failure};
use leasehold_cli_common::plural::count;
use leasehold_cli_common::settings::{Settings, nearest};
use leasehold_cli_common::stores::{self, Missing, not_found};
use leasehold_core::store::Key;
use leasehold_core::{GroupName, NodeName, ShardId, View};
use leasehold_store::{Store, StoreExt};

pub(crate) use check::{check, is_owned};
pub(crate) use explain::{explain, what_if};
pub(crate) use show::{groups, nodes, shard_rows, shards, status};
pub(crate) use table::Table;
pub(crate) use watch::{Watching, present, print_changed};

/// How often a client that goes on asks whether the store is there.
const PROBE_EVERY: Duration = Duration::from_secs(1);

/// How long one look may wait for a renewal of a node that seems to be silent.
const CONFIRMED_WITHIN_MAX: Duration = Duration::from_secs(5);

/// A client on the cluster of the settings.
pub(crate) async fn client(settings: &Settings) -> Result<Client, Failure> {
    open(settings, ClientOptions::default()).await
}

/// The same for commands that go on: it notices soon if the store does not answer.
pub(crate) async fn lasting_client(settings: &Settings) -> Result<Client, Failure> {
    open(settings, ClientOptions { probe_every: Some(PROBE_EVERY), ..ClientOptions::default() }).await
}

async fn open(settings: &Settings, options: ClientOptions) -> Result<Client, Failure> {
    let store = stores::open(settings, Missing::Refuse)?;
    let client = Client::open_with(store.clone(), options).await?;
    let view = client.view();
    let empty = view.nodes.is_empty() && view.groups.is_empty() && view.shards.is_empty();
    if empty && view.problems.is_empty() && store.read(&[Key::Meta]).await?.found.iter().all(Option::is_none)
    {
        return Err(unknown_namespace(settings, &*store).await);
    }
    Ok(client)
}

/// Says that nothing is in the namespace, and which others there are.
async fn unknown_namespace(settings: &Settings, store: &dyn Store) -> Failure {
    let name = settings.namespace();
    let known = store.namespaces().await.ok().flatten();
    let advice = match known {
        None => "check the store and the namespace, or start a node in it first".to_owned(),
        Some(known) if known.is_empty() => {
            "the store has no namespaces: check the store, or start a node on it first".to_owned()
        }
        Some(known) => match nearest(name, known.iter().map(String::as_str)) {
            Some(near) => format!("did you mean --namespace {near}?"),
            None => format!("the store has: {}", known.join(", ")),
        },
    };
    not_found(format!("unknown namespace {name}\n  {advice}"))
}

/// What one look shows. If a node seems to be silent by nothing but the clocks, it waits for a moment: one that lives renews
/// meanwhile.
pub(crate) async fn settled_view(client: &Client) -> View {
    let doubtful = |view: &View| {
        let nodes = view.nodes.iter().filter(|node| node.silence.is_some_and(|silence| !silence.watched));
        nodes.map(|node| Duration::from_millis(node.ttl_ms / 4)).max()
    };
    let first = client.view();
    let Some(within) = doubtful(&first) else { return View::clone(&first) };
    let clock = Clock::boot();
    let until = clock.now() + within.min(CONFIRMED_WITHIN_MAX);
    while clock.now() < until && doubtful(&client.view_now()).is_some() {
        clock.sleep(Duration::from_millis(50)).await;
    }
    client.view_now()
}

/// The shard that was meant and is there: `orders/3`, or `3` with the group from the settings, or with the only one.
pub(crate) fn known_shard_of(settings: &Settings, view: &View, text: &str) -> Result<ShardId, Failure> {
    let only = match view.groups.as_slice() {
        [only] => Some(only.group.as_str()),
        _ => None,
    };
    known_shard(view, shard_in(settings.text("group").or(only), text)?)
}

/// The shard that was meant, which may not be there: `orders/3`, or `3` with the group from the settings, or with the only
/// one of the store.
pub(crate) async fn shard_of(settings: &Settings, text: &str) -> Result<ShardId, Failure> {
    // Only a number can be a slot.
    if settings.text("group").is_some() || text.parse::<u32>().is_err() {
        return shard_in(settings.text("group"), text);
    }
    let view = client(settings).await?.view();
    match view.groups.as_slice() {
        [only] => shard_in(Some(only.group.as_str()), text),
        _ => shard_in(None, text),
    }
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
