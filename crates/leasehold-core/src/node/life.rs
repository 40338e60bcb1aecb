//! Where this node stands with its session: the state that people see, since when and why, and what its record should
//! say anew. The session itself is in `session`, the sessions before it are in `former`.

use std::time::Duration;

use super::Node;
use crate::notice::{Cause, Notice, SessionState};
use crate::time::Moment;

/// Where this node stands with its session.
#[derive(Debug)]
pub(super) struct Life {
    state: SessionState,
    since: Moment,
    cause: Cause,
    /// What keeps it from joining or claiming, as it was told.
    waiting_for: Option<String>,
    has_been_attached: bool,
    /// Since when renewals succeed.
    healthy_since: Moment,
    /// How many renewals have failed in a row.
    renewals_failed: u32,
    /// Others should know soon what our record would say now.
    record_changed: bool,
}

impl Default for Life {
    fn default() -> Self {
        Life {
            state: SessionState::Joining,
            since: Moment::ZERO,
            cause: Cause::Asked,
            waiting_for: None,
            has_been_attached: false,
            healthy_since: Moment::ZERO,
            renewals_failed: 0,
            record_changed: false,
        }
    }
}

impl Life {
    pub(super) fn state(&self) -> SessionState {
        self.state
    }

    pub(super) fn since(&self) -> Moment {
        self.since
    }

    pub(super) fn cause(&self) -> &Cause {
        &self.cause
    }

    /// The first step tells what time it is.
    pub(super) fn begin(&mut self, at: Moment) {
        self.since = at;
    }

    pub(super) fn set_state(&mut self, to: SessionState, at: Moment, cause: Cause) {
        (self.state, self.since, self.cause) = (to, at, cause);
    }

    pub(super) fn waiting_for(&self) -> Option<&String> {
        self.waiting_for.as_ref()
    }

    /// Something keeps it from joining or claiming; `true` if that is new.
    pub(super) fn wait_for(&mut self, why: &str) -> bool {
        let new = self.waiting_for.as_deref() != Some(why);
        if new {
            self.waiting_for = Some(why.to_owned());
        }
        new
    }

    pub(super) fn wait_no_more(&mut self) {
        self.waiting_for = None;
    }

    pub(super) fn has_been_attached(&self) -> bool {
        self.has_been_attached
    }

    /// A session begins. Says in which state: who had one before must prove itself first.
    pub(super) fn session_begins(&mut self, at: Moment) -> SessionState {
        self.renewals_failed = 0;
        self.healthy_since = at;
        match std::mem::replace(&mut self.has_been_attached, true) {
            true => SessionState::Recovering,
            false => SessionState::Attached,
        }
    }

    /// Since when renewals succeed.
    pub(super) fn healthy_since(&self) -> Moment {
        self.healthy_since
    }

    /// How many renewals have failed in a row.
    pub(super) fn renewals_failed(&self) -> u32 {
        self.renewals_failed
    }

    /// A renewal failed. Says how many have in a row.
    pub(super) fn renewal_failed(&mut self, at: Moment) -> u32 {
        self.healthy_since = at;
        self.renewals_failed += 1;
        self.renewals_failed
    }

    /// A renewal landed, or there is nothing to renew any more.
    pub(super) fn forget_failures(&mut self) {
        self.renewals_failed = 0;
    }

    /// Others should know soon what our record would say now: it is renewed before that is due.
    pub(super) fn record_changed(&mut self) {
        self.record_changed = true;
    }

    /// Whether our record would say something that others should know soon.
    pub(super) fn has_news(&self) -> bool {
        self.record_changed
    }

    /// A renewal that says everything is on its way.
    pub(super) fn record_sent(&mut self) {
        self.record_changed = false;
    }
}

impl Node {
    pub(super) fn set_state(&mut self, to: SessionState, cause: Cause) {
        if self.life.state() == to {
            return;
        }
        let (from, after) = (self.life.state(), self.now.at.since(self.life.since()));
        self.life.set_state(to, self.now.at, cause.clone());
        self.tell(Notice::StateChanged { from, to, cause, after });
        self.agenda.add_everything();
    }

    pub(super) fn wait_for(&mut self, why: String, for_up_to: Duration) {
        if self.life.wait_for(&why) {
            self.tell(Notice::Waiting { why, for_up_to });
        }
    }

    /// A new session has been healthy for long enough: it takes shards again.
    pub(super) fn recovered(&mut self) {
        self.set_state(SessionState::Attached, Cause::Recovered);
        // Nobody was late while we could not have taken anything ourselves.
        self.vacancies.restart_turns();
        self.life.record_changed();
        self.replan_now();
    }

    pub(super) fn recovered_at(&self) -> Moment {
        match self.life.state() {
            SessionState::Recovering => self.life.healthy_since() + self.config.recover_window,
            _ => Moment::NEVER,
        }
    }
}
