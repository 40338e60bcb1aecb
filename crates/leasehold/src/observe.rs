//! What people see of a node: one log line per change, and these counters and gauges through the `metrics` facade.
//!
//! All metrics carry the label `node`, except those of the registry, which carry `store` (its kind) and `ttl` (in
//! seconds). No metric carries a shard.
//!
//! | name | kind | labels | meaning |
//! | --- | --- | --- | --- |
//! | `leasehold_attached` | gauge | | 1 while the node has a session that it renews, or could renew until a moment ago |
//! | `leasehold_session_state_changes_total` | counter | `to`, `cause` | changes of the node's session state |
//! | `leasehold_renewals_total` | counter | `result` = `ok`, `failed` | renewals of the session |
//! | `leasehold_renewal_seconds` | histogram | | from sending a renewal to its confirmation |
//! | `leasehold_renewal_failure_streak` | gauge | | renewals that failed in a row |
//! | `leasehold_deadline_seconds` | gauge | | time until work is told to stop, unless a renewal is confirmed |
//! | `leasehold_shards_owned` | gauge | | shards that this node holds |
//! | `leasehold_shards_wanted` | gauge | | shards that the plan gives to this node |
//! | `leasehold_shards_unowned` | gauge | | shards that nobody holds, as this node sees it |
//! | `leasehold_shards_running` | gauge | | shards whose work runs here |
//! | `leasehold_starts_total` | counter | `reason` | shards that started here, by the reason for the move |
//! | `leasehold_releases_total` | counter | `reason` | shards that this node gave up, by the reason |
//! | `leasehold_handoff_gap_seconds` | histogram | | how long a shard was without an owner, as seen here, before it started here |
//! | `leasehold_work_failures_total` | counter | | handlers that failed or panicked |
//! | `leasehold_stuck_total` | counter | | shards whose work did not stop in time |
//! | `leasehold_quarantined_total` | counter | | shards that were quarantined because their work kept failing |
//! | `leasehold_acquire_retries_total` | counter | | reads of shards that should come here, in case the watch is silent |
//! | `leasehold_acquire_exhausted_total` | counter | | retry windows that ended without getting the shard |
//! | `leasehold_no_room_total` | counter | | times that shards of a group had no node with room |
//! | `leasehold_fenced_total` | counter | | sessions of other nodes that this node fenced |
//! | `leasehold_corrupt_records_total` | counter | | records that are damaged or not written by Leasehold |
//! | `leasehold_store_calls_total` | counter | `lane`, `op`, `result` | calls to the store |
//! | `leasehold_store_call_seconds` | histogram | `lane`, `op` | how long they took |
//! | `leasehold_registry_healthy` | gauge | | 1 while registered keys are kept alive and none was overwritten |
//! | `leasehold_registry_keys` | gauge | | keys that are registered |
//! | `leasehold_registry_renewals_total` | counter | `result` | renewals of the lease of registered keys |
//! | `leasehold_registry_restores_total` | counter | `result` | attempts to register all keys again after an outage |

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use leasehold_core::notice::{Differing, Gone, OperatorCommand, SessionState};
use leasehold_core::store::{Lane, Op};
use leasehold_core::{NodeName, Notice, View};
use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};

/// Of failures in a row, the first and then every so many are logged as a warning, the others at debug level.
const REMIND_AFTER: u32 = 32;

/// The metrics of one node. Those on hot paths are looked up once.
pub(crate) struct Meters {
    node: String,
    attached: Gauge,
    renewals_ok: Counter,
    renewals_failed: Counter,
    renewal_seconds: Histogram,
    streak: Gauge,
    deadline: Gauge,
    owned: Gauge,
    wanted: Gauge,
    unowned: Gauge,
    running: Gauge,
    gap: Histogram,
    /// How many times the store has failed since the last success.
    failures: AtomicU32,
}

impl Meters {
    pub(crate) fn new(node: &NodeName) -> Self {
        let node = node.to_string();
        let label = || node.clone();
        Meters {
            attached: gauge!("leasehold_attached", "node" => label()),
            renewals_ok: counter!("leasehold_renewals_total", "node" => label(), "result" => "ok"),
            renewals_failed: counter!("leasehold_renewals_total", "node" => label(), "result" => "failed"),
            renewal_seconds: histogram!("leasehold_renewal_seconds", "node" => label()),
            streak: gauge!("leasehold_renewal_failure_streak", "node" => label()),
            deadline: gauge!("leasehold_deadline_seconds", "node" => label()),
            owned: gauge!("leasehold_shards_owned", "node" => label()),
            wanted: gauge!("leasehold_shards_wanted", "node" => label()),
            unowned: gauge!("leasehold_shards_unowned", "node" => label()),
            running: gauge!("leasehold_shards_running", "node" => label()),
            gap: histogram!("leasehold_handoff_gap_seconds", "node" => label()),
            failures: AtomicU32::new(0),
            node,
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
        self.count3("leasehold_store_calls_total", [("lane", lane), ("op", op), ("result", result)]);
        histogram!("leasehold_store_call_seconds", "node" => self.node.clone(), "lane" => lane, "op" => op)
            .record(took);
    }

    pub(crate) fn view(&self, view: &View, running: usize) {
        self.running.set(running as f64);
        self.unowned.set(view.groups.iter().map(|group| group.unowned).sum::<usize>() as f64);
        if let Some(me) = &view.me {
            self.owned.set(me.held as f64);
            self.wanted.set(me.wanted as f64);
            self.streak.set(f64::from(me.renewals_failed));
            self.deadline.set(me.stop_in_ms.unwrap_or(0) as f64 / 1000.0);
        }
    }

    /// The node's name.
    pub(crate) fn node(&self) -> &str {
        &self.node
    }

    /// The node is gone; work that still runs is counted until it ends.
    pub(crate) fn gone(&self) {
        let gauges = [&self.attached, &self.streak, &self.deadline, &self.owned, &self.wanted, &self.unowned];
        gauges.into_iter().for_each(|gauge| gauge.set(0.0));
    }

    /// How many shards have work here that has not ended.
    pub(crate) fn running(&self, running: usize) {
        self.running.set(running as f64);
    }

    /// Logs and counts a notice of the core.
    pub(crate) fn tell(&self, notice: &Notice) {
        self.log(notice);
        match notice {
            Notice::StateChanged { to, cause, .. } => {
                self.failures.store(0, Ordering::Relaxed);
                let attached = matches!(to, SessionState::Attached | SessionState::Degraded);
                self.attached.set(if attached { 1.0 } else { 0.0 });
                let labels = [("to", to.as_str()), ("cause", cause.as_str())];
                self.count2("leasehold_session_state_changes_total", labels);
            }
            Notice::Renewed { took } => {
                self.failures.store(0, Ordering::Relaxed);
                self.renewals_ok.increment(1);
                self.renewal_seconds.record(*took);
                self.streak.set(0.0);
            }
            Notice::RenewalFailed { streak, .. } => {
                self.renewals_failed.increment(1);
                self.streak.set(f64::from(*streak));
            }
            Notice::Started { why, unowned_for, .. } => {
                self.count1("leasehold_starts_total", ("reason", why.as_str()));
                if let Some(gap) = unowned_for {
                    self.gap.record(*gap);
                }
            }
            Notice::Released { why, .. } => {
                self.count1("leasehold_releases_total", ("reason", why.as_str()));
            }
            Notice::WorkEnded { error: Some(_), .. } => self.count("leasehold_work_failures_total"),
            Notice::Stuck { .. } => self.count("leasehold_stuck_total"),
            Notice::Quarantined { .. } => {
                self.count("leasehold_work_failures_total");
                self.count("leasehold_quarantined_total");
            }
            Notice::Retried { .. } => self.count("leasehold_acquire_retries_total"),
            Notice::RetriesExhausted { .. } => self.count("leasehold_acquire_exhausted_total"),
            Notice::NoRoom { .. } => self.count("leasehold_no_room_total"),
            Notice::Fenced { .. } => self.count("leasehold_fenced_total"),
            Notice::CorruptRecord { .. } => self.count("leasehold_corrupt_records_total"),
            _ => {}
        }
    }

    fn count(&self, name: &'static str) {
        counter!(name, "node" => self.node.clone()).increment(1);
    }

    fn count1(&self, name: &'static str, (key, value): (&'static str, &'static str)) {
        counter!(name, "node" => self.node.clone(), key => value).increment(1);
    }

    fn count2(&self, name: &'static str, [a, b]: [(&'static str, &'static str); 2]) {
        counter!(name, "node" => self.node.clone(), a.0 => a.1, b.0 => b.1).increment(1);
    }

    fn count3(&self, name: &'static str, [a, b, c]: [(&'static str, &'static str); 3]) {
        counter!(name, "node" => self.node.clone(), a.0 => a.1, b.0 => b.1, c.0 => c.1).increment(1);
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
                Gone::Fenced => tracing::warn!(node, %other, ?session, "node was fenced"),
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
                tracing::warn!(node, %group, shards, "no node has room for these shards");
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
        }
    }
}
