//! Draining and leaving: everything is handed over, and then the session says that it is over.

use std::time::Duration;

use super::Node;
use super::context::Context;
use super::hold::Phase;
use super::offer::Offer;
use super::requests::{Ask, Purpose};
use super::timers::Timer;
use crate::event::{Action, Returning};
use crate::mirror::Mirror;
use crate::name::SessionId;
use crate::notice::{Cause, SessionState};
use crate::record::{NodeState, Record};
use crate::store::{Key, Lane, Swap, Swapped, Version};
use crate::time::Moment;

/// Whether this node was asked, here, to hand everything over.
#[derive(Debug, Default)]
pub(super) struct Departure {
    drain_asked: bool,
    leaving: Option<Leaving>,
    /// The node has left, or gave up trying to.
    done: bool,
}

impl Departure {
    pub(super) fn drain(&mut self) {
        self.drain_asked = true;
    }

    pub(super) fn undrain(&mut self) {
        self.drain_asked = false;
    }

    pub(super) fn is_draining(&self) -> bool {
        self.drain_asked || self.is_leaving()
    }

    /// Whether everything should be handed over: drained, leaving, or unhealthy.
    pub(super) fn hands_over(&self, offer: &Offer, mirror: &Mirror, ctx: &Context) -> bool {
        self.is_draining() || !offer.is_accepting() || is_drained_by_operators(mirror, ctx)
    }

    pub(super) fn is_leaving(&self) -> bool {
        self.leaving.is_some()
    }

    /// The node hands everything over and leaves within this time. If it was told so before, the shorter time counts.
    pub(super) fn begin(&mut self, within: Duration, returning: Returning, ctx: &mut Context) {
        let at = ctx.now.at;
        match &mut self.leaving {
            Some(leaving) => leaving.deadline = leaving.deadline.min(at + within),
            None => {
                let deadline = at + within;
                let leaving =
                    Leaving { deadline, begun_at: at, returning, killed: false, last_word_at: Moment::ZERO };
                self.leaving = Some(leaving);
            }
        }
        ctx.agenda.add_everything();
        ctx.timers.set(Timer::Surplus, at);
    }

    /// Whether the node has left, so that nothing more comes from it.
    pub(super) fn is_done(&self) -> bool {
        self.done
    }

    /// Whether it leaves and comes back in a moment, as far as it said.
    pub(super) fn returns_soon(&self) -> bool {
        self.leaving.as_ref().is_some_and(|leaving| leaving.returning == Returning::Soon)
    }

    /// Whether half of the time to leave is over, so that nothing is waited for any more.
    pub(super) fn is_hurried(&self, at: Moment) -> bool {
        self.leaving.as_ref().is_some_and(|leaving| at >= leaving.half())
    }

    /// The next milestone of leaving; [`Moment::NEVER`] if the node stays.
    pub(super) fn next_at(&self, now: Moment) -> Moment {
        self.leaving.as_ref().map_or(Moment::NEVER, |leaving| leaving.next_at(now))
    }
}

/// A node that is leaving.
#[derive(Debug)]
struct Leaving {
    deadline: Moment,
    begun_at: Moment,
    returning: Returning,
    killed: bool,
    last_word_at: Moment,
}

impl Leaving {
    fn next_at(&self, now: Moment) -> Moment {
        let half = self.half();
        let milestones = [half, self.deadline, self.last_word_at, self.gives_up_at()];
        milestones.into_iter().filter(|at| *at > now).min().unwrap_or(now)
    }

    /// When it gives up on a store that does not answer.
    fn gives_up_at(&self) -> Moment {
        self.deadline + GIVE_UP_AFTER
    }

    /// The last word did not get through: it is tried again at once.
    fn say_again(&mut self) {
        self.last_word_at = Moment::ZERO;
    }

    fn half(&self) -> Moment {
        self.begun_at + self.deadline.since(self.begun_at) / 2
    }
}

/// How long after its deadline a leaving node gives up on a store that does not answer.
const GIVE_UP_AFTER: Duration = Duration::from_secs(2);

/// Whether operators drain this node.
pub(super) fn is_drained_by_operators(mirror: &Mirror, ctx: &Context) -> bool {
    mirror.control().is_some_and(|control| control.drain.contains_key(&ctx.config.node))
}

impl Node {
    pub(super) fn run_leaving(&mut self) {
        let at = self.ctx.now.at;
        let Some(leaving) = &mut self.departure.leaving else { return };
        if at >= leaving.deadline && !leaving.killed {
            leaving.killed = true;
            self.holds.kill_all(&mut self.ctx);
        }
        self.holds.forget_asking();
        let Some(leaving) = &self.departure.leaving else { return };
        if at >= leaving.gives_up_at() {
            return self.finish();
        }
        // Past the deadline what is stopped need not be released one by one any more: the last word frees it.
        let stopped = |phase: Phase| matches!(phase, Phase::Stopped { .. } | Phase::Releasing);
        let ready = match at >= leaving.deadline {
            true => self.holds.values().all(|hold| stopped(hold.phase())),
            false => self.holds.is_empty(),
        };
        if !ready || self.holds.has_orphans() || at < leaving.last_word_at {
            return;
        }
        // A renewal under way would take the place that the last word expects: its answer comes first.
        let busy =
            |purpose: &Purpose| matches!(purpose, Purpose::Left(_) | Purpose::Join | Purpose::Renew(_));
        if self.departure.done || self.requests.any(busy) {
            return;
        }
        if self.session.is_some() {
            if let Some(leaving) = &mut self.departure.leaving {
                leaving.last_word_at = at + self.ctx.config.try_timeout;
            }
            return self.send_last_word();
        }
        let node = self.mirror.nodes().get(&self.ctx.config.node);
        let record = node.and_then(|node| node.seen.as_ref()).and_then(|seen| seen.good());
        let ours = record.is_some_and(|r| r.state.is_alive() && self.former.contains(r.session));
        let never = self.former.is_empty() && self.join.is_none();
        if never || (self.mirror.is_ready() && !ours) {
            self.finish();
        }
    }

    /// Writes that one of our sessions is over, which frees all that it held.
    pub(super) fn send_left(&mut self, session: SessionId, expect: Option<Version>) {
        let me = self.ctx.me();
        let known = self.mirror.node_record(&me);
        let seq = known.map_or(1, |record| record.seq + 1);
        let write = self.ctx.write_id();
        let record = self.node_record(write, session, seq, NodeState::Left);
        let swap = Swap { key: Key::Node(me), expect, value: Some(record.encode().into()) };
        self.ask(Ask::swap(Lane::Renewal, swap, Purpose::Left(session)));
    }

    /// Our last word, while the session is still good: everything is stopped and released.
    pub(super) fn send_last_word(&mut self) {
        let Some(session) = &self.session else { return };
        let (id, seq, expect) = (session.id(), session.next_seq(), session.version());
        let write = self.ctx.write_id();
        let record = self.node_record(write, id, seq, NodeState::Left);
        let swap = Swap { key: Key::Node(self.ctx.me()), expect, value: Some(record.encode().into()) };
        self.requests.forget(|purpose| matches!(purpose, Purpose::Renew(_)));
        self.ctx.timers.stop(Timer::Renew);
        self.ask(Ask::swap(Lane::Renewal, swap, Purpose::Left(id)));
    }

    pub(super) fn on_left(&mut self, session: SessionId, outcome: Swapped) {
        let over = match &outcome {
            Swapped::Applied(_) => true,
            // This session did not write it: it was fenced, or this is our own last word, whose answer was lost.
            Swapped::Lost(_) => self.mirror.is_proved_over(&session),
            Swapped::Unknown => false,
        };
        if over {
            self.mirror.note_over(self.ctx.now.at, session);
        }
        if self.departure.is_leaving() && (over || self.session_id() != Some(session)) {
            self.session = None;
            return self.finish();
        }
        if let (Swapped::Lost(Some(current)), Some(mine)) = (&outcome, &mut self.session) {
            mine.set_version(current.version.clone());
            // A renewal that was under way came first: the last word is said again at once.
            if let Some(leaving) = &mut self.departure.leaving {
                leaving.say_again();
            }
        }
        self.ctx.timers.set(Timer::List, self.ctx.now.at);
    }

    /// The node has left, or gives up trying to say so.
    pub(super) fn finish(&mut self) {
        if self.departure.done {
            return;
        }
        if self.session.is_some() {
            self.detach(Cause::Requested);
        }
        self.life.set_state(SessionState::Left, Cause::Requested, &mut self.ctx);
        self.departure.done = true;
        self.ctx.out.push(Action::Done);
    }
}
