//! What a fault is: the variants, and what each of them needs to know.

use crate::store::Generation;
use crate::world::clock::Instant;

/// What goes wrong, or is asked for. A slot is the place of one node, whoever runs there.
#[allow(missing_docs, reason = "the sentence above each says what its fields are")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The process of a slot dies.
    Crash { slot: usize, then: Comeback },
    /// The process of a slot is told to leave.
    Leave { slot: usize, within: Instant, then: Comeback, grace: Grace },
    /// The process of a slot stands still.
    Pause { slot: usize, lasts: Instant, place: Place },
    /// The machine of a slot is frozen so many times, each time for so long, with its boot clock and its timers; true time and
    /// its wall clock run on.
    Frozen { slot: usize, lasts: Instant, times: u32, gap: Instant },
    /// A slot is cut off from the store.
    Cut { slot: usize, lasts: Instant, way: Way },
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
    /// Watches break and begin anew: of one slot, or all.
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
    MassLeave { slots: Vec<usize>, how: Going, then: Comeback },
    /// All nodes are restarted, one after the other.
    RollingRestart { gap: Instant, how: Going },
    /// A node's own weight changes.
    Weight { slot: usize, weight: u32 },
    /// A node's own capacity changes.
    Capacity { slot: usize, capacity: Option<u32> },
    /// A node does not accept new shards.
    NotAccepting { slot: usize, lasts: Instant },
    /// The group has another number of shards.
    Resize { shards: u32 },
    /// A shard is pinned to the node of a slot.
    Pin { shard: u32, slot: usize, lasts: Instant },
    /// A node is drained by an operator.
    Drain { slot: usize, lasts: Instant },
    /// Voluntary moves are frozen.
    Freeze { lasts: Instant },
    /// The holder of a shard is asked to release it once.
    Release { shard: u32 },
    /// A named shard can't be run at a slot, or anywhere.
    Disengage { shard: usize, slot: Option<usize>, lasts: Instant },
    /// A record is damaged.
    Corrupt { what: Target, how: Damage },
    /// A record vanishes, or all of a kind do: somebody deletes them.
    Vanish { what: Target },
    /// Work at a slot does not stop when told to.
    Refuse { slot: usize, lasts: Instant },
    /// Work at a slot crashes soon after it began.
    WorkCrash { slot: usize, lasts: Instant },
    /// The process of a slot is restarted as a newer version.
    Upgrade { slot: usize, after: Instant },
    /// All nodes are restarted as the older version, one after the other.
    Downgrade { gap: Instant, how: Going },
    /// The namespace is moved to what only newer versions speak, and the process of a slot is restarted.
    Protocol { slot: usize, raise: Raise, lasts: Instant },
    /// A second process runs under the name of a slot.
    Twin { slot: usize, lasts: Instant },
    /// The wall clock of a slot's machine steps.
    WallStep { slot: usize, by_ms: i64 },
    /// Whatever the process of a slot does, it does up to this much late.
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
    RollingTtl { gap: Instant, how: Going, ttl: Instant },
}

/// What comes after a process ended.
#[allow(missing_docs, reason = "the sentence above each says what its fields are")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comeback {
    /// A new process under the same name.
    SameName { after: Instant },
    /// A new process under a new name.
    NewName { after: Instant },
    /// Nothing, until the faults are over.
    Stays,
}

/// Whether a node that leaves says that it will be back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grace {
    /// It does.
    Asked,
    /// It does not.
    None,
}

/// Where a process is when it is paused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Anywhere.
    Anywhere,
    /// Its worker has just looked at its grant and has not yet acted.
    BetweenCheckAndAct,
    /// Its core has just decided, and nothing of that has been done.
    BetweenStepAndAct,
    /// Its core has just decided to start work, which has not begun.
    BeforeStart,
    /// Its driver is about to let work begin, and looks at the deadline next.
    BeforeBegin,
}

/// Which way is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Both.
    Both,
    /// From the node to the store.
    Requests,
    /// From the store to the node.
    Answers,
    /// Both, but only of what is no renewal: those have a connection of their own.
    Work,
    /// Both, but only of renewals.
    Renewals,
}

/// How nodes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Going {
    /// They are killed.
    Killed,
    /// They are told to leave.
    Told,
}

/// How a namespace refuses older versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Raise {
    /// Its `meta` asks for a newer protocol of whoever joins.
    Protocol,
    /// Its `meta` is in a newer format, which drives out also those who are there.
    Format,
}

/// Which record is damaged, or vanishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// That of the node of a slot.
    Node(usize),
    /// That of a shard.
    Shard(u32),
    /// That of a named shard, in runs that have a group of those.
    Named(usize),
    /// Those of all shards of all groups at once. They vanish; they are not damaged.
    Shards,
    /// That of a group.
    Group(Kind),
    /// What operators asked for.
    Control,
    /// `meta`.
    Meta,
}

/// Which of the two groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
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
    /// It is written in a format that nobody here reads.
    TooNew,
    /// Of a shard that is held: it names a session that nobody has.
    Usurped,
}

impl Fault {
    /// For how long it holds something up that is done when its time has come.
    pub(crate) fn holds_up(&self) -> Option<Instant> {
        match self {
            Fault::Stall { lasts, .. } | Fault::SlowGate { lasts, .. } => Some(*lasts),
            _ => None,
        }
    }

    /// For how long it is on, if it has to be ended.
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
