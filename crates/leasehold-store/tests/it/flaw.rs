/// One way to break the contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// No flaw.
    None,
    /// Replacing is answered as applied, and nothing is written.
    SwallowsReplacements,
    /// Swaps apply whatever is there.
    IgnoresExpect,
    /// Lost swaps don't say what is there.
    LostWithoutCurrent,
    /// The version is a hash of the contents.
    VersionsByContents,
    /// The version is the server's revision, which a roll-back takes back.
    VersionsByRevision,
    /// Listings show other versions than reads.
    ListedVersionsDiffer,
    /// When one swap of a call loses, all do.
    AllOrNothing,
    /// Outcomes come in the wrong order.
    OutcomesReversed,
    /// Of too many swaps the last ones are forgotten.
    ForgetsSurplusSwaps,
    /// Says that it cannot remove on condition, and removes without.
    RemovesBlindly,
    /// Renewals go somewhere else.
    LanesApart,
    /// A write is half there before it is whole.
    WritesInTwoSteps,
    /// Looks, and then creates.
    CreatesWithoutCondition,
    /// Looks, and then replaces.
    ReplacesWithoutCondition,
    /// Answers before the write is there.
    AnswersEarly,
    /// Sends every fifth call again after it was applied, and gives the second answer.
    RetriesByItself,
    /// Reads come from a cache.
    StaleReads,
    /// Listings leave out the last record.
    ListMissesTheLast,
    /// Every fifth listing leaves out the first record.
    ListFlickers,
    /// Listings end after a page.
    ListsOnePage,
    /// Listings of nodes have the shards as well.
    NodesAreListedWithShards,
    /// Listings of nodes leave out `meta`.
    NodeListsForgetMeta,
    /// Listings of nodes say that they may be behind.
    NodeListsMayLag,
    /// Listings of nodes have another generation than other answers.
    NodeListsHaveNoGeneration,
    /// Listings of nodes come from a cache.
    NodesListedFromACache,
    /// Listings read `meta` before the rest.
    MetaListedFirst,
    /// Listings of nodes read `meta` before the nodes.
    MetaListedBeforeNodes,
    /// Reads of several records read the last one first.
    LastKeyReadFirst,
    /// Values end at 32 KiB.
    CutsValues,
    /// Names are kept in lower case.
    FoldsCase,
    /// Listings show namespaces whose names begin with this one.
    NamespaceIsAPrefix,
    /// The watch tells of another namespace.
    WatchLeaks,
    /// A damaged record spoils the whole listing.
    DamageSpoilsTheListing,
    /// A foreign key is taken for nothing.
    HidesForeignKeys,
    /// A foreign key spoils the whole listing.
    ForeignKeysSpoilTheListing,
    /// The watch begins without a snapshot.
    NoSnapshot,
    /// The watch forgets every seventh change.
    WatchForgets,
    /// The watch tells the last of the waiting changes first.
    WatchReorders,
    /// The watch tells nothing of removals.
    WatchHidesRemovals,
    /// Changes between the snapshot and the first read of the watch are lost.
    WatchBeginsLate,
    /// A new watch silences the older ones.
    OneWatchOnly,
    /// A gap in the watch is passed over in silence.
    HidesGaps,
    /// The watch ends when it breaks.
    WatchEnds,
    /// A swap that expects a version applies where nothing is.
    Resurrects,
    /// Every client has its own generation.
    GenerationsDiffer,
    /// A restart loses what was acknowledged.
    ForgetsOnRestart,
    /// Registered keys come in the wrong order.
    KeysUnordered,
    /// Keys that are gone still have a value when they are asked for by name.
    RemembersValues,
    /// A lease that is gone is renewed all the same.
    RenewsTheDead,
    /// Leases live forever.
    NeverExpires,
    /// Revoking does nothing.
    RevokesNothing,
    /// Any lease removes any key.
    RemovesAnyKey,
    /// All namespaces share their registered keys.
    KeysShared,
}
