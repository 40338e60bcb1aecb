//! May a claimed shard start? Not before its publication has landed, all nodes were read since, none of them publishes it,
//! and its record is still our claim. GUARANTEES, "At most one holder".

use std::collections::BTreeMap;

use super::others::Blocker;
use super::{Check, Others, Publishing};
use crate::name::{Epoch, ShardId};
use crate::node::Node;
use crate::node::context::Context;
use crate::node::hold::Hold;
use crate::node::holds::Holds;
use crate::node::pace::Pace;
use crate::node::requests::{Ask, Purpose, Requests};
use crate::node::timers::Timer;
use crate::node::writes::Replaces;
use crate::record::MoveReason;
use crate::rules::Rule;
use crate::store::{Freshness, Key, Listing, Op, Version};

/// The most claimed shards whose records are read one by one before they start.
const LOOKED_AT_MAX: usize = 32;

impl Node {
    /// Starts a claimed shard, once that is safe; else asks for what is missing.
    pub(in crate::node) fn start_if_clear(&mut self, shard: &ShardId, why: MoveReason) {
        let epoch = self.holds.get(shard).map(|hold| hold.epoch()).unwrap_or_default();
        let session = self.session.as_ref();
        if !session.is_some_and(|session| session.publishes(shard, epoch))
            && self.ctx.rules.hold(Rule::PublishBeforeStart)
        {
            if !session.is_some_and(|session| session.latest_publication().covers(shard, epoch)) {
                self.ctx.record_changed();
            }
            return;
        }
        let order = self.mirror.tick();
        let Some(hold) = self.holds.get_mut(shard) else { return };
        let ready = *hold.check_mut().ready.get_or_insert(order);
        if !hold.check().trusts_the_record()
            && self.ctx.rules.hold(Rule::NodesBeforeStart)
            && !self.find_clear(shard, ready, order)
        {
            return;
        }
        self.publishing.awaited.remove(shard);
        let hold = self.holds.get(shard);
        if let Some(above) = hold.and_then(|hold| self.publishing.epoch_too_low(shard, hold, self.others())) {
            return self.claim_above(shard, above, why);
        }
        self.start(shard, why);
    }

    /// Finds out whether nobody else may be running a shard that we claimed: all nodes were read since that was published, none of them
    /// publishes it, and then its record was read once more and was still our claim.
    fn find_clear(&mut self, shard: &ShardId, ready: u64, order: u64) -> bool {
        if self.publishing.read_issued < ready {
            self.publishing.unread.insert(shard.clone());
            return false;
        }
        let blocker = self.others().blocker(shard);
        let Some(hold) = self.holds.get_mut(shard) else { return false };
        let was_blocked = std::mem::replace(&mut hold.check_mut().blocked, blocker.is_some());
        if let Some(blocker) = blocker {
            self.publishing.wait_for_blocker(shard, blocker, hold.check_mut(), &mut self.ctx);
            return false;
        }
        if was_blocked {
            // The watch may be late: what it says is a reason to look again.
            hold.check_mut().ready = Some(order);
            self.publishing.unread.insert(shard.clone());
            return false;
        }
        let cleared = *hold.check_mut().cleared.get_or_insert(order);
        if hold.check().confirmed < cleared && self.ctx.rules.hold(Rule::ClaimStillThere) {
            self.publishing.unconfirmed.insert(shard.clone());
            return false;
        }
        true
    }
}

impl Publishing {
    /// Another session publishes a shard that we claimed: waits for it to say otherwise, or to be over.
    fn wait_for_blocker(&mut self, shard: &ShardId, blocker: Blocker, check: &mut Check, ctx: &mut Context) {
        check.blockers.extend(blocker.session);
        check.was_held |= blocker.holds || blocker.session.is_none();
        if self.awaited.insert(shard.clone()) {
            ctx.record_changed();
        }
        ctx.agenda.wake_at(shard, blocker.silent_at);
    }

    /// All node records are read, and `meta` after them, for the claimed shards that wait for it.
    pub(in crate::node) fn nodes_to_read(
        &self,
        requests: &Requests,
        pace: &Pace,
        ctx: &Context,
    ) -> Option<Ask> {
        let busy = requests.any(|purpose| matches!(purpose, Purpose::Nodes));
        let paused = ctx.now.at < pace.paused_until();
        let reads = !self.unread.is_empty() && !busy && !paused;
        reads.then(|| Ask::work(Op::ListNodes, Purpose::Nodes))
    }

    /// The records of claimed shards are read once more: a few of them each, and many with everything else.
    pub(in crate::node) fn claims_to_read(
        &mut self,
        holds: &Holds,
        requests: &Requests,
        pace: &Pace,
        ctx: &mut Context,
    ) -> Option<Ask> {
        let claims = &mut self.unconfirmed;
        claims.retain(|shard| holds.contains(shard));
        let busy = requests.any(|purpose| matches!(purpose, Purpose::Look(_) | Purpose::List));
        if claims.is_empty() || busy || ctx.now.at < pace.paused_until() {
            return None;
        }
        if claims.len() > LOOKED_AT_MAX && ctx.facts.reads == Freshness::Newest {
            claims.clear();
            ctx.timers.stop(Timer::List);
            return Some(Ask::work(Op::List, Purpose::List));
        }
        let mut shards: Vec<ShardId> = claims.iter().cloned().collect();
        shards.truncate(LOOKED_AT_MAX.max(crate::node::outcomes::LOOK_MAX));
        shards.iter().for_each(|shard| {
            self.unconfirmed.remove(shard);
        });
        Some(Ask::look_at(shards))
    }

    /// The epoch above which a claimed shard must start, if its claim is not. Another session may have had it meanwhile:
    /// one that took its publication back has published its epochs; those of one that died are unknown.
    fn epoch_too_low(&self, shard: &ShardId, hold: &Hold, others: Others<'_>) -> Option<Epoch> {
        let (replaced, blockers) = (hold.check().replaced?, &hold.check().blockers);
        let died = || blockers.iter().any(|session| others.mirror.is_proved_over(session));
        let above = match replaced {
            Replaces::Release => return None,
            _ if hold.check().was_held || died() => self.unknown_epoch(shard, others),
            Replaces::Nothing if others.was_ever_held(shard) => self.unknown_epoch(shard, others),
            // What is known now, and was perhaps not known when it was claimed.
            Replaces::Lost => others.epoch_published(&shard.group),
            Replaces::Nothing | Replaces::Other if !blockers.is_empty() => {
                others.epoch_published(&shard.group)
            }
            Replaces::Nothing | Replaces::Other => return None,
        };
        (hold.epoch() <= above && others.ctx.rules.hold(Rule::EpochRises)).then_some(above)
    }
}

/// A read that was issued then shows this version of a shard's record: if it is our claim, it was still there.
pub(in crate::node) fn claim_seen(holds: &mut Holds, shard: &ShardId, version: &Version, issued: u64) {
    if let Some(hold) = holds.get_mut(shard)
        && hold.version() == Some(version)
    {
        hold.check_mut().confirm(issued);
    }
}

/// The same, for a listing of everything. Only the listing itself counts: a watch may have changed what we know since.
pub(in crate::node) fn claims_seen(holds: &mut Holds, listing: &Listing, issued: u64, ctx: &mut Context) {
    if !holds.values().any(Hold::is_claimed) {
        return;
    }
    let listed: BTreeMap<&ShardId, &Version> = (listing.entries.iter())
        .filter_map(|(key, stored)| match key {
            Key::Shard(shard) => Some((shard, &stored.version)),
            _ => None,
        })
        .collect();
    for (shard, hold) in holds.iter_mut() {
        let seen = listed.get(shard).copied();
        if hold.is_claimed() && seen.is_some() && hold.version() == seen {
            hold.check_mut().confirm(issued);
            ctx.agenda.add(shard.clone());
        }
    }
}
