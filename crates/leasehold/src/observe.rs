//! What people see of a node, a client and a registry: one log line per change, and these metrics through the `metrics`
//! facade.
//!
//! Install a recorder (such as `metrics-exporter-prometheus`) at any time: each metric is described to it with its unit
//! and its meaning, and gauges are set again every second. Without a recorder nothing is counted, so what happened before
//! is missing from the counters.
//!
//! The metrics of a node carry its name as `node`, those of a [`Client`](crate::Client) the name in its options as
//! `client`, those of the registry the kind of store as `store` and the ttl in seconds as `ttl`. No metric carries a shard.
//! To get a total over groups, add them up. What a node only sees (`leasehold_shards_unowned`, `leasehold_nodes`,
//! `leasehold_problems`) every node reports: take the maximum over the nodes.
//!
//! | name | kind | labels | meaning |
//! | --- | --- | --- | --- |
//! | `leasehold_info` | gauge | `node`, `version` | 1; `version` is that of Leasehold |
//! | `leasehold_attached` | gauge | `node` | 1 while the node has a valid session |
//! | `leasehold_session_state` | gauge | `node`, `state` | 1 for the state of the node's session, 0 for all others; `state` is a `SessionState` |
//! | `leasehold_draining` | gauge | `node` | 1 while the node hands everything over |
//! | `leasehold_frozen` | gauge | `node` | 1 while voluntary moves are frozen, as this node sees it |
//! | `leasehold_nodes` | gauge | `node` | live nodes, as this node sees it |
//! | `leasehold_problems` | gauge | `node`, `kind` | problems that need an operator, as this node sees it; `kind` is a `ProblemKind` |
//! | `leasehold_session_state_changes_total` | counter | `node`, `to`, `cause` | changes of the node's session state |
//! | `leasehold_detachments_total` | counter | `node`, `cause` | sessions that this node lost |
//! | `leasehold_renewals_total` | counter | `node`, `result` | renewals of the session; `result` is `ok` or `failed` |
//! | `leasehold_renewal_seconds` | histogram | `node` | from sending a renewal to its confirmation |
//! | `leasehold_renewal_failure_streak` | gauge | `node` | renewals that failed in a row |
//! | `leasehold_deadline_seconds` | gauge | `node` | time until work is told to stop, unless a renewal is confirmed; 0 without a session |
//! | `leasehold_ttl_seconds` | gauge | `node` | how long the node's session lives after its last renewal |
//! | `leasehold_weight` | gauge | `node` | the node's weight in the plan; 0 without a session |
//! | `leasehold_capacity` | gauge | `node` | the most shards that the node takes; +Inf without a limit or a session |
//! | `leasehold_name_conflicts_total` | counter | `node` | times that another live process used the node's name |
//! | `leasehold_shards` | gauge | `node`, `group` | shards of the group, as this node sees it |
//! | `leasehold_shards_owned` | gauge | `node`, `group` | shards that this node holds, whether their work runs or not |
//! | `leasehold_shards_wanted` | gauge | `node`, `group` | shards that the plan gives to this node |
//! | `leasehold_shards_running` | gauge | `node`, `group` | shards whose work runs here |
//! | `leasehold_shards_unowned` | gauge | `node`, `group` | shards that nobody holds, as this node sees it |
//! | `leasehold_shards_quarantined` | gauge | `node`, `group` | shards that this node holds and does not run, because their work kept failing |
//! | `leasehold_shards_stuck` | gauge | `node`, `group` | shards whose work was told to stop here and did not stop in time |
//! | `leasehold_starts_total` | counter | `node`, `group`, `reason` | shards that started here, by the reason for the move |
//! | `leasehold_releases_total` | counter | `node`, `group`, `reason` | shards that this node gave up, by the reason |
//! | `leasehold_handoff_gap_seconds` | histogram | `node`, `group` | how long a shard was without an owner, as seen here, before it started here |
//! | `leasehold_work_failures_total` | counter | `node`, `group` | handlers that failed or panicked |
//! | `leasehold_stuck_total` | counter | `node`, `group` | times that the work of a shard did not stop in time |
//! | `leasehold_quarantined_total` | counter | `node`, `group` | times that a shard was quarantined because its work kept failing |
//! | `leasehold_no_room_total` | counter | `node`, `group` | times that no node could take shards of the group: each was full or declined them |
//! | `leasehold_acquire_retries_total` | counter | `node` | times that the node read a shard that it wants again, in case the watch missed a change |
//! | `leasehold_acquire_exhausted_total` | counter | `node` | retry windows that ended without getting the shard |
//! | `leasehold_fenced_total` | counter | `node` | sessions of other nodes that this node fenced |
//! | `leasehold_corrupt_records_total` | counter | `node` | records that are damaged or not written by Leasehold |
//! | `leasehold_plan_seconds` | histogram | `node` | the time for a step that made a new plan |
//! | `leasehold_store_calls_total` | counter | `node`, `lane`, `op`, `result` | calls to the store; `result` is `ok` or `failed` |
//! | `leasehold_store_call_seconds` | histogram | `node`, `lane`, `op` | how long calls to the store took |
//! | `leasehold_store_silent_seconds` | gauge | `node` | time since the store last answered, or since the start if it never did |
//! | `leasehold_watch_interruptions_total` | counter | `node` | times that the watch of the store broke off; it is opened again |
//! | `leasehold_client_fresh` | gauge | `client` | 1 while the view of the client is fresh, see `Client::is_fresh` |
//! | `leasehold_client_heard_seconds` | gauge | `client` | time since the store last answered the client or reported anything |
//! | `leasehold_client_listings_total` | counter | `client`, `result` | listings of the client; `result` is `ok` or `failed` |
//! | `leasehold_client_watch_interruptions_total` | counter | `client` | times that the watch of the client broke off; it is opened again |
//! | `leasehold_registry_healthy` | gauge | `store`, `ttl` | 1 while registered keys are kept alive and none was overwritten |
//! | `leasehold_registry_keys` | gauge | `store`, `ttl` | keys that are registered |
//! | `leasehold_registry_renewals_total` | counter | `store`, `ttl`, `result` | renewals of the lease of registered keys; `result` is `ok` or `failed` |
//! | `leasehold_registry_restores_total` | counter | `store`, `ttl`, `result` | attempts to register all keys again after an outage; `result` is `ok` or `failed` |

mod client;
mod gauges;
mod log;
mod table;
#[cfg(test)]
mod tests;
mod waves;

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_core::notice::SessionState;
use leasehold_core::store::{Lane, Op, WatchEvent};
use leasehold_core::{GroupName, Moment, NodeName, Notice, View};
use metrics::{Label, counter, histogram};

pub(crate) use client::ClientMeters;
use gauges::Gauges;
use log::Log;
pub(crate) use table::Described;

use crate::vitals::Vitals;

/// Counters without further labels are there from the start, so that a first increment is seen as one.
const FROM_THE_START: [&str; 6] = [
    "leasehold_name_conflicts_total",
    "leasehold_acquire_retries_total",
    "leasehold_acquire_exhausted_total",
    "leasehold_fenced_total",
    "leasehold_corrupt_records_total",
    "leasehold_watch_interruptions_total",
];

/// The causes of detachments, each counted from the start as well.
const DETACHMENT_CAUSES: [&str; 6] =
    ["deadline_reached", "fenced", "record_gone", "store_changed", "clock_stood_still", "impossible"];

/// The metrics of one node. Each is looked up when it changes, so that a recorder may be installed at any time.
pub(crate) struct Meters {
    node: String,
    described: Described,
    vitals: Vitals,
    gauges: Mutex<Gauges>,
    log: Log,
}

impl Meters {
    pub(crate) fn new(node: &NodeName, ttl: Duration, vitals: Vitals) -> Self {
        Meters {
            node: node.to_string(),
            described: Described::default(),
            vitals,
            gauges: Mutex::new(Gauges::new(ttl)),
            log: Log::new(node),
        }
    }

    pub(crate) fn store_call(&self, lane: Lane, op: &Op, ok: bool, took: Duration) {
        if ok {
            self.vitals.store_answered();
        }
        let lane = match lane {
            Lane::Renewal => "renewal",
            Lane::Work => "work",
        };
        let op = match op {
            Op::Read(_) => "read",
            Op::List => "list",
            Op::ListNodes => "list_nodes",
            Op::Swap(_) => "swap",
        };
        let result = if ok { "ok" } else { "failed" };
        self.count_by("leasehold_store_calls_total", &[("lane", lane), ("op", op), ("result", result)]);
        histogram!("leasehold_store_call_seconds", "node" => self.node.clone(), "lane" => lane, "op" => op)
            .record(took);
    }

    /// An event of the store's watch.
    pub(crate) fn watched(&self, event: &WatchEvent) {
        if let WatchEvent::Interrupted(_) = event {
            self.count("leasehold_watch_interruptions_total");
        }
    }

    /// A step of the core made a new plan.
    pub(crate) fn planned(&self, took: Duration) {
        histogram!("leasehold_plan_seconds", "node" => self.node.clone()).record(took);
    }

    /// The node's view, made just now, and where work runs.
    pub(crate) fn view(&self, view: &View, running: &BTreeMap<GroupName, usize>, now: Moment) {
        self.vitals.viewed();
        self.gauges().view(view, running, now);
        self.again(now);
    }

    /// When [`again`](Meters::again) is due.
    pub(crate) fn again_at(&self) -> Moment {
        self.gauges().again_at().min(self.log.due_at())
    }

    /// Logs the waves that are over, sets all gauges again, and describes the metrics to a recorder that was installed meanwhile.
    pub(crate) fn again(&self, now: Moment) {
        self.log.sum_up(now);
        if self.described.to_current() {
            for name in FROM_THE_START {
                counter!(name, "node" => self.node.clone()).increment(0);
            }
            for cause in DETACHMENT_CAUSES {
                counter!("leasehold_detachments_total", "node" => self.node.clone(), "cause" => cause)
                    .increment(0);
            }
            for result in ["ok", "failed"] {
                counter!("leasehold_renewals_total", "node" => self.node.clone(), "result" => result)
                    .increment(0);
            }
        }
        self.gauges().set(&self.node, self.silent_for(), now);
    }

    /// The node's signs of life.
    pub(crate) fn vitals(&self) -> &Vitals {
        &self.vitals
    }

    fn silent_for(&self) -> Duration {
        self.vitals.store_silent_for().unwrap_or_else(|| self.vitals.age())
    }

    /// The node's name.
    pub(crate) fn node(&self) -> &str {
        &self.node
    }

    /// The node is gone; work that still runs is counted until it ends.
    pub(crate) fn gone(&self) {
        self.log.sum_up_all();
        let mut gauges = self.gauges();
        gauges.clear();
        gauges.set(&self.node, Duration::ZERO, Moment::ZERO);
    }

    /// How many shards have work here that has not ended, after the node is gone.
    pub(crate) fn running(&self, running: &BTreeMap<GroupName, usize>) {
        let mut gauges = self.gauges();
        gauges.running(running);
        gauges.set(&self.node, Duration::ZERO, Moment::ZERO);
    }

    fn gauges(&self) -> MutexGuard<'_, Gauges> {
        self.gauges.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Logs and counts a notice of the core.
    pub(crate) fn tell(&self, notice: &Notice, now: Moment) {
        self.log.tell(notice, now);
        match notice {
            Notice::StateChanged { from, to, cause, .. } => {
                if *from == SessionState::Joining || *to == SessionState::Detached {
                    self.vitals.plan_is_old();
                }
                let cause = ("cause", cause.as_str());
                self.count_by("leasehold_session_state_changes_total", &[("to", to.as_str()), cause]);
                if *to == SessionState::Detached {
                    self.count_by("leasehold_detachments_total", &[cause]);
                }
            }
            Notice::NameTaken { .. } => self.count("leasehold_name_conflicts_total"),
            Notice::Renewed { took } => {
                self.count_by("leasehold_renewals_total", &[("result", "ok")]);
                histogram!("leasehold_renewal_seconds", "node" => self.node.clone()).record(*took);
            }
            Notice::RenewalFailed { .. } => {
                self.count_by("leasehold_renewals_total", &[("result", "failed")]);
            }
            Notice::Started { shard, why, unowned_for, .. } => {
                self.count_move("leasehold_starts_total", &shard.group, why.as_str());
                if let Some(gap) = unowned_for {
                    let group = shard.group.to_string();
                    histogram!("leasehold_handoff_gap_seconds", "node" => self.node.clone(), "group" => group)
                        .record(*gap);
                }
            }
            Notice::Released { shard, why, .. } => {
                self.count_move("leasehold_releases_total", &shard.group, why.as_str());
            }
            Notice::WorkEnded { shard, error: Some(_), .. } => {
                self.count_in("leasehold_work_failures_total", &shard.group);
            }
            Notice::Stuck { shard, .. } => self.count_in("leasehold_stuck_total", &shard.group),
            Notice::Quarantined { shard, .. } => {
                self.count_in("leasehold_work_failures_total", &shard.group);
                self.count_in("leasehold_quarantined_total", &shard.group);
            }
            Notice::NoRoom { group, .. } => self.count_in("leasehold_no_room_total", group),
            Notice::Retried { .. } => self.count("leasehold_acquire_retries_total"),
            Notice::RetriesExhausted { .. } => self.count("leasehold_acquire_exhausted_total"),
            Notice::Fenced { .. } => self.count("leasehold_fenced_total"),
            Notice::CorruptRecord { .. } => self.count("leasehold_corrupt_records_total"),
            _ => {}
        }
    }

    fn count(&self, name: &'static str) {
        counter!(name, "node" => self.node.clone()).increment(1);
    }

    fn count_in(&self, name: &'static str, group: &GroupName) {
        counter!(name, "node" => self.node.clone(), "group" => group.to_string()).increment(1);
    }

    fn count_move(&self, name: &'static str, group: &GroupName, why: &'static str) {
        counter!(name, "node" => self.node.clone(), "group" => group.to_string(), "reason" => why)
            .increment(1);
    }

    fn count_by(&self, name: &'static str, labels: &[(&'static str, &'static str)]) {
        let mut all = vec![Label::new("node", self.node.clone())];
        all.extend(labels.iter().map(|(key, value)| Label::from_static_parts(key, value)));
        counter!(name, all).increment(1);
    }
}
