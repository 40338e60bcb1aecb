//! The session: opening it, renewing it, losing it, and getting the next one. GUARANTEES, "Stop before loss".

use std::sync::Arc;
use std::time::Duration;

use super::Node;
use super::requests::{Purpose, Sent};
use crate::event::{Action, Deadlines, StopReason};
use crate::mirror::Source;
use crate::name::{SessionId, WriteId};
use crate::notice::{Cause, Notice, Standing};
use crate::record::{FORMAT, NodeRecord, NodeState, PROTOCOL, Record, Served};
use crate::rules::Rule;
use crate::store::{Key, Lane, Op, Stored, Swap, Swapped, Version};
use crate::time::{Moment, Now};

/// The most shards that a node's record lists as declined; beyond that it declines their whole groups.
const DECLINED_MAX: usize = 64;

/// A session that is good, as far as its own clock tells.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) id: SessionId,
    seq: u64,
    /// The version of our record that the next renewal replaces.
    version: Option<Version>,
    pub(super) deadlines: Deadlines,
    /// Renewals that were sent and may have landed.
    pending: Vec<Renewal>,
    last_sent_at: Moment,
    /// The work was told that its grants are lost, and yet the session goes on. Only a test build gets here.
    lost_told: bool,
}

#[derive(Clone, Debug)]
struct Renewal {
    write: WriteId,
    seq: u64,
    sent_at: Moment,
    value: Arc<[u8]>,
}

/// A session that we tried to open.
#[derive(Debug)]
pub(super) struct PendingJoin {
    session: SessionId,
    write: WriteId,
    sent_at: Moment,
    value: Arc<[u8]>,
}

impl PendingJoin {
    pub(super) fn session(&self) -> SessionId {
        self.session
    }
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
        let wall = Duration::from_millis(now.unix_ms.saturating_sub(before.unix_ms));
        let boot = self.now.at.since(before.at);
        if before.unix_ms != 0 && wall > boot + self.config.margin {
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

    /// Opens a session, if nobody of our name can still be alive.
    pub(super) fn try_to_join(&mut self) {
        let busy = |purpose: &Purpose| matches!(purpose, Purpose::Join | Purpose::Left(_));
        if self.requests.any(busy) || !self.mirror.ready {
            return;
        }
        if self.leaving.is_some() && self.former.is_empty() {
            return;
        }
        if !self.former_is_over() && self.rules.hold(Rule::LeftOnlyWhenStopped) {
            return self.wait_to_be_fenced();
        }
        let me = self.me();
        let node = self.mirror.nodes.get(&me);
        let Some(seen) = node.and_then(|node| node.seen.as_ref()) else {
            return self.join_over_nothing();
        };
        let version = seen.version.clone();
        let Ok(record) = &seen.record else {
            let ttl_max = self.ttl_max();
            // While we had a session nobody had to prove anything.
            self.probe_at = self.probe_at.min(self.now.at + ttl_max / 2);
            return self.wait_for(
                "our node record is damaged: waiting until nobody can be using it".into(),
                ttl_max,
            );
        };
        // A session that was proved dead is dead, also when a store that was rolled back shows it alive again.
        if !record.state.is_alive() || self.mirror.dead.contains_key(&record.session) {
            if record.unproved {
                self.name_is_unproved();
            }
            return self.send_join(Some(version), None);
        }
        let (session, write, ttl) = (record.session, record.write, record.ttl());
        if let Some(join) = self.join.take() {
            if join.write == write {
                return self.open_session(join, version);
            }
            self.former.insert(join.session);
        }
        if self.former.contains(&session) && !self.rules.hold(Rule::NoRenewalWhenDetached) {
            self.renew_what_is_over(session, version);
        } else if self.former.contains(&session) {
            self.send_left(session, Some(version));
        } else if !self.rules.hold(Rule::FreshSession) {
            self.send_join(Some(version), Some(session));
        } else {
            let renewing = self.seen_renewing(session);
            let why = match renewing {
                true => format!(
                    "the node name {me} is used by a live session: use another name, or stop that process"
                ),
                false => {
                    format!("an earlier session of {me} may still be alive: waiting until it is proved dead")
                }
            };
            self.wait_for(why, ttl);
        }
    }

    /// A new session under our name tells everybody that the former one is over, whatever became of its record. That is
    /// so once its work is confirmed stopped, or once it was proved dead like anybody else's.
    fn former_is_over(&self) -> bool {
        self.orphans.is_empty() || self.ended.is_some_and(|session| self.mirror.dead.contains_key(&session))
    }

    /// Work of our former session does not end: the session is left to be proved dead, by us or by another node.
    fn wait_to_be_fenced(&mut self) {
        let (me, ttl) = (self.me(), self.config.ttl);
        let absent = self.mirror.nodes.get(&me).is_none_or(|node| node.seen.is_none());
        if let Some(session) = self.ended.filter(|_| absent) {
            self.mirror.note_absent(self.now.at, &me);
            self.lost_sessions.insert(me, (session, ttl));
        }
        self.probe_at = self.probe_at.min(self.now.at + ttl / 2);
        if self.now.at < self.ended_kill_at {
            return; // It has its time to stop.
        }
        let why = "work of our former session has not stopped: waiting until that session is over";
        self.wait_for(why.into(), ttl);
    }

    /// Whether a session of our own name that is not ours has renewed since we first saw it.
    fn seen_renewing(&mut self, session: SessionId) -> bool {
        let me = self.me();
        let seen =
            self.mirror.nodes.get(&me).and_then(|node| node.seen.as_ref()).and_then(|seen| seen.good());
        let seq = seen.map_or(0, |record| record.seq);
        match &self.rival {
            Some((rival, first)) if *rival == session => {
                let renewing = seq > *first;
                if renewing && !self.name_taken_told {
                    self.name_taken_told = true;
                    self.tell(Notice::NameTaken { node: me, session });
                }
                renewing
            }
            _ => {
                self.rival = Some((session, seq));
                false
            }
        }
    }

    /// There is no record of our name. If shards name a session of it, that record was lost, and the session may live.
    fn join_over_nothing(&mut self) {
        let me = self.me();
        let holders = self.mirror.shards.values().filter_map(|seen| seen.good()?.holder());
        let named: Vec<_> = holders
            .filter(|holder| holder.node == me && !self.mirror.dead.contains_key(&holder.session))
            .collect();
        let foreign = named.iter().filter(|holder| !self.former.contains(&holder.session));
        let foreign = foreign.max_by_key(|holder| holder.ttl_ms).map(|holder| (*holder).clone());
        let ours = named.iter().any(|holder| self.former.contains(&holder.session));
        self.name_is_unproved();
        let Some(lost) = foreign else {
            return match self.ended {
                // All of it is stopped: saying so frees what it held at once.
                Some(session) if ours && !self.mirror.dead.contains_key(&session) => {
                    self.send_left(session, None);
                }
                _ => self.send_join(None, None),
            };
        };
        // It is fenced like any other that is silent, and then this node joins over the tombstone.
        self.mirror.note_absent(self.now.at, &me);
        self.lost_sessions.insert(me, (lost.session, lost.ttl()));
        self.probe_at = self.probe_at.min(self.now.at + lost.ttl() / 2);
        let ttl = lost.ttl();
        self.wait_for("the record of our earlier session is gone: waiting until it must be over".into(), ttl);
    }

    /// Nothing proves that no other session of this name is alive: the others must wait for the longest that it can.
    fn name_is_unproved(&mut self) {
        self.unproved_until =
            self.now.at + crate::config::stretch(self.ttl_max(), self.config.drift_permille);
    }

    fn send_join(&mut self, expect: Option<Version>, adopt: Option<SessionId>) {
        if self.leaving.is_some() {
            return;
        }
        if let Some(join) = self.join.take() {
            self.former.insert(join.session);
        }
        let session = adopt.unwrap_or_else(|| SessionId::from_bits(self.chance.bits()));
        let record = self.node_record(session, 1, NodeState::Active);
        let value: Arc<[u8]> = record.encode().into();
        let (write, sent_at) = (record.write, self.now.at);
        self.join = Some(PendingJoin { session, write, sent_at, value: value.clone() });
        self.out.push(Action::OpenSession(session));
        let swap = Swap { key: Key::Node(self.me()), expect, value: Some(value) };
        self.ask_swap(Lane::Renewal, swap, Purpose::Join);
    }

    pub(super) fn on_joined(&mut self, outcome: Swapped) {
        match outcome {
            Swapped::Applied(version) => {
                if let Some(join) = self.join.take() {
                    self.open_session(join, version);
                }
            }
            // A pause, so that two that take each other's place again and again do not do so all the time.
            Swapped::Lost(_) | Swapped::Unknown => {
                let pause = self.config.retry.shortest();
                self.list_at = self.now.at + pause + self.chance.up_to(pause);
            }
        }
    }

    fn open_session(&mut self, join: PendingJoin, version: Version) {
        // Whatever lived under our name before is over. Something that is late may still show it alive.
        let own = self.mirror.nodes.get(&self.config.node).and_then(|node| node.seen.as_ref());
        let before = own.and_then(|seen| seen.good()).map(|record| record.session);
        for session in self.former.iter().copied().chain(before).filter(|session| *session != join.session) {
            self.mirror.dead.insert(session, self.now.at);
        }
        let deadlines = self.deadlines_from(join.sent_at);
        if self.now.at >= deadlines.stop_at {
            // It took too long: this session is over before it began.
            self.former.insert(join.session);
            self.list_at = self.now.at;
            return;
        }
        self.session = Some(Session {
            id: join.session,
            seq: 1,
            version: Some(version.clone()),
            deadlines,
            pending: Vec::new(),
            last_sent_at: join.sent_at,
            lost_told: false,
        });
        self.out.push(Action::Deadlines(deadlines));
        let stored = Stored { version, value: join.value };
        self.take_in(Source::Mine, &Key::Node(self.me()), Some(&stored));
        if self.is_open() {
            self.waiting_for = None;
        }
        self.rival = None;
        self.renewals_failed = 0;
        self.healthy_since = self.now.at;
        self.renew_at = join.sent_at + self.config.renew_every;
        let to = if self.has_been_attached { Standing::Recovering } else { Standing::Attached };
        self.has_been_attached = true;
        self.set_standing(to, Cause::Joined);
        self.mend_groups();
        self.replan_soon();
    }

    pub(super) fn deadlines_from(&self, sent_at: Moment) -> Deadlines {
        let counted_from = if self.rules.hold(Rule::DeadlineFromSending) { sent_at } else { self.now.at };
        let valid_until = counted_from + self.config.valid_for();
        if !self.rules.hold(Rule::Margin) {
            return Deadlines { stop_at: valid_until, kill_at: valid_until, valid_until };
        }
        Deadlines {
            stop_at: valid_until - self.config.margin,
            kill_at: valid_until - self.config.kill_budget,
            valid_until,
        }
    }

    fn renew(&mut self) {
        let in_flight = self.requests.any(|purpose| matches!(purpose, Purpose::Renew(_)));
        let Some(session) = &self.session else { return };
        if in_flight {
            return;
        }
        let (id, seq, expect) = (session.id, session.next_seq(), session.version.clone());
        let state = if self.is_draining() { NodeState::Draining } else { NodeState::Active };
        let record = self.node_record(id, seq, state);
        let (sent_at, value): (Moment, Arc<[u8]>) = (self.now.at, record.encode().into());
        self.record_changed = false;
        let session = self.session.as_mut().expect("it was there");
        session.pending.push(Renewal { write: record.write, seq, sent_at, value: value.clone() });
        session.last_sent_at = sent_at;
        let swap = Swap { key: Key::Node(self.me()), expect, value: Some(value) };
        self.ask_swap(Lane::Renewal, swap, Purpose::Renew(record.write));
    }

    /// What others should know soon is published before the next renewal is due.
    pub(super) fn renew_if_changed(&mut self) {
        if !self.record_changed || self.renew_at == Moment::NEVER {
            return;
        }
        let Some(session) = &self.session else { return };
        let gap = self.facts.write_every_min.max(Duration::from_millis(10)).min(self.config.renew_every);
        let at = session.last_sent_at + gap;
        if self.now.at >= at {
            self.renew_at = Moment::NEVER;
            self.renew();
        } else {
            self.renew_at = self.renew_at.min(at);
        }
    }

    pub(super) fn on_renewed(&mut self, write: WriteId, sent: &Sent, outcome: Swapped) {
        let Some(session) = &mut self.session else { return };
        let Some(renewal) = session.pending.iter().find(|renewal| renewal.write == write).cloned() else {
            // It is known already what became of it.
            return self.go_on_renewing();
        };
        match outcome {
            Swapped::Applied(version) => self.renewal_landed(renewal, version),
            Swapped::Lost(current) => self.renewal_lost(current, sent),
            Swapped::Unknown => self.renewal_failed("its outcome is unknown".into()),
        }
    }

    /// A renewal of this session is known to be in the store. Of those that replace the same version no other can land.
    fn renewal_landed(&mut self, renewal: Renewal, version: Version) {
        let Some(session) = &mut self.session else { return };
        session.version = Some(version.clone());
        session.seq = renewal.seq;
        session.pending.retain(|pending| pending.seq > renewal.seq);
        self.confirm(renewal.sent_at, self.now.at.since(renewal.sent_at));
        if self.rules.hold(Rule::OwnRecordNotOlder) {
            // Whatever shows an older one from now on is late, or the store was rolled back.
            let stored = Stored { version, value: renewal.value };
            self.take_in(Source::Mine, &Key::Node(self.me()), Some(&stored));
        }
    }

    fn go_on_renewing(&mut self) {
        if self.session.is_some() && self.renew_at == Moment::NEVER {
            self.renew_at = self.now.at;
        }
    }

    /// Our record is not what we thought. It may be our own earlier renewal, whose answer was lost.
    fn renewal_lost(&mut self, current: Option<Stored>, sent: &Sent) {
        let Some(stored) = current else { return self.detach(Cause::RecordGone) };
        let Some(session) = &mut self.session else { return };
        match NodeRecord::decode(&stored.value) {
            Ok(record) if record.session == session.id && record.state.is_alive() => {
                let landed = session.pending.iter().find(|renewal| renewal.write == record.write).cloned();
                match landed {
                    Some(renewal) => {
                        self.renewal_landed(renewal, stored.version);
                        self.record_changed = true;
                    }
                    // What we knew to have landed, while this one was under way: nothing is lost but this try.
                    None if session.version.as_ref() == Some(&stored.version) => self.go_on_renewing(),
                    None if !self.rules.hold(Rule::OwnRecordNotOlder) => {
                        session.version = Some(stored.version);
                        self.go_on_renewing();
                    }
                    None if record.seq < session.seq => {
                        self.store_changed("our own record is older than our last renewal".into());
                    }
                    None => self.detach(Cause::Fenced),
                }
            }
            Ok(_) => {
                self.take_in(Source::Fresh(sent.issued), &Key::Node(self.me()), Some(&stored));
                self.detach(Cause::Fenced);
            }
            // A newer version knows what it says, and it is not what this session wrote.
            Err(error) if error.is_too_new() => self.detach(Cause::Fenced),
            // Nobody but this session may write here, and while it is good nobody else can have been given anything:
            // we write over the damage.
            Err(_) => {
                session.version = Some(stored.version);
                self.renewal_failed("our record in the store was damaged".into());
            }
        }
    }

    /// A renewal that was sent at `sent_at` is known to have landed. Deadlines only move forward.
    fn confirm(&mut self, sent_at: Moment, took: Duration) {
        let deadlines = self.deadlines_from(sent_at);
        let Some(session) = &mut self.session else { return };
        if deadlines.valid_until > session.deadlines.valid_until {
            session.deadlines = deadlines;
            session.lost_told = false;
            self.out.push(Action::Deadlines(deadlines));
        }
        self.tell(Notice::Renewed { took });
        self.renewals_failed = 0;
        if self.standing == Standing::Degraded {
            self.set_standing(Standing::Attached, Cause::RenewalsSucceed);
        }
        let every = self.config.renew_every;
        self.renew_at = (sent_at + every - self.chance.up_to(every / 10)).max(self.now.at);
    }

    /// There was no answer to a renewal.
    pub(super) fn renewal_unanswered(&mut self, write: WriteId, error: String) {
        let pending = self.session.as_ref().is_some_and(|s| s.pending.iter().any(|p| p.write == write));
        match pending {
            true => self.renewal_failed(error),
            false => self.go_on_renewing(),
        }
    }

    fn renewal_failed(&mut self, error: String) {
        let Some(session) = &self.session else { return };
        let last_sent_at = session.last_sent_at;
        self.renewals_failed += 1;
        self.healthy_since = self.now.at;
        self.tell(Notice::RenewalFailed { streak: self.renewals_failed, error: error.clone() });
        if self.standing == Standing::Attached {
            self.set_standing(Standing::Degraded, Cause::RenewalsFail(error));
        }
        let spaced = last_sent_at + self.config.try_timeout / 2;
        self.renew_at = spaced.max(self.now.at) + self.chance.up_to(self.config.try_timeout / 10);
    }

    /// The session is over, for good. Work is told to stop before anything else happens.
    pub(super) fn detach(&mut self, cause: Cause) {
        let Some(session) = self.session.take() else { return };
        let kill_at = session.deadlines.kill_at;
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
        self.renewals_failed = 0;
        self.surplus.clear();
        self.outbox.clear();
        self.verify.clear();
        self.unvouched.clear();
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

    /// What a wrong design would do: renew a session that is lost, which keeps everybody else out. Only a test build
    /// gets here.
    fn renew_what_is_over(&mut self, session: SessionId, version: Version) {
        let seen = self.mirror.nodes.get(&self.config.node).and_then(|node| node.seen.as_ref());
        let Some(record) = seen.and_then(|seen| seen.good()) else { return };
        if self.now.unix_ms < record.written_unix_ms + self.config.renew_every.as_millis() as u64 {
            return;
        }
        let record = self.node_record(session, record.seq + 1, NodeState::Active);
        let value = Some(record.encode().into());
        let swap = Swap { key: Key::Node(self.me()), expect: Some(version), value };
        self.ask_swap(Lane::Renewal, swap, Purpose::Group);
    }

    /// Says that a session of ours is over, which frees all that it held.
    pub(super) fn send_left(&mut self, session: SessionId, expect: Option<Version>) {
        let me = self.me();
        let known =
            self.mirror.nodes.get(&me).and_then(|node| node.seen.as_ref()).and_then(|seen| seen.good());
        let seq = known.map_or(1, |record| record.seq + 1);
        let record = self.node_record(session, seq, NodeState::Left);
        let swap = Swap { key: Key::Node(me), expect, value: Some(record.encode().into()) };
        self.ask_swap(Lane::Renewal, swap, Purpose::Left(session));
    }

    /// Our last word, while the session is still good: everything is stopped and released.
    pub(super) fn send_last_word(&mut self) {
        let Some(session) = &self.session else { return };
        let (id, seq, expect) = (session.id, session.next_seq(), session.version.clone());
        let record = self.node_record(id, seq, NodeState::Left);
        let swap = Swap { key: Key::Node(self.me()), expect, value: Some(record.encode().into()) };
        self.requests.forget(|purpose| matches!(purpose, Purpose::Renew(_)));
        self.renew_at = Moment::NEVER;
        self.ask_swap(Lane::Renewal, swap, Purpose::Left(id));
    }

    pub(super) fn on_left(&mut self, session: SessionId, outcome: Swapped) {
        let over = match &outcome {
            Swapped::Applied(_) => true,
            // Whoever wrote there, it was not this session: fenced, or our own word whose answer was lost.
            Swapped::Lost(_) => self.mirror.dead.contains_key(&session),
            Swapped::Unknown => false,
        };
        if over {
            self.mirror.dead.insert(session, self.now.at);
        }
        if self.leaving.is_some() && (over || self.session_id() != Some(session)) {
            self.session = None;
            return self.finish();
        }
        if let (Swapped::Lost(Some(current)), Some(mine)) = (&outcome, &mut self.session) {
            mine.version = Some(current.version.clone());
            // A renewal that was under way came first: the last word is said again at once.
            if let Some(leaving) = &mut self.leaving {
                leaving.say_again();
            }
        }
        self.list_at = self.now.at;
    }

    /// Our record, as it should be now.
    fn node_record(&mut self, session: SessionId, seq: u64, state: NodeState) -> NodeRecord {
        let mut groups: std::collections::BTreeMap<_, _> = (self.served.iter())
            .map(|(name, group)| (name.clone(), Served { capacity: group.capacity, ..Served::default() }))
            .collect();
        let mut declined: Vec<_> = self.declined.keys().cloned().collect();
        if declined.len() > DECLINED_MAX {
            for shard in declined.drain(..) {
                if let Some(served) = groups.get_mut(&shard.group) {
                    served.declined = true;
                }
            }
        }
        NodeRecord {
            format: FORMAT,
            write: WriteId::from_bits(self.chance.bits()),
            node: self.me(),
            session,
            state,
            accepting: self.offers(),
            weight: self.weight,
            capacity: self.capacity,
            zone: self.config.zone.clone(),
            address: self.address.clone(),
            labels: self.labels.clone(),
            groups,
            declined,
            ttl_ms: self.config.ttl.as_millis() as u64,
            seq,
            unproved: self.now.at < self.unproved_until,
            // Whoever shows no view is given nothing voluntarily.
            view: if self.shy_until == Moment::NEVER { self.plan.view } else { 0 },
            protocol: PROTOCOL,
            written_unix_ms: self.now.unix_ms,
            extra: Default::default(),
        }
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
    fn next_seq(&self) -> u64 {
        self.pending.iter().map(|renewal| renewal.seq).max().unwrap_or(self.seq).max(self.seq) + 1
    }
}
