//! The session: what it is, what its record says, and losing it. GUARANTEES, "Stop before loss".

use std::sync::Arc;
use std::time::Duration;

use super::Node;
use super::renewing::Renewal;
use super::requests::Purpose;
use crate::event::{Action, Deadlines, StopReason};
use crate::name::{SessionId, WriteId};
use crate::notice::{Cause, Notice, Standing};
use crate::record::{FORMAT, Meta, NodeRecord, NodeState, PROTOCOL, Published, Report};
use crate::rules::Rule;
use crate::store::{Lane, Op, Version};
use crate::time::{Moment, Now};

/// The most shards that a report lists of each kind.
const REPORTED_MAX: usize = 32;

/// A session that is good, as far as its own clock tells.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) id: SessionId,
    pub(super) seq: u64,
    /// The version of our record that the next renewal replaces.
    pub(super) version: Option<Version>,
    pub(super) deadlines: Deadlines,
    /// When the last renewal that is known to have landed was sent, by both clocks.
    pub(super) renewed_at: Now,
    /// Our logical time when it began.
    pub(super) opened: u64,
    /// `meta` was read since, and was what we know: then its first record landed in the store that we know.
    pub(super) meta_confirmed: bool,
    /// What that renewal publishes.
    pub(super) published: Arc<Published>,
    /// Renewals that were sent and may have landed.
    pub(super) pending: Vec<Renewal>,
    pub(super) last_sent_at: Moment,
    /// The work was told that its grants are lost, and yet the session goes on. Only a test build gets here.
    pub(super) lost_told: bool,
}

impl Node {
    /// Before anything else in every step: has the time come, or did the clock stand still?
    pub(super) fn compare_clocks(&mut self, now: Now) {
        let before = self.now;
        if before.unix_ms == 0 {
            self.standing_since = now.at;
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
        } else if self.now.at >= stop_at && self.rules.hold(Rule::Detach) && !self.may_be_revived() {
            self.detach(Cause::DeadlineReached);
        }
    }

    /// What a wrong design would do: wait for a late confirmation of a session whose grants are lost already. Only a
    /// test build gets here.
    fn may_be_revived(&mut self) -> bool {
        let Some(session) = &mut self.session else { return false };
        if self.rules.hold(Rule::LostIsForEver) || self.now.at >= session.deadlines.valid_until {
            return false;
        }
        if !std::mem::replace(&mut session.lost_told, true) {
            self.out.push(Action::Lose);
        }
        true
    }

    pub(super) fn run_session_timers(&mut self) {
        if self.now.at >= self.recovered_at() {
            self.set_standing(Standing::Attached, Cause::Recovered);
            // Nobody was late while we could not have taken anything ourselves.
            self.turn_since.clear();
            self.record_changed = true;
            self.replan_now();
        }
        if self.now.at >= self.renew_at {
            self.renew_at = Moment::NEVER;
            self.renew();
        }
        if self.now.at >= self.list_at {
            self.list_at = Moment::NEVER;
            if !self.requests.any(|purpose| matches!(purpose, Purpose::List)) {
                self.ask(Lane::Work, Op::List, Purpose::List);
            }
        }
    }

    pub(super) fn recovered_at(&self) -> Moment {
        match self.standing {
            Standing::Recovering => self.healthy_since + self.config.recover_window,
            _ => Moment::NEVER,
        }
    }

    pub(super) fn next_list_at(&mut self) -> Moment {
        let every = match (self.session.is_some(), self.facts.watch) {
            (true, true) => self.config.list_every,
            (true, false) => self.facts.poll_every.min(self.config.list_every),
            (false, _) => self.config.renew_every,
        };
        self.now.at + every - self.chance.up_to(every / 10)
    }

    pub(super) fn set_standing(&mut self, to: Standing, cause: Cause) {
        if self.standing == to {
            return;
        }
        let (from, after) = (self.standing, self.now.at.since(self.standing_since));
        self.standing = to;
        self.standing_since = self.now.at;
        self.cause = cause.clone();
        self.tell(Notice::Standing { from, to, cause, after });
        self.reconsider_all = true;
    }

    pub(super) fn wait_for(&mut self, why: String, for_up_to: Duration) {
        if self.waiting_for.as_ref() != Some(&why) {
            self.waiting_for = Some(why.clone());
            self.tell(Notice::Waiting { why, for_up_to });
        }
    }

    /// After every good listing: whatever is missing for a session, or what the session should mend.
    pub(super) fn after_contact(&mut self) {
        if self.incarnation.is_none() {
            self.find_incarnation();
        }
        if self.incarnation.is_none() {
            return;
        }
        if self.session.is_some() {
            self.mend_groups();
            self.verify_held();
            self.replan_if_never();
            self.tidy();
        } else if self.standing != Standing::Left {
            self.try_to_join();
        }
    }

    /// What our own record in the store says about us. Told by whatever shows it.
    pub(super) fn own_record_seen(&mut self) {
        let me = self.me();
        let Some(session) = &self.session else {
            if self.incarnation.is_some() && self.standing != Standing::Left {
                self.try_to_join();
            }
            return;
        };
        let seen = self.mirror.nodes.get(&me).and_then(|node| node.seen.as_ref());
        match seen.map(|seen| &seen.record) {
            Some(Ok(record)) if record.session == session.id && record.state.is_alive() => {
                // A renewal whose answer was lost, or is slower than the watch: it landed, and counts from its sending.
                let landed = session.pending.iter().find(|renewal| renewal.write == record.write).cloned();
                if let (Some(renewal), Some(seen)) = (landed, seen) {
                    let version = seen.version.clone();
                    self.renewal_landed(renewal, version);
                }
            }
            Some(Ok(record))
                if record.session == session.id
                    && record.state == NodeState::Left
                    && self.leaving.is_some() =>
            {
                // Our own last word, before its answer.
                self.session = None;
                self.finish();
            }
            Some(Ok(_)) => self.detach(Cause::Fenced),
            Some(Err(error)) if error.is_too_new() => self.detach(Cause::Fenced),
            // Somebody scribbled over it: the next renewal writes it anew.
            Some(Err(_)) => self.record_changed = true,
            None => self.detach(Cause::RecordGone),
        }
    }

    /// Until when work may run, if the last renewal that landed was sent then.
    pub(super) fn deadlines_from(&self, renewed_at: Moment) -> Deadlines {
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
    pub(super) fn move_deadlines(&mut self) {
        let Some(session) = &self.session else { return };
        let deadlines = self.deadlines_from(session.renewed_at.at);
        let Some(session) = &mut self.session else { return };
        if deadlines.valid_until > session.deadlines.valid_until {
            session.deadlines = deadlines;
            session.lost_told = false;
            self.out.push(Action::Deadlines(deadlines));
        }
    }

    /// The session is over, for good. Work is told to stop before anything else happens.
    pub(super) fn detach(&mut self, cause: Cause) {
        let Some(session) = self.session.take() else { return };
        // Whoever wrote over our record may hold the session for dead already: then there is no time to lose.
        let kill_at = match cause {
            Cause::Fenced => session.deadlines.kill_at.min(self.now.at + self.config.kill_budget),
            _ => session.deadlines.kill_at,
        };
        self.out.push(Action::Lose);
        let holds = std::mem::take(&mut self.holds);
        for (shard, hold) in holds {
            if !hold.has_work() {
                continue;
            }
            let (epoch, why) = (hold.epoch, StopReason::Detached);
            self.out.push(Action::Stop { shard: shard.clone(), epoch, why, kill_at: Some(kill_at) });
            self.tell(Notice::Stopping { shard: shard.clone(), epoch, why });
            self.orphans.insert(shard, epoch);
        }
        self.former.insert(session.id);
        self.ended = Some(session.id);
        self.ended_kill_at = kill_at;
        self.detached_at = Some((self.now, cause.to_string()));
        self.renewals_failed = 0;
        self.surplus.clear();
        self.given_up_for.clear();
        self.outbox.clear();
        self.verify.clear();
        self.forget_publishing();
        self.admitted.clear();
        self.roomless.clear();
        self.unowned_since.clear();
        self.turn_since.clear();
        self.renew_at = Moment::NEVER;
        self.settle_at = Moment::NEVER;
        self.acquire_at = Moment::NEVER;
        self.requests
            .forget(|purpose| matches!(purpose, Purpose::Renew(_) | Purpose::Shards(_) | Purpose::Look(_)));
        self.list_at = self.list_at.min(self.now.at);
        self.set_standing(Standing::Detached, cause);
    }

    /// Our record, as it should be now.
    pub(super) fn node_record(&mut self, session: SessionId, seq: u64, state: NodeState) -> NodeRecord {
        let published = self.publication();
        let (groups, declined) = self.offer();
        NodeRecord {
            format: FORMAT,
            write: WriteId::from_bits(self.chance.bits()),
            node: self.me(),
            session,
            state,
            accepting: self.offers(),
            returning: self.returns(),
            weight: self.weight,
            capacity: self.capacity,
            zone: self.config.zone.clone(),
            address: self.address.clone(),
            labels: self.labels.clone(),
            groups,
            declined: declined.into_iter().collect(),
            ttl_ms: self.config.ttl.as_millis() as u64,
            seq,
            unproved: self.now.at < self.unproved_until,
            publishes: Some(published),
            awaits: self.awaits(),
            meta: self.meta_known.as_ref().map(Meta::mark),
            // Whoever shows no view is given nothing voluntarily.
            view: if self.shy_until == Moment::NEVER { self.plan.view } else { 0 },
            placement: self.planning.own_id(),
            protocol: PROTOCOL,
            report: self.report(),
            written_unix_ms: self.now.unix_ms,
            extra: Default::default(),
        }
    }

    /// What people may want to know.
    fn report(&self) -> Report {
        let stuck = self.holds.iter().filter(|(_, hold)| hold.is_stuck()).map(|(shard, _)| shard.clone());
        let unmoved = self.surplus.iter().take(REPORTED_MAX);
        Report {
            standing: (self.standing == Standing::Recovering).then(|| self.standing.as_str().to_owned()),
            stuck: stuck.take(REPORTED_MAX).collect(),
            unmoved: unmoved.filter_map(|s| Some((s.clone(), self.why_unmoved(s)?.to_string()))).collect(),
            unserved: self.unserved().take(REPORTED_MAX).collect(),
            outage: self.outage.clone(),
            extra: Default::default(),
        }
    }

    /// Whether this node lost a session and will take shards again once a new one has been healthy for a while.
    pub(super) fn returns(&self) -> bool {
        let recovers = matches!(self.standing, Standing::Recovering | Standing::Detached);
        self.accepting && recovers && self.leaving.is_none() && self.rules.hold(Rule::ReturningCounts)
    }

    /// Whether this node takes new shards.
    pub(super) fn offers(&self) -> bool {
        self.accepting && !matches!(self.standing, Standing::Recovering | Standing::Detached | Standing::Left)
    }
}

impl Session {
    /// When the session must be given up unless it is renewed.
    pub(super) fn over_at(&self) -> Moment {
        if self.lost_told { self.deadlines.valid_until } else { self.deadlines.stop_at }
    }

    /// Above every renewal that was sent, whether it landed or not.
    pub(super) fn next_seq(&self) -> u64 {
        self.pending.iter().map(|renewal| renewal.seq).max().unwrap_or(self.seq).max(self.seq) + 1
    }
}
