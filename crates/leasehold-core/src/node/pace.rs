//! How fast this node asks things of the store. A store that is slow or fails must not be kept from answering renewals,
//! so everything else goes slower while it is.

use std::time::Duration;

use super::Node;
use super::timers::Timer;
use crate::time::Moment;

/// How many requests with shard writes are under way at once, at most.
const REQUESTS_MAX: usize = 8;

/// How fast this node asks things of the store.
#[derive(Debug)]
pub(super) struct Pace {
    /// How many requests with shard writes may be under way at once now.
    requests_at_once: usize,
    /// How many requests have failed in a row.
    failures: u32,
    /// Nothing is acquired before then, after a failure.
    paused_until: Moment,
    /// When a group may next be told which of its slots have had a record.
    fill_next_at: Moment,
    /// How many times in a row a claim hung until somebody else took the shard.
    claims_hung: u32,
}

impl Default for Pace {
    fn default() -> Self {
        Pace {
            requests_at_once: REQUESTS_MAX,
            failures: 0,
            paused_until: Moment::ZERO,
            fill_next_at: Moment::ZERO,
            claims_hung: 0,
        }
    }
}

impl Pace {
    pub(super) fn requests_at_once(&self) -> usize {
        self.requests_at_once
    }

    /// How many requests have failed in a row.
    pub(super) fn failures(&self) -> u32 {
        self.failures
    }

    /// The store answered.
    pub(super) fn answered(&mut self) {
        self.failures = 0;
    }

    /// Until when nothing is acquired, after a failure.
    pub(super) fn paused_until(&self) -> Moment {
        self.paused_until
    }

    /// When a group may next be told which of its slots have had a record.
    pub(super) fn fill_next_at(&self) -> Moment {
        self.fill_next_at
    }

    /// A group is told now which of its slots have had a record: the next time is a while away.
    pub(super) fn filled(&mut self, next_at: Moment) {
        self.fill_next_at = next_at;
    }

    /// One more claim hung. Says for how many ttls nobody should give anything up for us: longer each time.
    pub(super) fn claim_hung(&mut self) -> u32 {
        self.claims_hung += 1;
        1 << self.claims_hung.min(6)
    }

    pub(super) fn claim_landed(&mut self) {
        self.claims_hung = 0;
    }
}

impl Node {
    /// Fewer writes at once while the store is slow or does not answer, and more again when it does: a store that is
    /// overrun must not be kept from answering renewals.
    pub(super) fn pace_writes(&mut self, took: Option<Duration>) {
        let (patience, at_once) = (self.config.try_timeout, self.pace.requests_at_once);
        self.pace.requests_at_once = match took {
            Some(took) if took <= patience / 4 => (at_once + 1).min(REQUESTS_MAX),
            Some(took) if took <= patience / 2 => at_once,
            _ => (at_once / 2).max(1),
        };
    }

    /// The store failed: acquiring pauses, for a second at most. Renewals have their own pace.
    pub(super) fn pause_after_failure(&mut self) {
        let pause = self.config.retry.pause(self.pace.failures);
        self.pace.failures = self.pace.failures.saturating_add(1);
        let until = self.now.at + pause + self.rng.up_to(pause / 4);
        self.pace.paused_until = until;
        if !self.timers.is_set(Timer::List) || self.session.is_none() {
            self.timers.set_earlier(Timer::List, until);
        }
        self.timers.set_earlier(Timer::Settle, until);
    }
}
