//! Time, crashes, pauses, and what becomes of a process's work and requests.

use crate::moves::{Move, Steps};
use crate::setup::{Rule, Setup};
use crate::state::{Life, Phase, Proc, Session, State, WorkState, WriteState};

impl Steps<'_> {
    /// A tick of every clock at once. Sessions run on the slowest clock that drift allows and silence is counted on
    /// the fastest: `spec/model.md` says why that covers all others.
    ///
    /// A pause only shows when a deadline passes in it, so that is where it begins in the model: at each tick, any of
    /// the processes that would act on a deadline may sleep through it instead, and then do nothing until they wake.
    pub(crate) fn time(&mut self) {
        let mut after = *self.from;
        after.grow_older(self.setup);
        let due = |p: &usize| {
            let mut compared = after;
            compared.compare_clock(self.setup, *p, Compared::AtTick { was: self.from });
            !after.procs[*p].paused && compared != after
        };
        let due = (0..self.setup.procs).filter(due).fold(0, |all, p| all | 1 << p);
        for asleep in (0..1 << self.setup.procs).filter(|some| some & !due == 0) {
            if asleep != 0 && !self.setup.pauses {
                break;
            }
            let by = if asleep == 0 { Move::Tick } else { Move::TickAsleep(asleep) };
            self.plain(by, |setup, state| {
                let was = *state;
                state.grow_older(setup);
                for p in 0..setup.procs {
                    if asleep & (1 << p) != 0 {
                        state.fall_asleep(setup, p);
                    } else if !state.procs[p].paused {
                        state.compare_clock(setup, p, Compared::AtTick { was: &was });
                    }
                }
            });
        }
    }

    /// What happens to a process from outside, and detaching, which it may do at any time.
    pub(crate) fn process(&mut self, p: usize) {
        let proc = self.from.procs[p];
        if self.setup.crashes && proc.phase != Phase::Fresh {
            self.plain(Move::Crash(p), |setup, state| state.crash(setup, p));
        }
        if proc.paused {
            self.plain(Move::Wake(p), |setup, state| {
                state.procs[p].paused = false;
                if setup.holds(Rule::CompareOnWake) {
                    state.compare_clock(setup, p, Compared::AtWaking);
                }
            });
            return;
        }
        if proc.phase == Phase::Attached {
            self.plain(Move::Detach(p), |setup, state| state.detach(setup, p));
        }
    }
}

/// When a process compares its clock with its deadlines.
#[derive(Clone, Copy)]
enum Compared<'a> {
    /// As a tick passes; this was before it.
    AtTick { was: &'a State },
    /// As it wakes: nothing of it has run since.
    AtWaking,
}

impl Proc {
    fn grow_older(&mut self, setup: &Setup) {
        self.left_for = self.left_for.saturating_sub(1);
        if self.renewal != WriteState::None {
            self.age = (self.age + 1).min(setup.ttl);
        }
        if self.renewal == WriteState::Applied
            && self.age == setup.ttl
            && setup.holds(Rule::DeadlineFromSending)
        {
            // Its answer can no longer move any deadline.
            self.renewal = WriteState::None;
        }
        let enough = setup.wait() + 1;
        let older = |for_ticks: &mut u8| {
            if *for_ticks > 0 {
                *for_ticks = (*for_ticks + 1).min(enough);
            }
        };
        self.silent.iter_mut().for_each(older);
        self.holding.iter_mut().for_each(|holding| older(&mut holding.orphaned));
        older(&mut self.settling_for);
    }
}

impl State {
    fn grow_older(&mut self, setup: &Setup) {
        for p in 0..setup.procs {
            self.procs[p].grow_older(setup);
            if self.procs[p].renewal == WriteState::Flying && self.renewal_is_useless(setup, p) {
                self.abandon_renewal(setup, p);
            }
        }
    }

    /// A process sleeps through a deadline. It will compare the clock before it hears any answer, so nobody waits for
    /// those any more.
    fn fall_asleep(&mut self, setup: &Setup, p: usize) {
        self.procs[p].paused = true;
        if setup.holds(Rule::CompareOnWake) && setup.holds(Rule::LostIsForEver) {
            self.abandon_renewal(setup, p);
            (0..setup.shards).for_each(|x| self.abandon_claim(p, x));
        }
    }

    /// Whether a renewal was under way for so long that its answer can no longer move any deadline. A first record
    /// is kept, because its session is not in the store yet.
    fn renewal_is_useless(&self, setup: &Setup, p: usize) -> bool {
        self.procs[p].age == setup.ttl
            && setup.holds(Rule::DeadlineFromSending)
            && self.alive(setup.name[p]) == Some(self.session(p))
    }

    /// What an awake process does first, always: compare the clock with its deadlines.
    fn compare_clock(&mut self, setup: &Setup, p: usize, when: Compared<'_>) {
        if !setup.holds(Rule::Detach) {
            return;
        }
        let margin = if setup.holds(Rule::Margin) { setup.margin } else { 0 };
        let left_for = self.procs[p].left_for;
        if self.procs[p].phase == Phase::Attached && left_for <= margin {
            self.detach(setup, p);
        }
        // Work is killed in time; without a margin that takes until the next tick.
        let already_over = match when {
            Compared::AtTick { was } => was.procs[p].left_for == 0,
            Compared::AtWaking => true,
        };
        if self.procs[p].phase == Phase::Lost && left_for == 0 && (margin > 0 || already_over) {
            for holding in &mut self.procs[p].holding {
                holding.work = WorkState::None;
            }
        }
    }

    /// The session of `p` is over for good; its work is told to stop.
    pub(crate) fn detach(&mut self, setup: &Setup, p: usize) {
        self.procs[p].phase = Phase::Lost;
        for x in 0..setup.shards {
            if self.procs[p].holding[x].work == WorkState::Running {
                self.procs[p].holding[x].work = WorkState::Stopping;
            }
            self.abandon_claim(p, x);
        }
        // Only where a lost session can be revived does anybody still listen to the answer.
        if setup.holds(Rule::LostIsForEver) {
            self.abandon_renewal(setup, p);
        }
    }

    fn crash(&mut self, setup: &Setup, p: usize) {
        for x in 0..setup.shards {
            self.abandon_claim(p, x);
        }
        self.abandon_renewal(setup, p);
        let before = self.procs[p];
        // It sees all versions as new, which only makes it wait longer: in the model it need not.
        self.procs[p] = Proc { silent: before.silent, settling_for: before.settling_for, ..Proc::default() };
        for (holding, before) in self.procs[p].holding.iter_mut().zip(before.holding) {
            (holding.late, holding.late_creates) = (before.late, before.late_creates);
            holding.orphaned = before.orphaned;
        }
    }

    /// Whether a request that expects no record is still under way with nobody waiting for it. One at a time is
    /// followed; any other counts as lost.
    pub(crate) fn has_late_creation(&self) -> bool {
        self.names.iter().any(|name| name.join_creates)
            || self.procs.iter().flat_map(|proc| &proc.holding).any(|holding| holding.late_creates)
    }

    /// Nobody waits for the claim any more. If it is under way it may yet land.
    pub(crate) fn abandon_claim(&mut self, p: usize, x: usize) {
        let life = self.procs[p].life;
        let crowded = self.procs[p].holding[x].creates && self.has_late_creation();
        let holding = &mut self.procs[p].holding[x];
        if holding.claim == WriteState::Flying && !crowded {
            holding.late = Some(life);
            holding.late_creates = holding.creates;
        }
        holding.claim = WriteState::None;
    }

    /// Nobody waits for the renewal any more. If it is under way it may yet land.
    pub(crate) fn abandon_renewal(&mut self, setup: &Setup, p: usize) {
        let name = setup.name[p];
        let session = self.session(p);
        let may_matter = if self.procs[p].creates {
            setup.can_vanish() && !self.has_late_creation()
        } else {
            setup.latecomers || !setup.holds(Rule::RenewalIsSwap)
        };
        if self.procs[p].renewal == WriteState::Flying && may_matter {
            self.names[name].late_publishes = self.procs[p].publishing;
            if self.alive(name) == Some(session) && !self.procs[p].creates {
                self.names[name].renewal = true;
            } else {
                self.names[name].join = Some(session);
                self.names[name].join_creates = self.procs[p].creates;
            }
        }
        self.procs[p].renewal = WriteState::None;
    }

    /// The version of a node record changed: whatever expected the former one can never be applied.
    pub(crate) fn write_name(&mut self, setup: &Setup, n: usize, state: Life, session: Session) {
        let name = &mut self.names[n];
        (name.state, name.session, name.old) = (state, session, false);
        (name.leave, name.fence, name.publishes) = (false, None, 0);
        if !name.join_creates {
            name.join = None;
        }
        if setup.holds(Rule::RenewalIsSwap) {
            name.renewal = false;
        }
        for p in 0..setup.procs {
            let proc = &mut self.procs[p];
            if setup.name[p] == n
                && proc.renewal == WriteState::Flying
                && !proc.creates
                && setup.holds(Rule::RenewalIsSwap)
            {
                proc.renewal = WriteState::None;
            }
            // Everybody sees every version at once: a node that sees it later only waits longer. Only where nobody
            // fences, and so nobody notices that a view is old, do old views make a difference.
            if setup.holds(Rule::FenceBeforeTakeover) {
                proc.silent[n] = u8::from(matches!(state, Life::Active | Life::Absent));
            }
        }
    }
}
