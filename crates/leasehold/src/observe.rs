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
//! | `leasehold_attached` | gauge | `node` | 1 while the node has a valid session |
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
mod table;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_core::notice::{Differing, Gone, OperatorCommand, SessionState};
use leasehold_core::store::{Lane, Op, WatchEvent};
use leasehold_core::{GroupName, Moment, NodeName, Notice, View};
use metrics::{Label, counter, histogram};

pub(crate) use client::ClientMeters;
use gauges::Gauges;
pub(crate) use table::Described;

/// Of failures in a row, the first and then every so many are logged as a warning, the others at debug level.
const REMIND_AFTER: u32 = 32;

/// Counters without further labels are there from the start, so that a first increment is seen as one.
const FROM_THE_START: [&str; 5] = [
    "leasehold_acquire_retries_total",
    "leasehold_acquire_exhausted_total",
    "leasehold_fenced_total",
    "leasehold_corrupt_records_total",
    "leasehold_watch_interruptions_total",
];

/// The metrics of one node. Each is looked up when it changes, so that a recorder may be installed at any time.
pub(crate) struct Meters {
    node: String,
    described: Described,
    gauges: Mutex<Gauges>,
    /// How many times the store has failed since the last success.
    failures: AtomicU32,
}

impl Meters {
    pub(crate) fn new(node: &NodeName) -> Self {
        Meters {
            node: node.to_string(),
            described: Described::default(),
            gauges: Mutex::default(),
            failures: AtomicU32::new(0),
        }
    }

    pub(crate) fn store_call(&self, lane: Lane, op: &Op, ok: bool, took: Duration) {
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
        self.gauges().view(view, running, now);
        self.again(now);
    }

    /// When [`again`](Meters::again) is due.
    pub(crate) fn again_at(&self) -> Moment {
        self.gauges().again_at()
    }

    /// Sets all gauges again, and describes the metrics to a recorder that was installed meanwhile.
    pub(crate) fn again(&self, now: Moment) {
        if self.described.to_current() {
            for name in FROM_THE_START {
                counter!(name, "node" => self.node.clone()).increment(0);
            }
            for result in ["ok", "failed"] {
                counter!("leasehold_renewals_total", "node" => self.node.clone(), "result" => result)
                    .increment(0);
            }
        }
        self.gauges().set(&self.node, now);
    }

    /// The node's name.
    pub(crate) fn node(&self) -> &str {
        &self.node
    }

    /// The node is gone; work that still runs is counted until it ends.
    pub(crate) fn gone(&self) {
        let mut gauges = self.gauges();
        gauges.clear();
        gauges.set(&self.node, Moment::ZERO);
    }

    /// How many shards have work here that has not ended, after the node is gone.
    pub(crate) fn running(&self, running: &BTreeMap<GroupName, usize>) {
        let mut gauges = self.gauges();
        gauges.running(running);
        gauges.set(&self.node, Moment::ZERO);
    }

    fn gauges(&self) -> MutexGuard<'_, Gauges> {
        self.gauges.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Logs and counts a notice of the core.
    pub(crate) fn tell(&self, notice: &Notice) {
        self.log(notice);
        match notice {
            Notice::StateChanged { to, cause, .. } => {
                self.failures.store(0, Ordering::Relaxed);
                let cause = ("cause", cause.as_str());
                self.count_by("leasehold_session_state_changes_total", &[("to", to.as_str()), cause]);
                if *to == SessionState::Detached {
                    self.count_by("leasehold_detachments_total", &[cause]);
                }
            }
            Notice::Renewed { took } => {
                self.failures.store(0, Ordering::Relaxed);
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

    // Fixed messages with the facts in fields, so that logs can be searched. `Display` of a notice is a sentence instead.
    fn log(&self, notice: &Notice) {
        let node = self.node.as_str();
        match notice {
            Notice::StateChanged { from, to, cause, after } => match to {
                SessionState::Degraded | SessionState::Detached => {
                    tracing::warn!(node, %from, %to, %cause, ?after, "session state changed");
                }
                _ => tracing::info!(node, %from, %to, %cause, ?after, "session state changed"),
            },
            Notice::Waiting { why, for_up_to } => tracing::info!(node, why, ?for_up_to, "waiting"),
            Notice::NameTaken { session, .. } => {
                tracing::warn!(
                    node,
                    ?session,
                    "another live process uses this node name; give each process its own name"
                );
            }
            Notice::Incarnation { why, epoch_floor } => {
                tracing::warn!(node, why, %epoch_floor, "new incarnation of the namespace");
            }
            Notice::Renewed { took } => tracing::trace!(node, ?took, "renewed"),
            Notice::RenewalFailed { streak, error } => {
                tracing::debug!(node, streak, error, "renewal failed");
            }
            Notice::NodeJoined { node: other, session } => {
                tracing::info!(node, %other, ?session, "node joined");
            }
            Notice::NodeGone { node: other, session, how } => match how {
                Gone::Left => tracing::info!(node, %other, ?session, "node left"),
                Gone::Vanished => {
                    tracing::warn!(node, %other, ?session, "the record of a node is missing; its shards wait until its session must have ended");
                }
                how => tracing::warn!(node, %other, ?session, "node {how}"),
            },
            Notice::Fenced { node: other, session, silent_for } => {
                tracing::warn!(node, %other, ?session, ?silent_for, "fenced a silent session");
            }
            Notice::Started { shard, epoch, why, unowned_for } => {
                tracing::info!(node, %shard, %epoch, %why, unowned_for = unowned_for.map(tracing::field::debug), "shard started");
            }
            Notice::Stopping { shard, epoch, why } => {
                tracing::info!(node, %shard, %epoch, %why, "shard stopping");
            }
            Notice::WorkEnded { shard, epoch, error, again_after } => match error {
                Some(error) => tracing::warn!(node, %shard, %epoch, error, ?again_after, "work failed"),
                None => tracing::info!(node, %shard, %epoch, ?again_after, "work returned"),
            },
            Notice::Finished { shard, epoch, for_good } => {
                tracing::info!(node, %shard, %epoch, for_good, "work finished; it is not run again");
            }
            Notice::Released { shard, epoch, why, successor } => {
                tracing::info!(node, %shard, %epoch, %why, successor = successor.as_ref().map(tracing::field::display), "shard released");
            }
            _ => self.log_problem(notice),
        }
    }

    fn log_problem(&self, notice: &Notice) {
        let node = self.node.as_str();
        match notice {
            Notice::Stuck { shard, epoch } => {
                tracing::warn!(node, %shard, %epoch, "stuck: work did not stop within stop_timeout; this node keeps the shard");
            }
            Notice::Quarantined { shard, epoch, error, ends } => {
                tracing::warn!(node, %shard, %epoch, error, next = %ends, "quarantined: work keeps failing, so it is not run");
            }
            Notice::RetriesExhausted { shards } => {
                tracing::warn!(node, shards, "shards that are planned here did not become free in time");
            }
            Notice::NoRoom { group, shards } => {
                tracing::warn!(node, %group, shards, "no node can take these shards: each is full or declines them");
            }
            Notice::RoomAgain { group } => {
                tracing::info!(node, %group, "all shards of the group have a node again")
            }
            Notice::SettingsDiffer { group, settings } => {
                let differing = Differing::in_words(settings);
                let to_change = Differing::command(group, settings);
                tracing::info!(
                    node, %group, differing, to_change,
                    "the store has other settings for this group; the values in the store override local ones"
                );
            }
            Notice::OperatorCommand(command) => self.log_operator_command(command),
            Notice::OtherKind { group, ours, stored } => {
                let (here, in_the_store) = (ours.kind(), stored.kind());
                tracing::warn!(
                    node, %group, here, in_the_store,
                    "this node takes no shards of this group: it serves {here} shards, but the group in the store has \
                     {in_the_store} ones; serve {in_the_store} shards, use another group name, or, once no node holds its \
                     shards, run: leasehold group delete {group}"
                );
            }
            Notice::KindAgrees { group } => {
                tracing::info!(node, %group, "this node serves the group again: its kind of shards matches the store");
            }
            Notice::Frozen { vanished, of } => {
                tracing::warn!(node, vanished, of, "froze voluntary moves: many nodes vanished at once");
            }
            Notice::Warning(warning) => tracing::error!(node, kind = warning.kind().as_str(), "{warning}"),
            Notice::Unfrozen => tracing::info!(node, "resumed voluntary moves"),
            Notice::NoReceiver { shards } => {
                tracing::warn!(
                    node,
                    shards,
                    "draining, but no other node can take these shards; they keep running here"
                );
            }
            Notice::CorruptRecord { key, error } => {
                tracing::warn!(node, %key, error, "damaged record; it counts as held");
            }
            Notice::Retried { shards } => {
                tracing::debug!(node, shards, "polling for shards that are planned here")
            }
            Notice::StoreFailed { error } => {
                let before = self.failures.fetch_add(1, Ordering::Relaxed);
                match before.is_multiple_of(REMIND_AFTER) {
                    true => tracing::warn!(node, error, before, "store error; retrying"),
                    false => tracing::debug!(node, error, before, "store error again"),
                }
            }
            other => tracing::debug!(node, "{other}"),
        }
    }

    fn log_operator_command(&self, command: &OperatorCommand) {
        let node = self.node.as_str();
        match command {
            OperatorCommand::Drain { note } => tracing::warn!(
                node,
                note,
                "an operator drained this node: it hands over its shards and takes no new ones; to undo: leasehold undrain {node}"
            ),
            OperatorCommand::Undrain => {
                tracing::info!(node, "an operator undrained this node: it takes shards again")
            }
            OperatorCommand::Weight(weight) => {
                tracing::info!(node, weight, "an operator changed the weight of this node")
            }
            OperatorCommand::OwnWeight => {
                tracing::info!(node, "an operator removed the weight override of this node")
            }
            OperatorCommand::Freeze { note } => {
                tracing::warn!(node, note, "an operator froze voluntary moves; to undo: leasehold unfreeze");
            }
            OperatorCommand::Unfreeze => tracing::info!(node, "an operator unfroze voluntary moves"),
            OperatorCommand::Pin { shard, to } => {
                tracing::info!(node, %shard, %to, "an operator pinned a shard")
            }
            OperatorCommand::Unpin { shard } => tracing::info!(node, %shard, "an operator unpinned a shard"),
            other => tracing::info!(node, "{other}"),
        }
    }
}
