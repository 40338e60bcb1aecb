//! The one death rule. A session is over only when its record says *left* or *fenced*; to fence it, we must have seen
//! the same version for `ttl × (1 + drift)`, in a read issued after that time, and our swap of it must succeed.

use std::sync::Arc;
use std::time::Duration;

use super::Node;
use super::requests::{Purpose, Sent};
use crate::config::stretch;
use crate::mirror::Source;
use crate::name::{NodeName, SessionId, WriteId};
use crate::notice::Notice;
use crate::record::{FORMAT, NodeRecord, NodeState, PROTOCOL, Record};
use crate::rules::Rule;
use crate::store::{Key, Lane, Op, Stored, Swap, Swapped, Version};
use crate::time::Moment;

/// How a session may turn out to be over.
struct Suspect {
    ttl: Duration,
    silent_from: Moment,
}

impl Node {
    /// A read of ours that was sent then failed: silence that we could not have heard broken does not count.
    pub(super) fn reads_failed(&mut self, sent_at: Moment) {
        self.reads_fail_since = self.reads_fail_since.min(sent_at);
    }

    pub(super) fn reads_succeeded(&mut self) {
        let at = self.now.at;
        let failing = std::mem::replace(&mut self.reads_fail_since, Moment::NEVER);
        let idle = self.last_read_at + self.config.ttl < at;
        let deaf_since = if idle { self.last_read_at } else { failing };
        if deaf_since < at {
            for node in self.mirror.nodes.values_mut() {
                node.silent_from = match self.rules.hold(Rule::SilenceNeedsReads) {
                    true => (node.silent_from + at.since(deaf_since)).min(at),
                    // What a wrong design would do: whoever was not heard while we were deaf was silent.
                    false => node.silent_from.min(deaf_since),
                };
            }
        }
        self.last_read_at = at;
    }

    /// Why this node's session may be over, if it may.
    fn suspect(&self, name: &NodeName) -> Option<Suspect> {
        if self.is_me(name) && self.session.is_some() {
            return None;
        }
        let node = self.mirror.nodes.get(name)?;
        let silent_from = node.silent_from;
        let ttl = match node.seen.as_ref().map(|seen| &seen.record) {
            Some(Ok(record)) => {
                let ours = self.session_id() == Some(record.session);
                if ours || !record.state.is_alive() || self.mirror.dead.contains_key(&record.session) {
                    return None;
                }
                record.ttl()
            }
            Some(Err(error)) if error.is_too_new() => return None,
            // It counts with the longest ttl that it can have had.
            Some(Err(_)) => self.ttl_max().max(node.ttl_longest),
            None => match (self.lost_sessions.get(name), node.lost()) {
                (Some((_, wait)), _) => *wait,
                (None, Some(last)) if !self.mirror.dead.contains_key(&last.session) => last.ttl(),
                (None, _) => return None,
            },
        };
        Some(Suspect { ttl, silent_from })
    }

    fn dead_at(&self, suspect: &Suspect) -> Moment {
        let wait = if self.rules.hold(Rule::SilenceLastsTtl) { suspect.ttl } else { suspect.ttl / 2 };
        suspect.silent_from + stretch(wait, self.config.drift_permille)
    }

    /// Looks at those that have been silent for a while. At rest nobody is, and this costs nothing.
    pub(super) fn probe(&mut self) {
        self.probe_at = Moment::NEVER;
        if self.incarnation.is_none() {
            // Nobody is fenced in a namespace that we do not know; we look again once we do.
            self.probe_at = self.now.at + self.config.ttl / 2;
            return;
        }
        let at = self.now.at;
        let names: Vec<NodeName> = self.mirror.nodes.keys().cloned().collect();
        let mut due = Vec::new();
        let mut next_at = Moment::NEVER;
        for name in names {
            let Some(suspect) = self.suspect(&name) else { continue };
            self.distrust_clock(&name);
            let doubtful_at = suspect.silent_from + suspect.ttl / 2;
            if at < doubtful_at {
                next_at = next_at.min(doubtful_at);
                continue;
            }
            let dead_at = self.dead_at(&suspect);
            let again_at = at + suspect.ttl / 5;
            next_at = next_at.min(if dead_at > at { again_at.min(dead_at) } else { again_at });
            due.push(name);
        }
        self.probe_at = next_at;
        if !due.is_empty() && !self.requests.any(|purpose| matches!(purpose, Purpose::Probe(_))) {
            let keys = due.iter().cloned().map(Key::Node).collect();
            self.ask(Lane::Work, Op::Read(keys), Purpose::Probe(due));
        }
    }

    pub(super) fn on_probed(&mut self, sent: &Sent, nodes: &[NodeName]) {
        for name in nodes {
            // A change that the read showed has already begun a new wait.
            if let Some(suspect) = self.suspect(name)
                && sent.sent_at >= self.dead_at(&suspect)
            {
                self.fence(name, suspect.silent_from);
            }
        }
        self.reconsider_all = true;
    }

    /// The kernel says that a session's process is gone, with all that it started: no need to wait.
    pub(super) fn process_gone(&mut self, session: SessionId) {
        if self.session_id() == Some(session) || self.former.contains(&session) {
            return;
        }
        self.proven_gone.insert(session);
        let named = |node: &crate::mirror::SeenNode| {
            let record = node.seen.as_ref().and_then(|seen| seen.good());
            record.is_some_and(|record| record.session == session && record.state.is_alive())
        };
        let found = self.mirror.nodes.iter().find(|(_, node)| named(node));
        if let Some((name, since)) = found.map(|(name, node)| (name.clone(), node.silent_from)) {
            self.fence(&name, since);
        }
    }

    fn fence(&mut self, name: &NodeName, silent_from: Moment) {
        if self.requests.any(|purpose| matches!(purpose, Purpose::Fence { node, .. } if node == name)) {
            return;
        }
        let Some((mut record, expect)) = self.record_to_fence(name) else { return };
        if !self.rules.hold(Rule::FenceBeforeTakeover) {
            self.mirror.note_over(self.now.at, record.session);
            self.replan_soon();
            self.reconsider_all = true;
            return;
        }
        record.state = NodeState::Fenced;
        record.accepting = false;
        record.seq += 1;
        record.write = WriteId::from_bits(self.chance.bits());
        record.written_unix_ms = self.now.unix_ms;
        let value: Arc<[u8]> = record.encode().into();
        let swap = Swap { key: Key::Node(name.clone()), expect, value: Some(value.clone()) };
        let purpose = Purpose::Fence { node: name.clone(), session: record.session, silent_from, value };
        self.ask_swap(Lane::Work, swap, purpose);
    }

    fn record_to_fence(&mut self, name: &NodeName) -> Option<(NodeRecord, Option<Version>)> {
        let seen = self.mirror.nodes.get(name)?.seen.as_ref();
        let expect = seen.map(|seen| seen.version.clone());
        if let Some(record) = seen.and_then(|seen| seen.good()) {
            return Some((record.clone(), expect));
        }
        // A record that is damaged or gone: whoever lived under this name is over from now on, and a tombstone says so.
        let session = match seen {
            None => match self.lost_sessions.get(name) {
                Some((session, _)) => *session,
                None => self.mirror.nodes.get(name)?.lost()?.session,
            },
            Some(seen) => match &seen.before {
                Some(before) => before.session,
                None => SessionId::from_bits(self.chance.bits()),
            },
        };
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
            ttl_ms: self.config.ttl.as_millis() as u64,
            seq: 0,
            unproved: seen.is_none(),
            publishes: None,
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
                let silent_for = self.now.at.since(silent_from);
                self.lost_sessions.remove(&node);
                self.tell(Notice::Fenced { node: node.clone(), session, silent_for });
                self.take_in(Source::Mine, &Key::Node(node), Some(&Stored { version, value }));
            }
            // It renewed, or somebody was quicker; what is there now has been taken in.
            Swapped::Lost(_) if self.proven_gone.contains(&session) => self.process_gone(session),
            Swapped::Lost(_) => {}
            Swapped::Unknown => self.probe_at = self.probe_at.min(self.now.at + self.config.try_timeout),
        }
    }

    /// What a wrong design would do: judge others by the time in their records. Only a test build gets here.
    fn distrust_clock(&mut self, name: &NodeName) {
        if self.rules.hold(Rule::NoForeignClocks) {
            return;
        }
        let record = self.mirror.nodes.get(name).and_then(|n| n.seen.as_ref()).and_then(|seen| seen.good());
        if let Some(record) = record
            && self.now.unix_ms > record.written_unix_ms + record.ttl_ms
        {
            self.fence(&name.clone(), self.now.at);
        }
    }

    pub(super) fn prune(&mut self) {
        let older_than = self.now.at - self.ttl_max() * 20;
        self.mirror.prune(older_than);
        if self.proven_gone.len() > 1000 {
            self.proven_gone.clear();
        }
    }
}
