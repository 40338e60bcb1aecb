//! The safety rules that a test build can switch off, one at a time, to show that the simulator notices.

/// A safety rule. With the feature `sabotage`, [`Rules`] can break any of them; without it, nothing can.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Rule {
    /// The deadline counts from before the renewal was sent, not from its answer.
    DeadlineFromSending,
    /// Work is told to stop a margin before the session ends.
    Margin,
    /// A session is fenced by a swap before its shards are taken.
    FenceBeforeTakeover,
    /// A record that vanished proves nothing.
    AbsentIsNotDead,
    /// The proof of death is read after the shard version that is to be replaced.
    ProofAfterShard,
    /// Silence does not count while our own reads fail.
    SilenceNeedsReads,
    /// A session is silent for `ttl × (1 + drift)` before it is fenced.
    SilenceLastsTtl,
    /// A shard is released only after its work has stopped.
    StopBeforeRelease,
    /// A read-back that shows no change does not mean that the write failed.
    UnchangedIsUnknown,
    /// The outcome of a write is found out, never assumed.
    UnknownIsResolved,
    /// A write of unknown outcome is never repeated over whatever is there by then.
    NoBlindRetry,
    /// A new life never adopts what a former session of the same name holds.
    FreshSession,
    /// A lost grant is never revived by a late confirmation.
    LostIsForEver,
    /// No decision depends on a timestamp of another machine.
    NoForeignClocks,
    /// A release keeps the record and its epoch.
    RecordsStay,
    /// Every start has a higher epoch.
    EpochRises,
    /// An emptied store is not claimed before all former holders must have stopped.
    SettleBeforeClaim,
    /// A detached session is never renewed.
    NoRenewalWhenDetached,
    /// A node that cannot prove its session detaches.
    Detach,
    /// What does not fit under a cap goes to the next in rank.
    SpillOver,
    /// No stabiliser delays an unowned shard.
    UnownedAtOnce,
    /// Nodes that are coming back count in the plan, so that the first one does not take what is theirs.
    ReturningCounts,
    /// *Left* is never written while work is unconfirmed.
    LeftOnlyWhenStopped,
    /// A holder whose record does not name its session stops.
    VerifyHeld,
    /// A change of the store's generation or of the incarnation detaches.
    GenerationChecked,
    /// Nothing starts before a renewal that publishes it has landed.
    PublishBeforeStart,
    /// A node that claimed a record that was not a release reads all node records, and `meta` after them, before it starts.
    NodesBeforeStart,
    /// A release is relied on only if the shard was published when it was claimed.
    PublishedBeforeTrust,
    /// A node that has read all node records reads the shard's record once more before it starts: it must still be its claim.
    ClaimStillThere,
    /// A shard that another live session publishes is not started.
    PublishedIsHeld,
    /// Giving up a claim that never started is not a release.
    UnstartedIsNoRelease,
    /// `meta` is restored only by a session that was renewed after the damage was seen.
    MetaRestoredByTheLiving,
    /// Running nodes learn of a longer ttl that others use.
    TtlMaxIsHeard,
    /// Suspensions of the machine between two renewals add up.
    FreezesAddUp,
    /// A node whose own record is older than its last confirmed renewal detaches.
    OwnRecordNotOlder,
    /// Whether a shard is free, wanted and ours to take is asked again when its gate has answered.
    GateAsksAgain,
    /// A watch event alone does not settle that a claim has landed: its answer does, or a read.
    WatchSettlesNoClaim,
    /// Own deadlines come earlier, and waits for others last longer, by as much as rates of clocks may differ.
    DriftCounts,
    /// How long a session may be silent follows from its own ttl.
    TheirTtlCounts,
    /// A store that refuses all writes because it is full keeps no session alive, although nobody can take over then.
    FullStoreRenewsNothing,
    /// A slot that was retired when its group became smaller is free again once the group has grown.
    RetiredSlotReturns,
    /// A group's record that an operator has just written is not written over.
    GroupWriteIsASwap,
    /// Nothing is given up voluntarily for a node that does not plan with the same view.
    ViewsAgree,
    /// The plan keeps to the zones of the group's policy.
    ZonesCount,
}

/// Which rules are in force: all of them, unless the feature `sabotage` is on and a test broke one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    #[cfg(feature = "sabotage")]
    broken: std::collections::BTreeSet<Rule>,
}

impl Rules {
    /// All rules but this one.
    #[cfg(feature = "sabotage")]
    pub fn without(rule: Rule) -> Self {
        Rules { broken: [rule].into() }
    }

    /// All rules but these: a rule that backs up another is missed only if that one is off too.
    #[cfg(feature = "sabotage")]
    pub fn without_all(rules: impl IntoIterator<Item = Rule>) -> Self {
        Rules { broken: rules.into_iter().collect() }
    }

    /// Whether all rules are in force.
    #[inline]
    pub fn all_hold(&self) -> bool {
        #[cfg(feature = "sabotage")]
        return self.broken.is_empty();
        #[cfg(not(feature = "sabotage"))]
        true
    }

    /// Whether the rule is in force.
    #[inline]
    pub fn hold(&self, rule: Rule) -> bool {
        #[cfg(feature = "sabotage")]
        return !self.broken.contains(&rule);
        #[cfg(not(feature = "sabotage"))]
        {
            let _ = rule;
            true
        }
    }
}
