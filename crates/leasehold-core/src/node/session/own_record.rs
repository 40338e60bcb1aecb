//! The record that our session lives in: what it says, and what follows when we see it in the store.

use crate::name::{SessionId, WriteId};
use crate::node::Node;
use crate::node::leaving::Departure;
use crate::node::life::Life;
use crate::node::offer::Offer;
use crate::node::timers::Timer;
use crate::notice::{Cause, SessionState};
use crate::record::{FORMAT, NodeRecord, NodeState, PROTOCOL, Report};
use crate::rules::{Rule, Rules};

/// The most shards that a report lists of each kind.
const REPORTED_MAX: usize = 32;

impl Node {
    /// What our own record in the store says about us. Told by whatever shows it.
    pub(in crate::node) fn own_record_seen(&mut self) {
        let me = self.ctx.me();
        let Some(session) = &self.session else {
            if self.namespace.is_known() && self.life.state() != SessionState::Left {
                self.try_to_join();
            }
            return;
        };
        let seen = self.mirror.nodes().get(&me).and_then(|node| node.seen.as_ref());
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
                    && self.departure.is_leaving() =>
            {
                // Our own last word, before its answer.
                self.session = None;
                self.finish();
            }
            Some(Ok(_)) => self.detach(Cause::Fenced),
            Some(Err(error)) if error.is_too_new() => self.detach(Cause::Fenced),
            // It was damaged: the next renewal writes it again.
            Some(Err(_)) => self.ctx.record_changed(),
            None => self.detach(Cause::RecordGone),
        }
    }

    /// Our record with what it should say now, for this write.
    pub(in crate::node) fn node_record(
        &self,
        write: WriteId,
        session: SessionId,
        seq: u64,
        state: NodeState,
    ) -> NodeRecord {
        let published = self.publishing.publication(&self.holds, &self.planner, &self.life, self.others());
        let (groups, declined) = self.declines.advertised(&self.offer, &self.mirror);
        NodeRecord {
            format: FORMAT,
            write,
            node: self.ctx.me(),
            session,
            state,
            accepting: self.life.takes_shards(&self.offer),
            returning: self.life.returns(&self.offer, &self.departure, &self.ctx.rules),
            weight: self.offer.weight(),
            capacity: self.offer.capacity(),
            zone: self.ctx.config.zone.clone(),
            address: self.offer.address().cloned(),
            labels: self.offer.labels().clone(),
            groups,
            declined: declined.into_iter().collect(),
            ttl_ms: self.ctx.config.ttl.as_millis() as u64,
            seq,
            unproved: self.ctx.now.at < self.former.unproved_until(),
            publishes: Some(published),
            awaits: self.publishing.awaits(&self.holds, self.others()),
            meta: self.namespace.mark(),
            // A node that shows no view is given nothing voluntarily.
            view: if !self.ctx.timers.is_set(Timer::Shy) { self.planner.plan().view } else { 0 },
            placement: self.planner.planning().own_id(),
            protocol: PROTOCOL,
            report: self.report(),
            written_unix_ms: self.ctx.now.unix_ms,
            extra: Default::default(),
        }
    }

    /// What people may want to know.
    fn report(&self) -> Report {
        let stuck = self.holds.iter().filter(|(_, hold)| hold.is_stuck()).map(|(shard, _)| shard.clone());
        let unmoved = self.moves.surplus().iter().take(REPORTED_MAX);
        let (ttl, renew_every) = (self.ctx.config.ttl, self.ctx.config.renew_every);
        Report {
            session_state: (self.life.state() == SessionState::Recovering)
                .then(|| self.life.state().as_str().to_owned()),
            stuck: stuck.take(REPORTED_MAX).collect(),
            unmoved: unmoved.filter_map(|s| Some((s.clone(), self.why_unmoved(s)?.to_string()))).collect(),
            unserved: self.offer.unserved(&self.mirror).take(REPORTED_MAX).collect(),
            outage: self.former.outage().cloned(),
            renew_every_ms: (renew_every != ttl / 5).then_some(renew_every.as_millis() as u64),
            extra: Default::default(),
        }
    }
}

impl Life {
    /// Whether this node lost a session and will take shards again once a new one has been healthy for a while.
    pub(in crate::node) fn returns(&self, offer: &Offer, departure: &Departure, rules: &Rules) -> bool {
        let recovers = matches!(self.state(), SessionState::Recovering | SessionState::Detached);
        offer.is_accepting() && recovers && !departure.is_leaving() && rules.hold(Rule::ReturningCounts)
    }

    /// Whether this node takes new shards.
    pub(in crate::node) fn takes_shards(&self, offer: &Offer) -> bool {
        offer.is_accepting()
            && !matches!(self.state(), SessionState::Recovering | SessionState::Detached | SessionState::Left)
    }
}
