//! What a check will do, from what was asked for and what the store allows.

use std::time::Duration;

use leasehold::clock;
use leasehold_cli_common::failure::Failure;
use leasehold_cli_common::settings::{Problem, Problems, nearest, span};
use leasehold_core::NodeName;
use leasehold_core::config::{Config, Explanation};
use leasehold_core::record::Policy;
use leasehold_core::store::Facts;

use super::arguments::Check;
use super::fault::Fault;
use super::scenario::Scenario;
use super::schedule::{Frame, Step, schedule};
use crate::cluster::parse::{duration, number};
use crate::cluster::{Kind, NodeTemplate, Scratch};

/// The ttl of a check on stores that are fast enough for it: short, so that much happens in little time.
const TTL: Duration = Duration::from_secs(3);

/// What a check will do.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) nodes: usize,
    pub(super) template: NodeTemplate,
    pub(super) faults: Vec<Fault>,
    pub(super) seed: u64,
    pub(super) scenario: Option<Scenario>,
    pub(super) steps: Vec<Step>,
    /// For how long things are broken.
    pub(super) run_for: Duration,
    /// The bounds that follow from the settings, by which the check judges.
    pub(super) explained: Explanation,
}

/// What was asked for, each value for itself.
#[derive(Debug)]
pub(super) struct CheckOptions {
    nodes: Option<u64>,
    shards: Option<u64>,
    run_for: Option<Duration>,
    ttl: Option<Duration>,
    faults: Option<Vec<Fault>>,
    seed: Option<u64>,
    scenario: Option<Scenario>,
}

impl CheckOptions {
    /// Parses all values, and reports every invalid one.
    pub(super) fn read(check: &Check) -> Result<CheckOptions, Failure> {
        let mut problems = Vec::new();
        let request = CheckOptions {
            nodes: number(&mut problems, "--nodes", check.nodes.as_deref(), 1, 26),
            shards: number(&mut problems, "--shards", check.shards.as_deref(), 1, 100_000),
            run_for: duration(&mut problems, "--for", check.run_for.as_deref()),
            ttl: duration(&mut problems, "--ttl", check.ttl.as_deref()),
            faults: check.faults.as_deref().map(|text| faults(&mut problems, text)),
            seed: number(&mut problems, "--seed", check.seed.as_deref(), 0, u64::MAX),
            scenario: check.scenario.as_deref().and_then(|text| scenario(&mut problems, text)),
        };
        if check.scenario.is_some() && check.faults.is_some() {
            problems.push(Problem::new("--faults", "a scenario has its own faults", "remove one of the two"));
        }
        if problems.is_empty() { Ok(request) } else { Err(Problems(problems).into()) }
    }

    /// Makes a plan for that store, or reports all problems.
    pub(super) fn plan(self, scratch: &Scratch, misbehaves: bool) -> Result<Plan, Failure> {
        let mut problems = Vec::new();
        let facts = scratch.store.facts();
        let nodes = usize::try_from(self.nodes.unwrap_or(3)).unwrap_or(3);
        let shards = self.shards.unwrap_or(if self.scenario.is_some() { 2048 } else { 48 });
        let shards = u32::try_from(shards).unwrap_or(u32::MAX);
        let config = self.config(&facts, &mut problems);
        let faults = self.allowed_faults(&scratch.kind, &mut problems);
        let ttl = config.ttl;
        let beat_every = beat_every(shards);
        let policy = match self.scenario {
            // What users have if they change nothing.
            Some(_) => Policy::default(),
            None => Policy {
                cooldown_ms: u64::try_from(ttl.as_millis() / 4).unwrap_or(u64::MAX),
                min_run_ms: u64::try_from(ttl.as_millis() / 10).unwrap_or(u64::MAX),
                ..Policy::default()
            },
        };
        let seed = self.seed.unwrap_or_else(|| clock::now().as_nanos() % 1_000_000);
        let (run_for, steps) = match self.scenario {
            Some(scenario) => {
                let last = self.run_for.unwrap_or_else(|| scenario.usual(ttl));
                if scenario == Scenario::Outage && last <= ttl {
                    problems.push(too_short(last, ttl));
                }
                scenario.steps(scenario.fault(&scratch.kind), nodes, last)
            }
            None => {
                let run_for = self.run_for.unwrap_or(Duration::from_secs(60));
                let shortest = beat_every * 4 + Duration::from_millis(50);
                let frame = Frame { seed, nodes, faults: faults.clone(), run_for, ttl, shortest };
                (run_for, schedule(&frame))
            }
        };
        if problems.is_empty() && steps.is_empty() {
            let what =
                format!("{} is too short for a fault with a ttl of {}", span::show(run_for), span::show(ttl));
            problems.push(Problem::new("--for", what, "use a longer duration"));
        }
        if !problems.is_empty() {
            return Err(Problems(problems).into());
        }
        let namespace = scratch.namespace.clone();
        let template = NodeTemplate { namespace, shards, ttl, policy, beat_every, misbehaves };
        let explained = config.explain(&facts);
        Ok(Plan { nodes, template, faults, seed, scenario: self.scenario, steps, run_for, explained })
    }

    fn config(&self, facts: &Facts, problems: &mut Vec<Problem>) -> Config {
        let name = || NodeName::new("a").expect("a letter is a name");
        let usual = if self.scenario.is_some() { Duration::from_secs(10) } else { TTL };
        let chosen = Config::with_ttl(name(), self.ttl.unwrap_or(usual));
        match chosen.check_on(facts) {
            Ok(()) => chosen,
            Err(_) if self.ttl.is_none() => Config::new(name(), facts),
            Err(errors) => {
                problems.extend(
                    errors
                        .iter()
                        .map(|error| Problem::new("--ttl", error.message.clone(), error.advice.clone())),
                );
                chosen
            }
        }
    }

    /// Those that were asked for, or all that the store allows.
    fn allowed_faults(&self, kind: &Kind, problems: &mut Vec<Problem>) -> Vec<Fault> {
        let why_not = |fault: Fault| match kind {
            Kind::File(_) if fault.needs_network() => Some("a local store has no network"),
            Kind::Network { .. } | Kind::Via { .. } | Kind::Other(_) if fault.needs_file() => {
                Some("the store is not a file")
            }
            Kind::Other(why) if fault.needs_network() => Some(*why),
            _ => None,
        };
        let chosen = match (self.scenario, &self.faults) {
            (Some(scenario), _) => vec![scenario.fault(kind)],
            (None, Some(faults)) => faults.clone(),
            (None, None) => {
                return Fault::ALL.into_iter().filter(|fault| why_not(*fault).is_none()).collect();
            }
        };
        for fault in &chosen {
            if let Some(why) = why_not(*fault) {
                let place = if self.scenario.is_some() { "--scenario" } else { "--faults" };
                let what = format!("the fault {fault} is not possible on this store: {why}");
                problems.push(Problem::new(
                    place,
                    what,
                    "use another store, for example etcd://127.0.0.1:2379, or other faults",
                ));
            }
        }
        chosen
    }
}

fn too_short(last: Duration, ttl: Duration) -> Problem {
    let what = format!(
        "an outage of {} is too short to end a session with a ttl of {}",
        span::show(last),
        span::show(ttl)
    );
    Problem::new("--for", what, "use a duration above the ttl")
}

/// Many shards beat less often, so that the workers themselves cause little load: all of them together about 2,000 times a
/// second.
fn beat_every(shards: u32) -> Duration {
    Duration::from_millis(u64::from(shards) / 2).max(Duration::from_millis(10))
}

fn faults(problems: &mut Vec<Problem>, text: &str) -> Vec<Fault> {
    let words = || Fault::ALL.iter().map(|fault| fault.as_str());
    let mut faults = Vec::new();
    for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
        match Fault::ALL.into_iter().find(|fault| fault.as_str() == word) {
            Some(fault) if faults.contains(&fault) => {}
            Some(fault) => faults.push(fault),
            None => {
                let advice = match nearest(word, words()) {
                    Some(known) => format!("did you mean {known:?}?"),
                    None => format!("use one of {}", words().collect::<Vec<_>>().join(", ")),
                };
                problems.push(Problem::new("--faults", format!("unknown fault {word:?}"), advice));
            }
        }
    }
    faults
}

fn scenario(problems: &mut Vec<Problem>, text: &str) -> Option<Scenario> {
    let words = || Scenario::ALL.iter().map(|scenario| scenario.as_str());
    let found = Scenario::ALL.into_iter().find(|scenario| scenario.as_str() == text);
    if found.is_none() {
        let advice = format!("use one of {}", words().collect::<Vec<_>>().join(", "));
        problems.push(Problem::new("--scenario", format!("unknown scenario {text:?}"), advice));
    }
    found
}
