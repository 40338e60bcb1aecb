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
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
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
    /// Something happened that must never happen: this code is wrong, and what it believes about ownership does not
    /// count any more.
    Impossible(&'static str),
    /// The new session was healthy for long enough.
    Recovered,
    /// It was told to.
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

/// Something that people should know. Each is told once.
#[derive(Clone, Debug, PartialEq, Eq)]
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
        /// Whether it left by itself.
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
        /// How long it was seen without an owner before this start, where that was seen.
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
    /// This node gave a shard up.
    Released {
        /// Which.
        shard: ShardId,
        /// Its epoch.
        epoch: Epoch,
        /// Why.
        why: MoveReason,
        /// Who should take it.
        successor: Option<NodeName>,
    },
    /// The work of a shard did not stop in time: it stays held.
    Stuck {
        /// Which.
        shard: ShardId,
        /// Its epoch.
        epoch: Epoch,
    },
    /// The work of a shard keeps crashing: it is held and not run.
    Quarantined {
        /// Which.
        shard: ShardId,
        /// Its epoch.
        epoch: Epoch,
    },
    /// Shards that should come here are looked at once more, in case the watch is silent.
    Retried {
        /// How many shards.
        shards: usize,
    },
    /// A shard that this node should have did not become free within the retry window.
    RetriesExhausted {
        /// How many shards.
        shards: usize,
    },
    /// Shards that nobody can take: every node is full, or refuses.
    NoRoom {
        /// The group.
        group: GroupName,
        /// How many of its shards.
        shards: usize,
    },
    /// Room was found for all shards of the group again.
    RoomAgain {
        /// The group.
        group: GroupName,
    },
    /// The store has other settings for a group than this node. The store's hold.
    SettingsDiffer {
        /// The group.
        group: GroupName,
        /// Those that differ.
        settings: Vec<Differing>,
    },
    /// What operators ask of this node, or of all, is not what it was.
    OperatorCommand(OperatorCommand),
    /// The store has a group of the other kind than this node was set up for: it takes nothing of it.
    OtherKind {
        /// The group.
        group: GroupName,
        /// What this node was set up for.
        ours: ShardSet,
        /// What the store has.
        stored: ShardSet,
    },
    /// The group is of the kind again that this node was set up for: it serves it.
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
    /// A draining node has nobody to hand its shards to, and goes on running them.
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

/// A setting of a group that differs between the store and this node.
#[derive(Clone, Debug, PartialEq, Eq)]
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

    /// What makes the store's settings ours.
    pub fn command(group: &GroupName, all: &[Differing]) -> String {
        let changes: String = all.iter().map(|it| format!(" {}={}", it.name, it.ours)).collect();
        format!("leasehold group set {group}{changes}")
    }
}

/// What operators ask of a node, or of all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OperatorCommand {
    /// This node should hand everything over and take nothing.
    Drain {
        /// Who wanted it and why.
        note: String,
    },
    /// It no longer should.
    Undrain,
    /// This node should have this weight.
    Weight(u32),
    /// It should have its own weight again.
    OwnWeight,
    /// Nothing should move voluntarily, anywhere.
    Freeze {
        /// Who wanted it and why.
        note: String,
    },
    /// Shards may move again.
    Unfreeze,
    /// A shard that is held here, or was meant to be, should be on a certain node.
    Pin {
        /// Which.
        shard: ShardId,
        /// Where.
        to: NodeName,
    },
    /// It may be anywhere again.
    Unpin {
        /// Which.
        shard: ShardId,
    },
}

/// How a node went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gone {
    /// It said so.
    Left,
    /// It was proved dead.
    Fenced,
    /// Its record is gone. Whether it still runs is not known, so what it held stays held for its ttl.
    Vanished,
}
