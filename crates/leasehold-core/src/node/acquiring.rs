//! Getting shards: whose turn it is, whether there is room, what the gate says, and looking again when the watch is
//! silent.

use std::time::Duration;

use super::Node;
use super::requests::Purpose;
use super::shards::Phase;
use crate::event::Verdict;
use crate::name::{NodeName, ShardId};
use crate::notice::{Notice, Standing};
use crate::record::{MoveReason, ShardSet};
use crate::rules::Rule;
use crate::store::{Key, Lane, Op};
use crate::time::Moment;

impl Node {
    /// Whether it is this node's turn to take an unowned shard, and as what that counts.
    pub(super) fn whose_turn(
        &mut self,
        shard: &ShardId,
        why: MoveReason,
        vacated: bool,
    ) -> Option<MoveReason> {
        let unowned_since = self.unowned_since.get(shard).copied().unwrap_or(self.now.at);
        let Some(wanted) = self.plan.wanted(shard) else {
            self.turn_since.remove(shard);
            return None;
        };
        // Nobody is late before the plan gives it to somebody.
        let since = match self.turn_since.get(shard) {
            Some(since) => unowned_since.max(*since),
            None => self.now.at,
        };
        if !self.rules.hold(Rule::UnownedAtOnce) && self.now.at < unowned_since + self.config.ttl * 3 {
            self.wake_at(shard, unowned_since + self.config.ttl * 3);
            return None;
        }
        if (self.plan_is_stale() && !vacated) || self.gather_until != Moment::NEVER {
            return None;
        }
        if self.is_me(wanted) {
            return Some(why);
        }
        let comes_back = self.comes_back_or_just_did(wanted);
        self.turn_since.entry(shard.clone()).or_insert(self.now.at);
        let ranked = self.planning.rank(&self.plan, shard);
        let rank = ranked.iter().position(|node| self.is_me(node))? as u32;
        let delay = self.config.turn_lasts(&self.facts);
        // Counted for the shard, not for the session: who comes back again and again is not waited for again and again.
        let patience = if comes_back { self.recover_window_of(wanted) } else { Duration::ZERO };
        let turn_at = since + delay * rank.clamp(1, 4) + patience;
        if self.now.at >= turn_at {
            // What is ours comes first. On a store that takes few writes a second everybody is late at a cold start,
            // and whoever took what others are about to write would only have to give it back.
            if self.is_behind() {
                self.wake_at(shard, self.now.at + delay);
                return None;
            }
            return Some(MoveReason::Takeover);
        }
        let jitter = self.chance.up_to(delay / 4);
        self.wake_at(shard, turn_at + jitter);
        None
    }

    /// Whether a node is coming back, or has been back for so short a time that its own turn is not over.
    fn comes_back_or_just_did(&self, node: &NodeName) -> bool {
        let turn = self.recover_window_of(node) + self.config.turn_lasts(&self.facts);
        let seen_at = self.mirror.nodes.get(node).map(|node| node.session_seen_at);
        self.roster.get(node).is_some_and(|member| !member.takes_now())
            || seen_at.is_some_and(|seen_at| self.now.at < seen_at + turn)
    }

    /// How long a node that comes back must be healthy before it takes shards, as far as we know: with a longer ttl longer.
    fn recover_window_of(&self, node: &NodeName) -> Duration {
        let record = self.mirror.nodes.get(node).and_then(|node| node.seen.as_ref()?.best());
        record.map_or(Duration::ZERO, |record| record.ttl() / 5).max(self.config.recover_window)
    }

    /// Whether this node may take one more shard now. Whatever forbids it makes us look again when it ends.
    pub(super) fn can_acquire(&mut self, shard: &ShardId) -> bool {
        if !self.serves(&shard.group) || self.is_unheard_of(shard) {
            return false;
        }
        let standing = matches!(self.standing, Standing::Attached | Standing::Degraded);
        if !standing || !self.is_open() || self.hands_over() || self.control_drains_me() {
            return false;
        }
        if self.now.at < self.acquire_paused_until {
            self.wake_at(shard, self.acquire_paused_until);
            return false;
        }
        let in_group = || self.holds.keys().filter(|held| held.group == shard.group).count();
        let group_capacity = self.served.get(&shard.group).and_then(|group| group.capacity);
        let room = self.capacity.is_none_or(|capacity| self.holds.len() < capacity as usize)
            && group_capacity.is_none_or(|capacity| in_group() < capacity as usize);
        if !room {
            self.roomless.insert(shard.clone());
            self.wake_at(shard, self.now.at + self.config.takeover_delay);
        }
        room
    }

    /// A named shard that nobody has engaged here, so that it cannot run here.
    pub(super) fn is_unheard_of(&self, shard: &ShardId) -> bool {
        let named = self.settings.get(&shard.group).is_none_or(|group| group.set == ShardSet::Named);
        named && !self.engaged.contains(shard)
    }

    pub(super) fn on_gate(&mut self, shard: ShardId, verdict: Verdict) {
        if self.inquired.remove(&shard) {
            if verdict == Verdict::Take {
                self.no_longer_declined(&shard);
            }
            return;
        }
        if self.holds.get(&shard).is_none_or(|hold| hold.phase != Phase::Asking) {
            return;
        }
        match verdict {
            // Its answer may be as old as a ttl: whether the shard is free, wanted and ours to take is asked again.
            Verdict::Take => {
                self.holds.remove(&shard);
                self.admitted.insert(shard.clone());
                self.consider_free(&shard);
                self.admitted.remove(&shard);
            }
            Verdict::Refuse => {
                self.holds.remove(&shard);
                self.decline(&shard);
            }
        }
    }

    /// After a new plan: what should come here is looked at for a while, in case the watch is silent.
    pub(super) fn begin_to_look_for_wanted(&mut self) {
        let (interval, window) = (self.config.acquire_retry_interval, self.config.acquire_retry_window);
        if self.session.is_none() || !self.is_open() || interval.is_zero() || window.is_zero() {
            return;
        }
        self.acquire_until = self.now.at + window;
        self.acquire_at = self.now.at + interval + self.chance.up_to(interval / 4);
    }

    pub(super) fn look_for_wanted(&mut self) {
        self.acquire_at = Moment::NEVER;
        if self.session.is_none() || self.hands_over() {
            return;
        }
        let me = &self.config.node;
        let missing =
            self.plan.iter().filter(|(shard, to)| *to == Some(me) && !self.holds.contains_key(*shard));
        let missing: Vec<ShardId> = missing.map(|(shard, _)| shard.clone()).collect();
        if missing.is_empty() {
            return;
        }
        let interval = self.config.acquire_retry_interval;
        if self.now.at >= self.acquire_until {
            self.tell(Notice::RetriesExhausted { shards: missing.len() });
            self.list_at = self.list_at.min(self.now.at + interval);
            return;
        }
        if !self.requests.any(|purpose| matches!(purpose, Purpose::Look(_))) {
            self.tell(Notice::Retried { shards: missing.len() });
            self.look_at(missing);
        }
        self.acquire_at = self.now.at + interval + self.chance.up_to(interval / 4);
    }

    /// Reads the node records that shards wait for: what became of the sessions that they name.
    pub(super) fn ask_reads(&mut self) {
        if self.reads_wanted.is_empty() || self.requests.any(|purpose| matches!(purpose, Purpose::Probe(_))) {
            return;
        }
        let nodes: Vec<NodeName> = std::mem::take(&mut self.reads_wanted).into_iter().collect();
        let keys = nodes.iter().cloned().map(Key::Node).collect();
        self.ask(Lane::Work, Op::Read(keys), Purpose::Probe(nodes));
    }

    pub(super) fn engage(&mut self, shard: ShardId) {
        if self.engaged.insert(shard.clone()) && self.declined.remove(&shard).is_some() {
            self.record_changed = true;
        }
        self.reconsider.insert(shard);
    }

    pub(super) fn disengage(&mut self, shard: ShardId) {
        self.engaged.remove(&shard);
        self.reconsider.insert(shard);
    }
}
