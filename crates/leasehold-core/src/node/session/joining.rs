//! Opening a session, once nobody of our name can still be alive.

use std::sync::Arc;

use super::Session;
use crate::event::Action;
use crate::mirror::{Mirror, Source};
use crate::name::{SessionId, WriteId};
use crate::node::Node;
use crate::node::context::Context;
use crate::node::fencing::Fencing;
use crate::node::former::Former;
use crate::node::holds::Holds;
use crate::node::life::Life;
use crate::node::namespace::Namespace;
use crate::node::requests::{Ask, Purpose};
use crate::node::timers::Timer;
use crate::notice::{Cause, Notice};
use crate::record::{NodeState, Published, Record};
use crate::rules::Rule;
use crate::store::{Key, Lane, Stored, Swap, Swapped, Version};
use crate::time::Now;

/// A session that we tried to open.
#[derive(Debug)]
pub(in crate::node) struct PendingJoin {
    session: SessionId,
    write: WriteId,
    sent_at: Now,
    published: Arc<Published>,
    value: Arc<[u8]>,
}

impl PendingJoin {
    pub(in crate::node) fn session(&self) -> SessionId {
        self.session
    }
}

impl Node {
    /// Opens a session, if nobody of our name can still be alive.
    pub(in crate::node) fn try_to_join(&mut self) {
        let busy = |purpose: &Purpose| matches!(purpose, Purpose::Join | Purpose::Left(_));
        if self.requests.any(busy) || !self.mirror.is_ready() {
            return;
        }
        if self.departure.is_leaving() && self.former.is_empty() {
            return;
        }
        if !self.former.is_over(&self.holds, &self.mirror) && self.ctx.rules.hold(Rule::LeftOnlyWhenStopped) {
            return self.former.wait_to_be_fenced(
                &mut self.fencing,
                &mut self.life,
                &mut self.mirror,
                &mut self.ctx,
            );
        }
        let me = self.ctx.me();
        let node = self.mirror.nodes().get(&me);
        let Some(seen) = node.and_then(|node| node.seen.as_ref()) else {
            return self.join_over_nothing();
        };
        let version = seen.version.clone();
        let Ok(record) = &seen.record else {
            let ttl_max = self.namespace.ttl_max(&self.ctx.config);
            // While we had a session nobody had to prove anything.
            self.ctx.timers.set_earlier(Timer::Probe, self.ctx.now.at + ttl_max / 2);
            return self.life.wait_for(
                "our node record is damaged: waiting until no session can be using it".into(),
                ttl_max,
                &mut self.ctx,
            );
        };
        // A session that was proved dead is dead, also when a store that was rolled back shows it alive again.
        if !record.state.is_alive() || self.mirror.is_proved_over(&record.session) {
            if record.unproved {
                self.former.name_is_unproved(&self.namespace, &self.ctx);
            }
            return self.send_join(Some(version), None);
        }
        let (session, write, seq, ttl) = (record.session, record.write, record.seq, record.ttl());
        if let Some(join) = self.join.take() {
            if join.write == write {
                return self.open_session(join, version);
            }
            self.former.add(join.session);
        }
        #[cfg(feature = "sabotage")]
        if self.former.contains(session) && !self.ctx.rules.hold(Rule::NoRenewalWhenDetached) {
            return self.renew_what_is_over(session, version);
        }
        if self.former.contains(session) {
            self.send_left(session, Some(version));
        } else if !self.ctx.rules.hold(Rule::FreshSession) {
            self.send_join(Some(version), Some(session));
        } else {
            let renewing = self.former.meet_rival(session, seq);
            if renewing && self.reported.name_taken() {
                self.ctx.tell(Notice::NameTaken { node: me.clone(), session });
            }
            let why = match renewing {
                true => format!(
                    "the node name {me} is used by a live session: use another name, or stop that process"
                ),
                false => {
                    format!("an earlier session of {me} may still be alive: waiting until it can be fenced")
                }
            };
            self.life.wait_for(why, ttl, &mut self.ctx);
        }
    }

    /// There is no record of our name. If shards name a session of it, that record was lost, and the session may live.
    fn join_over_nothing(&mut self) {
        let me = self.ctx.me();
        let holders = self.mirror.shards().values().filter_map(|seen| seen.good()?.holder());
        let named: Vec<_> = holders
            .filter(|holder| holder.node == me && !self.mirror.is_proved_over(&holder.session))
            .collect();
        let foreign = named.iter().filter(|holder| !self.former.contains(holder.session));
        let foreign = foreign.max_by_key(|holder| holder.ttl_ms).map(|holder| (*holder).clone());
        let ours = named.iter().any(|holder| self.former.contains(holder.session));
        self.former.name_is_unproved(&self.namespace, &self.ctx);
        let Some(lost) = foreign else {
            return match self.former.last() {
                // All of it is stopped: saying so frees what it held at once.
                Some(session) if ours && !self.mirror.is_proved_over(&session) => {
                    self.send_left(session, None);
                }
                _ => self.send_join(None, None),
            };
        };
        // It is fenced like any other that is silent, and then this node joins over the tombstone.
        let wait = self.namespace.ttl_max(&self.ctx.config).max(lost.ttl());
        self.fencing.note_lost_session(&lost, &self.namespace, &mut self.mirror, &mut self.ctx);
        self.life.wait_for(
            "the record of our earlier session is missing: waiting until that session must have ended".into(),
            wait,
            &mut self.ctx,
        );
    }

    fn send_join(&mut self, expect: Option<Version>, adopt: Option<SessionId>) {
        if self.departure.is_leaving() {
            return;
        }
        if let Some(join) = self.join.take() {
            self.former.add(join.session);
        }
        let session = adopt.unwrap_or_else(|| SessionId::from_bits(self.ctx.rng.bits()));
        let replaced =
            self.mirror.nodes().get(&self.ctx.config.node).and_then(|node| node.seen.as_ref()?.best());
        self.publishing.take_over_epochs(replaced.and_then(|record| record.publishes.as_ref()));
        let write = self.ctx.write_id();
        let record = self.node_record(write, session, 1, NodeState::Active);
        let value: Arc<[u8]> = record.encode().into();
        let sent_at = self.ctx.now;
        let published = Arc::new(record.publishes.unwrap_or_default());
        self.join = Some(PendingJoin { session, write, sent_at, published, value: value.clone() });
        self.ctx.out.push(Action::OpenSession(session));
        let swap = Swap { key: Key::Node(self.ctx.me()), expect, value: Some(value) };
        self.ask(Ask::swap(Lane::Renewal, swap, Purpose::Join));
    }

    pub(in crate::node) fn on_joined(&mut self, outcome: Swapped) {
        match outcome {
            Swapped::Applied(version) => {
                if let Some(join) = self.join.take() {
                    self.open_session(join, version);
                }
            }
            // A pause, so that two that take each other's place again and again do not do so all the time.
            Swapped::Lost(_) | Swapped::Unknown => {
                let pause = self.ctx.config.retry.shortest();
                self.ctx.timers.set(Timer::List, self.ctx.now.at + pause + self.ctx.rng.up_to(pause));
            }
        }
    }

    fn open_session(&mut self, join: PendingJoin, version: Version) {
        // Whatever lived under our name before is over. Something that is late may still show it alive.
        let own = self.mirror.nodes().get(&self.ctx.config.node).and_then(|node| node.seen.as_ref());
        let before = own.and_then(|seen| seen.good()).map(|record| record.session);
        for session in self.former.iter().chain(before).filter(|session| *session != join.session) {
            self.mirror.note_over(self.ctx.now.at, session);
        }
        let counted_from =
            if self.ctx.rules.hold(Rule::DeadlineFromSending) { join.sent_at } else { self.ctx.now };
        let deadlines = self.ctx.deadlines_from(counted_from.at);
        let wall_ahead_min_ms = join.sent_at.wall_ahead_ms().min(self.ctx.now.wall_ahead_ms());
        if self.ctx.now.at >= deadlines.stop_at || self.ctx.frozen_since(wall_ahead_min_ms).is_some() {
            // It took too long: this session is over before it began.
            self.former.add(join.session);
            self.ctx.timers.set(Timer::List, self.ctx.now.at);
            return;
        }
        self.session = Some(Session {
            id: join.session,
            seq: 1,
            version: Some(version.clone()),
            deadlines,
            opened: self.mirror.tick(),
            meta_confirmed: false,
            renewed_at: counted_from.at,
            wall_ahead_min_ms,
            published: join.published,
            pending: Vec::new(),
            encoded: None,
            last_sent_at: join.sent_at.at,
            #[cfg(feature = "sabotage")]
            lost_grants: Default::default(),
        });
        self.ctx.out.push(Action::Deadlines(deadlines));
        let stored = Stored { version, value: join.value };
        self.take_in(Source::Mine, &Key::Node(self.ctx.me()), Some(&stored));
        if self.namespace.is_open() {
            self.life.wait_no_more();
        }
        self.former.session_begins(self.ctx.now.at);
        self.ctx.timers.set(Timer::Renew, join.sent_at.at + self.ctx.config.renew_every);
        self.gathering.begin(&self.mirror, self.life.has_been_attached(), &mut self.ctx);
        let to = self.life.session_begins(self.ctx.now.at);
        self.life.set_state(to, Cause::Joined, &mut self.ctx);
        self.mend_groups();
        self.planner.replan_soon(&mut self.freeze, &mut self.ctx);
    }
}

impl Former {
    /// A new session under our name tells everybody that the former one is over, whatever became of its record. That is
    /// so once its work is confirmed stopped, or once it was proved dead like anybody else's.
    fn is_over(&self, holds: &Holds, mirror: &Mirror) -> bool {
        !holds.has_orphans() || self.last().is_some_and(|session| mirror.is_proved_over(&session))
    }

    /// Nothing proves that no other session of this name is alive: the others must wait for the longest that it can.
    fn name_is_unproved(&mut self, namespace: &Namespace, ctx: &Context) {
        let until =
            ctx.now.at + crate::config::stretch(namespace.ttl_max(&ctx.config), ctx.config.drift_permille);
        self.set_unproved_until(until);
    }

    /// Work of our former session does not end: the session is left to be proved dead, by us or by another node.
    fn wait_to_be_fenced(
        &self,
        fencing: &mut Fencing,
        life: &mut Life,
        mirror: &mut Mirror,
        ctx: &mut Context,
    ) {
        let (me, ttl) = (ctx.me(), ctx.config.ttl);
        let absent = mirror.nodes().get(&me).is_none_or(|node| node.seen.is_none());
        if let Some(session) = self.last().filter(|_| absent) {
            mirror.note_absent(ctx.now.at, &me);
            fencing.note_lost(me, session, ttl);
        }
        ctx.timers.set_earlier(Timer::Probe, ctx.now.at + ttl / 2);
        if ctx.now.at < self.kill_at() {
            return; // It has its time to stop.
        }
        let why = "work of our former session has not stopped: waiting until that session is over";
        life.wait_for(why.into(), ttl, ctx);
    }
}
