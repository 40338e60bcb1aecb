//! `leasehold config`: which settings are in force, where they came from, whether they are safe, and what they mean.

use std::fmt::Write as _;

use leasehold_cli_common::failure::Failure;
use leasehold_cli_common::settings::{Settings, reference, sample};
use leasehold_cli_common::stores;
use leasehold_store::bill::{Bill, ClusterSize};

/// The default number of nodes for the recommended number of shards.
const NODES_DEFAULT: u64 = 3;

/// Prints every setting.
pub(crate) fn show(settings: &Settings, json: bool) {
    let effective = settings.effective(&stores::facts(settings));
    if json {
        println!("{:#}", settings.as_json(&effective));
    } else {
        print!("{}", settings.show(&effective));
    }
}

/// Says whether the settings are safe together.
pub(crate) fn check(settings: &Settings) -> Result<(), Failure> {
    let facts = stores::facts(settings);
    let ttl = settings.node_config(&facts)?.ttl;
    println!(
        "the settings are safe on {} with a ttl of {}",
        facts.kind,
        leasehold_cli_common::settings::span::show(ttl)
    );
    Ok(())
}

/// Says what the settings amount to.
pub(crate) fn explain(settings: &Settings, nodes: Option<u64>) -> Result<(), Failure> {
    let facts = stores::facts(settings);
    let config = settings.node_config(&facts)?;
    let size = ClusterSize { nodes, shards: settings.count("shards").map(u64::from) };
    let explained = config.explain(&facts);
    let guidance = shard_guidance(nodes.unwrap_or(NODES_DEFAULT));
    print!("{explained}{}\n{guidance}", Bill::table(&explained, size));
    Ok(())
}

/// How many shards to have for that many nodes. With few shards a node a single one makes a great difference.
fn shard_guidance(nodes: u64) -> String {
    let mut text = format!("Number of shards for {nodes} nodes (hard to change later)\n");
    let nodes = nodes.max(1);
    for (each, what) in [
        (1, "one per node: one more shard doubles the load of a node"),
        (5, "the fullest node has at most 1.20 × its fair share"),
        (10, "the fullest node has at most 1.10 × its fair share: a good start"),
        (30, "room to grow to three times as many nodes"),
    ] {
        let _ = writeln!(text, "{:>11}  {what}", nodes * each);
    }
    text
}

/// Says where files are looked for.
pub(crate) fn paths(settings: &Settings) {
    for place in settings.places() {
        let used = settings.file() == Some(place.as_path());
        println!("{} {}", if used { "used " } else { "     " }, place.display());
    }
    match settings.file() {
        Some(file) if !settings.places().iter().any(|place| place == file) => {
            println!("used  {} (set explicitly)", file.display())
        }
        Some(_) => {}
        None => println!("no settings file found; the first of these that exists is used"),
    }
}

/// Prints the reference of all settings.
pub(crate) fn print_reference() {
    print!("{}", reference());
}

/// Prints a settings file to start from.
pub(crate) fn print_sample() {
    print!("{}", sample());
}
