//! The state of our session that people see, since when and why. The session itself is in `session`, the sessions before it
//! are in `former`.

use std::time::Duration;

use super::context::Context;
use super::timers::Timer;
use super::vacancies::Vacancies;
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

    /// A session begins. Says in which state: after an earlier session, the new one must first be healthy for a while.
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

    /// A renewal that was sent then landed: the session is no longer degraded, and the next renewal follows `renew_every` after
    /// this one was sent.
    pub(super) fn renewal_landed(&mut self, sent_at: Moment, ctx: &mut Context) {
        ctx.tell(Notice::Renewed { took: ctx.now.at.since(sent_at) });
        self.forget_failures();
        if self.state == SessionState::Degraded {
            self.set_state(SessionState::Attached, Cause::RenewalsSucceed, ctx);
        }
        let every = ctx.config.renew_every;
        let next_at = sent_at + every - ctx.rng.up_to(every / 10);
        ctx.timers.set(Timer::Renew, next_at.max(ctx.now.at));
    }

    /// A renewal failed, or its outcome is unknown: the session is degraded, and the renewal is sent again soon.
    pub(super) fn renewal_failed(&mut self, error: String, last_sent_at: Moment, ctx: &mut Context) {
        self.healthy_since = ctx.now.at;
        self.renewals_failed += 1;
        ctx.tell(Notice::RenewalFailed { streak: self.renewals_failed, error: error.clone() });
        if self.state == SessionState::Attached {
            self.set_state(SessionState::Degraded, Cause::RenewalsFail(error), ctx);
        }
        let try_timeout = ctx.config.try_timeout;
        let spaced = (last_sent_at + try_timeout / 2).max(ctx.now.at);
        let jitter = ctx.rng.up_to(try_timeout / 10);
        ctx.timers.set(Timer::Renew, spaced + jitter);
    }

    /// Renewals succeed again, or there is nothing to renew.
    pub(super) fn forget_failures(&mut self) {
        self.renewals_failed = 0;
    }

    /// A new session has been healthy for long enough: it takes shards again.
    pub(super) fn recovered(&mut self, vacancies: &mut Vacancies, ctx: &mut Context) {
        self.set_state(SessionState::Attached, Cause::Recovered, ctx);
        // Nobody was late while we could not have taken anything ourselves.
        vacancies.restart_turns();
        ctx.record_changed();
        ctx.replan_now();
    }
}
