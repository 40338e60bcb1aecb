//! The settings of a node. One struct; every field says how it relates to the others.
//!
//! [`Config::check`] holds all the relations and reports every one that is violated, with its numbers.
//! [`Config::explain`] computes what follows from the settings: tolerated outages, failover times, stop budget, cost.

mod backoff;
mod check;
mod explain;
mod relations;

use std::collections::BTreeMap;
use std::time::Duration;

pub use backoff::Backoff;
pub use check::{ConfigError, ConfigErrors};
pub use explain::{Cost, Explanation};
pub use relations::DRIFT_PERMILLE_END;

use crate::name::{GroupName, NodeName};
use crate::record::{Policy, ShardSet};
use crate::store::{Facts, Freshness};

/// The settings of one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The node's stable name. Two live processes must not share one: the second is refused.
    pub node: NodeName,
    /// How much of the work it takes, relative to the other nodes. 0 takes nothing.
    pub weight: u32,
    /// The most shards that it holds in all groups together; `None` means no limit, and 0 is refused.
    pub capacity: Option<u32>,
    /// The fewest shards, in all groups together, that it keeps in voluntary moves, beside what each group's policy says.
    pub kept_min: u32,
    /// Its zone, for groups with a zone rule.
    pub zone: Option<String>,
    /// The address at which callers reach it, for `locate`.
    pub address: Option<String>,
    /// Labels for the user's own purposes.
    pub labels: BTreeMap<String, String>,
    /// The groups that it serves, each once.
    pub groups: Vec<GroupConfig>,

    /// How long the session lives after a renewal was sent. Failover after a crash takes this and a little more.
    /// From 200 ms to 24 h, in whole milliseconds, because that is how the others read it from the store.
    pub ttl: Duration,
    /// The longest ttl of any node of the namespace; a new incarnation waits for it. At least `ttl`, at most 24 h.
    pub ttl_max: Duration,
    /// How far the rate of any machine's clock may be off, in thousandths; below 200. The same on all nodes.
    pub drift_permille: u32,
    /// How often the session is renewed, counted from one sending to the next. At least `try_timeout`, and so short
    /// that after it three more tries of `try_timeout` end before work is told to stop.
    pub renew_every: Duration,
    /// How long one try of a renewal, or another store call, may take before it is retried. At least 10 ms.
    pub try_timeout: Duration,
    /// How long before the session ends all work is told to stop. Covers telling, stopping and killing: at least
    /// twice `kill_budget`.
    pub margin: Duration,
    /// How long before the session ends work that still runs is killed. At least 10 ms, at most half of `margin`.
    pub kill_budget: Duration,
    /// How often everything is listed again, whatever the watch says. From `try_timeout` to `ttl`.
    pub list_every: Duration,
    /// Quiet period after a membership change before a new plan is made. Less than `takeover_delay`.
    pub debounce: Duration,
    /// How long the k-th node in rank waits per rank before it takes a shard that stays unowned. At most `ttl`.
    pub takeover_delay: Duration,
    /// How long a node that starts while no shard is owned waits for others to start; see [`Config::gather_for`]. At most
    /// `ttl`. `None`: twice `debounce`, and not at all in a namespace that is known to be new.
    pub gather: Option<Duration>,
    /// How long a new session must be healthy after a detachment before it takes shards. From `renew_every`, so that
    /// at least one renewal falls into it, to ten ttls.
    pub recover_window: Duration,
    /// How long to pause after the store failed, before acquiring goes on. Above zero, at most a second.
    pub retry: Backoff,
    /// Polling interval for shards that are planned here, in case the watch is silent. Zero turns polling off;
    /// otherwise at least 10 ms and at most `acquire_retry_window`.
    pub acquire_retry_interval: Duration,
    /// How long after a plan change to poll. Zero turns polling off.
    pub acquire_retry_window: Duration,
    /// How long to pause before work that ended is started again. Above zero.
    pub restart: Backoff,
    /// How long work must run for its earlier failures to be forgotten. Above zero.
    pub healthy_after: Duration,
    /// Voluntary moves freeze for two ttls when this many thousandths of the roster (and at least two nodes) vanish
    /// within one ttl. From 1 to 1000.
    pub vanish_freeze_permille: u32,
    /// Maximum number of shards that are handed over at the same time, in a drain or a planned move: a store that stalls
    /// just then strands at most this many. At least 1.
    pub give_up_at_once: usize,
    /// How long the records of a session that is over and of a named shard that is retired are kept. At least `ttl_max`, so
    /// that every node has listed them as such.
    pub retired_kept: Duration,
    /// Whether an acquire gate is asked before a shard is taken.
    pub gate: Gate,
    /// Whether the namespace is known to be new, so that no earlier holder can still be running.
    pub namespace: Namespace,
}

/// One group that a node serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupConfig {
    /// Its name.
    pub group: GroupName,
    /// Its shards; the value in the store overrides this.
    pub shards: ShardSet,
    /// Its rules; the value in the store overrides this.
    pub policy: Policy,
    /// The most shards of this group that this node holds; `None` means no limit, and 0 is refused.
    pub capacity: Option<u32>,
}

/// Whether an acquire gate is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// There is none.
    Open,
    /// It is asked about every shard before it is taken.
    Ask,
}

/// What is known of the namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Namespace {
    /// Nothing: the node that creates it waits until no earlier holder can be running.
    Unknown,
    /// It is new (demo, tests, benchmarks): the node that creates it does not wait.
    New,
}

impl Config {
    /// The defaults for a node of this name on a store with these facts.
    pub fn new(node: NodeName, facts: &Facts) -> Self {
        Config::with_ttl(node, facts.ttl_default)
    }

    /// The defaults for a node of this name with this ttl.
    pub fn with_ttl(node: NodeName, ttl: Duration) -> Self {
        let second = Duration::from_secs(1);
        Config {
            node,
            weight: 100,
            capacity: None,
            kept_min: 0,
            zone: None,
            address: None,
            labels: BTreeMap::new(),
            groups: Vec::new(),
            ttl,
            ttl_max: ttl,
            drift_permille: 10,
            renew_every: ttl / 5,
            try_timeout: ttl / 10,
            margin: ttl / 5,
            kill_budget: Duration::from_millis(250).min(ttl / 20),
            list_every: ttl.saturating_mul(4) / 5,
            debounce: Duration::from_millis(200).min(ttl / 20),
            takeover_delay: ttl / 5,
            gather: None,
            recover_window: ttl / 5,
            retry: Backoff::Doubling { first: Duration::from_millis(50), max: second },
            acquire_retry_interval: second.min(ttl / 10),
            acquire_retry_window: ttl,
            restart: Backoff::Doubling { first: Duration::from_millis(200), max: Duration::from_secs(30) },
            healthy_after: Duration::from_secs(60),
            vanish_freeze_permille: 334,
            give_up_at_once: 64,
            retired_kept: Duration::from_secs(3600).max(ttl),
            gate: Gate::Open,
            namespace: Namespace::Unknown,
        }
    }

    /// How long after sending a renewal its grants are valid, on our own clock: the ttl minus the drift.
    pub fn valid_for(&self) -> Duration {
        shrink(self.ttl, self.drift_permille)
    }

    /// How long after sending a renewal its work is told to stop, unless a later renewal is confirmed.
    pub fn stop_after(&self) -> Duration {
        self.valid_for().saturating_sub(self.margin)
    }

    /// How long after sending a renewal work that still runs is killed, unless a later renewal is confirmed.
    pub fn kill_after(&self) -> Duration {
        self.valid_for().saturating_sub(self.kill_budget)
    }

    /// Time limit of a listing: longer than that of other calls, because there may be many shards, but short enough that
    /// several tries fit into the time in which one must succeed.
    pub fn list_within(&self) -> Duration {
        self.try_timeout.max(self.ttl / 4)
    }

    /// How long an unowned shard waits for each rank before the next one takes it: `takeover_delay`, and on a store that
    /// has to be looked at long enough for the first in rank to have looked.
    pub fn turn_lasts(&self, facts: &Facts) -> Duration {
        match (facts.watch, facts.reads) {
            (true, Freshness::Newest) => self.takeover_delay,
            _ => self.takeover_delay.max(facts.poll_every * 3 / 2 + self.try_timeout * 2),
        }
    }

    /// How long a node that comes back after it lost its session is waited for before others take what the plan gives to it:
    /// until it must have been healthy for long enough, and its turn is over.
    pub fn returns_within(&self, facts: &Facts) -> Duration {
        self.recover_window.saturating_add(self.turn_lasts(facts))
    }

    /// How long a node that starts while no shard is owned waits for others to start before it takes the shards: this
    /// much after the last of them, and twice as much at most. Those of one deployment then each take their share, and
    /// nothing moves a moment later.
    pub fn gather_for(&self) -> Duration {
        match (self.gather, self.namespace) {
            (Some(gather), _) => gather,
            (None, Namespace::Unknown) => self.debounce.saturating_mul(2),
            (None, Namespace::New) => Duration::ZERO,
        }
    }

    /// How long others must see a session of this ttl silent, on their own clock, before they may fence it.
    pub fn silent_for(&self) -> Duration {
        stretch(self.ttl, self.drift_permille)
    }
}

/// `span × (1 − drift)`, rounded down.
pub fn shrink(span: Duration, drift_permille: u32) -> Duration {
    span.saturating_mul(1000 - drift_permille.min(1000)) / 1000
}

/// `span × (1 + drift)`, rounded up.
pub fn stretch(span: Duration, drift_permille: u32) -> Duration {
    span.saturating_mul(1000 + drift_permille) / 1000 + Duration::from_nanos(1)
}
