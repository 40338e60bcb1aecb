//! What every part works with: the settings, the time, randomness, and what a step leaves to do: actions, timers and shards to
//! look at again. A method of a part that takes `&mut Context` changes that part, the context, and other parts only if
//! it takes them by name.

use std::time::Duration;

use super::agenda::Agenda;
use super::timers::{Timer, Timers};
use crate::config::Config;
use crate::event::{Action, Deadlines};
use crate::name::{NodeName, WriteId};
use crate::notice::Notice;
use crate::rng::Rng;
use crate::rules::{Rule, Rules};
use crate::store::Facts;
use crate::time::{Moment, Now};

/// What every part works with.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) config: Config,
    /// What the store can do.
    pub(super) facts: Facts,
    pub(super) rules: Rules,
    pub(super) rng: Rng,
    /// When this step runs.
    pub(super) now: Now,
    /// The actions of this step, in order.
    pub(super) out: Vec<Action>,
    pub(super) timers: Timers,
    pub(super) agenda: Agenda,
    /// Our record would say something that others should know before the next renewal is due.
    news: bool,
    /// What only a wrong design would remember.
    #[cfg(feature = "sabotage")]
    pub(super) memory: super::sabotage::Memory,
}

impl Context {
    pub(super) fn new(config: Config, facts: Facts, seed: [u8; 32]) -> Self {
        Context {
            config,
            facts,
            rules: Rules::default(),
            rng: Rng::new(seed),
            now: Now { at: Moment::ZERO, unix_ms: 0 },
            out: Vec::new(),
            timers: Timers::default(),
            agenda: Agenda::default(),
            news: false,
            #[cfg(feature = "sabotage")]
            memory: super::sabotage::Memory::default(),
        }
    }

    pub(super) fn tell(&mut self, notice: Notice) {
        self.out.push(Action::Tell(notice));
    }

    pub(super) fn is_me(&self, node: &NodeName) -> bool {
        *node == self.config.node
    }

    pub(super) fn me(&self) -> NodeName {
        self.config.node.clone()
    }

    /// The id of a new write.
    pub(super) fn write_id(&mut self) -> WriteId {
        WriteId::from_bits(self.rng.bits())
    }

    /// Our record would say something else now that others should know soon: the renewal is sent early.
    pub(super) fn record_changed(&mut self) {
        self.news = true;
    }

    /// Whether our record would say something that others should know soon.
    pub(super) fn has_news(&self) -> bool {
        self.news
    }

    /// A renewal that says everything is under way.
    pub(super) fn record_sent(&mut self) {
        self.news = false;
    }

    /// Makes a new plan before this step ends.
    pub(super) fn replan_now(&mut self) {
        self.timers.set(Timer::Replan, self.now.at);
    }

    /// Makes a new plan within the debounce, however many more changes follow: for changes that come one by one, where a plan
    /// after each would cost more than it helps.
    pub(super) fn replan_within_debounce(&mut self) {
        self.timers.set_earlier(Timer::Replan, self.now.at + self.config.debounce);
    }

    /// Whether the roster has changed since the last plan was made.
    pub(super) fn plan_is_stale(&self) -> bool {
        self.timers.is_set(Timer::Replan)
    }

    /// When everything is listed next, if nothing happens before.
    pub(super) fn next_list_at(&mut self, has_session: bool) -> Moment {
        let every = match (has_session, self.facts.watch) {
            (true, true) => self.config.list_every,
            (true, false) => self.facts.poll_every.min(self.config.list_every),
            (false, _) => self.config.renew_every,
        };
        self.now.at + every - self.rng.up_to(every / 10)
    }

    /// How long the boot clock stood still while the wall clock ran on, if that is more than the margin. `wall_ahead_min_ms`:
    /// the least that the wall clock was ahead since the renewal that the deadlines count from. Steps back of the wall clock
    /// lower it, so that they hide no freeze that comes after them.
    pub(super) fn frozen_since(&self, wall_ahead_min_ms: i64) -> Option<Duration> {
        let by = self.now.wall_ahead_ms().saturating_sub(wall_ahead_min_ms);
        let by = Duration::from_millis(u64::try_from(by).unwrap_or(0));
        (by > self.config.margin).then_some(by)
    }

    /// Until when work may run, if the last renewal that landed was sent then.
    pub(super) fn deadlines_from(&self, renewed_at: Moment) -> Deadlines {
        let valid_for = self.config.valid_for();
        let valid_for = if self.rules.hold(Rule::DriftCounts) { valid_for } else { self.config.ttl };
        let valid_until = renewed_at + valid_for;
        if !self.rules.hold(Rule::Margin) {
            return Deadlines { stop_at: valid_until, kill_at: valid_until, valid_until };
        }
        Deadlines {
            stop_at: valid_until - self.config.margin,
            kill_at: valid_until - self.config.kill_budget,
            valid_until,
        }
    }
}
