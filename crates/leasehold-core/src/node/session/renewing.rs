//! Renewing the session. Only a renewal that is known to have landed moves the deadlines, counted from before it was
//! sent. GUARANTEES, "At most one holder".

use std::sync::Arc;
use std::time::Duration;

use super::Session;
use crate::mirror::Source;
use crate::name::WriteId;
use crate::node::Node;
use crate::node::context::Context;
use crate::node::life::Life;
use crate::node::requests::{Ask, Purpose, Sent};
use crate::node::timers::Timer;
use crate::notice::Cause;
use crate::record::{Heartbeat, NodeRecord, NodeState, Published, Record};
use crate::rules::Rule;
use crate::store::{Key, Lane, Stored, Swap, Swapped, Version};
use crate::time::Moment;

#[derive(Clone, Debug)]
pub(in crate::node) struct Renewal {
    pub(in crate::node) write: WriteId,
    pub(in crate::node) seq: u64,
    /// What it publishes.
    pub(in crate::node) published: Arc<Published>,
    pub(super) sent_at: Moment,
    /// The least that the wall clock was ahead of the boot clock since then.
    pub(super) wall_ahead_min_ms: i64,
    /// Our logical time when it was sent.
    order: u64,
    value: Arc<[u8]>,
}

/// The last record that a session encoded. Most renewals say the same again, and then only their heartbeat is encoded.
#[derive(Debug)]
pub(super) struct Encoded {
    record: NodeRecord,
    /// Its bytes without the heartbeat.
    rest: Vec<u8>,
    published: Arc<Published>,
}

impl Session {
    /// A record as it is stored, and what it publishes.
    fn encode(&mut self, record: NodeRecord) -> (Arc<[u8]>, Arc<Published>) {
        if let Some(last) = &mut self.encoded {
            last.record.renew(record.heartbeat());
            if last.record == record {
                return (record.heartbeat().join(&last.rest).into(), last.published.clone());
            }
        }
        let value = record.encode();
        let published = Arc::new(record.publishes.clone().unwrap_or_default());
        self.encoded = Heartbeat::split(&value).map(|(_, rest)| Encoded {
            rest: rest.to_vec(),
            published: published.clone(),
            record,
        });
        (value.into(), published)
    }
}

impl Node {
    pub(in crate::node) fn renew(&mut self) {
        let in_flight = self.requests.any(|purpose| matches!(purpose, Purpose::Renew(_)));
        let Some(session) = &self.session else { return };
        if in_flight {
            return;
        }
        let (id, seq, expect) = (session.id, session.next_seq(), session.version.clone());
        let state = if self.departure.is_draining() { NodeState::Draining } else { NodeState::Active };
        let write = self.ctx.write_id();
        let record = self.node_record(write, id, seq, state);
        let (sent_at, wall_ahead_min_ms) = (self.ctx.now.at, self.ctx.now.wall_ahead_ms());
        self.ctx.record_sent();
        let order = self.mirror.tick();
        let session = self.session.as_mut().expect("it was there");
        let (value, published) = session.encode(record);
        session.pending.push(Renewal {
            write,
            seq,
            published,
            sent_at,
            wall_ahead_min_ms,
            order,
            value: value.clone(),
        });
        session.last_sent_at = sent_at;
        let swap = Swap { key: Key::Node(self.ctx.me()), expect, value: Some(value) };
        self.ask(Ask::swap(Lane::Renewal, swap, Purpose::Renew(write)));
    }

    /// What others should know soon is published before the next renewal is due.
    pub(in crate::node) fn renew_if_changed(&mut self) {
        if !self.ctx.has_news() || !self.ctx.timers.is_set(Timer::Renew) {
            return;
        }
        let Some(session) = &self.session else { return };
        let gap =
            self.ctx.facts.write_every_min.max(Duration::from_millis(10)).min(self.ctx.config.renew_every);
        let at = session.last_sent_at + gap;
        if self.ctx.now.at >= at {
            self.ctx.timers.stop(Timer::Renew);
            self.renew();
        } else {
            self.ctx.timers.set_earlier(Timer::Renew, at);
        }
    }

    pub(in crate::node) fn on_renewed(&mut self, write: WriteId, sent: &Sent, outcome: Swapped) {
        let Some(session) = &mut self.session else { return };
        let Some(renewal) = session.pending.iter().find(|renewal| renewal.write == write).cloned() else {
            // It is known already what became of it.
            return session.go_on_renewing(&mut self.ctx);
        };
        match outcome {
            Swapped::Applied(version) => self.renewal_landed(renewal, version),
            Swapped::Lost(current) => self.renewal_lost(current, sent),
            Swapped::Unknown => {
                let error = "its outcome is unknown".into();
                self.life.renewal_failed(error, session.last_sent_at, &mut self.ctx);
            }
        }
    }

    /// A renewal of this session is known to be in the store. Of those that replace the same version no other can land.
    pub(in crate::node) fn renewal_landed(&mut self, renewal: Renewal, version: Version) {
        let Some(session) = &mut self.session else { return };
        session.version = Some(version.clone());
        session.seq = renewal.seq;
        session.pending.retain(|pending| pending.seq > renewal.seq);
        session.confirm(&renewal, &mut self.ctx);
        session.published = renewal.published;
        self.life.renewal_landed(renewal.sent_at, &mut self.ctx);
        // Claimed shards may have waited for what it publishes.
        self.holds.look_at_claimed(&mut self.ctx);
        if self.ctx.rules.hold(Rule::OwnRecordNotOlder) {
            // Whatever shows an older one from now on is late, or the store was rolled back.
            let stored = Stored { version, value: renewal.value };
            self.take_in(Source::Mine, &Key::Node(self.ctx.me()), Some(&stored));
        }
        self.restore_meta_after(renewal.order);
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
                        self.ctx.record_changed();
                    }
                    // What we knew to have landed, while this one was under way: nothing is lost but this try.
                    None if session.version.as_ref() == Some(&stored.version) => {
                        session.go_on_renewing(&mut self.ctx);
                    }
                    None if !self.ctx.rules.hold(Rule::OwnRecordNotOlder) => {
                        session.version = Some(stored.version);
                        session.go_on_renewing(&mut self.ctx);
                    }
                    None if record.seq < session.seq => {
                        self.store_changed("our own record is older than our last renewal".into());
                    }
                    None => self.detach(Cause::Fenced),
                }
            }
            Ok(_) => {
                self.take_in(Source::Fresh(sent.issued), &Key::Node(self.ctx.me()), Some(&stored));
                self.detach(Cause::Fenced);
            }
            // A newer version knows what it says, and it is not what this session wrote.
            Err(error) if error.is_too_new() => self.detach(Cause::Fenced),
            // Nobody but this session may write here, and while it is good nobody else can have been given anything:
            // we write over the damage.
            Err(_) => {
                session.version = Some(stored.version);
                let error = "our record in the store was damaged".into();
                self.life.renewal_failed(error, session.last_sent_at, &mut self.ctx);
            }
        }
    }
}

impl Session {
    fn go_on_renewing(&self, ctx: &mut Context) {
        if !ctx.timers.is_set(Timer::Renew) {
            ctx.timers.set(Timer::Renew, ctx.now.at);
        }
    }

    /// There was no answer to a renewal.
    pub(in crate::node) fn renewal_unanswered(
        &self,
        write: WriteId,
        error: String,
        life: &mut Life,
        ctx: &mut Context,
    ) {
        match self.pending.iter().any(|renewal| renewal.write == write) {
            true => life.renewal_failed(error, self.last_sent_at, ctx),
            false => self.go_on_renewing(ctx),
        }
    }
}
