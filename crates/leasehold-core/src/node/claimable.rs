//! The only ways in which a shard becomes free. GUARANTEES, "At most one holder".

use super::Node;
use super::timers::Timer;
use crate::config::stretch;
use crate::name::{Epoch, NodeName, ShardId};
use crate::record::{Holder, MoveReason, ShardSet, ShardState};
use crate::rules::Rule;
use crate::store::Version;
use crate::time::Moment;

/// Whether a shard may be claimed.
pub(super) enum Claimable {
    /// A live session holds it, or nobody should.
    No,
    /// Another live session says that it holds it, whatever its record says.
    Withheld,
    /// Not before then.
    At(Moment),
    /// Not before this node's record was read again.
    AfterReading(crate::name::NodeName),
    /// Now, by replacing this version.
    Now { expect: Option<Version>, above: Epoch, why: MoveReason, vacated: bool },
}

impl Node {
    /// Looks whether a shard is unowned, and notes what follows from that; if it may become so, we come back to it then.
    pub(super) fn look_whether_unowned(&mut self, shard: &ShardId) -> Claimable {
        self.learn_of_holder(shard);
        let claimable = self.claimable(shard);
        match &claimable {
            // Before the namespace is open nobody may take it, so nobody is late either.
            Claimable::Now { .. } if !self.namespace.is_open() => {}
            Claimable::Now { .. } => self.vacancies.note_unowned(shard, self.ctx.now.at),
            Claimable::No => {
                self.vacancies.taken(shard);
            }
            Claimable::Withheld => {
                self.wait_while_withheld(shard);
                self.vacancies.taken(shard);
            }
            Claimable::At(at) => self.ctx.agenda.wake_at(shard, *at),
            Claimable::AfterReading(node) => self.fencing.want_read(node.clone()),
        }
        claimable
    }

    /// What a shard's record tells of the session that it names: that it is over, or that its record must be looked at.
    fn learn_of_holder(&mut self, shard: &ShardId) {
        let Some(seen) = self.mirror.shards.get(shard) else { return };
        let Some(holder) = seen.good().and_then(|record| record.holder()).cloned() else { return };
        if self.session_id() == Some(holder.session) {
            return;
        }
        match self.is_over(&holder, seen.order) {
            Over::Since(at) => self.mirror.note_over(at, holder.session),
            Over::Unreadable => {
                self.ctx.timers.set_earlier(
                    Timer::Probe,
                    self.ctx.now.at + self.namespace.ttl_max(&self.ctx.config) / 2,
                );
            }
            Over::Lost => self.note_lost_session(&holder),
            Over::Yes | Over::No | Over::At(_) | Over::AfterReading => {}
        }
    }

    /// GUARANTEES, "At most one holder": the only ways in which a shard becomes free.
    fn claimable(&self, shard: &ShardId) -> Claimable {
        let Some(seen) = self.mirror.shards.get(shard) else {
            let settings = self.planner.group(&shard.group);
            if settings.is_none_or(|settings| settings.set == ShardSet::Named) {
                return Claimable::No;
            }
            if self.is_withheld(shard) {
                return Claimable::Withheld;
            }
            let (above, why) = match self.had_record(shard) {
                true => (self.unknown_epoch(shard), MoveReason::Repaired),
                false => (self.first_epoch(shard), MoveReason::Planned),
            };
            return Claimable::Now { expect: None, above, why, vacated: false };
        };
        let (expect, order, reserved_from) = (Some(seen.version.clone()), seen.order, seen.first_seen_at);
        let record = match seen.record.clone() {
            Ok(record) => record,
            // A newer version understands it, and may be running it.
            Err(error) if error.is_too_new() => return Claimable::No,
            Err(_) if self.is_withheld(shard) => return Claimable::Withheld,
            Err(_) => {
                let (above, why) = (self.unknown_epoch(shard), MoveReason::Repaired);
                return Claimable::Now { expect, above, why, vacated: false };
            }
        };
        // Only a release tells for certain which epoch was the last. Anything else may be a late copy, or stand where
        // a record with a higher epoch was deleted.
        let above = match record.is_release() {
            true => record.epoch,
            false => record.epoch.max(self.epoch_published(&shard.group)),
        };
        match &record.state {
            // A slot that was retired when its group became smaller is there again once the group has grown.
            ShardState::Retired
                if self.planner.is_numbered(&shard.group) && self.planner.plan().has(shard) =>
            {
                Claimable::Now { expect, above, why: MoveReason::Planned, vacated: true }
            }
            ShardState::Retired => Claimable::No,
            ShardState::Vacant { successor, reserved_ms } => {
                let mine = successor.as_ref().is_some_and(|node| self.ctx.is_me(node));
                let reserved_until =
                    reserved_from + std::time::Duration::from_millis(reserved_ms.unwrap_or(0).min(3_600_000));
                if !mine && successor.is_some() && self.ctx.now.at < reserved_until {
                    return Claimable::At(reserved_until);
                }
                let why = if mine { record.why } else { MoveReason::Planned };
                Claimable::Now { expect, above, why, vacated: true }
            }
            ShardState::Held { holder } if self.session_id() == Some(holder.session) => {
                // It names this session, and we do not run it: a claim whose answer was lost, or a late copy of an earlier one.
                // It starts again, above everything that we have held since.
                Claimable::Now { expect, above, why: MoveReason::Planned, vacated: true }
            }
            ShardState::Held { holder } => match self.is_over(holder, order) {
                // The record was overwritten, and its former holder may still have the shard without knowing it.
                Over::Yes | Over::Since(_) if self.is_withheld(shard) => Claimable::Withheld,
                Over::Yes | Over::Since(_) => {
                    Claimable::Now { expect, above, why: MoveReason::Failover, vacated: false }
                }
                Over::No | Over::Unreadable | Over::Lost => Claimable::No,
                Over::At(at) => Claimable::At(at),
                Over::AfterReading => Claimable::AfterReading(holder.node.clone()),
            },
        }
    }

    /// Whether a shard that has no record has had one, as far as any record tells. Then it was deleted.
    pub(super) fn had_record(&self, shard: &ShardId) -> bool {
        let filled = self.planner.group(&shard.group).map(|settings| &settings.filled);
        shard.name.as_slot().zip(filled).is_some_and(|(slot, filled)| filled.contains(slot))
            || self.mirror.vanished.contains_key(shard)
            || self.was_ever_held(shard)
    }

    /// The epoch above which a shard starts that has no record and never had one, as far as anybody tells. Where the namespace
    /// was begun as new, epochs count from one. Elsewhere they follow the time of day from the beginning, so that it does no
    /// harm if everybody who knew better is gone.
    pub(super) fn first_epoch(&self, shard: &ShardId) -> Epoch {
        if self.namespace.counts_from_one() && !self.are_epochs_unknown() {
            self.epoch_published(&shard.group)
        } else {
            self.unknown_epoch(shard)
        }
    }

    /// An epoch as high as any that may have been given out for a shard whose record was lost.
    pub(super) fn unknown_epoch(&self, shard: &ShardId) -> Epoch {
        let published = self.epoch_published(&shard.group);
        self.mirror.epoch_seen.max(published).max(Epoch(self.ctx.now.unix_ms / 1000))
    }

    /// Whether the session that a shard's record names is over. `order`: when we saw that record.
    fn is_over(&self, holder: &Holder, order: u64) -> Over {
        if self.mirror.dead.contains_key(&holder.session) {
            return Over::Yes;
        }
        let node = self.mirror.nodes.get(&holder.node);
        match node.and_then(|node| node.seen.as_ref()).map(|seen| &seen.record) {
            Some(Ok(record)) if record.session == holder.session && record.state.is_alive() => Over::No,
            // It was known to be over, and forgotten again when no record named it any more.
            Some(Ok(record)) if record.session == holder.session => {
                Over::Since(node.map_or(self.ctx.now.at, |node| node.first_seen_at))
            }
            Some(Ok(record)) => {
                // Its name has another session. That proves something only if it was read after the shard's record,
                // and if that session began over one that had ended, not over a record that was lost.
                let unproved = record.unproved;
                let read_after = node.is_some_and(|node| node.read_issued > order);
                if !read_after && self.ctx.rules.hold(Rule::ProofAfterShard) {
                    return Over::AfterReading;
                }
                let lost_until = node.map_or(Moment::NEVER, |node| {
                    node.session_seen_at + stretch(holder.ttl(), self.ctx.config.drift_permille)
                });
                if unproved && self.ctx.now.at < lost_until && self.ctx.rules.hold(Rule::AbsentIsNotDead) {
                    return Over::At(lost_until);
                }
                Over::Since(node.map_or(self.ctx.now.at, |node| node.session_seen_at))
            }
            Some(Err(_)) if self.is_silent(&holder.node) => Over::Yes,
            Some(Err(_)) => Over::Unreadable,
            None if !self.ctx.rules.hold(Rule::AbsentIsNotDead) => Over::Yes,
            None => Over::Lost,
        }
    }

    fn is_silent(&self, node: &NodeName) -> bool {
        let seen = self.mirror.nodes.get(node).and_then(|node| node.seen.as_ref());
        seen.is_some_and(|seen| self.fencing.is_silent(node, &seen.version))
    }

    fn note_lost_session(&mut self, holder: &Holder) {
        let may_live_for = self.namespace.ttl_max(&self.ctx.config).max(holder.ttl());
        self.fencing.note_lost_session(holder, may_live_for, &mut self.mirror, &mut self.ctx);
    }

    /// The wait for a session without a record begins when a shard's record is seen to name it, also while we have no session
    /// ourselves: else one wait would follow another.
    pub(super) fn note_missing_holder(&mut self, shard: &ShardId) {
        let holder = self.mirror.holder(shard).cloned();
        if let Some(holder) = holder.filter(|holder| {
            let there = self.mirror.nodes.get(&holder.node).is_some_and(|node| node.seen.is_some());
            !there && !self.ctx.is_me(&holder.node) && !self.mirror.dead.contains_key(&holder.session)
        }) {
            self.note_lost_session(&holder);
        }
    }

    /// Whether its record names this session.
    pub(super) fn names_us(&self, shard: &ShardId) -> bool {
        let holder = self.mirror.holder(shard);
        holder.is_some_and(|holder| Some(holder.session) == self.session_id())
    }
}

/// Whether a session is over.
enum Over {
    /// It is known to be.
    Yes,
    /// It is, since then, as follows from what was read.
    Since(Moment),
    No,
    /// It is from then on.
    At(Moment),
    /// Its node's record must be read again before we can tell.
    AfterReading,
    /// Nobody can tell: its record cannot be read.
    Unreadable,
    /// Nobody can tell: it has no record.
    Lost,
}
