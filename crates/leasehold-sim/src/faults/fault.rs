//! What a fault is: the variants, and what each of them needs to know.

use crate::store::Generation;
use crate::world::clock::Instant;

/// What goes wrong, or is asked for. A slot is the place of one node, whichever process runs there.
#[allow(missing_docs, reason = "the sentence above each says what its fields are")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The process of a slot dies.
    Crash { slot: usize, then: Restart },
    /// The process of a slot is told to leave.
    Leave { slot: usize, within: Instant, then: Restart, grace: Grace },
    /// The process of a slot is paused.
    Pause { slot: usize, lasts: Instant, point: PausePoint },
    /// The machine of a slot is frozen so many times, each time for so long, with its boot clock and its timers; true time and
    /// its wall clock run on.
    Frozen { slot: usize, lasts: Instant, times: u32, gap: Instant },
    /// A slot is cut off from the store.
    Cut { slot: usize, lasts: Instant, traffic: Traffic },
    /// The store takes this many times as long.
    SlowStore { lasts: Instant, times: u64 },
    /// So many requests in a thousand fail.
    Errors { lasts: Instant, permille: u32 },
    /// So many answers in a thousand are lost.
    LostAnswers { lasts: Instant, permille: u32 },
    /// So many answers in a thousand come twice, or late.
    DoubledAnswers { lasts: Instant, permille: u32 },
    /// So many writes in a thousand arrive once more, much later.
    DoubledWrites { lasts: Instant, permille: u32 },
    /// Watches break and reconnect: of one slot, or all.
    WatchBreak { slot: Option<usize> },
    /// A slot's watch is late by this much.
    WatchLag { slot: usize, lasts: Instant, lag: Instant },
    /// A slot's watch loses changes.
    WatchLoss { slot: usize, lasts: Instant },
    /// Listings are up to this much behind.
    StaleLists { lasts: Instant, lag: Instant },
    /// The store is down, and comes back with everything.
    StoreRestart { lasts: Instant },
    /// The store is down, and comes back without the last writes.
    Failover { lasts: Instant, loses: Instant },
    /// The store is emptied.
    Emptied { generation: Generation },
    /// The store is as it was this long ago.
    RolledBack { by: Instant },
    /// Several nodes go at once.
    MassLeave { slots: Vec<usize>, how: Shutdown, then: Restart },
    /// All nodes are restarted, one after the other.
    RollingRestart { gap: Instant, how: Shutdown },
    /// A node's own weight changes.
    Weight { slot: usize, weight: u32 },
    /// A node's own capacity changes.
    Capacity { slot: usize, capacity: Option<u32> },
    /// A node does not accept new shards.
    NotAccepting { slot: usize, lasts: Instant },
    /// The number of shards of the group changes.
    Resize { shards: u32 },
    /// A shard is pinned to the node of a slot.
    Pin { shard: u32, slot: usize, lasts: Instant },
    /// A node is drained by an operator.
    Drain { slot: usize, lasts: Instant },
    /// Voluntary moves are frozen.
    Freeze { lasts: Instant },
    /// The holder of a shard is asked to release it once.
    Release { shard: u32 },
    /// A named shard cannot run at a slot, or anywhere.
    Disengage { shard: usize, slot: Option<usize>, lasts: Instant },
    /// A record is damaged.
    Corrupt { what: Target, how: Damage },
    /// A record is deleted, or all of a kind are.
    Vanish { what: Target },
    /// Work at a slot does not stop when told to.
    Refuse { slot: usize, lasts: Instant },
    /// Work at a slot crashes soon after its start.
    WorkCrash { slot: usize, lasts: Instant },
    /// What runs at a slot steps down: one shard, or all of them. The node declines them for `pause`.
    StepDown { slot: usize, shard: Option<usize>, pause: Instant },
    /// The process of a slot is restarted as a newer version.
    Upgrade { slot: usize, after: Instant },
    /// All nodes are restarted as the older version, one after the other.
    Downgrade { gap: Instant, how: Shutdown },
    /// The namespace is moved to what only newer versions speak, and the process of a slot is restarted.
    Protocol { slot: usize, raise: Raise, lasts: Instant },
    /// A second process runs under the name of a slot.
    Twin { slot: usize, lasts: Instant },
    /// The wall clock of a slot's machine steps.
    WallStep { slot: usize, by_ms: i64 },
    /// Everything that the process of a slot does is up to this much late.
    Sluggish { slot: usize, lasts: Instant, lag: Instant },
    /// What the node of a slot writes, but for renewals, reaches the store only when this is over.
    Stall { slot: usize, lasts: Instant },
    /// The acquire gate at a slot answers some time before this is over.
    SlowGate { slot: usize, lasts: Instant },
    /// The boot clock of a slot's machine runs at another rate: nanoseconds per million.
    ClockRate { slot: usize, rate: u64 },
    /// The store refuses all writes, and can be read.
    FullDisk { lasts: Instant },
    /// The process of a slot is restarted with another placement than the others have.
    Placement { slot: usize, lasts: Instant },
    /// All nodes are restarted with this ttl, one after the other.
    RollingTtl { gap: Instant, how: Shutdown, ttl: Instant },
}

/// Whether a process comes back after it has ended.
#[allow(missing_docs, reason = "the sentence above each says what its fields are")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restart {
    /// A new process starts under the same name.
    SameName { after: Instant },
    /// A new process starts under a new name.
    NewName { after: Instant },
    /// Nothing starts until the faults are over.
    Never,
}

/// Whether a node that leaves says that it will be back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grace {
    /// It does.
    Asked,
    /// It does not.
    None,
}

/// What a process is doing when it is paused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PausePoint {
    /// Anything.
    Anywhere,
    /// Its worker has just checked its grant and has not yet acted.
    BetweenCheckAndAct,
    /// Its core has just decided, and nothing of that has been carried out.
    BetweenStepAndAct,
    /// Its core has just decided to start work that has not begun.
    BeforeStart,
    /// Its driver is about to let work begin, and checks the deadline next.
    BeforeBegin,
}

/// Which traffic between a node and the store is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traffic {
    /// All of it.
    All,
    /// What the node sends.
    Requests,
    /// What the store answers.
    Answers,
    /// Both directions of everything but renewals, which have a connection of their own.
    Work,
    /// Both directions of renewals only.
    Renewals,
}

/// How nodes are shut down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shutdown {
    /// They are killed.
    Killed,
    /// They are told to leave.
    Graceful,
}

/// How a namespace refuses older versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Raise {
    /// Its `meta` requires a newer protocol of every node that joins.
    Protocol,
    /// Its `meta` is in a newer format, which also drives out the nodes that are there.
    Format,
}

/// Which record is damaged or deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// That of the node of a slot.
    Node(usize),
    /// That of a shard.
    Shard(u32),
    /// That of a named shard, in runs that have a group of those.
    Named(usize),
    /// Those of all shards of all groups at once. They are deleted, never damaged.
    Shards,
    /// That of a group.
    Group(GroupKind),
    /// The operators' commands.
    Control,
    /// `meta`.
    Meta,
}

/// Which of the two groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupKind {
    /// That with numbered shards.
    Numbered,
    /// That with named shards, in runs that have one.
    Named,
}

/// How a record is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// It is noise.
    Noise,
    /// Its end is missing.
    Cut,
    /// It is in a format that no node here reads.
    TooNew,
    /// The record of a held shard names a session that no node has.
    Usurped,
}

impl Fault {
    /// How long it holds something up that ends by itself.
    pub(crate) fn holds_up(&self) -> Option<Instant> {
        match self {
            Fault::Stall { lasts, .. } | Fault::SlowGate { lasts, .. } => Some(*lasts),
            Fault::StepDown { pause, .. } => Some(*pause),
            _ => None,
        }
    }

    /// How long it is active, if it has to be ended.
    pub(crate) fn lasts(&self) -> Option<Instant> {
        match self {
            Fault::Cut { lasts, .. }
            | Fault::SlowStore { lasts, .. }
            | Fault::Errors { lasts, .. }
            | Fault::LostAnswers { lasts, .. }
            | Fault::DoubledAnswers { lasts, .. }
            | Fault::DoubledWrites { lasts, .. }
            | Fault::WatchLag { lasts, .. }
            | Fault::WatchLoss { lasts, .. }
            | Fault::StaleLists { lasts, .. }
            | Fault::StoreRestart { lasts }
            | Fault::Failover { lasts, .. }
            | Fault::NotAccepting { lasts, .. }
            | Fault::Pin { lasts, .. }
            | Fault::Disengage { lasts, .. }
            | Fault::Drain { lasts, .. }
            | Fault::Freeze { lasts }
            | Fault::Refuse { lasts, .. }
            | Fault::WorkCrash { lasts, .. }
            | Fault::Protocol { lasts, .. }
            | Fault::Twin { lasts, .. }
            | Fault::FullDisk { lasts }
            | Fault::Placement { lasts, .. }
            | Fault::Sluggish { lasts, .. } => Some(*lasts),
            _ => None,
        }
    }
}
