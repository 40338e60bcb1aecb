//! How fast this node asks things of the store. A store that is slow or fails must not be kept from answering renewals,
//! so everything else goes slower while it is.

use std::time::Duration;

use super::context::Context;
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
    /// How many times in a row a claim hung until another node took the shard.
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

    /// A claim got no answer for so long that another node took the shard, which nobody owned meanwhile. For a while, longer
    /// each time, this node shows no view, so that nobody gives anything up for it.
    pub(super) fn claim_hung(&mut self, ctx: &mut Context) {
        if ctx.timers.is_set(Timer::Shy) {
            return;
        }
        self.claims_hung += 1;
        let ttls = 1 << self.claims_hung.min(6);
        ctx.timers.set(Timer::Shy, ctx.now.at + ctx.config.ttl * ttls);
        ctx.record_changed();
    }

    /// A claim landed: the view is shown again, if it was withheld.
    pub(super) fn claim_landed(&mut self, ctx: &mut Context) {
        self.claims_hung = 0;
        if ctx.timers.is_set(Timer::Shy) {
            ctx.timers.set_earlier(Timer::Shy, ctx.now.at);
        }
    }

    /// A request with shard writes, or a renewal, was answered after this time; `None` if it was not. Fewer requests run at
    /// once while the store is slow, so that it still answers renewals, and more again when it is fast.
    pub(super) fn adapt(&mut self, took: Option<Duration>, try_timeout: Duration) {
        let at_once = self.requests_at_once;
        self.requests_at_once = match took {
            Some(took) if took <= try_timeout / 4 => (at_once + 1).min(REQUESTS_MAX),
            Some(took) if took <= try_timeout / 2 => at_once,
            _ => (at_once / 2).max(1),
        };
    }

    /// The store failed: nothing is acquired for a moment, a second at most. Renewals have a pace of their own.
    pub(super) fn pause_after_failure(&mut self, has_session: bool, ctx: &mut Context) {
        let pause = ctx.config.retry.pause(self.failures);
        self.failures = self.failures.saturating_add(1);
        let until = ctx.now.at + pause + ctx.rng.up_to(pause / 4);
        self.paused_until = until;
        if !ctx.timers.is_set(Timer::List) || !has_session {
            ctx.timers.set_earlier(Timer::List, until);
        }
        ctx.timers.set_earlier(Timer::ReadBack, until);
    }
}
