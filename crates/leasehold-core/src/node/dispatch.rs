//! Where the store's answers and the watch's events come in, and what a changed record sets off.

use std::collections::{BTreeMap, BTreeSet};

use super::Node;
use super::context::Context;
use super::holds::Holds;
use super::outbox::Outbox;
use super::publishing::claims_seen;
use super::requests::{Ask, Purpose, Sent};
use super::timers::Timer;
use crate::mirror::{Change, Mirror, SeenNode, Source};
use crate::name::{NodeName, SessionId};
use crate::notice::{Gone, Notice};
use crate::record::{NodeState, RecordError};
use crate::rules::Rule;
use crate::store::{Answer, Freshness, Key, Listing, Stored, Swapped, WatchEvent};

impl Node {
    pub(super) fn take_answer(&mut self, sent: Sent, answer: Answer) {
        if let Answer::Failed(error) = &answer {
            #[cfg(feature = "sabotage")]
            self.go_on_while_full(&sent, error);
            return self.on_failure(sent, error.to_string());
        }
        self.pace.answered();
        let generation = match &answer {
            Answer::Read { generation, .. } | Answer::Swapped { generation, .. } => generation,
            Answer::Listed(listing) => &listing.generation,
            Answer::Failed(_) => return,
        };
        if self.generation_changed(generation) {
            return;
        }
        match (answer, &sent.purpose) {
            (Answer::Listed(listing), Purpose::List) => self.on_listed(&sent, &listing),
            (Answer::Listed(listing), Purpose::Nodes) => self.on_nodes(&sent, &listing),
            (Answer::Read { found, .. }, purpose)
                if purpose.reads_records() && found.len() == sent.keys.len() =>
            {
                self.on_read(&sent, &found);
            }
            (Answer::Swapped { outcomes, .. }, purpose)
                if purpose.writes() && outcomes.len() == sent.keys.len() =>
            {
                self.on_swapped(&sent, outcomes);
            }
            // An answer that does not match its request counts as a failure.
            _ => self.on_failure(sent, "the store's answer does not match the request".into()),
        }
    }

    fn on_failure(&mut self, sent: Sent, error: String) {
        match &sent.purpose {
            Purpose::Renew(write) => {
                self.pace.adapt(None, self.ctx.config.try_timeout);
                if let Some(session) = &self.session {
                    session.renewal_unanswered(*write, error, &mut self.life, &mut self.ctx);
                }
                return;
            }
            Purpose::Shards(writes) => {
                self.pace.adapt(None, self.ctx.config.try_timeout);
                for (shard, write) in writes.clone() {
                    self.on_shard_swapped(&shard, write, Swapped::Unknown);
                }
            }
            // What became of it shows in our record.
            Purpose::Left(_) => {
                self.ctx.timers.set_earlier(Timer::List, self.ctx.now.at + self.ctx.config.retry.shortest())
            }
            Purpose::List
            | Purpose::Probe(_)
            | Purpose::Look(_)
            | Purpose::Open
            | Purpose::LookAgain
            | Purpose::Nodes => {
                self.fencing.reads_failed(sent.sent_at);
            }
            _ => {}
        }
        let first = self.pace.failures() == 0;
        self.pace.pause_after_failure(self.session.is_some(), &mut self.ctx);
        if first {
            self.ctx.tell(Notice::StoreFailed { error });
        }
    }

    fn on_listed(&mut self, sent: &Sent, listing: &Listing) {
        let newest = listing.newest || self.ctx.facts.reads == Freshness::Newest;
        let source = if newest { Source::Fresh(sent.issued) } else { Source::Lagging };
        if self.namespace.generation().is_empty() {
            self.namespace.set_generation(&listing.generation);
        }
        let crossings = self.mirror.crossings();
        if !self.take_in_listing(source, listing) {
            return;
        }
        self.fencing.reads_succeeded(&mut self.mirror, &self.ctx);
        let next_at = self.ctx.next_list_at(self.session.is_some());
        self.ctx.timers.set(Timer::List, next_at);
        self.forget_long_gone();
        self.after_contact();
        if newest && self.mirror.crossings() == crossings {
            self.publishing.nodes_were_read(sent.issued, &mut self.ctx);
            claims_seen(&mut self.holds, listing, sent.issued, &mut self.ctx);
        }
    }

    /// All node records, and `meta`, which was read after them and is looked at first.
    fn on_nodes(&mut self, sent: &Sent, listing: &Listing) {
        let (source, crossings) = (Source::Fresh(sent.issued), self.mirror.crossings());
        let listed: BTreeMap<&Key, &Stored> =
            listing.entries.iter().map(|(key, stored)| (key, stored)).collect();
        let known = self.mirror.nodes().iter().filter(|(_, node)| node.seen.is_some());
        let mut keys: BTreeSet<Key> = known.map(|(name, _)| Key::Node(name.clone())).collect();
        keys.extend(listed.keys().filter(|key| matches!(key, Key::Node(_))).map(|key| (*key).clone()));
        for key in std::iter::once(Key::Meta).chain(keys) {
            if !self.take_in(source, &key, listed.get(&key).copied()) {
                return;
            }
        }
        // Also a `meta` that has not changed says something: that it is not missing.
        if !self.check_meta(source) {
            return;
        }
        self.fencing.reads_succeeded(&mut self.mirror, &self.ctx);
        // A node of which a late watch told something else meanwhile was not looked at: all are read once more.
        if self.mirror.crossings() == crossings {
            self.publishing.nodes_were_read(sent.issued, &mut self.ctx);
        }
    }

    fn on_read(&mut self, sent: &Sent, found: &[Option<Stored>]) {
        let source = Source::Fresh(sent.issued);
        let read = || sent.keys.iter().zip(found);
        // `meta` is read last and looked at first: if the store was replaced, nothing else that it says counts.
        let meta = read().filter(|(key, _)| **key == Key::Meta);
        let others = read().filter(|(key, _)| **key != Key::Meta);
        for (key, stored) in meta.chain(others) {
            if !self.take_in(source, key, stored.as_ref()) {
                return;
            }
        }
        self.fencing.reads_succeeded(&mut self.mirror, &self.ctx);
        match &sent.purpose {
            Purpose::Probe(nodes) => self.on_probed(sent, nodes),
            Purpose::Look(shards) => self.on_looked(shards, sent, found),
            Purpose::Open => self.on_open_read(sent),
            Purpose::LookAgain => {
                // Also what has not changed since we began to doubt it says something now.
                self.check_meta(source);
            }
            _ => {}
        }
    }

    fn on_swapped(&mut self, sent: &Sent, outcomes: Vec<Swapped>) {
        let source = Source::Fresh(sent.issued);
        for (key, outcome) in sent.keys.iter().zip(&outcomes) {
            if let Swapped::Lost(current) = outcome
                && !matches!(sent.purpose, Purpose::Renew(_))
                && !self.take_in(source, key, current.as_ref())
            {
                return;
            }
        }
        if matches!(sent.purpose, Purpose::Shards(_) | Purpose::Renew(_)) {
            let took = self.ctx.now.at.since(sent.sent_at);
            self.pace.adapt(Some(took), self.ctx.config.try_timeout);
        }
        match &sent.purpose {
            Purpose::Shards(writes) => {
                for ((shard, write), outcome) in writes.clone().into_iter().zip(outcomes) {
                    self.on_shard_swapped(&shard, write, outcome);
                }
            }
            #[cfg(feature = "sabotage")]
            Purpose::Group if self.write_group_over(&outcomes) => {}
            purpose => {
                let outcome = outcomes.into_iter().next().unwrap_or(Swapped::Unknown);
                match purpose.clone() {
                    Purpose::Renew(write) => self.on_renewed(write, sent, outcome),
                    Purpose::Join => self.on_joined(outcome),
                    Purpose::Left(session) => self.on_left(session, outcome),
                    Purpose::Fence { node, session, silent_from, value } => {
                        self.on_fenced(node, session, silent_from, value, outcome);
                    }
                    Purpose::Meta | Purpose::Group | Purpose::Gc => {
                        self.ctx.timers.set(Timer::List, self.ctx.now.at)
                    }
                    _ => {}
                }
            }
        }
    }

    pub(super) fn on_watch(&mut self, event: WatchEvent) {
        match event {
            WatchEvent::Snapshot(listing) => {
                if self.generation_changed(&listing.generation) {
                    return;
                }
                // A snapshot may have been made long before it got here: it is news, but it proves nothing.
                if self.take_in_listing(Source::Lagging, &listing) {
                    self.ctx.timers.set_earlier(Timer::List, self.ctx.now.at);
                }
            }
            WatchEvent::Changed(changes) => {
                for (key, stored) in &changes {
                    self.take_in(Source::Watch, key, stored.as_ref());
                }
            }
            WatchEvent::Interrupted(error) => {
                self.ctx.tell(Notice::StoreFailed { error: format!("the watch broke: {error}") });
            }
            WatchEvent::ProcessGone(session) => self.process_gone(session),
        }
    }

    /// Takes in a whole listing; `false` if the store turned out not to be the one it was.
    fn take_in_listing(&mut self, source: Source, listing: &Listing) -> bool {
        let mut changed = Vec::new();
        let mut doubtful = Vec::new();
        let mut rolled_back = None;
        let was_alive = alive_sessions(&self.mirror);
        let me = self.ctx.me();
        self.mirror.observe_listing(self.ctx.now.at, source, listing, |key, change| match change {
            Change::None => {}
            Change::Changed => changed.push(key.clone()),
            // Of others' records an older state is nothing new; of our own it may mean that the store was rolled back.
            Change::Doubtful if matches!(key, Key::Node(node) if *node != me) => {}
            Change::Doubtful => doubtful.push(key.clone()),
            Change::RolledBack(what) => rolled_back = Some(what),
        });
        if let Some(what) = rolled_back
            && self.namespace.is_known()
            && self.ctx.rules.hold(Rule::GenerationChecked)
        {
            self.store_changed(what);
            return false;
        }
        // Before anything else: if the store was replaced, nothing else that it says counts.
        if !self.check_meta(source) {
            return false;
        }
        for key in &changed {
            let was = if let Key::Node(node) = key { was_alive.get(node).copied() } else { None };
            if !self.record_has_changed(source, key, was) {
                return false;
            }
        }
        if source == Source::Lagging {
            // It proves nothing, but it is a reason to read what it shows differently from what we know.
            self.look_again(doubtful);
            self.outbox.doubt_unlisted(listing, &self.holds, &mut self.ctx);
        }
        true
    }

    /// Reads these records themselves: what is read is never behind, whatever listings and watches are.
    pub(super) fn look_again(&mut self, keys: Vec<Key>) {
        if !keys.is_empty() && !self.requests.any(|purpose| matches!(purpose, Purpose::LookAgain)) {
            self.ask(Ask::read(keys, Purpose::LookAgain));
        }
    }

    /// Takes in one record; `false` if the store turned out not to be the one it was.
    pub(super) fn take_in(&mut self, source: Source, key: &Key, stored: Option<&Stored>) -> bool {
        let was_alive = match key {
            Key::Node(node) => self.mirror.nodes().get(node).and_then(SeenNode::alive),
            _ => None,
        };
        match self.mirror.observe(self.ctx.now.at, source, key, stored) {
            Change::None => true,
            Change::Doubtful => {
                if *key == Key::Node(self.ctx.me()) && self.session.is_some() {
                    self.look_again(vec![key.clone()]);
                }
                true
            }
            Change::RolledBack(what)
                if self.namespace.is_known() && self.ctx.rules.hold(Rule::GenerationChecked) =>
            {
                self.store_changed(what);
                false
            }
            Change::RolledBack(_) => true,
            Change::Changed => {
                self.record_has_changed(source, key, was_alive)
                    && (*key != Key::Meta || self.check_meta(source))
            }
        }
    }

    /// `was_alive`: the session that was alive under the name, if it is the record of a node.
    fn record_has_changed(&mut self, source: Source, key: &Key, was_alive: Option<SessionId>) -> bool {
        if let Some(error) = corruption(key, &self.mirror) {
            self.ctx.tell(Notice::CorruptRecord { key: key.clone(), error: error.to_string() });
        }
        match key {
            Key::Meta => {}
            Key::Control => {
                self.ctx.replan_now();
                self.ctx.agenda.add_everything();
            }
            Key::Group(_) => {
                self.ctx.replan_now();
                self.mend_groups();
            }
            Key::Node(node) => self.node_has_changed(node.clone(), was_alive),
            Key::Shard(shard) => self.shard_has_changed(source, shard.clone()),
        }
        true
    }

    fn node_has_changed(&mut self, node: NodeName, was: Option<SessionId>) {
        let seen = self.mirror.nodes().get(&node);
        let record = seen.and_then(SeenNode::record);
        let is = seen.and_then(SeenNode::alive);
        let state = record.map(|record| record.state);
        let returning = record.is_some_and(|record| record.returning);
        if state.is_some_and(|state| !state.is_alive()) {
            self.fencing.note_over(&node);
        }
        let there = seen.is_some_and(|node| node.seen.is_some());
        let seen_lost = seen.is_some_and(|node| node.lost().is_some());
        let session = record.map(|record| record.session);
        // A damaged record counts as that of a session with the longest ttl.
        let ttl = record.map_or(self.namespace.ttl_max(&self.ctx.config), |record| record.ttl());
        let told = record.and_then(|record| record.meta.as_ref()).map_or(0, |meta| meta.max_ttl_ms);
        self.namespace.hear_of_ttl(ttl.max(std::time::Duration::from_millis(told)), &self.ctx.rules);
        self.publishing.publication_changed(record, &self.holds, self.session.as_ref(), &mut self.ctx);
        if there || seen_lost {
            self.ctx.timers.set_earlier(Timer::Probe, self.ctx.now.at + ttl / 2);
        }
        if self.ctx.is_me(&node) {
            return self.own_record_seen();
        }
        if let Some(is) = is.filter(|is| self.fencing.is_proven_gone(*is)) {
            self.process_gone(is);
        }
        if was == is && is.is_some() {
            // A renewal. Its content may still have changed.
            if self.planner.refresh_member(&node, &self.mirror, &mut self.freeze, &mut self.ctx) {
                self.moves.look_at_surplus(&mut self.ctx);
            }
            return;
        }
        if let Some(was) = was {
            let how = match state {
                None if !there => Gone::Vanished,
                Some(NodeState::Left) if session == Some(was) => Gone::Left,
                _ => Gone::Fenced,
            };
            self.ctx.tell(Notice::NodeGone { node: node.clone(), session: was, how });
            match how {
                // It comes back under a new session at once, and would have to be given everything back.
                Gone::Left if returning => self.planner.replan_soon(&mut self.freeze, &mut self.ctx),
                Gone::Left => self.ctx.replan_now(),
                Gone::Fenced | Gone::Vanished => {
                    self.freeze.count_vanished(self.planner.roster().len(), &mut self.ctx);
                    self.planner.replan_soon(&mut self.freeze, &mut self.ctx);
                }
            }
        }
        if let Some(is) = is {
            self.moves.trust_again(&node);
            self.gathering.wait_for_more(&mut self.ctx);
            self.ctx.tell(Notice::NodeJoined { node, session: is });
            self.planner.replan_soon(&mut self.freeze, &mut self.ctx);
        }
        self.ctx.agenda.add_everything();
    }
}

impl Outbox {
    /// A listing that may be behind proves nothing, but it is a reason to read what we hold and it does not show.
    fn doubt_unlisted(&mut self, listing: &Listing, holds: &Holds, ctx: &mut Context) {
        let listed: BTreeSet<&Key> = listing.entries.iter().map(|(key, _)| key).collect();
        let held = holds.iter().filter(|(_, hold)| hold.has_work()).map(|(shard, _)| shard);
        let missing: Vec<_> = held.filter(|shard| !listed.contains(&Key::Shard((*shard).clone()))).collect();
        if !missing.is_empty() {
            self.doubt(missing.into_iter().cloned());
            ctx.timers.set(Timer::ReadBack, ctx.now.at);
        }
    }
}

/// The sessions that are alive as far as records say, by node.
fn alive_sessions(mirror: &Mirror) -> BTreeMap<NodeName, SessionId> {
    mirror.nodes().iter().filter_map(|(name, node)| Some((name.clone(), node.alive()?))).collect()
}

/// What is wrong with a record, if it cannot be read.
fn corruption(key: &Key, mirror: &Mirror) -> Option<RecordError> {
    match key {
        Key::Meta => mirror.meta()?.record.as_ref().err(),
        Key::Control => mirror.control_record()?.record.as_ref().err(),
        Key::Group(group) => mirror.groups().get(group)?.record.as_ref().err(),
        Key::Node(node) => mirror.nodes().get(node)?.seen.as_ref()?.record.as_ref().err(),
        Key::Shard(shard) => mirror.shards().get(shard)?.record.as_ref().err(),
    }
    .cloned()
}
