//! The only ways in which a shard becomes free. GUARANTEES, "At most one holder".

use super::Node;
use super::context::Context;
use super::fencing::Fencing;
use super::namespace::Namespace;
use super::planner::Planner;
use super::publishing::{Others, Publishing};
use super::timers::Timer;
use crate::config::stretch;
use crate::mirror::Mirror;
use crate::name::{Epoch, NodeName, SessionId, ShardId};
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
    AfterReading(NodeName),
    /// Now, by replacing this version.
    Now { expect: Option<Version>, above: Epoch, why: MoveReason, vacated: bool },
}

/// What decides whether a shard may be claimed.
pub(super) struct Claimability<'a> {
    others: Others<'a>,
    publishing: &'a Publishing,
    fencing: &'a Fencing,
    planner: &'a Planner,
    /// Our session.
    session: Option<SessionId>,
}

impl Claimability<'_> {
    /// GUARANTEES, "At most one holder": the only ways in which a shard becomes free.
    pub(super) fn claimable(&self, shard: &ShardId) -> Claimable {
        let Others { mirror, ctx, .. } = self.others;
        let Some(seen) = mirror.shards().get(shard) else {
            let settings = self.planner.group(&shard.group);
            if settings.is_none_or(|settings| settings.set == ShardSet::Named) {
                return Claimable::No;
            }
            if self.others.is_withheld(shard) {
                return Claimable::Withheld;
            }
            if let Some(at) = self.others.accounted_for_at(shard) {
                return Claimable::At(at);
            }
            let (above, why) = match self.planner.had_record(shard, self.others) {
                true => (self.publishing.unknown_epoch(shard, self.others), MoveReason::Repaired),
                false => (self.publishing.first_epoch(shard, self.others), MoveReason::Planned),
            };
            return Claimable::Now { expect: None, above, why, vacated: false };
        };
        let (expect, order, reserved_from) = (Some(seen.version.clone()), seen.order, seen.first_seen_at);
        let record = match seen.record.clone() {
            Ok(record) => record,
            // A newer version understands it, and may be running it.
            Err(error) if error.is_too_new() => return Claimable::No,
            Err(_) if self.others.is_withheld(shard) => return Claimable::Withheld,
            Err(_) => {
                if let Some(at) = self.others.accounted_for_at(shard) {
                    return Claimable::At(at);
                }
                let (above, why) = (self.publishing.unknown_epoch(shard, self.others), MoveReason::Repaired);
                return Claimable::Now { expect, above, why, vacated: false };
            }
        };
        // Only a release tells for certain which epoch was the last. Anything else may be a late copy, or stand where
        // a record with a higher epoch was deleted.
        let above = match record.is_release() {
            true => record.epoch,
            false => record.epoch.max(self.publishing.epoch_published(&shard.group, self.others)),
        };
        match &record.state {
            // A slot that was retired when its group became smaller is there again once the group has grown.
            ShardState::Retired
                if self.planner.is_numbered(&shard.group)
                    && self.planner.plan().has(shard)
                    && ctx.rules.hold(Rule::RetiredSlotReturns) =>
            {
                Claimable::Now { expect, above, why: MoveReason::Planned, vacated: true }
            }
            ShardState::Retired => Claimable::No,
            ShardState::Vacant { successor, reserved_ms } => {
                let mine = successor.as_ref().is_some_and(|node| ctx.is_me(node));
                let reserved_until =
                    reserved_from + std::time::Duration::from_millis(reserved_ms.unwrap_or(0).min(3_600_000));
                if !mine && successor.is_some() && ctx.now.at < reserved_until {
                    return Claimable::At(reserved_until);
                }
                let why = if mine { record.why } else { MoveReason::Planned };
                Claimable::Now { expect, above, why, vacated: true }
            }
            ShardState::Held { holder } if self.session == Some(holder.session) => {
                // It names this session, and we do not run it: a claim whose answer was lost, or a late copy of an earlier one.
                // It starts again, above everything that we have held since.
                Claimable::Now { expect, above, why: MoveReason::Planned, vacated: true }
            }
            ShardState::Held { holder } => match self.fencing.is_over(holder, order, mirror, ctx) {
                // The record was overwritten, and its former holder may still have the shard without knowing it.
                Over::Yes | Over::Since(_) if self.others.is_withheld(shard) => Claimable::Withheld,
                Over::Yes | Over::Since(_) => {
                    Claimable::Now { expect, above, why: MoveReason::Failover, vacated: false }
                }
                Over::No | Over::Unreadable | Over::Lost => Claimable::No,
                Over::At(at) => Claimable::At(at),
                Over::AfterReading => Claimable::AfterReading(holder.node.clone()),
            },
        }
    }

    /// Whether its record names this session.
    pub(super) fn names_us(&self, shard: &ShardId) -> bool {
        let holder = self.others.mirror.holder(shard);
        holder.is_some_and(|holder| Some(holder.session) == self.session)
    }
}

impl Node {
    /// Looks whether a shard is unowned, and notes what follows from that; if it may become so, we come back to it then.
    pub(super) fn look_whether_unowned(&mut self, shard: &ShardId) -> Claimable {
        self.learn_of_holder(shard);
        let claimable = self.claimability().claimable(shard);
        match &claimable {
            // Before the namespace is open nobody may take it, so nobody is late either.
            Claimable::Now { .. } if !self.namespace.is_open() => {}
            Claimable::Now { .. } => self.vacancies.note_unowned(shard, self.ctx.now.at),
            Claimable::No => {
                self.vacancies.taken(shard);
            }
            Claimable::Withheld => {
                let silent_at = self.others().next_silent_at(shard);
                self.publishing.wait_while_withheld(shard, silent_at, &mut self.ctx);
                self.vacancies.taken(shard);
            }
            Claimable::At(at) => self.ctx.agenda.wake_at(shard, *at),
            Claimable::AfterReading(node) => self.fencing.want_read(node.clone()),
        }
        claimable
    }

    /// What a shard's record tells of the session that it names: that it is over, or that its record must be looked at.
    fn learn_of_holder(&mut self, shard: &ShardId) {
        let Some(seen) = self.mirror.shards().get(shard) else { return };
        let Some(holder) = seen.good().and_then(|record| record.holder()).cloned() else { return };
        if self.session_id() == Some(holder.session) {
            return;
        }
        match self.fencing.is_over(&holder, seen.order, &self.mirror, &self.ctx) {
            Over::Since(at) => self.mirror.note_over(at, holder.session),
            Over::Unreadable => {
                self.ctx.timers.set_earlier(
                    Timer::Probe,
                    self.ctx.now.at + self.namespace.ttl_max(&self.ctx.config) / 2,
                );
            }
            Over::Lost => {
                self.fencing.note_lost_session(&holder, &self.namespace, &mut self.mirror, &mut self.ctx);
            }
            Over::Yes | Over::No | Over::At(_) | Over::AfterReading => {}
        }
    }

    /// What decides whether a shard may be claimed.
    pub(super) fn claimability(&self) -> Claimability<'_> {
        Claimability {
            others: self.others(),
            publishing: &self.publishing,
            fencing: &self.fencing,
            planner: &self.planner,
            session: self.session_id(),
        }
    }
}

impl Planner {
    /// Whether a shard that has no record has had one, as far as any record tells. Then it was deleted.
    pub(super) fn had_record(&self, shard: &ShardId, others: Others<'_>) -> bool {
        let filled = self.group(&shard.group).map(|settings| &settings.filled);
        shard.name.as_slot().zip(filled).is_some_and(|(slot, filled)| filled.contains(slot))
            || others.mirror.vanished(shard).is_some()
            || others.was_ever_held(shard)
    }
}

impl Publishing {
    /// The epoch above which a shard starts that has no record and never had one, as far as anybody tells. Where the namespace
    /// was begun as new, epochs count from one. Elsewhere they follow the time of day from the beginning, so that it does no
    /// harm if everybody who knew better is gone.
    pub(super) fn first_epoch(&self, shard: &ShardId, others: Others<'_>) -> Epoch {
        if others.namespace.counts_from_one() && !others.are_epochs_unknown() {
            self.epoch_published(&shard.group, others)
        } else {
            self.unknown_epoch(shard, others)
        }
    }

    /// An epoch as high as any that may have been given out for a shard whose record was lost.
    pub(super) fn unknown_epoch(&self, shard: &ShardId, others: Others<'_>) -> Epoch {
        let published = self.epoch_published(&shard.group, others);
        others.mirror.epoch_seen().max(published).max(Epoch(others.ctx.now.unix_ms / 1000))
    }
}

impl Fencing {
    /// Whether the session that a shard's record names is over. `order`: when we saw that record.
    fn is_over(&self, holder: &Holder, order: u64, mirror: &Mirror, ctx: &Context) -> Over {
        if mirror.is_proved_over(&holder.session) {
            return Over::Yes;
        }
        let node = mirror.nodes().get(&holder.node);
        match node.and_then(|node| node.seen.as_ref()).map(|seen| &seen.record) {
            Some(Ok(record)) if record.session == holder.session && record.state.is_alive() => Over::No,
            // It was known to be over, and forgotten again when no record named it any more.
            Some(Ok(record)) if record.session == holder.session => {
                Over::Since(node.map_or(ctx.now.at, |node| node.first_seen_at))
            }
            Some(Ok(record)) => {
                // Its name has another session. That proves something only if it was read after the shard's record,
                // and if that session began over one that had ended, not over a record that was lost.
                let unproved = record.unproved;
                let read_after = node.is_some_and(|node| node.read_issued > order);
                if !read_after && ctx.rules.hold(Rule::ProofAfterShard) {
                    return Over::AfterReading;
                }
                let lost_until = node.map_or(Moment::NEVER, |node| {
                    node.session_seen_at + stretch(holder.ttl(), ctx.config.drift_permille)
                });
                if unproved && ctx.now.at < lost_until && ctx.rules.hold(Rule::AbsentIsNotDead) {
                    return Over::At(lost_until);
                }
                Over::Since(node.map_or(ctx.now.at, |node| node.session_seen_at))
            }
            Some(Err(_)) if self.is_silent_as_seen(&holder.node, mirror) => Over::Yes,
            Some(Err(_)) => Over::Unreadable,
            None if !ctx.rules.hold(Rule::AbsentIsNotDead) => Over::Yes,
            None => Over::Lost,
        }
    }

    fn is_silent_as_seen(&self, node: &NodeName, mirror: &Mirror) -> bool {
        let seen = mirror.nodes().get(node).and_then(|node| node.seen.as_ref());
        seen.is_some_and(|seen| self.is_silent(node, &seen.version))
    }

    /// The wait for a session without a record begins when a shard's record is seen to name it, also while we have no session
    /// ourselves: else one wait would follow another.
    pub(super) fn note_missing_holder(
        &mut self,
        shard: &ShardId,
        namespace: &Namespace,
        mirror: &mut Mirror,
        ctx: &mut Context,
    ) {
        let holder = mirror.holder(shard).cloned();
        if let Some(holder) = holder.filter(|holder| {
            let there = mirror.nodes().get(&holder.node).is_some_and(|node| node.seen.is_some());
            !there && !ctx.is_me(&holder.node) && !mirror.is_proved_over(&holder.session)
        }) {
            self.note_lost_session(&holder, namespace, mirror, ctx);
        }
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
