//! Opening a session, once nobody of our name can still be alive.

use std::sync::Arc;

use super::Node;
use super::requests::Purpose;
use super::session::Session;
use crate::event::Action;
use crate::mirror::{SeenNode, Source};
use crate::name::{SessionId, WriteId};
use crate::notice::{Cause, Notice, Standing};
use crate::record::{Holder, NodeState, Outage, Published, Record};
use crate::rules::Rule;
use crate::store::{Key, Lane, Stored, Swap, Swapped, Version};
use crate::time::{Moment, Now};

/// A session that we tried to open.
#[derive(Debug)]
pub(super) struct PendingJoin {
    session: SessionId,
    write: WriteId,
    sent_at: Now,
    published: Arc<Published>,
    value: Arc<[u8]>,
}

impl PendingJoin {
    pub(super) fn session(&self) -> SessionId {
        self.session
    }
}

impl Node {
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
        let wait = self.ttl_max().max(lost.ttl());
        self.lost_sessions.insert(me, (lost.session, wait));
        self.probe_at = self.probe_at.min(self.now.at + lost.ttl() / 2);
        self.wait_for(
            "the record of our earlier session is gone: waiting until it must be over".into(),
            wait,
        );
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
        self.take_over_epochs();
        let record = self.node_record(session, 1, NodeState::Active);
        let value: Arc<[u8]> = record.encode().into();
        let (write, sent_at) = (record.write, self.now);
        let published = Arc::new(record.publishes.unwrap_or_default());
        self.join = Some(PendingJoin { session, write, sent_at, published, value: value.clone() });
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
            self.mirror.note_over(self.now.at, session);
        }
        let counted_from = if self.rules.hold(Rule::DeadlineFromSending) { join.sent_at } else { self.now };
        let deadlines = self.deadlines_from(counted_from.at);
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
            opened: self.mirror.tick(),
            meta_confirmed: false,
            renewed_at: counted_from,
            published: join.published,
            pending: Vec::new(),
            last_sent_at: join.sent_at.at,
            lost_told: false,
        });
        self.out.push(Action::Deadlines(deadlines));
        let stored = Stored { version, value: join.value };
        self.take_in(Source::Mine, &Key::Node(self.me()), Some(&stored));
        if self.is_open() {
            self.waiting_for = None;
        }
        self.rival = None;
        if let Some((detached_at, cause)) = self.detached_at.take() {
            let for_ms = self.now.at.since(detached_at.at).as_millis() as u64;
            self.outage = Some(Outage { cause, unix_ms: detached_at.unix_ms, for_ms });
        }
        self.renewals_failed = 0;
        self.healthy_since = self.now.at;
        self.renew_at = join.sent_at.at + self.config.renew_every;
        self.begin_to_gather();
        let to = if self.has_been_attached { Standing::Recovering } else { Standing::Attached };
        self.has_been_attached = true;
        self.set_standing(to, Cause::Joined);
        self.mend_groups();
        self.replan_soon();
    }

    /// A process that starts while nobody owns anything may be the first of several: they get a moment to start as well.
    fn begin_to_gather(&mut self) {
        let (at, wait) = (self.now.at, self.config.gather_for());
        let speaks = |holder: &Holder| {
            let node = self.mirror.nodes.get(&holder.node);
            let silent_for = node.map_or(wait, |node| at.since(node.silent_from));
            node.and_then(SeenNode::alive) == Some(holder.session)
                && !self.mirror.dead.contains_key(&holder.session)
                && silent_for < holder.ttl() / 2
        };
        let mut holders = self.mirror.shards.values().filter_map(|seen| seen.good()?.holder());
        // Where nothing has ever been owned, everybody has waited for the namespace to open, or it is known to be new.
        let cold = !self.has_been_attached && !self.mirror.shards.is_empty() && !holders.any(speaks);
        let gathers = cold && !wait.is_zero() && self.rules.hold(Rule::ReturningCounts);
        self.gather_until = if gathers { at + wait } else { Moment::NEVER };
        self.gather_latest_at = at + wait * 2;
    }

    /// Another node joined: if we wait for those that start with us, there may be more of them.
    pub(super) fn gather_more(&mut self) {
        if self.gather_until != Moment::NEVER {
            self.gather_until = (self.now.at + self.config.gather_for()).min(self.gather_latest_at);
        }
    }
}
