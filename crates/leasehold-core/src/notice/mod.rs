//! What the core tells people: one notice per transition, for the log, the counters and the event stream.

mod words;

use std::fmt;
use std::time::Duration;

use crate::event::StopReason;
use crate::name::{Epoch, GroupName, NodeName, SessionId, ShardId};
use crate::record::{MoveReason, ShardSet};
use crate::span::Span;
use crate::store::Key;
use crate::warning::Warning;

/// The state of a node's session.
#[derive(serde::Serialize, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum SessionState {
    /// It has not yet had a session: it reads the store, or waits until it may join.
    Joining,
    /// It has a session, and renewals succeed.
    Attached,
    /// Renewals fail; `stop_at` is not reached, so work goes on.
    Degraded,
    /// Its session is over; it holds nothing.
    Detached,
    /// It has a new session, and waits until that has been healthy for a while before it takes shards.
    Recovering,
    /// It has left for good.
    Left,
}

impl SessionState {
    /// The word for it in logs, metrics and records.
    pub fn as_str(self) -> &'static str {
        match self {
            SessionState::Joining => "joining",
            SessionState::Attached => "attached",
            SessionState::Degraded => "degraded",
            SessionState::Detached => "detached",
            SessionState::Recovering => "recovering",
            SessionState::Left => "left",
        }
    }
}

impl fmt::Display for SessionState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Why a node's session state changed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// It opened a session.
    Joined,
    /// Renewals fail.
    RenewalsFail(String),
    /// Renewals succeed again.
    RenewalsSucceed,
    /// `stop_at` came without a confirmed renewal.
    DeadlineReached,
    /// Another node fenced this session, or its record was overwritten.
    Fenced,
    /// The session's record is gone from the store.
    RecordGone,
    /// The store was emptied, restored, rolled back or replaced.
    StoreChanged(String),
    /// The wall clock ran on while the boot clock stood still: this machine was frozen.
    ClockStoodStill(Duration),
    /// An internal invariant was violated: this is a bug, and the node's view of ownership can no longer be trusted.
    Impossible(&'static str),
    /// The new session was healthy for long enough.
    Recovered,
    /// A command asked for it.
    Requested,
}

impl Cause {
    /// A fixed word for metrics.
    pub fn as_str(&self) -> &'static str {
        match self {
            Cause::Joined => "joined",
            Cause::RenewalsFail(_) => "renewals_fail",
            Cause::RenewalsSucceed => "renewals_succeed",
            Cause::DeadlineReached => "deadline_reached",
            Cause::Fenced => "fenced",
            Cause::RecordGone => "record_gone",
            Cause::StoreChanged(_) => "store_changed",
            Cause::ClockStoodStill(_) => "clock_stood_still",
            Cause::Impossible(_) => "impossible",
            Cause::Recovered => "recovered",
            Cause::Requested => "requested",
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::Joined => f.write_str("opened a session"),
            Cause::RenewalsFail(error) => write!(f, "renewals fail ({error})"),
            Cause::RenewalsSucceed => f.write_str("renewals succeed again"),
            Cause::DeadlineReached => f.write_str("no renewal was confirmed in time"),
            Cause::Fenced => f.write_str("the session was fenced by another node"),
            Cause::RecordGone => f.write_str("the record of the session is missing in the store"),
            Cause::StoreChanged(what) => write!(f, "the store was emptied, replaced or rolled back: {what}"),
            Cause::ClockStoodStill(by) => {
                write!(f, "the machine was suspended: the boot clock stood still for {}", Span::whole_ms(*by))
            }
            Cause::Impossible(what) => {
                write!(f, "internal error: {what}; please report this as a bug of Leasehold")
            }
            Cause::Recovered => f.write_str("the new session was healthy for recover_window"),
            Cause::Requested => f.write_str("requested"),
        }
    }
}

/// Something that people should know. Each change is reported once.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Notice {
    /// The node's session state changed.
    StateChanged {
        /// Before.
        from: SessionState,
        /// Now.
        to: SessionState,
        /// Why.
        cause: Cause,
        /// How long the former state lasted.
        after: Duration,
    },
    /// The node has to wait before it may join or claim.
    Waiting {
        /// Why.
        why: String,
        /// For how long at most.
        for_up_to: Duration,
    },
    /// Another live process uses this node's name.
    NameTaken {
        /// The name.
        node: NodeName,
        /// Its session.
        session: SessionId,
    },
    /// A new incarnation of the namespace began.
    Incarnation {
        /// Why.
        why: String,
        /// Every new epoch is above this.
        epoch_floor: Epoch,
    },
    /// A renewal was confirmed.
    Renewed {
        /// From sending to the answer.
        took: Duration,
    },
    /// A renewal failed, or its outcome is unknown.
    RenewalFailed {
        /// How many in a row.
        streak: u32,
        /// Why.
        error: String,
    },
    /// Another node joined.
    NodeJoined {
        /// Which.
        node: NodeName,
        /// Its session.
        session: SessionId,
    },
    /// Another node left, was fenced, or its record vanished.
    NodeGone {
        /// Which.
        node: NodeName,
        /// Its session.
        session: SessionId,
        /// How it went.
        how: Gone,
    },
    /// This node proved a session dead and fenced it.
    Fenced {
        /// Which.
        node: NodeName,
        /// Its session.
        session: SessionId,
        /// For how long it had been silent.
        silent_for: Duration,
    },
    /// This node claimed a shard, and its work starts.
    Started {
        /// Which.
        shard: ShardId,
        /// Its epoch.
        epoch: Epoch,
        /// Why it moved here.
        why: MoveReason,
        /// How long it had no owner before this start, if this node saw it.
        unowned_for: Option<Duration>,
    },
    /// The work of a shard is told to stop.
    Stopping {
        /// Which.
        shard: ShardId,
        /// Its epoch.
        epoch: Epoch,
        /// Why.
        why: StopReason,
    },
    /// The work of a shard ended without being told to.
    WorkEnded {
        /// Which.
        shard: ShardId,
        /// Its epoch.
        epoch: Epoch,
        /// The error, if it failed.
        error: Option<String>,
        /// When it is tried again.
        again_after: Duration,
    },
    /// This node released a shard.
    Released {
        /// Which.
        shard: ShardId,
        /// Its epoch.
        epoch: Epoch,
        /// Why.
        why: MoveReason,
        /// The node that should take it.
        successor: Option<NodeName>,
    },
    /// The work of a shard did not stop in time: it stays held.
    Stuck {
        /// Which.
        shard: ShardId,
        /// Its epoch.
        epoch: Epoch,
    },
    /// The work of a shard failed too often: it is held and not run.
    Quarantined {
        /// Which.
        shard: ShardId,
        /// Its epoch.
        epoch: Epoch,
        /// How it failed last.
        error: String,
        /// What makes it run again.
        ends: QuarantineEnds,
    },
    /// The work of a shard has finished: the shard is held and not run again.
    Finished {
        /// Which.
        shard: ShardId,
        /// Its epoch.
        epoch: Epoch,
        /// Whether no other node runs it again either.
        for_good: bool,
    },
    /// Shards that are planned here are polled, in case the watch is silent.
    Retried {
        /// How many shards.
        shards: usize,
    },
    /// Shards that are planned here did not become free within the retry window.
    RetriesExhausted {
        /// How many shards.
        shards: usize,
    },
    /// No node can take some shards: every node is full or declines them.
    NoRoom {
        /// The group.
        group: GroupName,
        /// How many of its shards.
        shards: usize,
    },
    /// All shards of the group have a node again.
    RoomAgain {
        /// The group.
        group: GroupName,
    },
    /// The settings of a group in the store differ from those of this node, and override them.
    SettingsDiffer {
        /// The group.
        group: GroupName,
        /// Those that differ.
        settings: Vec<Differing>,
    },
    /// An operator gave or withdrew a command that concerns this node.
    OperatorCommand(OperatorCommand),
    /// The group in the store has another kind of shards than this node serves, so this node takes none of them.
    OtherKind {
        /// The group.
        group: GroupName,
        /// The shards that this node serves.
        ours: ShardSet,
        /// What the store has.
        stored: ShardSet,
    },
    /// The group in the store has the same kind of shards as this node again, so this node serves it.
    KindAgrees {
        /// The group.
        group: GroupName,
    },
    /// Voluntary moves stopped, because much of the roster vanished at once.
    Frozen {
        /// How many nodes vanished.
        vanished: usize,
        /// Of how many.
        of: usize,
    },
    /// Voluntary moves are allowed again.
    Unfrozen,
    /// This node drains, but no other node can take its shards; they keep running here.
    NoReceiver {
        /// How many shards.
        shards: usize,
    },
    /// Settings or plug-ins do not fit together.
    Warning(Warning),
    /// A record that Leasehold did not write, or that is damaged.
    CorruptRecord {
        /// Where.
        key: Key,
        /// What is wrong with it.
        error: String,
    },
    /// A request to the store failed; it is tried again.
    StoreFailed {
        /// The error.
        error: String,
    },
}

impl Notice {
    /// Why a new incarnation began, if there was no namespace before: nothing is wrong then.
    pub const NAMESPACE_IS_EMPTY: &'static str = "the namespace is empty";
}

/// A setting of a group that differs between the store and this node.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Differing {
    /// Its name.
    pub name: &'static str,
    /// What this node was started with.
    pub ours: String,
    /// What the store has.
    pub stored: String,
}

impl Differing {
    /// All of them, for people.
    pub fn in_words(all: &[Differing]) -> String {
        let each = all.iter().map(|it| format!("{} {} here, {} in the store", it.name, it.ours, it.stored));
        each.collect::<Vec<_>>().join("; ")
    }

    /// The command that sets the store's settings to those of this node.
    pub fn command(group: &GroupName, all: &[Differing]) -> String {
        let changes: String = all.iter().map(|it| format!(" {}={}", it.name, it.ours)).collect();
        format!("leasehold group set {group}{changes}")
    }
}

/// A command of an operator to one node or to all, as a node sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OperatorCommand {
    /// Hand over all shards and take no new ones.
    Drain {
        /// Who wanted it and why.
        note: String,
    },
    /// Take shards again.
    Undrain,
    /// Use this weight.
    Weight(u32),
    /// Use the node's own weight again.
    OwnWeight,
    /// Suspend voluntary moves on all nodes.
    Freeze {
        /// Who wanted it and why.
        note: String,
    },
    /// Resume voluntary moves.
    Unfreeze,
    /// Suspend voluntary moves of one group on all nodes.
    FreezeGroup {
        /// Which.
        group: GroupName,
        /// Who wanted it and why.
        note: String,
    },
    /// Resume voluntary moves of one group.
    UnfreezeGroup {
        /// Which.
        group: GroupName,
    },
    /// Pin a shard that is held or planned here to a node.
    Pin {
        /// Which.
        shard: ShardId,
        /// Where.
        to: NodeName,
    },
    /// Remove the pin of a shard.
    Unpin {
        /// Which.
        shard: ShardId,
    },
}

/// How a node disappeared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Gone {
    /// It left by itself.
    Left,
    /// It was fenced.
    Fenced,
    /// Its record is missing. It may still be running, so its shards stay held for its ttl.
    Vanished,
}

/// What makes a quarantined shard run again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum QuarantineEnds {
    /// An operator allows it.
    ByOperator,
    /// It is tried once after this.
    After(Duration),
    /// Another node tries it once after this.
    Elsewhere(Duration),
}
