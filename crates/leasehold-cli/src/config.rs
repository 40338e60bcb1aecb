//! `leasehold config`: which settings are in force, where they came from, whether they are safe, and what they mean.

use std::fmt::Write as _;
use std::path::Path;

use leasehold_cli_common::failure::Failure;
use leasehold_cli_common::settings::{Settings, reference, sample};
use leasehold_cli_common::stores;
use leasehold_store::bill::{Bill, ClusterSize};
use serde_json::json;

use crate::args::Output;
use crate::reply::Reply;

/// The default number of nodes for the recommended number of shards.
const NODES_DEFAULT: u64 = 3;

/// Prints every setting.
pub(crate) fn show(settings: &Settings, output: Output) {
    let effective = settings.effective(&stores::facts(settings));
    Reply::new(settings.show(&effective), settings.as_json(&effective)).print(output);
}

/// Says whether the settings are safe together.
pub(crate) fn check(settings: &Settings, output: Output) -> Result<(), Failure> {
    let facts = stores::facts(settings);
    let ttl = settings.node_config(&facts)?.ttl;
    let store = settings.text("store").is_some();
    let mut text = format!(
        "the settings are safe on {} with a ttl of {}",
        facts.kind,
        leasehold_cli_common::settings::span::show(ttl)
    );
    if !store {
        text.push_str("\nchecked without a store, as if it were local: set --store to check them for yours");
    }
    let json = json!({
        "safe": true, "store_given": store, "checked_for": facts.kind, "ttl_ms": ttl.as_millis() as u64,
    });
    Reply::new(text, json).print(output);
    Ok(())
}

/// Says what the settings amount to.
pub(crate) fn explain(settings: &Settings, nodes: Option<u64>, output: Output) -> Result<(), Failure> {
    let facts = stores::facts(settings);
    let config = settings.node_config(&facts)?;
    let size = ClusterSize { nodes, shards: settings.count("shards").map(u64::from) };
    let explained = config.explain(&facts);
    let guidance = shard_guidance(nodes.unwrap_or(NODES_DEFAULT));
    let text = format!("{explained}{}\n{guidance}", Bill::table(&explained, size));
    let lines: Vec<&str> = text.lines().collect();
    Reply::new(text.as_str(), json!({ "explanation": lines })).print(output);
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
pub(crate) fn paths(settings: &Settings, output: Output) {
    let mut text = String::new();
    for place in settings.places() {
        let used = settings.file() == Some(place.as_path());
        let _ = writeln!(text, "{} {}", if used { "used " } else { "     " }, place.display());
    }
    let _ = match settings.file() {
        Some(file) if !settings.places().iter().any(|place| place == file) => {
            writeln!(text, "used  {} (set explicitly)", file.display())
        }
        Some(_) => Ok(()),
        None => writeln!(text, "no settings file found; the first of these that exists is used"),
    };
    let shown = |path: &Path| path.display().to_string();
    let places: Vec<String> = settings.places().iter().map(|place| shown(place)).collect();
    Reply::new(text, json!({ "used": settings.file().map(shown), "places": places })).print(output);
}

/// Prints the reference of all settings.
pub(crate) fn print_reference() {
    print!("{}", reference());
}

/// Prints a settings file to start from.
pub(crate) fn print_sample() {
    print!("{}", sample());
}
