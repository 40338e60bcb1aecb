//! What the core asks of a store and hears from it, as plain data. The trait that real stores implement is in
//! `leasehold-store`.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::name::{GroupName, NodeName, SessionId, ShardId};
use crate::time::Moment;

/// The key of a record in its namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// `meta`
    Meta,
    /// `control`
    Control,
    /// `groups/<group>`
    Group(GroupName),
    /// `nodes/<node>`
    Node(NodeName),
    /// `shards/<group>/<shard>`
    Shard(ShardId),
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Key::Meta => f.write_str("meta"),
            Key::Control => f.write_str("control"),
            Key::Group(group) => write!(f, "groups/{group}"),
            Key::Node(node) => write!(f, "nodes/{node}"),
            Key::Shard(shard) => write!(f, "shards/{shard}"),
        }
    }
}

impl std::str::FromStr for Key {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let foreign = |e: crate::name::NameError| format!("{text:?} is not a Leasehold key: {e}");
        match text.split_once('/') {
            None if text == "meta" => Ok(Key::Meta),
            None if text == "control" => Ok(Key::Control),
            Some(("groups", group)) => group.parse().map(Key::Group).map_err(foreign),
            Some(("nodes", node)) => node.parse().map(Key::Node).map_err(foreign),
            Some(("shards", shard)) => shard.parse().map(Key::Shard).map_err(foreign),
            _ => Err(format!("{text:?} is not a Leasehold key")),
        }
    }
}

/// The store's version of one record: equal if and only if the record was not written in between.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(Arc<str>);

impl Version {
    /// A version, as text that only its store understands.
    pub fn new(mark: impl AsRef<str>) -> Self {
        Version(mark.as_ref().into())
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v{}", self.0)
    }
}

/// A record as it is in the store.
#[derive(Clone, PartialEq, Eq)]
pub struct Stored {
    /// Its version.
    pub version: Version,
    /// Its bytes.
    pub value: Arc<[u8]>,
}

impl fmt::Debug for Stored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {}", self.version, String::from_utf8_lossy(&self.value))
    }
}

/// A request to replace one state of a record by another, if the record has not changed (compare-and-swap).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Swap {
    /// Which record.
    pub key: Key,
    /// What must be there: this version, or nothing.
    pub expect: Option<Version>,
    /// What will be there: these bytes, or nothing.
    pub value: Option<Arc<[u8]>>,
}

/// The outcome of a [`Swap`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Swapped {
    /// It is in the store, under this version (of a removal: a version that nothing has).
    Applied(Version),
    /// It is not in the store and never will be, because this is there (or nothing).
    Lost(Option<Stored>),
    /// Unknown: it is in the store, will get there later, or never will.
    Unknown,
}

/// Everything in a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// The records, each key once.
    pub entries: Vec<(Key, Stored)>,
    /// Keys in the namespace that Leasehold did not write, for people to see.
    pub foreign: Vec<String>,
    /// Places in the store that cannot be read and may contain any records: records that are not
    /// among the entries may be there, and reading one says that it is damaged. For people to see.
    pub unreadable: Vec<String>,
    /// The store's own identity at that time (etcd cluster id, Redis run and replication id, …): another one
    /// means that acknowledged writes may be gone. Empty if the store has none.
    pub generation: String,
    /// A number that only grows over the life of a store, if it has one: a smaller one means a rolled-back store.
    pub revision: Option<u64>,
    /// Of a store whose listings may be behind: whether this one shows what was there when it was asked for.
    pub newest: bool,
}

/// What the store is asked to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Read these records. Never served stale.
    Read(Vec<Key>),
    /// Read everything.
    List,
    /// Read every node record, and `meta` after all of them. Never served stale.
    ListNodes,
    /// Try these swaps, each independently.
    Swap(Vec<Swap>),
}

/// Which connection a request goes over, so that nothing ever waits in front of a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lane {
    /// Renewals, and nothing else.
    Renewal,
    /// Everything else.
    Work,
}

/// Numbers the requests of one core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// A request of the core to the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Comes back with the answer.
    pub id: RequestId,
    /// The connection to use.
    pub lane: Lane,
    /// What to do.
    pub op: Op,
    /// When to give up waiting and answer [`Answer::Failed`].
    pub give_up_at: Moment,
}

/// What the store answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// To [`Op::Read`]: what is under each key, in the order asked, and the store's generation.
    Read {
        /// One per key.
        found: Vec<Option<Stored>>,
        /// See [`Listing::generation`].
        generation: String,
    },
    /// To [`Op::List`] and [`Op::ListNodes`].
    Listed(Listing),
    /// To [`Op::Swap`]: one per swap, in order, and the store's generation.
    Swapped {
        /// One per swap.
        outcomes: Vec<Swapped>,
        /// See [`Listing::generation`].
        generation: String,
    },
    /// No answer, or an error. A swap that failed like this may have landed, or may yet land.
    Failed(StoreError),
}

/// Why a request to the store failed. The message must not contain secrets.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind}: {message}")]
#[non_exhaustive]
pub struct StoreError {
    /// The kind of error, which decides what to do about it.
    pub kind: StoreErrorKind,
    /// For people.
    pub message: String,
}

/// The kind of a [`StoreError`], which decides what to do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// The store is unreachable; try again.
    Unreachable,
    /// No answer in time; try again.
    TimedOut,
    /// The store is too busy or locked; try again.
    Busy,
    /// The store refuses: permissions, credentials, read-only, full. Retrying helps only after an operator acts.
    Refused,
    /// The store's own data is damaged or inconsistent. An operator must act.
    Damaged,
}

impl fmt::Display for StoreErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            StoreErrorKind::Unreachable => "store unreachable",
            StoreErrorKind::TimedOut => "store timed out",
            StoreErrorKind::Busy => "store busy",
            StoreErrorKind::Refused => "store refused",
            StoreErrorKind::Damaged => "store damaged",
        })
    }
}

impl Listing {
    /// Only the records of nodes and `meta`.
    pub fn nodes_only(mut self) -> Self {
        self.entries.retain(|(key, _)| matches!(key, Key::Meta | Key::Node(_)));
        self
    }
}

impl StoreError {
    /// An error of that kind.
    pub fn new(kind: StoreErrorKind, message: impl Into<String>) -> Self {
        StoreError { kind, message: message.into() }
    }
}

/// What arrives from a store's watch, in the store's order, though perhaps late.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchEvent {
    /// A complete snapshot: at the start of a watch and after every gap. What is not in it does not exist.
    Snapshot(Listing),
    /// These records changed; `None` is gone.
    Changed(Vec<(Key, Option<Stored>)>),
    /// The watch broke and changes may have been missed. It goes on by itself, with a snapshot.
    Interrupted(String),
    /// The kernel proves that the process of this session is gone, with all that it started (local store only).
    ProcessGone(SessionId),
}

/// What the core must know of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// What kind of store it is, for people: `local`, `etcd`, …
    pub kind: &'static str,
    /// Whether it has a watch; otherwise it is listed every `poll_every`.
    pub watch: bool,
    /// How often to list a store without a watch.
    pub poll_every: Duration,
    /// The shortest sensible time between two writes of one record.
    pub write_every_min: Duration,
    /// The most swaps in one request.
    pub swaps_max: usize,
    /// Whether reads, listings and the answers to lost swaps show the newest state.
    pub reads: Freshness,
    /// Whether a record can be removed on condition of its version.
    pub removes: bool,
    /// What is left of acknowledged writes after a failover of the store.
    pub safety: Safety,
    /// The ttl that suits it.
    pub ttl_default: Duration,
}

/// Whether reads show the newest state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// Always.
    Newest,
    /// Listings may be behind; reads of single records and swaps never are. One listing in [`LISTS_A_SWEEP`] is
    /// [`Listing::newest`].
    ListsMayLag,
}

/// How many listings a store whose listings may be behind is asked for, until one must show the newest state.
pub const LISTS_A_SWEEP: u32 = 12;

/// What is left of acknowledged writes after a failover of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Safety {
    /// All of them.
    Strict,
    /// The last ones may be lost; the generation changes then.
    LosesLastWrites,
}
