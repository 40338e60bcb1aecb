//! The one death rule. A session is over only when its record says *left* or *fenced*; to fence it, we must have seen
//! the same version for `ttl × (1 + drift)`, in a read issued after that time, and our swap of it must succeed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::Node;
use super::context::Context;
use super::namespace::Namespace;
use super::publishing::Others;
use super::requests::{Ask, Purpose, Requests, Sent};
use super::timers::Timer;
use crate::config::stretch;
use crate::mirror::{Mirror, Source};
use crate::name::{NodeName, SessionId, WriteId};
use crate::notice::{Gone, Notice};
use crate::record::{FORMAT, Holder, NodeRecord, NodeState, PROTOCOL, Record};
use crate::rules::Rule;
use crate::store::{Key, Lane, Stored, Swap, Swapped, Version};
use crate::time::Moment;

/// What we know of sessions that may be over, and whether we could have heard of them.
#[derive(Debug)]
pub(super) struct Fencing {
    /// Nodes whose records are read because shards wait for what they say.
    reads_wanted: BTreeSet<NodeName>,
    /// Sessions whose process the kernel proves gone.
    proven_gone: BTreeSet<SessionId>,
    /// Sessions that shard records name but no node record does, and for how long they may be alive.
    lost_sessions: BTreeMap<NodeName, (SessionId, Duration)>,
    /// Records that only a newer version can read, which nobody renewed for longer than any session lasts. We cannot fence them.
    silent: BTreeMap<NodeName, Version>,
    /// Since when reads fail; [`Moment::NEVER`] if the last one did not.
    reads_fail_since: Moment,
    last_read_at: Moment,
}

impl Default for Fencing {
    fn default() -> Self {
        Fencing {
            reads_wanted: BTreeSet::new(),
            proven_gone: BTreeSet::new(),
            lost_sessions: BTreeMap::new(),
            silent: BTreeMap::new(),
            reads_fail_since: Moment::NEVER,
            last_read_at: Moment::ZERO,
        }
    }
}

impl Fencing {
    /// A shard waits for what this node's record says.
    pub(super) fn want_read(&mut self, node: NodeName) {
        self.reads_wanted.insert(node);
    }

    pub(super) fn is_proven_gone(&self, session: SessionId) -> bool {
        self.proven_gone.contains(&session)
    }

    /// A shard's record names a session of this node that has no record and may be alive for that long.
    pub(super) fn note_lost(&mut self, node: NodeName, session: SessionId, may_live_for: Duration) {
        self.lost_sessions.insert(node, (session, may_live_for));
    }

    /// This node's record says that its session is over, and so are all before it once the record is removed: none of them is lost
    /// any more, or it would be fenced again. A shard's record that still names one has it noted again.
    pub(super) fn note_over(&mut self, node: &NodeName) {
        self.lost_sessions.remove(node);
    }

    /// Whether this version of a node's record, which only a newer version can read, was proved to be silent.
    pub(super) fn is_silent(&self, node: &NodeName, version: &Version) -> bool {
        self.silent.get(node) == Some(version)
    }

    /// One of our reads, sent then, failed: until one succeeds, no node can be heard.
    pub(super) fn reads_failed(&mut self, sent_at: Moment) {
        self.reads_fail_since = self.reads_fail_since.min(sent_at);
    }

    /// One of our reads succeeded. The time in which we could not have heard a node does not count as its silence.
    pub(super) fn reads_succeeded(&mut self, mirror: &mut Mirror, ctx: &Context) {
        let at = ctx.now.at;
        let failing = std::mem::replace(&mut self.reads_fail_since, Moment::NEVER);
        let idle = self.last_read_at + ctx.config.ttl < at;
        let deaf_since = if idle { self.last_read_at } else { failing };
        if deaf_since < at {
            mirror.count_silence_from(|silent_from| match ctx.rules.hold(Rule::SilenceNeedsReads) {
                true => (silent_from + at.since(deaf_since)).min(at),
                // What a wrong design would do: a node that was not heard while we were deaf was silent.
                false => silent_from.min(deaf_since),
            });
        }
        self.last_read_at = at;
    }

    /// Whether our own reads fail, so that nobody's silence says anything.
    pub(super) fn is_deaf(&self) -> bool {
        self.reads_fail_since != Moment::NEVER
    }

    /// A record that we cannot fence has been silent for longer than any session lasts: its session has stopped by its own
    /// clock, and what it held is free.
    fn note_silent(&mut self, name: &NodeName, version: Version, mirror: &mut Mirror, ctx: &mut Context) {
        let known = mirror.nodes().get(name).and_then(|node| node.seen.as_ref()?.before.as_ref());
        if let Some(session) = known.map(|record| record.session) {
            mirror.note_over(ctx.now.at, session);
            ctx.tell(Notice::NodeGone { node: name.clone(), session, how: Gone::Fenced });
        }
        self.silent.insert(name.clone(), version);
        ctx.replan_now();
    }

    /// The record that says that a node's session is over, before it is filled in, and the version that it replaces.
    fn record_to_fence(
        &self,
        name: &NodeName,
        mirror: &Mirror,
        ctx: &mut Context,
    ) -> Option<(NodeRecord, Option<Version>)> {
        let seen = mirror.nodes().get(name)?.seen.as_ref();
        let expect = seen.map(|seen| seen.version.clone());
        if let Some(record) = seen.and_then(|seen| seen.good()) {
            return Some((NodeRecord::clone(record), expect));
        }
        // A record that is damaged or gone: every session of this name is over from now on, and a tombstone says so.
        let session = match seen {
            None => match self.lost_sessions.get(name) {
                Some((session, _)) => *session,
                None => mirror.nodes().get(name)?.lost()?.session,
            },
            Some(seen) => match &seen.before {
                Some(before) => before.session,
                None => SessionId::from_bits(ctx.rng.bits()),
            },
        };
        // What it published tells how high its epochs were. Under a damaged record another session may have lived that nobody
        // has seen: then that is unknown, which the tombstone says by publishing nothing.
        let last = mirror.nodes().get(name)?.last.as_ref();
        let publishes = last.and_then(|last| last.publishes.clone());
        let record = NodeRecord {
            format: FORMAT,
            write: WriteId::from_bits(0),
            node: name.clone(),
            session,
            state: NodeState::Fenced,
            accepting: false,
            returning: false,
            placement: None,
            weight: 0,
            capacity: None,
            zone: None,
            address: None,
            labels: Default::default(),
            groups: Default::default(),
            declined: Vec::new(),
            ttl_ms: ctx.config.ttl.as_millis() as u64,
            seq: 0,
            unproved: seen.is_none(),
            publishes,
            awaits: Vec::new(),
            meta: None,
            view: 0,
            protocol: PROTOCOL,
            report: Default::default(),
            written_unix_ms: 0,
            extra: Default::default(),
        };
        Some((record, expect))
    }

    /// A shard's record names a session that has no record. It counts as alive for the longest ttl that it can have, from when
    /// we first saw this.
    pub(super) fn note_lost_session(
        &mut self,
        holder: &Holder,
        namespace: &Namespace,
        mirror: &mut Mirror,
        ctx: &mut Context,
    ) {
        let may_live_for = namespace.ttl_max(&ctx.config).max(holder.ttl());
        mirror.note_absent(ctx.now.at, &holder.node);
        self.note_lost(holder.node.clone(), holder.session, may_live_for);
        ctx.timers.set_earlier(Timer::Probe, ctx.now.at + holder.ttl() / 2);
    }

    /// Forgets proofs that nobody can need any more, and lost sessions that no shard's record names any more: to fence them would
    /// free nothing.
    pub(super) fn prune(&mut self, mirror: &Mirror) {
        if !self.lost_sessions.is_empty() {
            let holders = mirror.shards().values().filter_map(|seen| seen.best()?.holder());
            let named: BTreeSet<SessionId> = holders.map(|holder| holder.session).collect();
            self.lost_sessions.retain(|_, (session, _)| named.contains(session));
        }
        if self.proven_gone.len() > PROVEN_GONE_MAX {
            self.proven_gone.clear();
        }
    }

    /// Why this node's session may be over, if it may.
    pub(super) fn suspect(
        &self,
        name: &NodeName,
        session: Option<SessionId>,
        others: Others<'_>,
    ) -> Option<Suspect> {
        let Others { mirror, namespace, ctx } = others;
        if ctx.is_me(name) && session.is_some() {
            return None;
        }
        let node = mirror.nodes().get(name)?;
        let silent_from = node.silent_from;
        if node.seen.as_ref().is_some_and(|seen| self.is_silent(name, &seen.version)) {
            return None;
        }
        let ttl = match node.seen.as_ref().map(|seen| &seen.record) {
            Some(Ok(record)) => {
                let ours = session == Some(record.session);
                if ours || !record.state.is_alive() || mirror.is_proved_over(&record.session) {
                    return None;
                }
                if ctx.rules.hold(Rule::TheirTtlCounts) { record.ttl() } else { ctx.config.ttl }
            }
            // It counts with the longest ttl that it can have had.
            Some(Err(_)) => namespace.ttl_max(&ctx.config).max(node.ttl_longest),
            None => match (self.lost_sessions.get(name), node.lost()) {
                (Some((_, wait)), _) => *wait,
                (None, Some(last)) if !mirror.is_proved_over(&last.session) => last.ttl(),
                (None, _) => return None,
            },
        };
        Some(Suspect { ttl, silent_from })
    }

    /// The nodes that have been silent for so long that they are looked at now, and when to look again.
    fn silent_nodes(&self, session: Option<SessionId>, others: Others<'_>) -> (Vec<NodeName>, Moment) {
        let at = others.ctx.now.at;
        let (mut due, mut next_at) = (Vec::new(), Moment::NEVER);
        for name in others.mirror.nodes().keys() {
            let Some(suspect) = self.suspect(name, session, others) else { continue };
            let doubtful_at = suspect.silent_from + suspect.ttl / 2;
            if at < doubtful_at {
                next_at = next_at.min(doubtful_at);
                continue;
            }
            let dead_at = suspect.dead_at(others.ctx);
            let again_at = at + suspect.ttl / 5;
            next_at = next_at.min(if dead_at > at { again_at.min(dead_at) } else { again_at });
            due.push(name.clone());
        }
        (due, next_at)
    }

    /// The node records that shards wait for are read: what became of the sessions that they name.
    pub(super) fn reads_to_ask(&mut self, requests: &Requests) -> Option<Ask> {
        if self.reads_wanted.is_empty() || requests.any(|purpose| matches!(purpose, Purpose::Probe(_))) {
            return None;
        }
        let nodes: Vec<NodeName> = std::mem::take(&mut self.reads_wanted).into_iter().collect();
        let keys = nodes.iter().cloned().map(Key::Node).collect();
        Some(Ask::read(keys, Purpose::Probe(nodes)))
    }
}

/// How many sessions whose process is gone are remembered, at most.
const PROVEN_GONE_MAX: usize = 1000;

/// How a session may turn out to be over.
pub(super) struct Suspect {
    ttl: Duration,
    silent_from: Moment,
}

impl Suspect {
    /// When its session is over, unless it is heard of before.
    fn dead_at(&self, ctx: &Context) -> Moment {
        let wait = if ctx.rules.hold(Rule::SilenceLastsTtl) { self.ttl } else { self.ttl / 2 };
        let drift_permille = if ctx.rules.hold(Rule::DriftCounts) { ctx.config.drift_permille } else { 0 };
        self.silent_from + stretch(wait, drift_permille)
    }
}

/// The version of a node's record that only a newer version of this program can read, if it is one: it is never written over.
fn unreadable_here(name: &NodeName, mirror: &Mirror) -> Option<Version> {
    let seen = mirror.nodes().get(name)?.seen.as_ref()?;
    seen.record.as_ref().err().filter(|error| error.is_too_new())?;
    Some(seen.version.clone())
}

impl Node {
    /// Looks at those that have been silent for a while. At rest nobody is, and this costs nothing.
    pub(super) fn probe(&mut self) {
        self.ctx.timers.stop(Timer::Probe);
        if !self.namespace.is_known() {
            // Nobody is fenced in a namespace that we do not know; we look again once we do.
            self.ctx.timers.set(Timer::Probe, self.ctx.now.at + self.ctx.config.ttl / 2);
            return;
        }
        #[cfg(feature = "sabotage")]
        self.distrust_clocks();
        let (due, next_at) = self.fencing.silent_nodes(self.session_id(), self.others());
        self.ctx.timers.set(Timer::Probe, next_at);
        if !due.is_empty() && !self.requests.any(|purpose| matches!(purpose, Purpose::Probe(_))) {
            let keys = due.iter().cloned().map(Key::Node).collect();
            self.ask(Ask::read(keys, Purpose::Probe(due)));
        }
    }

    pub(super) fn on_probed(&mut self, sent: &Sent, nodes: &[NodeName]) {
        for name in nodes {
            // A change that the read showed has already begun a new wait.
            if let Some(suspect) = self.fencing.suspect(name, self.session_id(), self.others())
                && sent.sent_at >= suspect.dead_at(&self.ctx)
            {
                match unreadable_here(name, &self.mirror) {
                    Some(version) => {
                        self.fencing.note_silent(name, version, &mut self.mirror, &mut self.ctx);
                    }
                    None => self.fence(name, suspect.silent_from),
                }
            }
        }
        self.ctx.agenda.add_everything();
    }

    /// The kernel says that a session's process is gone, with all that it started: no need to wait.
    pub(super) fn process_gone(&mut self, session: SessionId) {
        if self.session_id() == Some(session) || self.former.contains(session) {
            return;
        }
        self.fencing.proven_gone.insert(session);
        let named = |node: &crate::mirror::SeenNode| {
            let record = node.record();
            record.is_some_and(|record| record.session == session && record.state.is_alive())
        };
        let found = self.mirror.nodes().iter().find(|(_, node)| named(node));
        if let Some((name, since)) = found.map(|(name, node)| (name.clone(), node.silent_from)) {
            self.fence(&name, since);
        }
    }

    pub(super) fn fence(&mut self, name: &NodeName, silent_from: Moment) {
        if self.requests.any(|purpose| matches!(purpose, Purpose::Fence { node, .. } if node == name)) {
            return;
        }
        let target = self.fencing.record_to_fence(name, &self.mirror, &mut self.ctx);
        let Some((mut record, expect)) = target else { return };
        #[cfg(feature = "sabotage")]
        if !self.ctx.rules.hold(Rule::FenceBeforeTakeover) {
            return self.take_for_dead(record.session);
        }
        record.state = NodeState::Fenced;
        record.accepting = false;
        record.seq += 1;
        record.write = self.ctx.write_id();
        record.written_unix_ms = self.ctx.now.unix_ms;
        let value: Arc<[u8]> = record.encode().into();
        let swap = Swap { key: Key::Node(name.clone()), expect, value: Some(value.clone()) };
        let purpose = Purpose::Fence { node: name.clone(), session: record.session, silent_from, value };
        self.ask(Ask::swap(Lane::Work, swap, purpose));
    }

    pub(super) fn on_fenced(
        &mut self,
        node: NodeName,
        session: SessionId,
        silent_from: Moment,
        value: Arc<[u8]>,
        outcome: Swapped,
    ) {
        match outcome {
            Swapped::Applied(version) => {
                let silent_for = self.ctx.now.at.since(silent_from);
                self.fencing.lost_sessions.remove(&node);
                self.ctx.tell(Notice::Fenced { node: node.clone(), session, silent_for });
                self.take_in(Source::Mine, &Key::Node(node), Some(&Stored { version, value }));
            }
            // It renewed, or another node was quicker; what is there now has been taken in.
            Swapped::Lost(_) if self.fencing.proven_gone.contains(&session) => self.process_gone(session),
            Swapped::Lost(_) => {}
            Swapped::Unknown => {
                self.ctx.timers.set_earlier(Timer::Probe, self.ctx.now.at + self.ctx.config.try_timeout)
            }
        }
    }
}
