//! `leasehold-sim`: many seeds, one seed with its story, or the sabotage table.

use std::io::{IsTerminal, Write};
use std::ops::Range;
use std::process::ExitCode;
use std::time::Duration;

use leasehold_sim::{AfterFailure, Options, Progress, Sabotage, Tracing, report, run, run_many, shrink};

const HELP: &str = "\
leasehold-sim: the real core under virtual time and faults

  --seeds A..B        run these seeds (default 0..1000)
  --seed N            run one seed
  --trace             with --seed: print its whole story
  --keep 1,4,7        with --seed: only these faults of its schedule
  --nodes N           how many nodes (5)
  --shards N          how many shards (16)
  --store-kind KIND   memory, local, etcd, redis, kubernetes, object, postgres (each seed its own)
  --faults LIST       all, none, or kinds and classes: crash=3,network,-loss (all)
  --for SECONDS       for how long faults strike (120)
  --jobs N            threads (2)
  --json              totals for programs
  --sabotage RULE     with one rule switched off
  --sabotage-table N  switch every rule off in turn, at most N seeds each, and print the table
";

struct Arguments {
    options: Options,
    seeds: Range<u64>,
    seed: Option<u64>,
    trace: bool,
    jobs: usize,
    json: bool,
    table: Option<u64>,
}

fn main() -> ExitCode {
    match parse(std::env::args().skip(1)) {
        Ok(None) => {
            print!("{HELP}");
            ExitCode::SUCCESS
        }
        Ok(Some(arguments)) => go(arguments),
        Err(problem) => {
            eprintln!("{problem}\n\n{HELP}");
            ExitCode::from(2)
        }
    }
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Option<Arguments>, String> {
    let mut found = Arguments {
        options: Options::default(),
        seeds: 0..1000,
        seed: None,
        trace: false,
        jobs: 2,
        json: false,
        table: None,
    };
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
        let options = &mut found.options;
        match word.as_str() {
            "--help" | "-h" => return Ok(None),
            "--trace" => found.trace = true,
            "--json" => found.json = true,
            "--seed" => found.seed = Some(number(&value()?)?),
            "--seeds" => {
                let text = value()?;
                let (from, to) = text.split_once("..").ok_or("--seeds needs a range such as 0..1000")?;
                found.seeds = number(from)?..number(to)?;
            }
            "--nodes" => options.nodes = number(&value()?)? as usize,
            "--shards" => options.shards = number(&value()?)? as u32,
            "--store-kind" => options.store = Some(value()?.parse()?),
            "--faults" => options.faults = value()?.parse()?,
            "--for" => options.faults_for = Duration::from_secs(number(value()?.trim_end_matches('s'))?),
            "--jobs" => found.jobs = number(&value()?)? as usize,
            "--sabotage" => options.sabotage = Some(value()?.parse::<Sabotage>()?),
            "--sabotage-table" => found.table = Some(number(&value()?)?),
            "--keep" => {
                let text = value()?;
                let words = text.split(',').filter(|word| !word.is_empty() && *word != "none");
                let keep: Result<Vec<usize>, _> =
                    words.map(|word| number(word).map(|n| n as usize)).collect();
                options.keep = Some(keep?);
            }
            _ => return Err(format!("what is {word:?}?")),
        }
    }
    Ok(Some(found))
}

fn number(text: &str) -> Result<u64, String> {
    text.replace('_', "").parse().map_err(|_| format!("{text:?} is no number"))
}

fn go(arguments: Arguments) -> ExitCode {
    // What a core says when it panics is part of the report.
    std::panic::set_hook(Box::new(|_| {}));
    match (arguments.table, arguments.seed) {
        (Some(seeds_max), _) => {
            print!("{}", leasehold_sim::sabotage_table(&arguments.options, seeds_max, arguments.jobs));
            ExitCode::SUCCESS
        }
        (None, Some(seed)) => one(&arguments, seed),
        (None, None) => many(&arguments),
    }
}

fn one(arguments: &Arguments, seed: u64) -> ExitCode {
    let options = Options { tracing: Tracing::On, ..arguments.options.clone() };
    let outcome = run(&options, seed);
    if arguments.trace {
        print!("{}", leasehold_sim::transcript(&outcome.lines));
    }
    if outcome.violation.is_none() {
        print!("{}", report::failure(&options, &outcome));
        return ExitCode::SUCCESS;
    }
    let told = if options.keep.is_none() { shrink(&options, &outcome) } else { outcome };
    print!("{}", report::failure(&options, &told));
    ExitCode::FAILURE
}

fn many(arguments: &Arguments) -> ExitCode {
    let bar = std::io::stderr().is_terminal() && !arguments.json;
    let tell = |progress: &Progress| {
        if bar && (progress.done.is_multiple_of(100) || progress.done == progress.of) {
            draw(progress);
        }
    };
    let summary =
        run_many(&arguments.options, arguments.seeds.clone(), arguments.jobs, AfterFailure::GoOn, tell);
    if bar {
        eprintln!();
    }
    if arguments.json {
        println!("{}", report::totals_json(&summary));
    } else {
        print!("{}", report::totals(&summary));
        if let Some((seed, _)) = summary.failures.first() {
            println!();
            one(arguments, *seed);
        }
    }
    if summary.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn draw(progress: &Progress) {
    let filled = (progress.done * 40 / progress.of.max(1)) as usize;
    let bar: String = (0..40).map(|column| if column < filled { '█' } else { '·' }).collect();
    eprint!("\r{bar} {} of {}, {} broke a promise", progress.done, progress.of, progress.failed);
    let _ = std::io::stderr().flush();
}
