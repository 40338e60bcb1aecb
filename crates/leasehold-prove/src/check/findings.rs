//! What a check shows: which promises were kept, and how long things took.

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold_chaos::history::{History, Run};
use leasehold_chaos::judge::{self, EVERY_SHARD_OWNED};
use leasehold_chaos::measure::{Gaps, Spans};
use leasehold_cli_common::failure::{Code, Failure};
use leasehold_cli_common::settings::span;
use leasehold_core::Moment;
use serde_json::{Value, json};

use super::lines::{Lines, Load, Suffered};
use super::outage;
use super::plan::Plan;
use super::scenario::Scenario;
use super::trial::Outcome;
use crate::cluster::GROUP;

/// What a check shows.
#[derive(Debug)]
pub(super) struct Findings {
    /// What was done, as words and values.
    pub(super) setting: Vec<(&'static str, String)>,
    pub(super) promises: Vec<Promise>,
    pub(super) spans: Vec<Measure>,
    pub(super) load: Load,
    pub(super) starts: usize,
    pub(super) shards: usize,
    /// For the pictures.
    pub(super) history: History,
    pub(super) faults: Vec<Suffered>,
    pub(super) nodes: Vec<String>,
    pub(super) from: Moment,
    pub(super) healed_at: Moment,
    pub(super) to: Moment,
    /// What the scenario `outage` shows.
    pub(super) outage: Option<outage::Summary>,
}

/// A promise, and whether it was kept.
#[derive(Debug)]
pub(super) struct Promise {
    pub(super) name: &'static str,
    pub(super) told: String,
    /// All that broke it.
    pub(super) broken: Vec<String>,
}

/// How long something took.
#[derive(Debug)]
pub(super) struct Measure {
    pub(super) key: &'static str,
    pub(super) title: &'static str,
    pub(super) spans: Spans,
}

impl Findings {
    pub(super) fn of(plan: &Plan, store: &str, outcome: &Outcome) -> Findings {
        let files = outcome.files.iter().map(|(name, text)| (name.as_str(), text.as_str()));
        let history = History::read(files);
        let lines = Lines::read(outcome);
        let nodes: Vec<String> = lines.nodes();
        let outage = match plan.scenario {
            Some(Scenario::Outage) => outage::Summary::of(plan, outcome, &history, &lines),
            _ => None,
        };
        let mut findings = Findings {
            setting: setting(plan, store),
            promises: Vec::new(),
            spans: measures(&history, &lines, outcome),
            load: lines.load(plan, outcome),
            starts: history.runs.len(),
            shards: history.shards(),
            faults: lines.faults,
            nodes,
            from: outcome.began_at,
            healed_at: outcome.healed_at,
            to: outcome.ended_at,
            outage,
            history,
        };
        findings.judge(plan, outcome);
        findings
    }

    fn judge(&mut self, plan: &Plan, outcome: &Outcome) {
        for (name, judge) in judge::ALWAYS {
            let broken: Vec<String> = judge(&self.history).into_iter().map(|v| v.message).collect();
            let told = match *name {
                "at_most_one_running_worker" => {
                    self.outage.iter_mut().for_each(|outage| outage.overlaps = broken.len());
                    format!("{} overlaps in {} runs of {} shards", broken.len(), self.starts, self.shards)
                }
                name => {
                    format!(
                        "in {} runs{}",
                        self.starts,
                        partly_judged(judge::not_judged(name, &self.history))
                    )
                }
            };
            self.promises.push(Promise { name, told, broken });
        }
        self.promises.push(self.every_shard_owned(plan, outcome));
        self.promises.push(Promise {
            name: "nobody_stays_detached",
            told: match outcome.converged_after {
                Some(after) => format!("all nodes were attached {} after the last fault", people(after)),
                None => "some nodes did not attach again".to_owned(),
            },
            broken: outcome.astray.iter().chain(&outcome.unasked).cloned().collect(),
        });
        if let Some(scenario) = plan.scenario {
            self.judge_scenario(scenario, plan, outcome);
        }
        if !self.history.problems.is_empty() {
            self.promises.push(Promise {
                name: "history_is_whole",
                told: "some lines of the recorded history are inconsistent".to_owned(),
                broken: self.history.problems.iter().map(ToString::to_string).collect(),
            });
        }
    }

    fn every_shard_owned(&self, plan: &Plan, outcome: &Outcome) -> Promise {
        let bound = super::bound(&plan.explained);
        let shards = (0..plan.template.shards).map(|slot| format!("{GROUP}/{slot}"));
        let judged = judge::every_shard_owned(&self.history, shards, outcome.healed_at.as_nanos(), bound);
        let (told, broken) = match judged {
            Ok(after) => (
                format!("all ran {} after the last fault (bound {})", people(after), people(bound)),
                Vec::new(),
            ),
            Err(broken) => (
                format!("{} shards did not run in time (bound {})", broken.len(), people(bound)),
                broken.into_iter().map(|violation| violation.message).collect(),
            ),
        };
        Promise { name: EVERY_SHARD_OWNED, told, broken }
    }

    /// What else the exact stories must show.
    fn judge_scenario(&mut self, scenario: Scenario, plan: &Plan, outcome: &Outcome) {
        let Some(stall) = self.faults.first().cloned() else { return };
        let lost = |run: &&Run| run.to_ns.is_some_and(|to| to >= stall.from_ns && to <= stall.to_ns);
        let ended: Vec<&Run> = self.history.runs.iter().filter(lost).collect();
        match scenario {
            Scenario::Blip => {
                let broken = ended.iter().map(|run| format!("shard {} stopped: {run}", run.shard)).collect();
                let told = format!("{} shards stopped during the blip", ended.len());
                self.promises.push(Promise { name: "nothing_lost", told, broken });
            }
            Scenario::CutOff => {
                let bound = plan.explained.failover_worst;
                let taken = self.taken_over(&stall, bound);
                self.promises.push(taken);
                let bound = super::share_bound(plan);
                let (told, broken) = match outcome.share_back_after {
                    Some(after) if after <= bound => (
                        format!("{} had its fair share again {} after the cut", stall.node, people(after)),
                        Vec::new(),
                    ),
                    _ => {
                        let told =
                            format!("{} did not get its fair share within {}", stall.node, people(bound));
                        (told.clone(), vec![told])
                    }
                };
                self.promises.push(Promise { name: "balance_within_bound", told, broken });
            }
            Scenario::Outage => self.promises.extend(self.outage.as_ref().map(outage::Summary::promise)),
        }
    }

    /// Whether the others ran everything in time after one of them was cut off.
    fn taken_over(&self, stall: &Suffered, bound: Duration) -> Promise {
        let held = self.history.runs.iter().filter(|run| run.node == stall.node && run.ran_at(stall.from_ns));
        let mut slowest = Duration::ZERO;
        let mut broken = Vec::new();
        let mut count = 0;
        for run in held {
            count += 1;
            let others =
                self.history.runs.iter().filter(|other| other.shard == run.shard && other.node != run.node);
            let next = others.map(|other| other.from_ns).filter(|from| *from >= stall.from_ns).min();
            match next.map(|from| Duration::from_nanos(from - stall.from_ns)) {
                Some(after) if after <= bound => slowest = slowest.max(after),
                Some(after) => {
                    broken.push(format!("shard {} was taken over after {}", run.shard, people(after)))
                }
                None => broken.push(format!("shard {} was never taken over", run.shard)),
            }
        }
        let told = format!(
            "the others ran all {count} shards of {} {} after the cut (bound {})",
            stall.node,
            people(slowest),
            people(bound)
        );
        Promise { name: "taken_over_in_time", told, broken }
    }

    pub(super) fn is_good(&self) -> bool {
        self.promises.iter().all(|promise| promise.broken.is_empty())
    }

    pub(super) fn verdict(&self) -> Result<(), Failure> {
        let broken: Vec<&str> = self
            .promises
            .iter()
            .filter(|promise| !promise.broken.is_empty())
            .map(|promise| promise.name)
            .collect();
        match broken.is_empty() {
            true => Ok(()),
            false => Err(Failure::new(Code::Unhealthy, format!("broken: {}", broken.join(", ")))),
        }
    }

    pub(super) fn as_json(&self) -> Value {
        let setting: serde_json::Map<String, Value> =
            self.setting.iter().map(|(name, value)| ((*name).to_owned(), value.clone().into())).collect();
        let promises: Vec<Value> = self
            .promises
            .iter()
            .map(|promise| {
                json!({"name": promise.name, "kept": promise.broken.is_empty(), "told": promise.told, "broken": promise.broken})
            })
            .collect();
        let spans: BTreeMap<&str, &Spans> =
            self.spans.iter().map(|measure| (measure.key, &measure.spans)).collect();
        json!({
            "verdict": if self.is_good() { "pass" } else { "fail" },
            "setting": setting, "promises": promises, "starts": self.starts, "shards": self.shards,
            "faults": self.faults.len(), "spans": spans,
            "outage": self.outage.as_ref().map(outage::Summary::as_json),
            "store_calls_per_second": {"broken": round(self.load.calls_broken), "rest": round(self.load.calls_rest)},
            "store_writes_per_second": {"rest": round(self.load.writes_rest), "renewals": round(self.load.renewals)},
        })
    }
}

fn round(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

fn setting(plan: &Plan, store: &str) -> Vec<(&'static str, String)> {
    let faults: Vec<&str> = plan.faults.iter().map(|fault| fault.as_str()).collect();
    let mut setting = vec![
        ("store", store.to_owned()),
        ("nodes", plan.nodes.to_string()),
        ("shards", plan.template.shards.to_string()),
        ("ttl", span::show(plan.template.ttl)),
        ("for", span::show(plan.run_for)),
        ("faults", faults.join(", ")),
    ];
    match plan.scenario {
        Some(scenario) => setting.push(("scenario", scenario.as_str().to_owned())),
        None => setting.push(("seed", plan.seed.to_string())),
    }
    setting
}

fn measures(history: &History, lines: &Lines, outcome: &Outcome) -> Vec<Measure> {
    let gaps = Gaps::of(history, |_, _| true);
    let measure = |key, title, spans| Measure { key, title, spans };
    vec![
        measure("failover_kill", "failover after kill -9: from the kill to the next start", gaps.killed),
        measure(
            "failover_cut",
            "failover after a cut, stall or stop: from the fault to the next start",
            lines.takeovers(history),
        ),
        measure("unattended_detached", "without a worker after a session was lost", gaps.detached),
        measure("planned_move", "planned move: from stop to start", gaps.moved),
        measure("stop_late", "delay from stop deadline to stop signal", lines.lateness(history)),
        measure("detached", "time detached", Spans::of(lines.detached.iter().copied())),
        measure("heal", "all shards owned after the last fault", Spans::of(outcome.converged_after)),
        measure(
            "cold_start",
            "all shards owned after the first start",
            Spans::of([outcome.owned_first_after]),
        ),
    ]
}

/// What is said of runs whose end could not be held against a deadline.
pub(super) fn partly_judged(count: usize) -> String {
    match count {
        0 => String::new(),
        _ => format!("; not judged because their end has no deadline: {count}"),
    }
}

/// A duration for people: `1.2 ms`, `34 ms`, `1.30 s`.
pub(super) fn people(span: Duration) -> String {
    match span.as_micros() {
        us @ 0..10_000 => format!("{}.{} ms", us / 1000, us % 1000 / 100),
        us @ 10_000..1_000_000 => format!("{} ms", us / 1000),
        us => format!("{:.2} s", us as f64 / 1e6),
    }
}
