//! What a run of the model is about: how many processes, which faults, which rule is switched off.

/// The most processes that a state has room for.
pub(crate) const PROCS: usize = 3;
/// The most shards that a state has room for.
pub(crate) const SHARDS: usize = 2;

/// A rule of the protocol that a run can switch off, to show that the search then finds what it prevents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// The deadline counts from before the renewal was sent, not from its answer.
    DeadlineFromSending,
    /// Work is told to stop a margin before the session ends.
    Margin,
    /// A node that cannot prove its session detaches.
    Detach,
    /// A node that wakes compares the clock before it does anything else.
    CompareOnWake,
    /// A lost grant is never revived by a late confirmation.
    LostIsForEver,
    /// A silent session is fenced by a swap of the version that was silent, before its shards are taken.
    FenceBeforeTakeover,
    /// The same, but the node that takes over has just read that the version is still the silent one. Not needed for safety:
    /// the swap is what makes that read unnecessary.
    FenceAfterFreshRead,
    /// A session is silent for the whole ttl, with drift, before it is fenced.
    SilenceLastsTtl,
    /// A live session is never stolen from.
    NeverStolen,
    /// A node record that vanished proves nothing.
    AbsentIsNotDead,
    /// A node record that was created where there was none proves nothing about former sessions of that name.
    CreatedProvesNothing,
    /// The proof of death is read after the shard version that is to be replaced.
    ProofAfterShard,
    /// A shard is released only after its work has stopped.
    StopBeforeRelease,
    /// *Left* is only written once all work has stopped.
    LeftOnlyWhenStopped,
    /// A read-back that shows no change does not mean that the write failed.
    UnchangedIsUnknown,
    /// A write of unknown outcome is resolved, never assumed to have worked.
    UnknownIsResolved,
    /// A new life never adopts what a former session of the same name holds.
    FreshSession,
    /// Every start has a higher epoch.
    EpochRises,
    /// A release keeps the record and its epoch.
    RecordsStay,
    /// A renewal is a compare-and-swap.
    RenewalIsSwap,
    /// A release is a compare-and-swap.
    ReleaseIsSwap,
    /// An emptied store is not claimed before all former holders must have stopped.
    SettleBeforeClaim,
    /// A new incarnation's epochs are above all earlier ones.
    FloorAboveAll,
    /// Nothing starts before a renewal that publishes it has landed.
    PublishBeforeStart,
    /// A node that claimed a record that was not a release reads all node records, and `meta` after them, before it starts.
    NodesBeforeStart,
    /// A shard that another live session publishes is not started.
    PublishedIsHeld,
    /// Only a session that published a shard before it claimed it relies on the release that it replaced: else the
    /// record may have been lost before anybody could see the publication.
    PublishedBeforeTrust,
    /// A node that reads all node records before it starts reads the shard's record after them: it must still be its claim.
    ClaimStillThere,
    /// Giving up a claim that never started is not a release.
    UnstartedIsNoRelease,
    /// A node whose own record is older than one that it has seen detaches.
    OwnRecordNotOlder,
    /// A damaged `meta` is restored only by a session that was renewed after the damage was seen: its record is still
    /// there, so the store is still the one that it knew.
    RestoredByTheRenewed,
    /// It restores only what it read after its session's first record had landed: what it read before may be of the store
    /// as it was before it was emptied, and its session may have begun after that.
    RestoredAsReadSince,
    /// Every write of `meta` is a compare-and-swap: one that lands late finds another version, and does nothing.
    MetaIsSwap,
}

/// One run of the model.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    /// How many processes.
    pub(crate) procs: usize,
    /// The node name that each process goes by: two of the same name are an old life and a new one side by side.
    pub(crate) name: [usize; PROCS],
    /// How many shards.
    pub(crate) shards: usize,
    /// For how many ticks a session lives after a renewal was sent, on the slowest clock.
    pub(crate) ttl: u8,
    /// How many ticks before its end work is told to stop.
    pub(crate) margin: u8,
    /// How many times a node record may vanish.
    pub(crate) vanishes: u8,
    /// How many times the record of a shard may vanish.
    pub(crate) holes: u8,
    /// How many times the whole store may be emptied.
    pub(crate) wipes: u8,
    /// How many times `meta` may be damaged beyond reading.
    pub(crate) damages: u8,
    /// Whether writes of `meta` are under way for any length of time, instead of landing when they are sent.
    pub(crate) late_meta: bool,
    /// Whether requests that nobody waits for any more are followed until they land: late renewals, first records
    /// and claims of former lives, and fences and leaves between sending and landing. `spec/model.md` says why they
    /// can only make less happen; runs with them on confirm it.
    pub(crate) latecomers: bool,
    /// Whether processes crash and start again.
    pub(crate) crashes: bool,
    /// Whether processes are paused.
    pub(crate) pauses: bool,
    /// Whether the run begins with a store that was in use, instead of an empty one.
    pub(crate) used_before: bool,
    /// Whether it begins with a session for each process, the first of which runs the first shard: shorter runs to what goes wrong
    /// late.
    pub(crate) begun: bool,
    /// Whether shards are given up voluntarily.
    pub(crate) voluntary: bool,
    /// The rule that is switched off.
    pub(crate) without: Option<Rule>,
}

impl Setup {
    /// That many nodes with a name each, and that many shards, with crashes and pauses, all rules in force.
    pub(crate) fn new(procs: usize, shards: usize) -> Self {
        assert!(procs <= PROCS && shards <= SHARDS);
        Setup {
            procs,
            name: [0, 1, 2],
            shards,
            ttl: 3,
            margin: 1,
            vanishes: 0,
            holes: 0,
            wipes: 0,
            damages: 0,
            late_meta: false,
            latecomers: false,
            crashes: true,
            pauses: true,
            used_before: false,
            begun: false,
            voluntary: true,
            without: None,
        }
    }

    /// All processes go by one name.
    pub(crate) fn twins(mut self) -> Self {
        self.name = [0; PROCS];
        self
    }

    /// Requests that nobody waits for are followed.
    pub(crate) fn with_latecomers(mut self) -> Self {
        self.latecomers = true;
        self
    }

    /// A rule is switched off.
    pub(crate) fn without(mut self, rule: Rule) -> Self {
        self.without = Some(rule);
        self
    }

    /// Whether the rule is in force.
    pub(crate) fn holds(&self, rule: Rule) -> bool {
        self.without != Some(rule)
    }

    /// How many names are in use.
    pub(crate) fn names(&self) -> usize {
        self.name[..self.procs].iter().max().map_or(0, |most| most + 1)
    }

    /// How many ticks of silence allow a fence, on the fastest clock.
    pub(crate) fn wait(&self) -> u8 {
        if self.holds(Rule::SilenceLastsTtl) { self.ttl } else { self.ttl - 1 }
    }

    /// Whether what sessions publish is part of the states. Where no shard's record is lost alone, work starts whatever
    /// anybody publishes: `spec/model.md` says why that covers all that happens otherwise.
    pub(crate) fn publishes(&self) -> bool {
        self.holes > 0
    }

    /// Whether it is part of the states which claims replaced a release. Where no shard record is lost, all may be
    /// relied on alike.
    pub(crate) fn tells_releases(&self) -> bool {
        self.holes > 0 || self.wipes > 0
    }

    /// Whether node records can be absent a second time, so that a late creation can land again.
    pub(crate) fn can_vanish(&self) -> bool {
        self.vanishes > 0 || self.wipes > 0
    }
}
