//! `leasehold sim`: the real core under virtual time and faults, over many seeds, or one of them with its story.

use std::io::{IsTerminal, Write as _};
use std::ops::Range;
use std::time::Duration;

use clap::Args;
use leasehold_sim::{
    AfterFailure, Options, Profile, Progress, StoreKind, Tracing, parse_keep, report, run, run_many, shrink,
    transcript,
};

use crate::failure::{Code, Failure};
use crate::settings::span;

/// `leasehold sim`
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(crate) struct Sim {
    /// Run all of these seeds
    #[arg(long, value_name = "A..B", default_value = "0..1000", value_parser = parse_seeds)]
    seeds: Range<u64>,
    /// Run only this seed
    #[arg(long, value_name = "N", conflicts_with = "seeds")]
    seed: Option<u64>,
    /// Print the whole story of that run
    #[arg(long, requires = "seed", conflicts_with = "json")]
    trace: bool,
    /// Of its faults, only those with these numbers, such as 1,4,7, or none
    #[arg(long, requires = "seed", value_name = "LIST")]
    keep: Option<String>,
    /// How many nodes there are
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=50))]
    nodes: u32,
    /// How many shards there are at first
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1000))]
    shards: u32,
    /// What the store is shaped like: memory, local, etcd, redis, kubernetes, object, postgres [default: each seed
    /// has its own]
    #[arg(long, value_name = "KIND")]
    store_kind: Option<StoreKind>,
    /// Which faults strike: all, none, or a list, see below
    #[arg(long, default_value = "all", value_name = "LIST", allow_hyphen_values = true)]
    faults: Profile,
    /// For how long faults strike; the time to heal comes after that
    #[arg(long = "for", default_value = "120s", value_name = "DURATION", value_parser = parse_span)]
    faults_for: Duration,
    /// How many threads [default: as many as there are cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    jobs: Option<u32>,
    /// Print JSON, for programs
    #[arg(long)]
    json: bool,
}

const HELP: &str = "\
A seed decides everything: the same seed is the same run, byte for byte. First faults strike, then all of them end \
and the cluster must heal by itself. What is judged is when work really ran. If a promise is broken, the schedule of \
the first such seed is shrunk to the faults that it takes, and told with the command to see it again; the exit code \
is 6.

Faults are named by kind (crash, pause, cut, slow-store, lost-answers, emptied, ...) or by class (process, network, \
watch, store, loss, operators, records, work, clock), with how many to expect in two minutes if you like. A list that \
begins with - takes away from all.

Examples:
  leasehold sim --seeds 0..20000
  leasehold sim --seed 46 --trace
  leasehold sim --seeds 0..500 --faults crash=3,network --store-kind etcd
  leasehold sim --seeds 0..500 --faults=-loss,-twin";

/// How often the bar is drawn: every so many runs.
const DRAW_EVERY: u64 = 20;

/// Runs the simulator.
pub(crate) fn sim(what: &Sim) -> Result<(), Failure> {
    // What a core says when it panics is part of the report.
    std::panic::set_hook(Box::new(|_| {}));
    let result = match what.seed {
        Some(seed) => one(what, seed),
        None => many(what),
    };
    let _ = std::panic::take_hook();
    result
}

impl Sim {
    fn options(&self) -> Result<Options, Failure> {
        let keep = self.keep.as_deref().map(parse_keep).transpose();
        Ok(Options {
            nodes: self.nodes as usize,
            shards: self.shards,
            store: self.store_kind,
            faults: self.faults.clone(),
            faults_for: self.faults_for,
            keep: keep.map_err(|problem| Failure::new(Code::Usage, format!("--keep: {problem}")))?,
            ..Options::default()
        })
    }

    fn jobs(&self) -> usize {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        self.jobs.map_or_else(cores, |jobs| jobs as usize)
    }
}

fn one(what: &Sim, seed: u64) -> Result<(), Failure> {
    let options = Options { tracing: Tracing::On, ..what.options()? };
    let outcome = run(&options, seed);
    if what.trace {
        print!("{}", transcript(&outcome.lines));
    }
    // Whoever says which faults to keep wants exactly these.
    let told = if options.keep.is_some() { outcome } else { shrink(&options, &outcome) };
    if what.json {
        println!("{:#}", report::outcome_json(&options, &told));
    } else {
        print!("{}", report::failure(&options, &told));
    }
    verdict(u64::from(told.violation.is_some()), 1)
}

fn many(what: &Sim) -> Result<(), Failure> {
    let options = what.options()?;
    let bar = std::io::stderr().is_terminal() && !what.json;
    let tell = |progress: &Progress| {
        if bar && (progress.done.is_multiple_of(DRAW_EVERY) || progress.done == progress.of) {
            draw(progress);
        }
    };
    let summary = run_many(&options, what.seeds.clone(), what.jobs(), AfterFailure::GoOn, tell);
    if bar {
        eprintln!();
    }
    let failed = summary.failures.len() as u64;
    let first = summary.failures.first().map(|(seed, _)| {
        let options = Options { tracing: Tracing::On, ..options.clone() };
        let told = shrink(&options, &run(&options, *seed));
        (options, told)
    });
    if what.json {
        let mut totals = report::totals_json(&summary);
        if let Some((options, told)) = &first {
            totals["first_failure"] = report::outcome_json(options, told);
        }
        println!("{totals:#}");
    } else {
        print!("{}", report::totals(&summary));
        if let Some((options, told)) = &first {
            print!("\n{}", report::failure(options, told));
        }
    }
    verdict(failed, summary.seeds)
}

fn verdict(failed: u64, of: u64) -> Result<(), Failure> {
    if failed == 0 {
        return Ok(());
    }
    let message = format!("{failed} of {of} schedules broke a promise; this is a bug, please report it");
    Err(Failure::new(Code::Unhealthy, message))
}

fn draw(progress: &Progress) {
    let filled = (progress.done * 40 / progress.of.max(1)) as usize;
    let bar: String = (0..40).map(|column| if column < filled { '█' } else { '·' }).collect();
    eprint!("\r{bar} {} of {}, {} broke a promise", progress.done, progress.of, progress.failed);
    let _ = std::io::stderr().flush();
}

fn parse_seeds(text: &str) -> Result<Range<u64>, String> {
    let number = |text: &str| text.replace('_', "").parse::<u64>().ok();
    let range = text.split_once("..").and_then(|(from, to)| Some(number(from)?..number(to)?));
    match range {
        None => Err("a range of seeds looks like 0..1000".to_owned()),
        Some(range) if range.is_empty() => Err(format!("there is no seed in {text}")),
        Some(range) => Ok(range),
    }
}

fn parse_span(text: &str) -> Result<Duration, String> {
    let found = span::parse(text)?;
    let allowed = Duration::from_secs(5)..=Duration::from_secs(3600);
    if allowed.contains(&found) {
        return Ok(found);
    }
    Err("faults strike for at least 5s and at most 1h".to_owned())
}
