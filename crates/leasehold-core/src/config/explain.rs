//! The times and costs that follow from the settings, for the people who choose them.

use std::fmt;
use std::time::Duration;

use super::{Config, stretch};
use crate::span::{Span, decimal};
use crate::store::{Facts, LISTS_A_SWEEP, Safety};

/// The times and costs that follow from the settings on a store. Plain data; its text is made for a terminal.
///
/// The times called *worst* hold on a store that works and answers every call within `try_timeout`, with a watch that
/// never delivers anything. They are counted on the clock of the node that acts.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Explanation {
    /// What kind of store it is.
    pub store: &'static str,
    /// The session's ttl.
    pub ttl: Duration,
    /// How long after sending the last confirmed renewal work is told to stop.
    pub stop_after: Duration,
    /// How long after it work that still runs is killed.
    pub kill_after: Duration,
    /// How long after it the session is over.
    pub valid_for: Duration,
    /// How long others must see the session silent before they may end it.
    pub silent_for: Duration,
    /// How long work has between being told to stop and being killed.
    pub stop_budget: Duration,
    /// How long killing may take.
    pub kill_budget: Duration,
    /// The longest outage that stops no work, if the store refuses connections at once.
    pub outage_survived: Duration,
    /// The same if calls hang until they time out, because a try that began in the outage must time out first.
    pub outage_survived_hung: Duration,
    /// At worst, how long after an outage that detached all nodes every shard is owned again.
    pub recovery_worst: Duration,
    /// How long no node claims anything after the store was emptied, restored or rolled back.
    pub settle_for: Duration,
    /// How long no node takes the shards of a node whose record was damaged or deleted by something other than Leasehold.
    pub lost_for: Duration,
    /// How long after kill -9 its shards run elsewhere, give or take a few round trips to the store, if the store can prove
    /// that a process is gone. Others wait until its session has run out.
    pub failover_proved: Option<Duration>,
    /// How long after a node fell silent its shards run elsewhere, give or take a few round trips to the store.
    pub failover: Duration,
    /// The same, at worst.
    pub failover_worst: Duration,
    /// How long a planned move leaves a shard unowned, at worst; usually two round trips to the store.
    pub move_gap_worst: Duration,
    /// How long a node that lost its session and came back is waited for before the next in rank takes what the plan gives
    /// to it.
    pub returns_within: Duration,
    /// At worst, how long a node that starts while no shard is owned waits for others to start.
    pub gathers: Duration,
    /// How long a shard can stay unowned, at worst, while a node that accepts it has room. The two above are part of it.
    pub unowned_worst: Duration,
    /// How long shards stay reserved for a node that restarts, in the group where that is longest. In addition to
    /// `unowned_worst`.
    pub restart_grace: Duration,
    /// How often each node writes.
    pub renew_every: Duration,
    /// How often each node lists everything.
    pub list_every: Duration,
    /// How often each node polls for changes on a store whose watch polls; `None` on other stores.
    pub look_every: Option<Duration>,
    /// Whether the store's watch delivers every write to every node.
    pub watch: bool,
    /// What is left of acknowledged writes after a failover of the store.
    pub safety: Safety,
}

/// What a cluster at rest costs its store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cost {
    /// How many nodes.
    pub nodes: u64,
    /// Renewals, the only writes at rest, however many shards there are.
    pub writes_per_hour: u64,
    /// Listings of everything.
    pub lists_per_hour: u64,
    /// Changes that the watch delivers: every renewal to every node, so they grow with the square of the nodes.
    pub watch_events_per_hour: u64,
}

/// How often the record of a silent session is read, as a fraction of its ttl: `node/fencing.rs`.
const DOUBTED_AFTER: u32 = 2;

/// The maximum number of ranks that wait one after the other for an unowned shard, plus one for jitter.
const RANKS: u32 = 4 + 1;

impl Config {
    /// The times and costs of these settings on a store with these facts. Only meaningful if [`Config::check_on`] passes.
    pub fn explain(&self, facts: &Facts) -> Explanation {
        let call = self.try_timeout;
        let calls = |n: u32| call.saturating_mul(n);
        // The watch of such a store polls, and shows everything except renewals.
        let look_every = is_polled(facts.kind).then_some(facts.poll_every);
        let watch = facts.watch && look_every.is_none();
        let looks_every = if watch { self.list_every } else { self.list_every.min(facts.poll_every) };
        let sessions_every = look_every.map_or(looks_every, |every| every.max(session_read_every(self.ttl)));
        let looks_soon = if watch { Duration::ZERO } else { sessions_every };
        let polls =
            if self.acquire_retry_window.is_zero() { Duration::ZERO } else { self.acquire_retry_interval };
        let looks_at_shard = if polls.is_zero() { looks_every } else { polls.min(looks_every) };
        let gathers = self.gather_for().saturating_mul(2);
        let outage = self.stop_after().saturating_sub(self.renew_every);
        Explanation {
            store: facts.kind,
            ttl: self.ttl,
            stop_after: self.stop_after(),
            kill_after: self.kill_after(),
            valid_for: self.valid_for(),
            silent_for: self.silent_for(),
            stop_budget: self.margin.saturating_sub(self.kill_budget),
            kill_budget: self.kill_budget,
            // The worst moment for an outage to begin is just before a renewal is sent.
            outage_survived: outage,
            outage_survived_hung: outage.saturating_sub(call),
            // A hung try, a listing, leaving, joining; then the window; then a read and a claim.
            recovery_worst: sum([
                self.retry.longest(),
                self.list_within(),
                calls(5),
                self.recover_window,
                self.debounce,
            ]),
            settle_for: stretch(self.ttl_max, self.drift_permille),
            lost_for: stretch(self.ttl_max, self.drift_permille),
            failover_proved: proves_death(facts.kind).then_some(self.debounce),
            failover: sum([looks_soon, self.silent_for(), self.debounce]),
            // The last renewal lands and is listed; silence; the proof is read, the session fenced, the shard claimed, all
            // nodes read.
            failover_worst: sum([sessions_every, self.silent_for(), self.debounce, calls(6)]),
            // Released, read, claimed.
            move_gap_worst: sum([looks_at_shard, calls(3)]),
            // Listed, claimed, published, all nodes read, after all ranks before and a pause for a store error; and another
            // node that only planned to take it reads that, and takes its publication back. The first in rank may be one that
            // comes back, and the node that takes it may have started this moment.
            returns_within: self.returns_within(facts),
            gathers,
            unowned_worst: sum([
                looks_every,
                self.debounce,
                self.recover_window.max(self.ttl_max / 5),
                gathers,
                self.turn_lasts(facts).saturating_mul(RANKS),
                self.retry.longest(),
                looks_every.saturating_mul(if watch { 1 } else { 2 }),
                calls(6),
            ]),
            restart_grace: Duration::from_millis(
                self.groups.iter().map(|group| group.policy.restart_grace_ms).max().unwrap_or(0),
            ),
            renew_every: self.renew_every,
            list_every: if facts.watch { self.list_every } else { looks_every },
            look_every,
            watch,
            safety: facts.safety,
        }
    }
}

/// Whether the watch of a store of this kind polls.
fn is_polled(kind: &str) -> bool {
    matches!(kind, "s3" | "gs" | "az")
}

fn session_read_every(ttl: Duration) -> Duration {
    ttl / DOUBTED_AFTER
}

/// Whether a store of this kind can prove by a lock, which the kernel releases, that a process is gone.
fn proves_death(kind: &str) -> bool {
    kind == "local"
}

fn sum<const N: usize>(spans: [Duration; N]) -> Duration {
    spans.into_iter().fold(Duration::ZERO, Duration::saturating_add)
}

impl Explanation {
    /// How often each node reads the record of a silent session, on a store that is polled.
    pub fn session_read_every(&self) -> Duration {
        session_read_every(self.ttl)
    }

    /// What a cluster of that many nodes costs its store at rest.
    pub fn cost(&self, nodes: u64) -> Cost {
        let per_hour = |every: Duration| {
            let times = u128::from(nodes) * 3_600_000_000_000 / every.as_nanos().max(1);
            u64::try_from(times).unwrap_or(u64::MAX)
        };
        let writes_per_hour = per_hour(self.renew_every);
        // On a store that is polled, most listings are a single read of the marker.
        let lists_every = match self.look_every {
            Some(_) => self.list_every.saturating_mul(LISTS_A_SWEEP),
            None => self.list_every,
        };
        Cost {
            nodes,
            writes_per_hour,
            lists_per_hour: per_hour(lists_every),
            watch_events_per_hour: if self.watch { writes_per_hour.saturating_mul(nodes) } else { 0 },
        }
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Leasehold on {} with a ttl of {}", self.store, Span(self.ttl))?;
        self.write_session(f)?;
        self.write_bounds(f)?;
        self.write_cost(f)
    }
}

impl Explanation {
    fn write_session(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\nAfter the last confirmed renewal was sent")?;
        line(f, self.stop_after, "work is told to stop")?;
        let killed = format!("running work is killed; it had {} to stop", Span(self.stop_budget));
        line(f, self.kill_after, &killed)?;
        let over = format!("the session ends; the kill had {}", Span(self.kill_budget));
        line(f, self.valid_for, &over)?;
        line(
            f,
            self.silent_for,
            "without a renewal, measured on their own clocks, before other nodes may fence the session",
        )?;
        writeln!(f, "\nWhen the store is unavailable")?;
        line(
            f,
            self.outage_survived,
            "of outage that stop no work, if the store refuses connections at once",
        )?;
        line(f, self.outage_survived_hung, "of outage stop no work, if calls hang until they time out")?;
        line(f, self.recovery_worst, "at most from the end of the outage until all shards run again")?;
        line(f, self.settle_for, "without new owners after the store was emptied, restored or rolled back")?;
        line(
            f,
            self.lost_for,
            "without new owners for shards of a node whose record was damaged or deleted",
        )?;
        if self.safety == Safety::LosesLastWrites {
            writeln!(
                f,
                "             a failover of the store can lose its last writes, which counts as a rollback"
            )?;
        }
        Ok(())
    }

    fn write_bounds(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "\nTime until a shard runs elsewhere (at most: without watch events, and with every call at its time limit)"
        )?;
        let after = match self.failover_proved {
            Some(proved) => {
                line(
                    f,
                    proved,
                    "after kill -9, plus a few round trips: the released lock proves that the process is gone",
                )?;
                "after a node hangs or is paused"
            }
            None => "after kill -9",
        };
        let failover = format!("{after}, plus a few round trips (at most {})", Span(self.failover_worst));
        line(f, self.failover, &failover)?;
        line(f, self.move_gap_worst, "at most without an owner in a planned move, from the end of the work")?;
        line(f, self.unowned_worst, "at most for any unowned shard, while a node that accepts it has room")?;
        line(f, self.returns_within, "of that at most, to wait for a node that returns from an outage")?;
        if !self.gathers.is_zero() {
            let gathers = "of that at most, to wait for others when a node starts alone";
            line(f, self.gathers, gathers)?;
        }
        if !self.restart_grace.is_zero() {
            line(
                f,
                self.restart_grace,
                "more, at most, while the shard is reserved for a node that left to restart",
            )?;
        }
        Ok(())
    }

    fn write_cost(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\nStore load at rest, for any number of shards")?;
        writeln!(f, "      nodes    writes/s     lists/s  watch events/s    writes/h")?;
        for nodes in [3, 10, 100, 1000] {
            let cost = self.cost(nodes);
            let [writes, lists, events] =
                [cost.writes_per_hour, cost.lists_per_hour, cost.watch_events_per_hour]
                    .map(|per_hour| decimal(u128::from(per_hour) * 1000 / 3600));
            writeln!(f, "{nodes:>11} {writes:>11} {lists:>11} {events:>15} {:>11}", cost.writes_per_hour)?;
        }
        Ok(())
    }
}

fn line(f: &mut fmt::Formatter<'_>, span: Duration, text: &str) -> fmt::Result {
    writeln!(f, "{:>11}  {text}", Span(span))
}
