//! The session: what it is, its deadlines, and losing it. GUARANTEES, "Stop before loss".
//!
//! `joining` opens it, `renewing` keeps it, `own_record` writes and reads the record that it lives in.

mod joining;
mod own_record;
mod renewing;

use std::sync::Arc;
use std::time::Duration;

use super::Node;
use super::requests::Purpose;
use super::timers::Timer;
use crate::event::{Action, Deadlines, StopReason};
use crate::name::{Epoch, SessionId, ShardId};
use crate::notice::{Cause, Notice, SessionState};
use crate::record::Published;
use crate::rules::Rule;
use crate::store::Version;
use crate::time::{Moment, Now};

pub(in crate::node) use joining::PendingJoin;
use renewing::Renewal;

/// A session that is good, as far as its own clock tells.
#[derive(Debug)]
pub(in crate::node) struct Session {
    id: SessionId,
    seq: u64,
    /// The version of our record that the next renewal replaces.
    version: Option<Version>,
    deadlines: Deadlines,
    /// When the last renewal that is known to have landed was sent, by both clocks.
    renewed_at: Now,
    /// Our logical time when it began.
    opened: u64,
    /// `meta` was read since, and was what we know: then its first record landed in the store that we know.
    meta_confirmed: bool,
    /// What that renewal publishes.
    published: Arc<Published>,
    /// Renewals that were sent and may have landed.
    pending: Vec<Renewal>,
    last_sent_at: Moment,
    /// The work was told that its grants are lost, and yet the session goes on.
    #[cfg(feature = "sabotage")]
    lost_told: bool,
}

impl Node {
    /// Before anything else in every step: has the time come, or did the clock stand still?
    pub(in crate::node) fn compare_clocks(&mut self, now: Now) {
        let before = self.now;
        if before.unix_ms == 0 {
            self.life.begin(now.at);
        }
        self.now = Now { at: now.at.max(before.at), unix_ms: now.unix_ms };
        let Some(session) = &self.session else { return };
        let stop_at = session.deadlines.stop_at;
        // Counted from the renewal that all deadlines count from: several short freezes are as bad as a long one.
        let since = if self.rules.hold(Rule::FreezesAddUp) { session.renewed_at } else { before };
        let wall = Duration::from_millis(now.unix_ms.saturating_sub(since.unix_ms));
        let boot = self.now.at.since(since.at);
        if since.unix_ms != 0 && wall > boot + self.config.margin {
            self.detach(Cause::ClockStoodStill(wall - boot));
        } else if self.now.at >= stop_at && self.rules.hold(Rule::Detach) {
            #[cfg(feature = "sabotage")]
            if self.revive_what_is_lost() {
                return;
            }
            self.detach(Cause::DeadlineReached);
        }
    }

    pub(in crate::node) fn next_list_at(&mut self) -> Moment {
        let every = match (self.session.is_some(), self.facts.watch) {
            (true, true) => self.config.list_every,
            (true, false) => self.facts.poll_every.min(self.config.list_every),
            (false, _) => self.config.renew_every,
        };
        self.now.at + every - self.rng.up_to(every / 10)
    }

    /// After every good listing: whatever is missing for a session, or what the session should mend.
    pub(in crate::node) fn after_contact(&mut self) {
        if !self.namespace.is_known() {
            self.find_incarnation();
        }
        if !self.namespace.is_known() {
            return;
        }
        if self.session.is_some() {
            self.mend_groups();
            self.verify_held();
            self.replan_if_never();
            self.gc();
        } else if self.life.state() != SessionState::Left {
            self.try_to_join();
        }
    }

    /// Until when work may run, if the last renewal that landed was sent then.
    pub(in crate::node) fn deadlines_from(&self, renewed_at: Moment) -> Deadlines {
        let valid_until = renewed_at + self.config.valid_for();
        if !self.rules.hold(Rule::Margin) {
            return Deadlines { stop_at: valid_until, kill_at: valid_until, valid_until };
        }
        Deadlines {
            stop_at: valid_until - self.config.margin,
            kill_at: valid_until - self.config.kill_budget,
            valid_until,
        }
    }

    /// A renewal is newer than before. Deadlines only move forward.
    pub(in crate::node) fn move_deadlines(&mut self) {
        let Some(session) = &self.session else { return };
        let deadlines = self.deadlines_from(session.renewed_at.at);
        let Some(session) = &mut self.session else { return };
        if deadlines.valid_until > session.deadlines.valid_until {
            session.deadlines = deadlines;
            #[cfg(feature = "sabotage")]
            session.hope_again();
            self.out.push(Action::Deadlines(deadlines));
        }
    }

    /// The session is over, for good. Work is told to stop before anything else happens.
    pub(in crate::node) fn detach(&mut self, cause: Cause) {
        let Some(session) = self.session.take() else { return };
        // Whoever wrote over our record may hold the session for dead already: then there is no time to lose.
        let kill_at = match cause {
            Cause::Fenced => session.deadlines.kill_at.min(self.now.at + self.config.kill_budget),
            _ => session.deadlines.kill_at,
        };
        self.out.push(Action::Lose);
        for (shard, epoch) in self.holds.orphan_all() {
            let why = StopReason::Detached;
            self.out.push(Action::Stop { shard: shard.clone(), epoch, why, kill_at: Some(kill_at) });
            self.tell(Notice::Stopping { shard, epoch, why });
        }
        self.former.lost(session.id, kill_at, self.now, cause.to_string());
        self.life.forget_failures();
        self.moves.clear();
        self.outbox.clear();
        self.forget_publishing();
        self.declines.forget_admitted();
        self.vacancies.clear();
        self.timers.stop(Timer::Renew);
        self.timers.stop(Timer::Settle);
        self.timers.stop(Timer::Acquire);
        self.requests
            .forget(|purpose| matches!(purpose, Purpose::Renew(_) | Purpose::Shards(_) | Purpose::Look(_)));
        self.timers.set_earlier(Timer::List, self.now.at);
        self.set_state(SessionState::Detached, cause);
    }
}

impl Session {
    pub(in crate::node) fn id(&self) -> SessionId {
        self.id
    }

    /// The version of our record that the next write of it replaces.
    pub(in crate::node) fn version(&self) -> Option<Version> {
        self.version.clone()
    }

    /// Our record has this version, whoever wrote it.
    pub(in crate::node) fn set_version(&mut self, version: Version) {
        self.version = Some(version);
    }

    pub(in crate::node) fn stop_at(&self) -> Moment {
        self.deadlines.stop_at
    }

    /// `meta` was read by a request that was issued then, and was what we know.
    pub(in crate::node) fn meta_was_read(&mut self, issued: u64) {
        self.meta_confirmed |= issued > self.opened;
    }

    /// Whether `meta` was read since the session began: then its first record landed in the store that we know.
    pub(in crate::node) fn is_meta_confirmed(&self) -> bool {
        self.meta_confirmed
    }

    /// Whether the store is known to publish a shard at this epoch, whatever becomes of renewals under way.
    pub(in crate::node) fn publishes(&self, shard: &ShardId, epoch: Epoch) -> bool {
        self.published.covers(shard, epoch)
            && self.pending.iter().all(|renewal| renewal.published.covers(shard, epoch))
    }

    /// What our record publishes, as the store has it or may have it soon.
    pub(in crate::node) fn latest_publication(&self) -> &Published {
        self.pending.last().map_or(&self.published, |renewal| &renewal.published)
    }

    /// The work is told that its grants are lost, and yet the session goes on; `true` the first time.
    #[cfg(feature = "sabotage")]
    pub(in crate::node) fn tell_lost(&mut self) -> bool {
        !std::mem::replace(&mut self.lost_told, true)
    }

    /// A late renewal was confirmed.
    #[cfg(feature = "sabotage")]
    fn hope_again(&mut self) {
        self.lost_told = false;
    }

    #[cfg(feature = "sabotage")]
    pub(in crate::node) fn valid_until(&self) -> Moment {
        self.deadlines.valid_until
    }

    /// When the session must be given up unless it is renewed.
    pub(in crate::node) fn over_at(&self) -> Moment {
        #[cfg(feature = "sabotage")]
        if self.lost_told {
            return self.deadlines.valid_until;
        }
        self.deadlines.stop_at
    }

    /// Above every renewal that was sent, whether it landed or not.
    pub(in crate::node) fn next_seq(&self) -> u64 {
        self.pending.iter().map(|renewal| renewal.seq).max().unwrap_or(self.seq).max(self.seq) + 1
    }
}
