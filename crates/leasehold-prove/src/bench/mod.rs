//! `leasehold bench`: measures real processes on a store, and compares them with one lease per shard.

mod arguments;
mod cost;
mod cpu;
mod money;
mod numbers;
mod plain_writes;
mod session;

use std::time::Duration;

use leasehold_cli_common::failure::{Code, Failure};
use leasehold_cli_common::settings::{Problem, Problems, Settings, span};
use leasehold_cli_common::signals::Signals;
use leasehold_core::NodeName;
use leasehold_core::config::Config;
use leasehold_core::record::Policy;

pub use arguments::Bench;

use crate::check::Progress;
use crate::cluster::parse::{duration, number};
use crate::cluster::{NodeTemplate, Scratch};
use numbers::Numbers;
use session::Session;

/// Workers record only their starts and stops: no process is paused here.
const BEAT_EVERY: Duration = Duration::from_secs(3600);

/// How many processes one machine can be asked to start.
const NODES_MAX: u64 = 500;

/// What was asked for.
#[derive(Debug)]
struct BenchOptions {
    nodes: usize,
    shards: u32,
    ttl: Option<Duration>,
    rest_for: Duration,
    extent: Extent,
}

/// How much is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extent {
    All,
    /// Only the cold start and the cost at rest.
    Cost,
}

impl BenchOptions {
    fn read(what: &Bench) -> Result<BenchOptions, Failure> {
        let mut problems = Vec::new();
        let nodes = number(&mut problems, "--nodes", what.nodes.as_deref(), 2, NODES_MAX).unwrap_or(3);
        let shards = number(&mut problems, "--shards", what.shards.as_deref(), 1, 100_000).unwrap_or(2048);
        let ttl = duration(&mut problems, "--ttl", what.ttl.as_deref());
        let rest_for = duration(&mut problems, "--rest-for", what.rest_for.as_deref());
        let rest_for = rest_for.unwrap_or(Duration::from_secs(20));
        if rest_for < Duration::from_secs(3) {
            let what = format!("{} is too short: the cost is counted once per second", span::show(rest_for));
            problems.push(Problem::new("--rest-for", what, "use at least 3s"));
        }
        let extent = if what.cost_only { Extent::Cost } else { Extent::All };
        match problems.is_empty() {
            true => Ok(BenchOptions { nodes: nodes as usize, shards: shards as u32, ttl, rest_for, extent }),
            false => Err(Problems(problems).into()),
        }
    }

    fn config(&self, scratch: &Scratch) -> Result<Config, Failure> {
        let name = NodeName::new("a").expect("a letter is a name");
        let facts = scratch.store.facts();
        let config = match self.ttl {
            Some(ttl) => Config::with_ttl(name, ttl),
            None => Config::new(name, &facts),
        };
        match config.check_on(&facts) {
            Ok(()) => Ok(config),
            Err(errors) => {
                let problem = |error: &leasehold_core::config::ConfigError| {
                    Problem::new("--ttl", error.message.clone(), error.advice.clone())
                };
                Err(Problems(errors.iter().map(problem).collect()).into())
            }
        }
    }
}

/// Measures everything and prints it.
pub async fn bench(what: Bench) -> Result<(), Failure> {
    let request = BenchOptions::read(&what)?;
    let settings = Settings::load(&what.everywhere, None)?;
    // One that comes while the store is opened is heeded as soon as there is something to clear.
    let mut signals = Signals::listen()?;
    let scratch = Scratch::open(&settings, "bench").await?;
    let mut progress = Progress::new(true);
    let result = tokio::select! {
        result = measure(&request, &scratch, &mut progress) => result,
        () = signals.next() => Err(Failure::new(Code::Failed, "interrupted; nothing was measured")),
    };
    progress.wipe();
    let stays = scratch.clear().await;
    stays.iter().for_each(|stays| eprintln!("{stays}"));
    let numbers = result?;
    if what.json {
        println!("{:#}", numbers.as_json());
    } else {
        print!("{}", numbers.text());
    }
    Ok(())
}

async fn measure(
    request: &BenchOptions,
    scratch: &Scratch,
    progress: &mut Progress,
) -> Result<Numbers, Failure> {
    let config = request.config(scratch)?;
    scratch.vet().await?;
    let template = NodeTemplate {
        namespace: scratch.namespace.clone(),
        shards: request.shards,
        ttl: config.ttl,
        policy: Policy::default(),
        beat_every: BEAT_EVERY,
        misbehaves: false,
    };
    progress.say(format!(
        "{} nodes, {} shards, ttl {}, on {}",
        request.nodes,
        request.shards,
        span::show(config.ttl),
        scratch.shown
    ));
    let folder = tempfile::Builder::new().prefix("leasehold-bench-").tempdir()?;
    let measured = Session::new(request, template, scratch, folder.path(), progress)?.run().await?;
    let plain = match request.extent {
        Extent::Cost => None,
        Extent::All => {
            progress.say(format!("{} plain writes per second, for comparison", request.shards / 10));
            Some(plain_writes::measure(scratch, request.shards, request.nodes, request.rest_for).await?)
        }
    };
    Ok(Numbers {
        store: scratch.shown.clone(),
        nodes: request.nodes,
        shards: request.shards,
        explained: config.explain(&scratch.store.facts()),
        config,
        measured,
        plain,
    })
}
