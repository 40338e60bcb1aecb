//! `leasehold demo`: nodes as real processes on a local store in a temporary folder, live in the terminal, judged by
//! what their workers noted.

mod cluster;
mod diary;
mod live;
mod node;
mod picture;
mod plain;
mod scene;
mod screen;
mod verdict;

use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use leasehold::{Client, ClientOptions};
use leasehold_local::Local;

use crate::args::Demo;
use crate::failure::{Code, Failure};
use cluster::Cluster;
use scene::{Scene, people};

/// How long a demo without a terminal runs if nobody says otherwise.
const PLAIN_FOR: Duration = Duration::from_secs(10);

/// The hidden way to start this program as a node of a demo.
pub(crate) fn hidden_main() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    (arguments.next()? == "demo-node").then_some(())?;
    let birth = serde_json::from_str(arguments.next()?.to_str()?).ok()?;
    Some(node::main(birth))
}

/// Runs the demo.
pub(crate) async fn demo(options: Demo) -> Result<(), Failure> {
    let folder = tempfile::Builder::new().prefix("leasehold-demo-").tempdir()?;
    let store = Arc::new(Local::open(node::store_file(folder.path()), "demo")?);
    let mut cluster = Cluster::new(folder.path(), options.shards, options.ttl);
    let mut scene = Scene::new(options.shards, options.ttl);
    for _ in 0..options.nodes {
        cluster.add()?;
    }
    let watching = ClientOptions { list_every: Duration::from_secs(1), ..ClientOptions::default() };
    let client = Client::open_with(store, watching).await?;
    let drawn = std::io::stdout().is_terminal() && std::io::stdin().is_terminal() && !options.plain;
    let ended = if drawn {
        live::run(&mut scene, &mut cluster, &client, options.run_for).await
    } else {
        plain::run(&mut scene, &mut cluster, &client, options.run_for.unwrap_or(PLAIN_FOR)).await
    };
    cluster.end();
    scene.update(&client.view(), &cluster);
    conclude(&scene, ended)
}

/// Whether all was as it should be at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    Well,
    /// Shards stayed unowned for too long.
    WithHoles,
}

fn conclude(scene: &Scene, ended: Result<Ended, Failure>) -> Result<(), Failure> {
    let ended = ended?;
    let verdict = &scene.verdict;
    let gap = |permille| verdict.gap(permille).map_or_else(|| "-".to_owned(), people);
    println!(
        "{} starts, {} moves; a shard stood still for {} (median), {} (p99), {} (longest)",
        verdict.starts,
        verdict.moves,
        gap(500),
        gap(990),
        gap(1000)
    );
    println!("double owners seen by the workers: {}", verdict.double_owners);
    if !verdict.is_clean() {
        return Err(Failure::new(
            Code::Unhealthy,
            format!(
                "the promise was broken: {} double owners, {} epochs that did not rise; this is a bug, please report it",
                verdict.double_owners, verdict.epochs_not_rising
            ),
        ));
    }
    match ended {
        Ended::Well => Ok(()),
        Ended::WithHoles => Err(Failure::new(
            Code::Unhealthy,
            "some shards stayed unowned for too long: is this machine very busy?",
        )),
    }
}
