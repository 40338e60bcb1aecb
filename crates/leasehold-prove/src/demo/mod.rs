//! `leasehold demo`: nodes as real processes on a local store in a temporary folder, live in the terminal, judged by
//! what their workers noted.

mod arguments;
mod live;
mod picture;
mod plain;
mod scene;
mod screen;
mod verdict;

use std::io::{IsTerminal, Write as _};
use std::sync::Arc;
use std::time::Duration;

use leasehold::{Client, ClientOptions};
use leasehold_cli_common::failure::{Code, Failure};
use leasehold_cli_common::settings::{Problem, Problems};
use leasehold_cli_common::signals::Signals;
use leasehold_core::record::Policy;
use leasehold_core::{Config, NodeName};
use leasehold_local::Local;

pub use arguments::Demo;

use crate::cluster::{Cluster, NodeTemplate};
use scene::{Scene, people};

/// How long a demo without a terminal runs by default.
const PLAIN_FOR: Duration = Duration::from_secs(10);

/// The most nodes that a demo has over its life.
const NODES_MAX: usize = 12;
/// How often a worker does its work.
const BEAT_EVERY: Duration = Duration::from_millis(10);

/// Runs the demo.
pub async fn demo(options: Demo) -> Result<(), Failure> {
    check_ttl(options.ttl)?;
    // Before anything is made that would stay behind.
    let mut signals = Signals::listen()?;
    let folder = tempfile::Builder::new().prefix("leasehold-demo-").tempdir()?;
    let file = folder.path().join("demo.db");
    let store = Arc::new(Local::open(&file, "demo")?);
    let template = NodeTemplate {
        namespace: "demo".to_owned(),
        shards: options.shards,
        ttl: options.ttl,
        policy: Policy { cooldown_ms: 500, min_run_ms: 200, ..Policy::default() },
        beat_every: BEAT_EVERY,
        misbehaves: false,
    };
    let mut cluster = Cluster::new(folder.path(), template)?;
    let mut scene = Scene::new(options.shards, options.ttl, format!("local:{}", file.display()));
    for _ in 0..options.nodes {
        scene.add_to(&mut cluster)?;
    }
    let watching = ClientOptions { list_every: Duration::from_secs(1), ..ClientOptions::default() };
    let client = Client::open_with(store, watching).await?;
    let drawn = std::io::stdout().is_terminal()
        && std::io::stdin().is_terminal()
        && std::env::var_os("TERM").is_none_or(|kind| kind != "dumb")
        && !options.plain;
    let shown = async {
        if drawn {
            live::run(&mut scene, &mut cluster, &client, options.run_for).await
        } else {
            plain::run(&mut scene, &mut cluster, &client, options.run_for.unwrap_or(PLAIN_FOR)).await
        }
    };
    let ended = tokio::select! {
        ended = shown => ended,
        () = signals.next() => Ok(Ended::Well),
    };
    cluster.end()?;
    scene.update(&client.view(), &cluster)?;
    conclude(&scene, ended)
}

/// Refuses a ttl under which no node would start, with all that is wrong with it.
fn check_ttl(ttl: Duration) -> Result<(), Problems> {
    let Ok(any) = NodeName::new("demo") else { return Ok(()) };
    let told = |error: &leasehold_core::config::ConfigError| {
        Problem::new("--ttl", error.message.clone(), error.advice.clone())
    };
    let checked = Config::with_ttl(any, ttl).check_on(&Local::FACTS);
    checked.map_err(|errors| Problems(errors.iter().map(told).collect()))
}

/// Whether all shards ran at the end.
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
    // The terminal may be gone.
    let _ = writeln!(
        std::io::stdout(),
        "{} starts, {} moves; interruption of a shard: {} (median), {} (p99), {} (longest)\n\
         double owners seen by the workers: {}",
        verdict.starts,
        verdict.moves,
        gap(500),
        gap(990),
        gap(1000),
        verdict.double_owners
    );
    if !verdict.is_clean() {
        return Err(Failure::new(
            Code::Unhealthy,
            format!(
                "a promise was broken: {} double owners, {} other violations; this is a bug, please report it",
                verdict.double_owners, verdict.otherwise_broken
            ),
        ));
    }
    match ended {
        Ended::Well => Ok(()),
        Ended::WithHoles => Err(Failure::new(
            Code::Unhealthy,
            "some shards stayed unowned for too long; the machine may be overloaded",
        )),
    }
}
