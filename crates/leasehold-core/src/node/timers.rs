//! The table of timers: when each one is due, and what happens then.
//!
//! There is no timer heap and there are no cancel handles. A timer that is set again moves; a tick too many does no harm.
//! Most timers are set here, in an array with one place for each. A few follow from other state, so nobody has to keep
//! a copy of that state in step: `due_at` has both kinds.

use super::Node;
use super::requests::{Ask, Purpose};
use crate::store::{Key, Op};
use crate::time::Moment;

/// Something that happens at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Timer {
    /// Stop waiting for the answer to a request. Follows from the requests.
    GiveUp,
    /// A new session has been healthy for long enough. Follows from the session state.
    Recovered,
    /// Renew the session.
    Renew,
    /// List everything.
    List,
    /// See whether the namespace may be opened.
    Open,
    /// Look at those that have been silent for a while.
    Probe,
    /// Read back what became of writes of unknown outcome.
    ReadBack,
    /// Look at what should be here and is not.
    Acquire,
    /// Voluntary moves may go on after many nodes vanished. Follows from the freeze.
    Unfreeze,
    /// Show a view again, so that others give shards up for us.
    Shy,
    /// Stop waiting for others that start with us.
    Gather,
    /// Make a new plan.
    Replan,
    /// The first of those that ended a lost session, and count in the plan, must be back.
    Returning,
    /// Tell a group which of its slots have had a record.
    Fill,
    /// Look at a shard again. Follows from the agenda.
    Wake,
    /// Give up what the plan wants elsewhere.
    Surplus,
    /// The session ends. Follows from the session.
    SessionOver,
    /// The next milestone of a node that leaves. Follows from the departure. It only wakes the node: `run_leaving` waits for
    /// work and answers as well as for the time, so every step calls it.
    Leaving,
}

/// When in a step a timer fires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StepStage {
    /// Before anything else: a node that wakes up late detaches before it acts.
    Clock,
    /// Once the event was taken in.
    Timers,
    /// Once every shard was looked at, so that it is known what should be elsewhere.
    Decided,
}

impl Timer {
    const COUNT: usize = 18;

    /// All timers. Those of a stage fire in this order, which must stay: a renewal that is due goes out before anything that
    /// is less urgent, and a new plan is there before shards are looked at.
    const ALL: [Timer; Timer::COUNT] = [
        Timer::GiveUp,
        Timer::Recovered,
        Timer::Renew,
        Timer::List,
        Timer::Open,
        Timer::Probe,
        Timer::ReadBack,
        Timer::Acquire,
        Timer::Unfreeze,
        Timer::Shy,
        Timer::Gather,
        Timer::Replan,
        Timer::Returning,
        Timer::Fill,
        Timer::Wake,
        Timer::Surplus,
        Timer::SessionOver,
        Timer::Leaving,
    ];

    fn stage(self) -> StepStage {
        match self {
            Timer::SessionOver => StepStage::Clock,
            Timer::Surplus | Timer::Leaving => StepStage::Decided,
            _ => StepStage::Timers,
        }
    }
}

/// The timers that are set by hand.
#[derive(Debug)]
pub(super) struct Timers {
    at: [Moment; Timer::COUNT],
}

impl Default for Timers {
    /// All are off but the first listing.
    fn default() -> Self {
        let mut timers = Timers { at: [Moment::NEVER; Timer::COUNT] };
        timers.set(Timer::List, Moment::ZERO);
        timers
    }
}

impl Timers {
    /// When it is due; [`Moment::NEVER`] if it is off.
    pub(super) fn at(&self, timer: Timer) -> Moment {
        self.at[timer as usize]
    }

    /// When the first of them is due.
    fn first_at(&self) -> Moment {
        self.at.into_iter().fold(Moment::NEVER, Moment::min)
    }

    pub(super) fn is_set(&self, timer: Timer) -> bool {
        self.at(timer) != Moment::NEVER
    }

    pub(super) fn set(&mut self, timer: Timer, at: Moment) {
        self.at[timer as usize] = at;
    }

    /// Sets it, unless it is due before that already.
    pub(super) fn set_earlier(&mut self, timer: Timer, at: Moment) {
        self.set(timer, at.min(self.at(timer)));
    }

    pub(super) fn stop(&mut self, timer: Timer) {
        self.set(timer, Moment::NEVER);
    }
}

impl Node {
    /// When the next [`Event::Tick`](crate::event::Event::Tick) is due at the latest.
    pub fn deadline(&self) -> Moment {
        if self.departure.is_done() {
            return Moment::NEVER;
        }
        // One by one: every step asks several times, and a loop would have to find out again and again which one it looks at.
        let following = [
            self.due_at(Timer::GiveUp),
            self.due_at(Timer::Recovered),
            self.due_at(Timer::Unfreeze),
            self.due_at(Timer::Wake),
            self.due_at(Timer::SessionOver),
            self.due_at(Timer::Leaving),
        ];
        following.into_iter().fold(self.ctx.timers.first_at(), Moment::min)
    }

    /// When a timer is due; [`Moment::NEVER`] if it is off.
    #[inline(always)]
    fn due_at(&self, timer: Timer) -> Moment {
        match timer {
            Timer::GiveUp => self.requests.give_up_at(),
            Timer::Recovered => self.life.recovered_at(self.ctx.config.recover_window),
            Timer::Unfreeze => self.freeze.ends_at(),
            Timer::Wake => self.ctx.agenda.next_wake_at(),
            Timer::SessionOver => self.session.as_ref().map_or(Moment::NEVER, |session| session.over_at()),
            Timer::Leaving => self.departure.next_at(self.ctx.now.at),
            _ => self.ctx.timers.at(timer),
        }
    }

    /// Fires what is due at this stage of a step, in the order of the table. One that fires may set a later one, which then
    /// fires as well.
    pub(super) fn run_timers(&mut self, stage: StepStage) {
        match stage {
            StepStage::Clock => self.fire_if_due(Timer::SessionOver),
            // Usually nothing is due, and that is found out faster than one by one.
            StepStage::Timers if self.ctx.now.at < self.deadline() => {}
            StepStage::Timers => {
                for timer in Timer::ALL.into_iter().filter(|timer| timer.stage() == stage) {
                    self.fire_if_due(timer);
                }
            }
            StepStage::Decided if self.departure.is_done() => {}
            StepStage::Decided => {
                self.fire_if_due(Timer::Surplus);
                self.fire_if_due(Timer::Leaving);
            }
        }
    }

    #[inline(always)]
    fn fire_if_due(&mut self, timer: Timer) {
        if self.ctx.now.at >= self.due_at(timer) {
            self.fire(timer);
        }
    }

    fn fire(&mut self, timer: Timer) {
        match timer {
            Timer::GiveUp => self.give_up_requests(),
            Timer::Recovered => self.life.recovered(&mut self.vacancies, &mut self.ctx),
            Timer::Renew => {
                self.ctx.timers.stop(timer);
                self.renew();
            }
            Timer::List => {
                self.ctx.timers.stop(timer);
                if !self.requests.any(|purpose| matches!(purpose, Purpose::List)) {
                    self.ask(Ask::work(Op::List, Purpose::List));
                }
            }
            Timer::Open => {
                self.ctx.timers.stop(timer);
                if self.namespace.opens_at(&self.mirror, &self.ctx).is_some() {
                    self.ask(Ask::read(vec![Key::Meta], Purpose::Open));
                }
            }
            Timer::Probe => self.probe(),
            Timer::ReadBack => {
                self.ctx.timers.stop(timer);
                if self.session.is_some()
                    && let Some(ask) = self.outbox.read_back(&self.holds, &self.requests, &mut self.ctx)
                {
                    self.ask(ask);
                }
            }
            Timer::Acquire => self.look_for_wanted(),
            Timer::Unfreeze => self.freeze.end(&mut self.ctx),
            Timer::Shy => {
                self.ctx.timers.stop(timer);
                self.ctx.record_changed();
            }
            Timer::Gather => {
                self.ctx.timers.stop(timer);
                self.ctx.agenda.add_everything();
            }
            Timer::Replan | Timer::Returning => self.replan(),
            Timer::Fill => self.mend_groups(),
            Timer::Wake => self.ctx.agenda.wake_until(self.ctx.now.at),
            Timer::Surplus => self.move_surplus(),
            Timer::SessionOver => self.session_over(),
            Timer::Leaving => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_timer_has_its_own_place() {
        for (place, timer) in Timer::ALL.into_iter().enumerate() {
            assert_eq!(timer as usize, place, "{timer:?}");
        }
    }

    #[test]
    fn every_stage_has_its_timers() {
        let of = |stage| Timer::ALL.into_iter().filter(move |timer| timer.stage() == stage);
        assert!(of(StepStage::Clock).eq([Timer::SessionOver]));
        assert!(of(StepStage::Decided).eq([Timer::Surplus, Timer::Leaving]));
    }

    #[test]
    fn setting_earlier_never_delays() {
        let mut timers = Timers::default();
        let (soon, late) = (Moment::ZERO + std::time::Duration::from_secs(1), Moment::NEVER);
        timers.set(Timer::Probe, soon);
        timers.set_earlier(Timer::Probe, late);
        assert_eq!(timers.at(Timer::Probe), soon);
        timers.stop(Timer::Probe);
        assert!(!timers.is_set(Timer::Probe));
    }
}
