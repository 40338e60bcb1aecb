//! The kinds of faults: each with its name and class on the command line, and how often it is drawn.

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FaultKind {
    /// A process dies, and perhaps comes back, under the same name or another one.
    Crash,
    /// A process is told to leave, and perhaps comes back.
    Leave,
    /// A process, or its whole machine, is paused for a while.
    Pause,
    /// The same, exactly between a worker's check and its write.
    PauseAtCheck,
    /// The same, exactly between the core's decision and its being carried out.
    PauseAtStep,
    /// A process cannot reach the store, nor the store it.
    Cut,
    /// What a process sends does not reach the store.
    CutRequests,
    /// What the store answers does not reach a process.
    CutAnswers,
    /// Only renewals reach the store: the connection for everything else is cut.
    CutWork,
    /// The store is slow.
    SlowStore,
    /// The store fails, before or after it has done what it was asked.
    Errors,
    /// Answers are lost after the write was applied.
    LostAnswers,
    /// Answers come twice, or late.
    DoubledAnswers,
    /// Writes arrive again later: the network repeats them.
    DoubledWrites,
    /// A watch breaks, as after a compaction, and reconnects.
    WatchBreak,
    /// A watch is late.
    WatchLag,
    /// A watch loses changes, unseen.
    WatchLoss,
    /// Listings are far behind, where the store allows that.
    StaleLists,
    /// The store restarts.
    StoreRestart,
    /// The store fails over and loses the last acknowledged writes, where it may.
    Failover,
    /// The store is emptied.
    Emptied,
    /// The store is rolled back to an older copy.
    RolledBack,
    /// Most nodes go at once.
    MassLeave,
    /// All nodes are restarted, one after the other.
    RollingRestart,
    /// A node's weight changes.
    Weight,
    /// A node's capacity changes.
    Capacity,
    /// A node does not accept new shards for a while.
    Accepting,
    /// The group becomes larger or smaller.
    Resize,
    /// An operator pins a shard.
    Pin,
    /// An operator drains a node.
    Drain,
    /// An operator freezes voluntary moves.
    Freeze,
    /// An operator asks for one shard to be released.
    Release,
    /// Named shards can't be run for a while, at one node or anywhere.
    Disengage,
    /// A record is damaged.
    Corrupt,
    /// The record `meta` is damaged.
    CorruptMeta,
    /// A node's record is deleted.
    Vanish,
    /// A shard's record is deleted.
    VanishShard,
    /// The records of all shards of a group are deleted at once.
    VanishShards,
    /// The record of the operators' commands is deleted.
    VanishControl,
    /// The record `meta` is deleted.
    VanishMeta,
    /// Work refuses to stop when it is told to.
    Refuse,
    /// Work crashes again and again.
    WorkCrash,
    /// Work asks for another node to take its shard.
    StepDown,
    /// A node is replaced by a newer version, which writes fields that the others don't know.
    Upgrade,
    /// All nodes go back to an older version, one after the other.
    Downgrade,
    /// The namespace is moved to what only newer versions speak, for a while.
    Protocol,
    /// A second process runs under a name that is in use.
    Twin,
    /// A wall clock steps.
    WallStep,
    /// A process is starved: everything it does is late.
    Sluggish,
    /// Writes of a process other than renewals take long to arrive.
    Stall,
    /// The gate of a node takes long to answer.
    SlowGate,
    /// The rate of a boot clock changes, within the bound.
    ClockRate,
    /// The store refuses writes, and can be read.
    FullDisk,
    /// A node plans with another placement than the others, for a while.
    Placement,
    /// All nodes are restarted with another ttl, one after the other.
    RollingTtl,
    /// Everything but renewals reaches the store.
    CutRenewals,
    /// A virtual machine is frozen, once or several times, and its boot clock and timers with it.
    Frozen,
}

/// Name, class, and expected number of faults in two minutes of a seed that has this kind, in thousandths.
pub(super) const TABLE: &[(FaultKind, &str, &str, u32)] = &[
    (FaultKind::Crash, "crash", "process", 1600),
    (FaultKind::Leave, "leave", "process", 900),
    (FaultKind::Pause, "pause", "process", 2200),
    (FaultKind::PauseAtCheck, "pause-at-check", "process", 900),
    (FaultKind::PauseAtStep, "pause-at-step", "process", 900),
    (FaultKind::Cut, "cut", "network", 1600),
    (FaultKind::CutRequests, "cut-requests", "network", 900),
    (FaultKind::CutAnswers, "cut-answers", "network", 1200),
    (FaultKind::CutWork, "cut-work", "network", 600),
    (FaultKind::SlowStore, "slow-store", "network", 900),
    (FaultKind::Errors, "errors", "network", 900),
    (FaultKind::LostAnswers, "lost-answers", "network", 1200),
    (FaultKind::DoubledAnswers, "doubled-answers", "network", 900),
    (FaultKind::DoubledWrites, "doubled-writes", "network", 700),
    (FaultKind::WatchBreak, "watch-break", "watch", 900),
    (FaultKind::WatchLag, "watch-lag", "watch", 900),
    (FaultKind::WatchLoss, "watch-loss", "watch", 900),
    (FaultKind::StaleLists, "stale-lists", "watch", 1500),
    (FaultKind::StoreRestart, "store-restart", "store", 700),
    (FaultKind::Failover, "failover", "loss", 900),
    (FaultKind::Emptied, "emptied", "loss", 450),
    (FaultKind::RolledBack, "rolled-back", "loss", 350),
    (FaultKind::MassLeave, "mass-leave", "process", 350),
    (FaultKind::RollingRestart, "rolling-restart", "process", 250),
    (FaultKind::Weight, "weight", "operators", 700),
    (FaultKind::Capacity, "capacity", "operators", 600),
    (FaultKind::Accepting, "accepting", "operators", 600),
    (FaultKind::Resize, "resize", "operators", 500),
    (FaultKind::Pin, "pin", "operators", 600),
    (FaultKind::Drain, "drain", "operators", 600),
    (FaultKind::Freeze, "freeze", "operators", 300),
    (FaultKind::Release, "release", "operators", 600),
    (FaultKind::Disengage, "disengage", "operators", 1500),
    (FaultKind::Corrupt, "corrupt", "records", 1000),
    (FaultKind::CorruptMeta, "corrupt-meta", "records", 600),
    (FaultKind::Vanish, "vanish", "records", 600),
    (FaultKind::VanishShard, "vanish-shard", "records", 500),
    (FaultKind::VanishShards, "vanish-shards", "records", 400),
    (FaultKind::VanishControl, "vanish-control", "records", 400),
    (FaultKind::VanishMeta, "vanish-meta", "records", 600),
    (FaultKind::Refuse, "refuse", "work", 900),
    (FaultKind::WorkCrash, "work-crash", "work", 900),
    (FaultKind::StepDown, "step-down", "work", 900),
    (FaultKind::Upgrade, "upgrade", "process", 500),
    (FaultKind::Downgrade, "downgrade", "process", 300),
    (FaultKind::Protocol, "protocol", "process", 400),
    (FaultKind::Twin, "twin", "process", 600),
    (FaultKind::WallStep, "wall-step", "clock", 900),
    (FaultKind::Sluggish, "sluggish", "process", 700),
    (FaultKind::Stall, "stall", "network", 700),
    (FaultKind::SlowGate, "slow-gate", "work", 900),
    (FaultKind::ClockRate, "clock-rate", "clock", 900),
    (FaultKind::FullDisk, "full-disk", "store", 500),
    (FaultKind::Placement, "placement", "process", 400),
    (FaultKind::RollingTtl, "rolling-ttl", "process", 2000),
    (FaultKind::CutRenewals, "cut-renewals", "network", 600),
    (FaultKind::Frozen, "frozen", "clock", 900),
];

impl FaultKind {
    /// How many kinds there are.
    pub(crate) const COUNT: usize = TABLE.len();

    /// All kinds.
    pub fn all() -> impl Iterator<Item = FaultKind> {
        TABLE.iter().map(|row| row.0)
    }

    /// Its name on the command line.
    pub fn as_str(self) -> &'static str {
        TABLE.iter().find(|row| row.0 == self).map_or("?", |row| row.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_a_row() {
        assert_eq!(FaultKind::all().count(), FaultKind::Frozen as usize + 1);
        assert!(FaultKind::all().zip(FaultKind::all().skip(1)).all(|(a, b)| a < b));
    }
}
