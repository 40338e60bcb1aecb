//! Nodes that decline many shards: what one of them takes, it has, and nothing that anybody takes stays unowned.

use std::collections::BTreeMap;

use leasehold_core::ShardId;
use leasehold_core::record::{NodeRecord, Record};
use leasehold_core::store::Key;

use crate::process::GateManner;
use crate::world::World;

fn tell(world: &mut World, line: &str) {
    let heard = world.command(line).expect("a command that is there");
    let broken: Vec<&String> = heard.iter().filter(|line| line.contains("!!")).collect();
    assert!(broken.is_empty(), "{broken:?}");
}

/// How many shards run at each process.
fn running(world: &World) -> BTreeMap<&str, usize> {
    world.processes.iter().map(|(name, process)| (name.as_str(), process.works.len())).collect()
}

/// The size of the record of a node, in bytes.
fn record_len(world: &World, node: &str) -> usize {
    let stored = &world.store.records[&Key::Node(node.parse().unwrap())];
    assert!(NodeRecord::decode(&stored.value).is_ok());
    stored.value.len()
}

fn refuse(world: &mut World, node: &str, shards: impl Iterator<Item = u32>) {
    let group = "orders".parse().unwrap();
    let process = world.processes.get_mut(node).unwrap();
    process.gates.extend(shards.map(|slot| (ShardId::slot(&group, slot), GateManner::Refuse)));
}

#[test]
fn two_nodes_that_each_decline_half_of_ten_thousand_shards_own_all_of_them() {
    const SHARDS: u32 = 10_000;
    let mut world = World::new();
    tell(&mut world, "store swaps_max=100");
    for node in ["a new", "b"] {
        tell(&mut world, &format!("node {node} groups=orders:{SHARDS} gate"));
    }
    refuse(&mut world, "a", (0..SHARDS).step_by(2));
    refuse(&mut world, "b", (1..SHARDS).step_by(2));
    tell(&mut world, "run 40s");
    assert_eq!(running(&world), [("a", 5_000), ("b", 5_000)].into());
    for node in ["a", "b"] {
        let len = record_len(&world, node);
        assert!(len < 4_000, "the record of {node} has {len} bytes");
    }
    // What runs goes on running, and nothing moves any more.
    let epochs = world.epochs.clone();
    tell(&mut world, "run 60s");
    assert_eq!(epochs, world.epochs);
}

/// As in `examples/gate.rs`: consumers that take what they have memory for.
#[test]
fn gates_that_count_own_all_of_three_hundred_partitions() {
    let mut world = World::new();
    for (node, room) in [("small", 20), ("large", 280)] {
        let new = if node == "small" { "new " } else { "" };
        tell(&mut world, &format!("node {node} {new}groups=orders:300 gate"));
        world.processes.get_mut(node).unwrap().gate_room = Some(room);
    }
    tell(&mut world, "run 60s");
    assert_eq!(running(&world), [("large", 280), ("small", 20)].into());
}

#[test]
fn nodes_that_engage_disjoint_names_own_all_of_them() {
    let mut world = World::new();
    for node in ["a new", "b"] {
        tell(&mut world, &format!("node {node} groups=tenants:named"));
    }
    for tenant in 0..200 {
        tell(&mut world, &format!("command a engage tenants/left-{tenant}"));
        tell(&mut world, &format!("command b engage tenants/right-{tenant}"));
    }
    tell(&mut world, "run 40s");
    assert_eq!(running(&world), [("a", 200), ("b", 200)].into());
    let epochs = world.epochs.clone();
    tell(&mut world, "run 60s");
    assert_eq!(epochs, world.epochs);
    // A name that nobody had engaged before goes to the node that engages it.
    tell(&mut world, "command b engage tenants/left-7b");
    tell(&mut world, "run 5s");
    assert_eq!(running(&world), [("a", 200), ("b", 201)].into());
}
