//! The lines of a history that are not about runs: faults, session states, and calls to the store.

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold_chaos::history::{End, History, Run};
use leasehold_chaos::measure::{CUT_OFF, DETACHED, Spans};
use leasehold_core::Moment;
use serde_json::Value;

use super::fault::Fault;
use super::plan::Plan;
use super::trial::Outcome;

/// What was asked of the store, per second and by all nodes together.
#[derive(Debug, Default)]
pub(super) struct Load {
    pub(super) calls_broken: f64,
    pub(super) calls_rest: f64,
    pub(super) writes_rest: f64,
    /// What one write per node and renewal amounts to.
    pub(super) renewals: f64,
}

/// A fault as it happened.
#[derive(Clone, Debug)]
pub(super) struct Suffered {
    pub(super) fault: Fault,
    pub(super) node: String,
    pub(super) from_ns: u64,
    pub(super) to_ns: u64,
}

/// The lines of a history that are not about runs.
pub(super) struct Lines {
    pub(super) faults: Vec<Suffered>,
    /// How long processes were detached.
    pub(super) detached: Vec<Duration>,
    /// Of each process: when, calls and writes so far.
    store: BTreeMap<String, Vec<(u64, u64, u64)>>,
    /// When processes were paused.
    paused: BTreeMap<String, Vec<(u64, u64)>>,
    /// The session states of each node over time, as it reported them.
    standings: BTreeMap<String, Vec<(u64, String)>>,
}

impl Lines {
    pub(super) fn read(outcome: &Outcome) -> Lines {
        let mut values: Vec<Value> = outcome
            .files
            .iter()
            .flat_map(|(_, text)| text.lines())
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect();
        values.sort_by_key(|line| line["at_ns"].as_u64());
        let mut lines = Lines {
            faults: Vec::new(),
            detached: Vec::new(),
            store: BTreeMap::new(),
            paused: BTreeMap::new(),
            standings: BTreeMap::new(),
        };
        let mut since: BTreeMap<String, u64> = BTreeMap::new();
        for line in &values {
            lines.take(line, &mut since);
        }
        let end = outcome.healed_at.as_nanos();
        lines.faults.iter_mut().filter(|fault| fault.to_ns == 0).for_each(|fault| fault.to_ns = end);
        lines
    }

    fn take(&mut self, line: &Value, since: &mut BTreeMap<String, u64>) {
        let text = |name: &str| line[name].as_str().unwrap_or_default().to_owned();
        let at = line["at_ns"].as_u64().unwrap_or(0);
        let session = text("session");
        match line["event"].as_str() {
            Some("fault") => self.take_fault(&text("fault"), text("on"), &text("phase"), at),
            Some("session_state") => {
                match line["to"].as_str() {
                    Some("detached") => drop(since.insert(session, at)),
                    Some("attached") => {
                        let from = since.remove(&session);
                        self.detached.extend(from.map(|from| Duration::from_nanos(at - from)));
                    }
                    _ => {}
                }
                self.standings.entry(text("node")).or_default().push((at, text("to")));
            }
            Some("store") => {
                let number = |name: &str| line[name].as_u64().unwrap_or(0);
                let writes = number("node_swaps") + number("shard_swaps") + number("other_swaps");
                self.store.entry(session).or_default().push((at, number("calls"), writes));
            }
            Some("paused") => self.paused.entry(session).or_default().push((at, u64::MAX)),
            Some("resumed") => {
                if let Some(last) = self.paused.get_mut(&session).and_then(|pauses| pauses.last_mut()) {
                    last.1 = at;
                }
            }
            _ => {}
        }
    }

    fn take_fault(&mut self, word: &str, node: String, phase: &str, at: u64) {
        let Some(fault) = Fault::ALL.into_iter().find(|fault| fault.as_str() == word) else { return };
        match phase {
            "begins" => self.faults.push(Suffered { fault, node, from_ns: at, to_ns: 0 }),
            _ => {
                let mut open = self.faults.iter_mut().rev();
                if let Some(open) =
                    open.find(|known| known.to_ns == 0 && known.node == node && known.fault == fault)
                {
                    open.to_ns = at;
                }
            }
        }
    }

    pub(super) fn nodes(&self) -> Vec<String> {
        let mut nodes: Vec<String> =
            self.store.keys().filter_map(|session| Some(session.rsplit_once('-')?.0.to_owned())).collect();
        nodes.sort();
        nodes.dedup();
        nodes
    }

    /// When a node was attached again after an outage. One that never lost its session was so all along.
    pub(super) fn back_at(&self, node: &str, from_ns: u64, to_ns: u64) -> Option<u64> {
        let standings = self.standings.get(node)?.iter();
        let mut since = standings.filter(|(at, _)| *at > from_ns);
        match since.any(|(_, to)| to == "detached") {
            true => since.find(|(_, to)| to == "attached").map(|(at, _)| *at),
            false => Some(to_ns),
        }
    }

    /// From the fault that took a node's session to the next start of what it had.
    pub(super) fn takeovers(&self, history: &History) -> Spans {
        let pairs = history.by_shard();
        let spans = pairs.values().flat_map(|runs| runs.windows(2)).filter_map(|pair| {
            if !lost_its_session(pair[0]) || pair[0].node == pair[1].node {
                return None;
            }
            let mut faults = self.faults.iter().rev();
            let cause = faults.find(|fault| {
                let here = fault.node == pair[0].node || fault.fault == Fault::Lock;
                here && fault.fault.takes_the_session() && fault.from_ns <= pair[1].from_ns
            })?;
            Some(Duration::from_nanos(pair[1].from_ns - cause.from_ns))
        });
        Spans::of(spans)
    }

    /// How long after its deadline lost work ended, unless its process was paused.
    pub(super) fn lateness(&self, history: &History) -> Spans {
        let spans = history.runs.iter().filter(|run| lost_its_session(run)).filter_map(|run| {
            let (stop_at, ended) = (run.end_stop_at_ns?, run.ended_ns?);
            let stood_still = self.paused.get(&run.session).is_some_and(|pauses| {
                pauses.iter().any(|(from, to)| *from <= ended && *to >= run.to_ns.unwrap_or(0))
            });
            (!stood_still && ended >= stop_at).then(|| Duration::from_nanos(ended - stop_at))
        });
        Spans::of(spans)
    }

    pub(super) fn load(&self, plan: &Plan, outcome: &Outcome) -> Load {
        let broken = self.rates(outcome.broken_from, outcome.healed_at);
        let rest = self.rates(outcome.rest.0, outcome.rest.1);
        let renewals = plan.nodes as f64 / plan.explained.renew_every.as_secs_f64();
        Load { calls_broken: broken.0, calls_rest: rest.0, writes_rest: rest.1, renewals }
    }

    /// Calls and writes per second between two moments, of all processes together.
    fn rates(&self, from: Moment, to: Moment) -> (f64, f64) {
        let (from, to) = (from.as_nanos(), to.as_nanos());
        let (mut calls, mut writes) = (0.0, 0.0);
        for counts in self.store.values() {
            let within: Vec<_> = counts.iter().filter(|(at, ..)| (from..=to).contains(at)).collect();
            if let (Some(first), Some(last)) = (within.first(), within.last())
                && last.0 > first.0
            {
                let seconds = (last.0 - first.0) as f64 / 1e9;
                let share = (last.0 - first.0) as f64 / (to - from) as f64;
                // A process that lived for a part of the time counts for that part.
                let weight = if share > 0.5 { 1.0 } else { share };
                calls += (last.1 - first.1) as f64 / seconds * weight;
                writes += (last.2 - first.2) as f64 / seconds * weight;
            }
        }
        (calls, writes)
    }
}

fn lost_its_session(run: &Run) -> bool {
    matches!(&run.end, End::Stopped(Some(why)) if why == DETACHED || why == CUT_OFF)
}
