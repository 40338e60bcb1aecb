//! What to run: all values of the command line, or every problem with them.

use std::ops::Range;
use std::time::Duration;

use leasehold_cli_common::failure::Failure;
use leasehold_cli_common::settings::{Problem, Problems, span};
use leasehold_sim::{OptionError, Options, Profile, parse_keep};

use super::Sim;
use crate::cluster::parse::{duration, number};

/// How many seeds one command runs at most: weeks of work.
const SEEDS_MAX: u64 = 100_000_000;

const FOR_LIMITS: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(3600));

/// The valid values of the command line.
#[derive(Debug)]
pub(super) struct SimOptions {
    pub(super) runs: Runs,
    pub(super) options: Options,
    pub(super) jobs: usize,
}

/// Which seeds.
#[derive(Debug)]
pub(super) enum Runs {
    One(u64),
    Many(Range<u64>),
}

impl SimOptions {
    pub(super) fn read(what: &Sim) -> Result<SimOptions, Failure> {
        let mut problems = Vec::new();
        let usual = Options::default();
        let seed = number(&mut problems, "--seed", what.seed.as_deref(), 0, u64::MAX);
        let seeds = what.seeds.as_deref().map(|text| seeds(&mut problems, text));
        let nodes = number(&mut problems, "--nodes", what.nodes.as_deref(), 1, 50);
        let shards = number(&mut problems, "--shards", what.shards.as_deref(), 1, 1000);
        let jobs = number(&mut problems, "--jobs", what.jobs.as_deref(), 1, 1024);
        let options = Options {
            nodes: nodes.map_or(usual.nodes, |nodes| nodes as usize),
            shards: shards.map_or(usual.shards, |shards| shards as u32),
            store: what.store_kind.as_deref().and_then(|text| {
                let kind = text.parse();
                kind.map_err(|error| problems.push(problem("--store-kind", error))).ok()
            }),
            faults: faults(&mut problems, what.faults.as_deref()),
            faults_for: faults_for(&mut problems, what.faults_for.as_deref()).unwrap_or(usual.faults_for),
            keep: what.keep.as_deref().and_then(|text| {
                parse_keep(text).map_err(|error| problems.push(problem("--keep", error))).ok()
            }),
            ..usual
        };
        contradictions(&mut problems, what);
        // Only what is right so far has a schedule.
        if let (Some(seed), true) = (seed, problems.is_empty())
            && let Err(error) = options.check_keep(seed)
        {
            problems.push(problem("--keep", error));
        }
        if !problems.is_empty() {
            return Err(Problems(problems).into());
        }
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        let runs = seed.map_or_else(|| Runs::Many(seeds.unwrap_or(0..1000)), Runs::One);
        Ok(SimOptions { runs, options, jobs: jobs.map_or_else(cores, |jobs| jobs as usize) })
    }
}

fn problem(flag: &str, error: OptionError) -> Problem {
    Problem::new(flag, error.what, error.advice)
}

/// Options that cannot be combined.
fn contradictions(problems: &mut Vec<Problem>, what: &Sim) {
    if what.seed.is_some() && what.seeds.is_some() {
        let advice = "remove one of the two";
        problems.push(Problem::new("--seeds", "cannot be combined with --seed", advice));
    }
    for (flag, given) in [("--trace", what.trace), ("--keep", what.keep.is_some())] {
        if given && what.seed.is_none() {
            problems.push(Problem::new(flag, "needs a single run", "choose it with --seed N"));
        }
    }
    if what.trace && what.json {
        problems.push(Problem::new("--trace", "cannot be combined with --json", "remove one of the two"));
    }
}

fn seeds(problems: &mut Vec<Problem>, text: &str) -> Range<u64> {
    let number = |text: &str| text.replace('_', "").parse::<u64>().ok();
    let range = text.split_once("..").and_then(|(from, to)| Some(number(from)?..number(to)?));
    let (what, advice) = match range {
        None => (format!("invalid range of seeds {text:?}"), "use the form 0..1000".to_owned()),
        Some(range) if range.is_empty() => {
            (format!("the range {text} is empty"), "the end is excluded: 7..8 is seed 7".to_owned())
        }
        Some(range) if range.end - range.start > SEEDS_MAX => {
            let what = format!("{} seeds are too many for one command", range.end - range.start);
            (what, format!("use at most {SEEDS_MAX} seeds"))
        }
        Some(range) => return range,
    };
    problems.push(Problem::new("--seeds", what, advice));
    0..1
}

fn faults(problems: &mut Vec<Problem>, text: Option<&str>) -> Profile {
    let Some(text) = text else { return Profile::all() };
    Profile::parse(text).unwrap_or_else(|errors| {
        problems.extend(errors.into_iter().map(|error| problem("--faults", error)));
        Profile::all()
    })
}

fn faults_for(problems: &mut Vec<Problem>, text: Option<&str>) -> Option<Duration> {
    let found = duration(problems, "--for", text)?;
    let (shortest, longest) = FOR_LIMITS;
    if !(shortest..=longest).contains(&found) {
        let advice = format!("use a duration from {} to {}", span::show(shortest), span::show(longest));
        problems.push(Problem::new("--for", format!("{} is out of range", span::show(found)), advice));
    }
    Some(found)
}
