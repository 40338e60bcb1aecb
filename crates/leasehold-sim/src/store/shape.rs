//! The shapes of the real stores: what a simulated store of each kind can do, how fast it is and what it may lose.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use leasehold_core::store::{Facts, Freshness, Safety};

use crate::rng::Rng;
use crate::runner::options::OptionError;
use crate::world::clock::{Instant, MS, SECOND};

/// Which real store the simulated one is shaped like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StoreKind {
    /// The memory store: fast, watched, nothing is ever lost.
    Memory,
    /// The local store: fast, watched, and the kernel proves the death of a process.
    Local,
    /// etcd: watched from a revision, another cluster id after a restore, revisions may come again.
    Etcd,
    /// Redis: a failover loses the last acknowledged writes.
    Redis,
    /// Kubernetes: slow, with versions that come again after a restore.
    Kubernetes,
    /// An object store: no watch, slow, no mark of identity; listings may be behind, and may go back in time.
    Object,
    /// Postgres: watched, no revision, another system id after a restore.
    Postgres,
}

impl StoreKind {
    /// All kinds.
    pub const ALL: [StoreKind; 7] = [
        StoreKind::Memory,
        StoreKind::Local,
        StoreKind::Etcd,
        StoreKind::Redis,
        StoreKind::Kubernetes,
        StoreKind::Object,
        StoreKind::Postgres,
    ];

    /// Its name on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            StoreKind::Memory => "memory",
            StoreKind::Local => "local",
            StoreKind::Etcd => "etcd",
            StoreKind::Redis => "redis",
            StoreKind::Kubernetes => "kubernetes",
            StoreKind::Object => "object",
            StoreKind::Postgres => "postgres",
        }
    }

    pub(crate) fn shape(self) -> Shape {
        let base = Shape {
            watch: true,
            poll_every: Duration::from_secs(2),
            swaps_max: 64,
            reads: Freshness::Newest,
            reading: Reading::OneInstant,
            removes: true,
            safety: Safety::Strict,
            ttl: Duration::from_secs(10),
            answer_in: (MS, 8 * MS),
            tail: 60 * MS,
            generation: Generations::OnRestore,
            revision: true,
            versions: Versions::Unique,
            proves_death: false,
        };
        match self {
            StoreKind::Memory => Shape { answer_in: (MS / 20, MS / 2), tail: 2 * MS, ..base },
            StoreKind::Local => {
                Shape { answer_in: (MS / 5, 4 * MS), tail: 40 * MS, proves_death: true, ..base }
            }
            StoreKind::Etcd => Shape { versions: Versions::ComeAgain, ..base },
            StoreKind::Redis => Shape {
                safety: Safety::LosesLastWrites,
                answer_in: (MS / 2, 4 * MS),
                revision: false,
                ..base
            },
            StoreKind::Kubernetes => Shape {
                swaps_max: 8,
                reading: Reading::KeysApart,
                ttl: Duration::from_secs(15),
                answer_in: (4 * MS, 40 * MS),
                tail: 400 * MS,
                versions: Versions::ComeAgain,
                ..base
            },
            StoreKind::Object => Shape {
                watch: false,
                reads: Freshness::ListsMayLag,
                reading: Reading::AllApart,
                swaps_max: 16,
                ttl: Duration::from_secs(20),
                answer_in: (20 * MS, 150 * MS),
                tail: 900 * MS,
                generation: Generations::None,
                revision: false,
                ..base
            },
            StoreKind::Postgres => Shape { revision: false, ..base },
        }
    }
}

impl fmt::Display for StoreKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for StoreKind {
    type Err = OptionError;
    fn from_str(text: &str) -> Result<Self, OptionError> {
        StoreKind::ALL.into_iter().find(|kind| kind.as_str() == text).ok_or_else(|| {
            let all: Vec<_> = StoreKind::ALL.iter().map(|kind| kind.as_str()).collect();
            let what = format!("unknown store kind {text:?}");
            OptionError::new(what, format!("use one of {}", all.join(", ")))
        })
    }
}

/// What a kind of store can do.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    pub(crate) watch: bool,
    pub(crate) poll_every: Duration,
    pub(crate) swaps_max: usize,
    pub(crate) reads: Freshness,
    pub(crate) reading: Reading,
    pub(crate) removes: bool,
    pub(crate) safety: Safety,
    pub(crate) ttl: Duration,
    /// From sending to arriving, one way, most of the time.
    pub(crate) answer_in: (Instant, Instant),
    /// The same, at worst, without any fault.
    pub(crate) tail: Instant,
    pub(crate) generation: Generations,
    pub(crate) revision: bool,
    pub(crate) versions: Versions,
    pub(crate) proves_death: bool,
}

/// Whether what a store shows in one answer is all of one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reading {
    /// It is: one transaction, pages of one revision, or pages that are read again until they are.
    OneInstant,
    /// A listing is. Several keys are read one by one, after the mark of identity, the last one asked for last.
    KeysApart,
    /// Nothing is: a listing is many objects, each read at its own instant, and `meta` after all of them.
    AllApart,
}

/// Whether a store has a mark of identity that changes when it loses something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Generations {
    OnRestore,
    None,
}

/// Whether a version that was given out before a restore may come again after it, for another write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Versions {
    Unique,
    ComeAgain,
}

impl Shape {
    pub(crate) fn facts(&self, kind: StoreKind) -> Facts {
        Facts {
            kind: kind.as_str(),
            watch: self.watch,
            poll_every: self.poll_every,
            write_every_min: Duration::ZERO,
            swaps_max: self.swaps_max,
            reads: self.reads,
            removes: self.removes,
            safety: self.safety,
            ttl_default: self.ttl,
        }
    }

    /// How long one way takes this time.
    pub(crate) fn latency(&self, rng: &mut Rng) -> Instant {
        let (low, high) = self.answer_in;
        match rng.below(1000) {
            0..=969 => rng.between(low, high),
            970..=996 => rng.between(high, (4 * high).min(self.tail)),
            _ => rng.between(high, self.tail),
        }
    }

    /// How far a stale listing may be behind, without any fault.
    pub(crate) fn stale_by(&self) -> Instant {
        match self.reads {
            Freshness::Newest => 0,
            Freshness::ListsMayLag => SECOND,
        }
    }
}
