//! The log: one line for each change. What happens to many shards or nodes at nearly the same time is one line of level
//! `INFO` for all of them, and one of level `DEBUG` for each.
//!
//! The message is a sentence for people. The facts are in fields with fixed names, which programs search by: durations are
//! whole milliseconds (`took_ms`), reasons and causes are the words of the metrics.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_core::event::StopReason;
use leasehold_core::notice::{Cause, Differing, Gone, OperatorCommand, QuarantineEnds, SessionState};
use leasehold_core::{Moment, NodeName, Notice, SessionId};

use super::waves::{Kind, Wave, Waves, in_words, millis};

/// Of failures in a row, the first and then every so many are logged as a warning, the others at debug level.
const REMIND_AFTER: u32 = 32;

/// Logs what the core tells.
pub(super) struct Log {
    node: String,
    /// How many times the store has failed since a renewal succeeded.
    failures: AtomicU32,
    waves: Mutex<Waves>,
}

impl Log {
    pub(super) fn new(node: &NodeName) -> Self {
        Log { node: node.to_string(), failures: AtomicU32::new(0), waves: Mutex::default() }
    }

    /// When [`sum_up`](Log::sum_up) is due.
    pub(super) fn due_at(&self) -> Moment {
        self.waves().due_at()
    }

    /// Logs the waves that are over.
    pub(super) fn sum_up(&self, now: Moment) {
        let over = self.waves().over(now);
        over.iter().for_each(|wave| self.log_wave(wave));
    }

    /// Logs all waves: nothing more will be told.
    pub(super) fn sum_up_all(&self) {
        self.sum_up_these(|_| true);
    }

    fn sum_up_these(&self, wanted: impl Fn(&Wave) -> bool) {
        let taken = self.waves().take(wanted);
        taken.iter().for_each(|wave| self.log_wave(wave));
    }

    fn waves(&self) -> MutexGuard<'_, Waves> {
        self.waves.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn log_wave(&self, wave: &Wave) {
        let (node, shards) = (self.node.as_str(), wave.count);
        let (group, shard, took_ms) = (wave.group(), wave.shard(), wave.took_ms());
        match wave.kind {
            Kind::Started(why) => {
                let (why, unowned_ms) = (why.as_str(), wave.unowned_ms());
                tracing::info!(node, group, shard, shards, why, took_ms, unowned_ms, "{wave}");
            }
            Kind::Released(why) => {
                tracing::info!(node, group, shard, shards, why = why.as_str(), took_ms, "{wave}");
            }
            // A detachment is a warning itself.
            Kind::Stopped(StopReason::Detached) => {
                tracing::info!(node, group, shard, shards, why = "detached", took_ms, "{wave}");
            }
            Kind::Stopped(why) => tracing::warn!(node, group, shard, shards, %why, took_ms, "{wave}"),
            Kind::Joined => tracing::info!(node, nodes = wave.count, "{wave}"),
            Kind::Ended => tracing::warn!(node, nodes = wave.count, "{wave}"),
        }
    }

    /// Logs a notice, now or as a part of a wave.
    pub(super) fn tell(&self, notice: &Notice, now: Moment) {
        let node = self.node.as_str();
        match notice {
            Notice::StateChanged { from, to, cause, after } => self.log_state(*from, *to, cause, *after),
            Notice::Waiting { why, for_up_to } => {
                let for_up_to_ms = millis(*for_up_to);
                tracing::info!(node, for_up_to_ms, "{why} (for up to {})", in_words(*for_up_to));
            }
            Notice::NameTaken { session, .. } => {
                tracing::warn!(
                    node,
                    ?session,
                    "another live process uses this node name; give each process its own name"
                );
            }
            Notice::Incarnation { why, epoch_floor } if why == Notice::NAMESPACE_IS_EMPTY => {
                tracing::info!(node, epoch_floor = epoch_floor.0, "new namespace");
            }
            Notice::Incarnation { why, epoch_floor } => {
                tracing::warn!(node, epoch_floor = epoch_floor.0, "new incarnation of the namespace: {why}");
            }
            Notice::Renewed { took } => {
                self.failures.store(0, Ordering::Relaxed);
                tracing::trace!(node, took_ms = millis(*took), "renewed");
            }
            Notice::RenewalFailed { streak, error } => {
                tracing::debug!(node, streak, error, "renewal failed");
            }
            Notice::NodeJoined { node: other, session } => {
                tracing::debug!(node, %other, ?session, "node joined");
                self.waves().joined(other, now);
            }
            Notice::NodeGone { node: other, session, how } => self.log_gone(other, *session, *how, now),
            Notice::Fenced { node: other, session, silent_for } => {
                self.waves().died(other, now);
                self.waves().fenced_here(other, *session);
                tracing::warn!(
                    node, %other, ?session, silent_ms = millis(*silent_for),
                    "fenced node {other}, silent for {}: its session is over", in_words(*silent_for)
                );
            }
            Notice::Started { shard, epoch, why, unowned_for } => {
                let unowned_ms = unowned_for.map(millis);
                tracing::debug!(node, %shard, epoch = epoch.0, why = why.as_str(), unowned_ms, "shard started");
                self.waves().started(shard, *why, *unowned_for, now);
            }
            Notice::Stopping { shard, epoch, why } => {
                tracing::debug!(node, %shard, epoch = epoch.0, %why, "shard stopping");
                // Of the others, the release is told.
                if matches!(why, StopReason::Detached | StopReason::NotOurs) {
                    self.waves().stopped(shard, *why, now);
                }
            }
            Notice::Released { shard, epoch, why, successor } => {
                let to = successor.as_ref().map(NodeName::as_str);
                tracing::debug!(node, %shard, epoch = epoch.0, why = why.as_str(), to, "shard released");
                self.waves().released(shard, *why, successor.as_ref(), now);
            }
            _ => self.log_work(notice),
        }
    }

    /// Each transition once, with its cause and how long the former state lasted. Waves before it are told before it.
    fn log_state(&self, from: SessionState, to: SessionState, cause: &Cause, after: Duration) {
        let by_it = |wave: &Wave| matches!(wave.kind, Kind::Stopped(StopReason::Detached));
        self.sum_up_these(|wave| !by_it(wave));
        let node = self.node.as_str();
        let (after_ms, lasted) = (millis(after), in_words(after));
        let (from_word, to_word, cause_word) = (from.as_str(), to.as_str(), cause.as_str());
        macro_rules! changed {
            ($level:ident, $($text:tt)+) => {
                tracing::$level!(
                    node, from = from_word, to = to_word, cause = cause_word, after_ms, $($text)+
                )
            };
        }
        match (from, to) {
            (_, SessionState::Degraded) => {
                changed!(
                    warn,
                    "degraded, after {lasted} {from}; work goes on until the session's deadline: {cause}"
                );
            }
            (_, SessionState::Detached) => {
                changed!(
                    warn,
                    "detached, after {lasted} {from}; this node holds nothing until it has a new session: {cause}"
                );
            }
            (SessionState::Detached, SessionState::Recovering) => {
                changed!(
                    info,
                    "recovering, after {lasted} detached; this node takes shards after recover_window: {cause}"
                );
            }
            (SessionState::Degraded, SessionState::Attached) => {
                changed!(info, "attached again, after {lasted} degraded: {cause}");
            }
            (_, to) => changed!(info, "{to}, after {lasted} {from}: {cause}"),
        }
        self.sum_up_these(by_it);
    }

    fn log_gone(&self, other: &NodeName, session: SessionId, how: Gone, now: Moment) {
        let node = self.node.as_str();
        match how {
            Gone::Left => tracing::info!(node, %other, ?session, "node {other} left"),
            Gone::Vanished => {
                self.waves().died(other, now);
                tracing::warn!(
                    node, %other, ?session,
                    "the record of node {other} is missing; its shards wait until its session must have ended"
                );
            }
            how => {
                tracing::debug!(node, %other, ?session, "node {other} {how}");
                self.waves().died(other, now);
                self.waves().ended(other, session, now);
            }
        }
    }

    fn log_work(&self, notice: &Notice) {
        let node = self.node.as_str();
        match notice {
            Notice::WorkEnded { shard, epoch, error, again_after } => {
                let (epoch, again_after_ms, again) = (epoch.0, millis(*again_after), in_words(*again_after));
                match error {
                    Some(error) => tracing::warn!(
                        node, %shard, epoch, error, again_after_ms,
                        "work of {shard} failed; next start in {again}"
                    ),
                    None => tracing::info!(
                        node, %shard, epoch, again_after_ms,
                        "work of {shard} returned; next start in {again}"
                    ),
                }
            }
            Notice::Finished { shard, epoch, for_good } => {
                let epoch = epoch.0;
                tracing::info!(node, %shard, epoch, for_good, "work of {shard} finished; it is not run again");
            }
            Notice::Stuck { shard, epoch } => {
                tracing::warn!(
                    node, %shard, epoch = epoch.0,
                    "{shard} is stuck: its work did not stop within stop_timeout; this node keeps the shard"
                );
            }
            Notice::Quarantined { shard, epoch, error, ends } => {
                let next = quarantine_ends(*ends);
                tracing::warn!(
                    node, %shard, epoch = epoch.0, error,
                    "{shard} is quarantined: its work keeps failing, so it is not run; {next}"
                );
            }
            _ => self.log_problem(notice),
        }
    }

    fn log_problem(&self, notice: &Notice) {
        let node = self.node.as_str();
        match notice {
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
                let failures = before + 1;
                match before.is_multiple_of(REMIND_AFTER) {
                    true => tracing::warn!(node, error, failures, "store error; retrying"),
                    false => tracing::debug!(node, error, failures, "store error again"),
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
            OperatorCommand::FreezeGroup { group, note } => tracing::warn!(
                node,
                %group,
                note,
                "an operator froze voluntary moves of a group; to undo: leasehold unfreeze {group}"
            ),
            OperatorCommand::UnfreezeGroup { group } => {
                tracing::info!(node, %group, "an operator unfroze voluntary moves of a group")
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

/// The next start of a quarantined shard.
fn quarantine_ends(ends: QuarantineEnds) -> String {
    match ends {
        QuarantineEnds::After(pause) => format!("one try in {}", in_words(pause)),
        QuarantineEnds::Elsewhere(pause) => format!("another node tries it in {}", in_words(pause)),
        ends => ends.to_string(),
    }
}
