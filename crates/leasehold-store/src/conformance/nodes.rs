//! Rules of listing the nodes.

use std::collections::BTreeMap;

use leasehold_core::store::{Key, Listing, Version};

use super::trial::{Trial, get, listed, parse, put, remove, shard, swap_all, wish};
use super::verdict::ensure;
use super::{Fixture, Note, Unmet, Verdict};

/// How many nodes there are.
const NODES: usize = 150;
/// How many times one client writes and another looks.
const ROUNDS: usize = 30;

/// A listing of nodes has every node's record once, and `meta`, and nothing else, however many other records there are. It
/// says that it is the newest, and has the generation and the revision of any other listing.
pub async fn nodes_are_listed_whole(fixture: &dyn Fixture) -> Verdict {
    let trial = Trial::begin(fixture, "nodes").await?;
    let empty = trial.b.list_nodes().await?;
    ensure!(
        empty.entries.is_empty(),
        "no node in a fresh namespace",
        format!("{:?}", empty.entries),
        "a node that is not there is waited for until it is proved dead",
    );
    let nodes = (0..NODES).map(|i| parse(&format!("nodes/n{i}")));
    let nodes: Vec<Key> = nodes.chain(["nodes/meta", "nodes/shards", "nodes/a b"].map(parse)).collect();
    let others = ["groups/nodes", "control", "shards/nodes/n0", "shards/nodes/meta"].map(parse);
    let others: Vec<Key> = (0..NODES).map(shard).chain(others).collect();
    let all: Vec<&Key> = nodes.iter().chain([&Key::Meta]).chain(&others).collect();
    for some in all.chunks(trial.a.facts().swaps_max.clamp(1, 100)) {
        let swaps: Vec<_> =
            some.iter().map(|key| wish(key, None, Some(key.to_string().as_bytes()))).collect();
        swap_all(&*trial.a, &swaps).await?;
    }
    let wanted: BTreeMap<Key, String> =
        nodes.iter().chain([&Key::Meta]).map(|key| (key.clone(), key.to_string())).collect();
    let generation = trial.a.generation().await?;
    let listing = trial.b.list_nodes().await?;
    expect_whole(&listing, &wanted, &generation)?;
    if trial.a.facts().removes {
        let gone = &nodes[NODES / 2];
        let version = get(&*trial.a, gone).await?.map(|stored| stored.version);
        remove(&*trial.a, gone, &version.unwrap_or_else(|| Version::new(""))).await?;
        let left = wanted.into_iter().filter(|(key, _)| key != gone).collect();
        let after = trial.b.list_nodes().await?;
        expect_whole(&after, &left, &generation)?;
        ensure!(
            after.revision >= listing.revision,
            format!("a revision of at least {:?}", listing.revision),
            format!("{:?}", after.revision),
            "a revision that falls is taken for a store that was rolled back",
        );
    }
    Ok(Note(format!("{} nodes among {} other records", nodes.len(), others.len())))
}

fn expect_whole(listing: &Listing, wanted: &BTreeMap<Key, String>, generation: &str) -> Result<(), Unmet> {
    for (key, value) in wanted {
        let found = listed(listing, key)?;
        ensure!(
            found.is_some_and(|stored| *stored.value == *value.as_bytes()),
            format!("{key} in a listing of nodes, with its own value"),
            format!("{found:?}"),
            "a node that takes a free shard checks that no other node holds it: one that is missed may run it too",
        );
    }
    let stranger = listing.entries.iter().find(|(key, _)| !wanted.contains_key(key));
    ensure!(
        stranger.is_none() && listing.foreign.is_empty(),
        "nodes, meta and nothing else in a listing of nodes",
        format!("{stranger:?}, and the foreign keys {:?}", listing.foreign),
        "it is asked for at every start and failover by every node, and must not carry all shards",
    );
    ensure!(
        listing.newest && listing.generation == generation,
        format!("a listing of nodes that is the newest, of the generation {generation:?}"),
        format!("newest: {}, generation {:?}", listing.newest, listing.generation),
        "a listing that may be behind, or is of another store, proves nothing",
    );
    Ok(())
}

/// A listing of nodes shows what was applied before it was issued, by whichever client, also where other listings may lag.
pub async fn nodes_are_never_listed_stale(fixture: &dyn Fixture) -> Verdict {
    let trial = Trial::begin(fixture, "fresh-nodes").await?;
    let mut versions: BTreeMap<Key, Version> = BTreeMap::new();
    for round in 0..ROUNDS {
        let (writer, reader) = if round % 2 == 0 { (&trial.a, &trial.b) } else { (&trial.b, &trial.a) };
        let key = if round % 5 == 4 { Key::Meta } else { parse(&format!("nodes/n{}", round % 3)) };
        let known = versions.get(&key).cloned();
        match known {
            Some(version) if round % 7 == 6 && trial.a.facts().removes => {
                remove(&**writer, &key, &version).await?;
                versions.remove(&key);
            }
            known => {
                let version = put(&**writer, &key, known.as_ref(), round.to_string().as_bytes()).await?;
                versions.insert(key, version);
            }
        }
        let listing = reader.list_nodes().await?;
        let seen: BTreeMap<Key, Version> =
            listing.entries.into_iter().map(|(key, stored)| (key, stored.version)).collect();
        ensure!(
            seen == versions,
            format!("a listing of nodes after write {round} to show {versions:?}"),
            format!("{seen:?}"),
            "a node whose record is shown without a shard that it published may run it beside the node that takes it",
        );
    }
    Ok(Note::default())
}
