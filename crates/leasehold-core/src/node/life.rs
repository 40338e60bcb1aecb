//! The state of our session that people see, since when and why. The session itself is in `session`, the sessions before it
//! are in `former`.

use std::time::Duration;

use super::Node;
use super::context::Context;
use crate::notice::{Cause, Notice, SessionState};
use crate::time::Moment;

/// The state of our session that people see.
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
}

impl Default for Life {
    fn default() -> Self {
        Life {
            state: SessionState::Joining,
            since: Moment::ZERO,
            cause: Cause::Requested,
            waiting_for: None,
            has_been_attached: false,
            healthy_since: Moment::ZERO,
            renewals_failed: 0,
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

    /// The state is another one from now on, for this reason.
    pub(super) fn set_state(&mut self, to: SessionState, cause: Cause, ctx: &mut Context) {
        if self.state == to {
            return;
        }
        let (from, after) = (self.state, ctx.now.at.since(self.since));
        (self.state, self.since, self.cause) = (to, ctx.now.at, cause.clone());
        ctx.tell(Notice::StateChanged { from, to, cause, after });
        ctx.agenda.add_everything();
    }

    pub(super) fn waiting_for(&self) -> Option<&String> {
        self.waiting_for.as_ref()
    }

    /// Something keeps it from joining or claiming, for that long at most. Told once for each reason.
    pub(super) fn wait_for(&mut self, why: String, for_up_to: Duration, ctx: &mut Context) {
        if self.waiting_for.as_ref() != Some(&why) {
            self.waiting_for = Some(why.clone());
            ctx.tell(Notice::Waiting { why, for_up_to });
        }
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

    /// When a new session has been healthy for long enough; [`Moment::NEVER`] if none is recovering.
    pub(super) fn recovered_at(&self, recover_window: Duration) -> Moment {
        match self.state {
            SessionState::Recovering => self.healthy_since + recover_window,
            _ => Moment::NEVER,
        }
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
}

impl Node {
    /// A new session has been healthy for long enough: it takes shards again.
    pub(super) fn recovered(&mut self) {
        self.life.set_state(SessionState::Attached, Cause::Recovered, &mut self.ctx);
        // Nobody was late while we could not have taken anything ourselves.
        self.vacancies.restart_turns();
        self.ctx.record_changed();
        self.ctx.replan_now();
    }
}
