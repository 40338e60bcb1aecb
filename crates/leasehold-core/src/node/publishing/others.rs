//! What the records of the other nodes say of shards: who may run one, and how high their epochs were.

use crate::config::stretch;
use crate::mirror::{Mirror, Reach, Seen, SeenNode};
use crate::name::{Epoch, GroupName, NodeName, SessionId, ShardId};
use crate::node::context::Context;
use crate::node::namespace::Namespace;
use crate::record::{Holder, NodeRecord};
use crate::rules::Rule;
use crate::time::Moment;

/// What the records of the other nodes say of shards.
#[derive(Clone, Copy)]
pub(in crate::node) struct Others<'a> {
    pub(in crate::node) mirror: &'a Mirror,
    pub(in crate::node) namespace: &'a Namespace,
    pub(in crate::node) ctx: &'a Context,
}

/// Another session that publishes a shard, so that it must not start here.
pub(super) struct Blocker {
    /// Which one, if that is known.
    pub(super) session: Option<SessionId>,
    /// Whether a session says that it holds the shard, and not only that it may start it.
    pub(super) holds: bool,
    /// When an unclear record has been silent for long enough; [`Moment::NEVER`] if there is none.
    pub(super) silent_at: Moment,
}

impl<'a> Others<'a> {
    /// What keeps a shard that we claimed from starting, if anything does.
    pub(super) fn blocker(&self, shard: &ShardId) -> Option<Blocker> {
        if !self.ctx.rules.hold(Rule::PublishedIsHeld) {
            return None;
        }
        let node =
            self.published_elsewhere(shard, Reach::Start).and_then(|name| self.mirror.nodes().get(name));
        let lost = self.unaccounted_holders(shard).next();
        if node.is_none() && lost.is_none() {
            return None;
        }
        let known =
            node.and_then(|node| node.seen.as_ref().and_then(|seen| seen.best()).or(node.last.as_ref()));
        Some(Blocker {
            session: known.map(|record| record.session).or(lost.map(|(holder, _)| holder.session)),
            holds: lost.is_some() || self.published_elsewhere(shard, Reach::Hold).is_some(),
            silent_at: self.next_silent_at(shard),
        })
    }

    /// Another session that holds a shard as far as its record says; with [`Reach::Start`], or may start it. Under our own name
    /// that can only be one before ours.
    fn published_elsewhere(&self, shard: &ShardId, reach: Reach) -> Option<&'a NodeName> {
        let may_run = |name: &NodeName, node: &SeenNode| {
            let silent = self.ctx.now.at >= self.silent_at(node);
            match self.ctx.is_me(name) {
                true => self.mirror.former_may_run(node, shard, reach, silent),
                false => self.mirror.may_run(node, shard, reach, silent),
            }
        };
        self.mirror.nodes().iter().find(|(name, node)| may_run(name, node)).map(|(name, _)| name)
    }

    /// The sessions that a shard's record named before it was damaged or deleted, if no record tells what became of them and they
    /// may be alive, and until when: what deleted or damaged one record may have hit the other too.
    fn unaccounted_holders(&self, shard: &ShardId) -> impl Iterator<Item = (&'a Holder, Moment)> {
        let Others { mirror, namespace, ctx } = *self;
        let counts = ctx.rules.hold(Rule::AbsentIsNotDead);
        let lost = mirror.unaccounted_holders(shard).filter(move |_| counts);
        let until = lost.map(move |(holder, since)| {
            let may_live_for = namespace.ttl_max(&ctx.config).max(holder.ttl());
            (holder, since + stretch(may_live_for, ctx.config.drift_permille))
        });
        until.filter(|(_, until)| ctx.now.at < *until)
    }

    /// When all sessions that a shard's record named before it was lost are accounted for, or cannot be alive any more.
    pub(in crate::node) fn accounted_for_at(&self, shard: &ShardId) -> Option<Moment> {
        self.unaccounted_holders(shard).map(|(_, until)| until).max()
    }

    /// When nobody can be alive any more in a record that cannot be read, unless it changes; or, in one that can be read, the
    /// former session that its own may live beside: that one could not renew since we first saw the other.
    fn silent_at(&self, node: &SeenNode) -> Moment {
        let readable = node.seen.as_ref().is_some_and(|seen| seen.good().is_some());
        let from = match node.vanished_damaged_at {
            // No renewal can have landed since, whether or not we could read meanwhile.
            Some(vanished_at) if readable || node.seen.is_none() => vanished_at,
            None if readable => node.session_seen_at,
            _ => node.silent_from,
        };
        from + stretch(
            self.namespace.ttl_max(&self.ctx.config).max(node.ttl_longest),
            self.ctx.config.drift_permille,
        )
    }

    /// When the next record has been silent for so long that no session can be alive in it, of those that cannot be read or
    /// whose session may live beside a former one, or the next session that may hold this shard without any record of it;
    /// [`Moment::NEVER`] if there is none.
    pub(in crate::node) fn next_silent_at(&self, shard: &ShardId) -> Moment {
        let unclear = |node: &&SeenNode| {
            let there = |seen: &Seen<_>| seen.good().is_none() || node.lost().is_some();
            node.vanished_damaged_at.is_some() || node.seen.as_ref().is_some_and(there)
        };
        let silent_at = self.mirror.nodes().values().filter(unclear).map(|node| self.silent_at(node));
        let lost = self.unaccounted_holders(shard).map(|(_, until)| until);
        silent_at.chain(lost).filter(|at| *at > self.ctx.now.at).min().unwrap_or(Moment::NEVER)
    }

    /// Whether another live session says that it holds a shard, whatever the shard's own record says. Then nobody claims
    /// it before that session says otherwise or is over.
    pub(in crate::node) fn is_withheld(&self, shard: &ShardId) -> bool {
        self.ctx.rules.hold(Rule::PublishedIsHeld) && self.published_elsewhere(shard, Reach::Hold).is_some()
    }

    /// Whether another live session seems to hold a shard, and says so only by a hash.
    pub(super) fn is_hit_by_a_hash(&self, shard: &ShardId) -> bool {
        self.mirror.nodes().iter().any(|(name, node)| {
            let record = node.record();
            let published =
                record.filter(|record| record.state.is_alive()).and_then(|r| r.publishes.as_ref());
            !self.ctx.is_me(name) && published.is_some_and(|published| published.holds_by_hash(shard))
        })
    }

    /// Whether anybody else may have run a shard, as far as records still tell: a live session that holds it, or one that
    /// is over and could have started it.
    pub(in crate::node) fn was_ever_held(&self, shard: &ShardId) -> bool {
        let said = |record: &NodeRecord| {
            let over = !record.state.is_alive() || self.mirror.is_proved_over(&record.session);
            let published = record.publishes.as_ref();
            published.is_some_and(|it| if over { it.has(shard) } else { it.holds(shard) })
        };
        self.mirror.nodes().iter().any(|(name, node)| !self.ctx.is_me(name) && node.said().any(said))
    }

    /// The highest epoch that any other node published for a group.
    pub(super) fn epoch_published(&self, group: &GroupName) -> Epoch {
        let others = self.mirror.nodes().iter().filter(|(name, _)| !self.ctx.is_me(name));
        let records = others.flat_map(|(_, node)| node.said());
        let published = records.filter_map(|record| Some(record.publishes.as_ref()?.epoch(group)));
        published.max().unwrap_or_default()
    }

    /// Whether there was a session of which nobody knows which epochs it held: its record was damaged.
    pub(in crate::node) fn are_epochs_unknown(&self) -> bool {
        let unknown = |node: &SeenNode| match node.seen.as_ref().map(|seen| &seen.record) {
            Some(Ok(record)) => record.publishes.is_none(),
            Some(Err(_)) => true,
            None => node.last.as_ref().is_some_and(|last| last.publishes.is_none()),
        };
        self.mirror.nodes().iter().any(|(name, node)| !self.ctx.is_me(name) && unknown(node))
    }
}
