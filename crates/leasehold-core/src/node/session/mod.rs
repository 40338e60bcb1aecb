//! The session: what it is, its deadlines, and losing it. GUARANTEES, "Stop before loss".
//!
//! `joining` opens it, `renewing` keeps it, `own_record` writes and reads the record that it lives in.

mod joining;
mod own_record;
mod renewing;

use std::sync::Arc;

use super::Node;
use super::context::Context;
use super::requests::Purpose;
use super::timers::{StepStage, Timer};
use crate::event::{Action, Deadlines, StopReason};
#[cfg(feature = "sabotage")]
use crate::name::WriteId;
use crate::name::{Epoch, SessionId, ShardId};
use crate::notice::{Cause, Notice, SessionState};
use crate::record::Published;
use crate::rules::Rule;
use crate::store::Version;
use crate::time::{Moment, Now};

pub(in crate::node) use joining::PendingJoin;
use renewing::{Encoded, Renewal};

/// A session that is good, as far as its own clock tells.
#[derive(Debug)]
pub(in crate::node) struct Session {
    id: SessionId,
    seq: u64,
    /// The version of our record that the next renewal replaces.
    version: Option<Version>,
    deadlines: Deadlines,
    /// When the last renewal that is known to have landed was sent.
    renewed_at: Moment,
    /// The least that the wall clock was ahead of the boot clock since then.
    wall_ahead_min_ms: i64,
    /// Our logical time when it began.
    opened: u64,
    /// `meta` was read since, and was what we know: then its first record landed in the store that we know.
    meta_confirmed: bool,
    /// What that renewal publishes.
    published: Arc<Published>,
    /// Renewals that were sent and may have landed.
    pending: Vec<Renewal>,
    encoded: Option<Encoded>,
    last_sent_at: Moment,
    #[cfg(feature = "sabotage")]
    lost_grants: crate::node::sabotage::LostGrants,
}

impl Node {
    /// Before anything else in every step: has the time come, or did the clock stand still?
    pub(in crate::node) fn compare_clocks(&mut self, now: Now) {
        let before = self.ctx.now;
        if before.unix_ms == 0 {
            self.life.begin(now.at);
        }
        self.ctx.now = Now { at: now.at.max(before.at), unix_ms: now.unix_ms };
        let Some(session) = &mut self.session else { return };
        // Counted from the renewal that all deadlines count from: several short freezes are as bad as a long one.
        let ahead_min_ms = session.compare_clocks(self.ctx.now);
        let since =
            if self.ctx.rules.hold(Rule::FreezesAddUp) { ahead_min_ms } else { before.wall_ahead_ms() };
        if let Some(frozen_for) = self.ctx.frozen_since(since) {
            self.detach(Cause::ClockStoodStill(frozen_for));
        }
        self.run_timers(StepStage::Clock);
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
            self.planner.replan_if_never(&mut self.freeze, &mut self.ctx);
            self.gc();
        } else if self.life.state() != SessionState::Left {
            self.try_to_join();
        }
    }

    /// `stop_at` has come without a confirmed renewal.
    pub(in crate::node) fn session_over(&mut self) {
        if !self.ctx.rules.hold(Rule::Detach) {
            return;
        }
        #[cfg(feature = "sabotage")]
        if let Some(session) = &mut self.session
            && session.lost_grants.revive(&session.deadlines, &mut self.ctx)
        {
            return;
        }
        self.detach(Cause::DeadlineReached);
    }

    /// The session is over, for good. Work is told to stop before anything else happens.
    pub(in crate::node) fn detach(&mut self, cause: Cause) {
        let Some(session) = self.session.take() else { return };
        // The node that wrote over our record may already treat the session as over: then there is no time to lose.
        let kill_at = match cause {
            Cause::Fenced => session.deadlines.kill_at.min(self.ctx.now.at + self.ctx.config.kill_budget),
            _ => session.deadlines.kill_at,
        };
        self.ctx.out.push(Action::Lose);
        for (shard, epoch) in self.holds.orphan_all() {
            let why = StopReason::Detached;
            self.ctx.out.push(Action::Stop { shard: shard.clone(), epoch, why, kill_at: Some(kill_at) });
            self.ctx.tell(Notice::Stopping { shard, epoch, why });
        }
        self.former.lost(session.id, kill_at, self.ctx.now, cause.to_string());
        self.life.forget_failures();
        self.moves.clear();
        self.outbox.clear();
        self.publishing.clear();
        self.declines.forget_admitted();
        self.vacancies.clear();
        self.ctx.timers.stop(Timer::Renew);
        self.ctx.timers.stop(Timer::ReadBack);
        self.ctx.timers.stop(Timer::Acquire);
        self.requests
            .forget(|purpose| matches!(purpose, Purpose::Renew(_) | Purpose::Shards(_) | Purpose::Look(_)));
        self.ctx.timers.set_earlier(Timer::List, self.ctx.now.at);
        self.life.set_state(SessionState::Detached, cause, &mut self.ctx);
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

    /// Our record has this version, written by us or not.
    pub(in crate::node) fn set_version(&mut self, version: Version) {
        self.version = Some(version);
    }

    pub(in crate::node) fn stop_at(&self) -> Moment {
        self.deadlines.stop_at
    }

    /// Notes how far the wall clock is ahead now; returns the least since the renewal that the deadlines count from.
    fn compare_clocks(&mut self, now: Now) -> i64 {
        let ahead_ms = now.wall_ahead_ms();
        for pending in &mut self.pending {
            pending.wall_ahead_min_ms = pending.wall_ahead_min_ms.min(ahead_ms);
        }
        self.wall_ahead_min_ms = self.wall_ahead_min_ms.min(ahead_ms);
        self.wall_ahead_min_ms
    }

    /// This renewal is known to have landed. Deadlines only move forward.
    fn confirm(&mut self, renewal: &Renewal, ctx: &mut Context) {
        let from_sending = ctx.rules.hold(Rule::DeadlineFromSending);
        let counted_from = if from_sending { renewal.sent_at } else { ctx.now.at };
        if counted_from > self.renewed_at {
            self.renewed_at = counted_from;
            self.wall_ahead_min_ms = renewal.wall_ahead_min_ms;
        }
        let deadlines = ctx.deadlines_from(self.renewed_at);
        if deadlines.valid_until > self.deadlines.valid_until {
            self.deadlines = deadlines;
            #[cfg(feature = "sabotage")]
            self.lost_grants.revived();
            ctx.out.push(Action::Deadlines(deadlines));
        }
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

    /// Whether our record publishes a shard, or may do so soon.
    pub(in crate::node) fn may_be_published(&self, shard: &ShardId) -> bool {
        self.latest_publication().has(shard)
    }

    /// Whether others can see that this session may start a shard, at whatever epoch.
    pub(in crate::node) fn has_announced(&self, shard: &ShardId) -> bool {
        self.publishes(shard, Epoch(0))
    }

    /// This renewal is taken for landed, although the store refused it.
    #[cfg(feature = "sabotage")]
    pub(in crate::node) fn believe(&mut self, write: WriteId, ctx: &mut Context) {
        if let Some(renewal) = self.pending.iter().find(|renewal| renewal.write == write).cloned() {
            self.confirm(&renewal, ctx);
        }
    }

    /// When the session must be given up unless it is renewed.
    pub(in crate::node) fn over_at(&self) -> Moment {
        #[cfg(feature = "sabotage")]
        if let Some(at) = self.lost_grants.over_at(&self.deadlines) {
            return at;
        }
        self.deadlines.stop_at
    }

    /// Above every renewal that was sent, whether it landed or not.
    pub(in crate::node) fn next_seq(&self) -> u64 {
        self.pending.iter().map(|renewal| renewal.seq).max().unwrap_or(self.seq).max(self.seq) + 1
    }
}
