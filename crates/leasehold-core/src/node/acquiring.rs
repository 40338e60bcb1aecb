//! Getting shards: whose turn it is, whether there is room, what the gate says, and looking again when the watch is
//! silent.

use std::time::Duration;

use super::Node;
use super::context::Context;
use super::holds::Holds;
use super::leaving::is_drained_by_operators;
use super::namespace::Namespace;
use super::planner::Planner;
use super::requests::{Ask, Purpose, Requests};
use super::timers::Timer;
use super::vacancies::Vacancies;
use crate::mirror::Mirror;
use crate::name::{NodeName, ShardId};
use crate::notice::{Notice, SessionState};
use crate::record::MoveReason;
use crate::rules::Rule;
use crate::time::Moment;

/// Whose turn it is to take an unowned shard.
enum Turn {
    /// Ours: the plan wants it here.
    Ours,
    /// Some other node's, and ours from then on if that one does not take it.
    Others { ours_at: Option<Moment> },
    /// The plan gives it to nobody.
    Nobodys,
    /// The plan is about to change.
    Undecided,
    /// Nobody's before then. Only a test build gets here.
    NotBefore(Moment),
}

/// Whether this node may take one more shard.
enum CanAcquire {
    Yes,
    No,
    /// Not before then.
    At(Moment),
    NoRoom,
}

/// What decides whose turn it is to take an unowned shard.
struct Turns<'a> {
    vacancies: &'a Vacancies,
    planner: &'a Planner,
    mirror: &'a Mirror,
    ctx: &'a Context,
}

impl Turns<'_> {
    /// Whose turn it is to take an unowned shard.
    fn whose_turn(&self, shard: &ShardId, vacated: bool) -> Turn {
        let unowned_since = self.vacancies.unowned_since(shard).unwrap_or(self.ctx.now.at);
        let Some(wanted) = self.planner.plan().wanted(shard) else { return Turn::Nobodys };
        if !self.ctx.rules.hold(Rule::UnownedAtOnce)
            && self.ctx.now.at < unowned_since + self.ctx.config.ttl * 3
        {
            return Turn::NotBefore(unowned_since + self.ctx.config.ttl * 3);
        }
        if (self.ctx.plan_is_stale() && !vacated) || self.ctx.timers.is_set(Timer::Gather) {
            return Turn::Undecided;
        }
        if self.ctx.is_me(wanted) {
            return Turn::Ours;
        }
        let ranked = self.planner.rank(shard);
        let Some(rank) = ranked.iter().position(|node| self.ctx.is_me(node)) else {
            return Turn::Others { ours_at: None };
        };
        // Nobody is late before the plan gives it to a node.
        let since =
            self.vacancies.turn_since(shard).map_or(self.ctx.now.at, |since| unowned_since.max(since));
        let delay = self.ctx.config.turn_lasts(&self.ctx.facts);
        let comes_back = self.comes_back_or_just_did(wanted);
        // Counted once per shard, not per session: a node that comes back again and again is not waited for each time.
        let patience = if comes_back { self.recover_window_of(wanted) } else { Duration::ZERO };
        Turn::Others { ours_at: Some(since + delay * (rank as u32).clamp(1, 4) + patience) }
    }

    /// Whether a node is coming back, or has been back for so short a time that its own turn is not over.
    fn comes_back_or_just_did(&self, node: &NodeName) -> bool {
        let turn = self.recover_window_of(node) + self.ctx.config.turn_lasts(&self.ctx.facts);
        let seen_at = self.mirror.nodes().get(node).map(|node| node.session_seen_at);
        self.planner.member(node).is_some_and(|member| !member.takes_now())
            || seen_at.is_some_and(|seen_at| self.ctx.now.at < seen_at + turn)
    }

    /// How long a node that comes back must be healthy before it takes shards, as far as we know: with a longer ttl longer.
    fn recover_window_of(&self, node: &NodeName) -> Duration {
        let record = self.mirror.nodes().get(node).and_then(|node| node.seen.as_ref()?.best());
        record.map_or(Duration::ZERO, |record| record.ttl() / 5).max(self.ctx.config.recover_window)
    }
}

impl Vacancies {
    /// After a new plan: what should come here is looked at for a while, in case the watch is silent.
    pub(super) fn begin_to_look(&mut self, has_session: bool, namespace: &Namespace, ctx: &mut Context) {
        let (interval, window) = (ctx.config.acquire_retry_interval, ctx.config.acquire_retry_window);
        if !has_session || !namespace.is_open() || interval.is_zero() || window.is_zero() {
            return;
        }
        self.set_look_until(ctx.now.at + window);
        ctx.timers.set(Timer::Acquire, ctx.now.at + interval + ctx.rng.up_to(interval / 4));
    }

    /// Looks at what should be here and is not, or gives up when that has not helped for long enough.
    fn look_for_wanted(
        &self,
        planner: &Planner,
        holds: &Holds,
        requests: &Requests,
        ctx: &mut Context,
    ) -> Option<Ask> {
        let me = &ctx.config.node;
        let missing = planner.plan().iter().filter(|(shard, to)| *to == Some(me) && !holds.contains(shard));
        let missing: Vec<ShardId> = missing.map(|(shard, _)| shard.clone()).collect();
        if missing.is_empty() {
            return None;
        }
        let interval = ctx.config.acquire_retry_interval;
        if ctx.now.at >= self.look_until() {
            ctx.tell(Notice::RetriesExhausted { shards: missing.len() });
            ctx.timers.set_earlier(Timer::List, ctx.now.at + interval);
            return None;
        }
        let busy = requests.any(|purpose| matches!(purpose, Purpose::Look(_)));
        if !busy {
            ctx.tell(Notice::Retried { shards: missing.len() });
        }
        ctx.timers.set(Timer::Acquire, ctx.now.at + interval + ctx.rng.up_to(interval / 4));
        (!busy).then(|| Ask::look_at(missing))
    }
}

/// Some other node should have taken an unowned shard; from then on this node may.
fn take_from_others(
    shard: &ShardId,
    ours_at: Moment,
    is_behind: bool,
    ctx: &mut Context,
) -> Option<MoveReason> {
    let delay = ctx.config.turn_lasts(&ctx.facts);
    if ctx.now.at < ours_at {
        let jitter = ctx.rng.up_to(delay / 4);
        ctx.agenda.wake_at(shard, ours_at + jitter);
        return None;
    }
    // What is ours comes first. On a store that takes few writes a second everybody is late at a cold start,
    // and a node that took what others are about to write would only have to give it back.
    if is_behind {
        ctx.agenda.wake_at(shard, ctx.now.at + delay);
        return None;
    }
    Some(MoveReason::Takeover)
}

impl Node {
    /// Whether this node takes an unowned shard now, and as what that counts. If its turn comes later, we come back then.
    pub(super) fn take_turn(
        &mut self,
        shard: &ShardId,
        why: MoveReason,
        vacated: bool,
    ) -> Option<MoveReason> {
        let turns = Turns {
            vacancies: &self.vacancies,
            planner: &self.planner,
            mirror: &self.mirror,
            ctx: &self.ctx,
        };
        match turns.whose_turn(shard, vacated) {
            Turn::Ours => Some(why),
            Turn::Undecided => None,
            Turn::Nobodys => {
                self.vacancies.forget_turn(shard);
                None
            }
            Turn::NotBefore(at) => {
                self.ctx.agenda.wake_at(shard, at);
                None
            }
            Turn::Others { ours_at } => {
                self.vacancies.begin_turn(shard, self.ctx.now.at);
                let is_behind = self.outbox.is_behind(&self.requests, &self.pace);
                take_from_others(shard, ours_at?, is_behind, &mut self.ctx)
            }
        }
    }

    /// Whether this node takes one more shard now. Whatever forbids it makes us look again when it ends.
    pub(super) fn make_room(&mut self, shard: &ShardId) -> bool {
        match self.can_acquire(shard) {
            CanAcquire::Yes => return true,
            CanAcquire::No => {}
            CanAcquire::At(at) => self.ctx.agenda.wake_at(shard, at),
            CanAcquire::NoRoom => {
                self.vacancies.note_roomless(shard);
                self.ctx.agenda.wake_at(shard, self.ctx.now.at + self.ctx.config.takeover_delay);
            }
        }
        false
    }

    /// Whether this node may take one more shard now.
    fn can_acquire(&self, shard: &ShardId) -> CanAcquire {
        if !self.offer.serves(&shard.group, &self.mirror) || self.declines.is_unheard_of(shard, &self.planner)
        {
            return CanAcquire::No;
        }
        let session_state = matches!(self.life.state(), SessionState::Attached | SessionState::Degraded);
        if !session_state
            || !self.namespace.is_open()
            || self.departure.hands_over(&self.offer, &self.mirror, &self.ctx)
            || is_drained_by_operators(&self.mirror, &self.ctx)
        {
            return CanAcquire::No;
        }
        if self.ctx.now.at < self.pace.paused_until() {
            return CanAcquire::At(self.pace.paused_until());
        }
        let in_group = || self.holds.keys().filter(|held| held.group == shard.group).count();
        match self.offer.has_room(&shard.group, self.holds.len(), in_group) {
            true => CanAcquire::Yes,
            false => CanAcquire::NoRoom,
        }
    }

    /// Looks at what should be here and is not.
    pub(super) fn look_for_wanted(&mut self) {
        self.ctx.timers.stop(Timer::Acquire);
        if self.session.is_none() || self.departure.hands_over(&self.offer, &self.mirror, &self.ctx) {
            return;
        }
        let wanted =
            self.vacancies.look_for_wanted(&self.planner, &self.holds, &self.requests, &mut self.ctx);
        if let Some(ask) = wanted {
            self.ask(ask);
        }
    }
}
