//! Shards: claiming, starting, stopping, releasing.

use crate::moves::{Move, Steps, Violation};
use crate::setup::{Rule, Setup};
use crate::state::{Hold, Life, Meta, Phase, Release, Session, State, WorkState, WriteState};

impl Steps<'_> {
    /// What a process and the store do about one shard.
    pub(crate) fn shard(&mut self, p: usize, x: usize) {
        self.claims_land(p, x);
        if self.from.procs[p].paused {
            return;
        }
        self.work(p, x);
        if self.from.procs[p].phase == Phase::Attached {
            self.claim(p, x);
            self.hear(p, x);
            self.release(p, x);
        }
    }

    fn claims_land(&mut self, p: usize, x: usize) {
        let holding = self.from.procs[p].holding[x];
        let absent = self.from.shards[x].state == Hold::Absent;
        if holding.claim == WriteState::Flying && (!holding.creates || absent) {
            self.plain(Move::LandClaim(p, x), |setup, state| {
                let epoch = state.next_epoch(setup, p, x);
                state.write_shard(setup, x, Hold::Held, state.session(p));
                let holding = &mut state.procs[p].holding[x];
                if holding.work == WorkState::None {
                    state.shards[x].epoch = epoch;
                    (holding.claim, holding.epoch) = (WriteState::Applied, epoch);
                } else {
                    // The holder filled the hole.
                    state.shards[x].epoch = state.shards[x].started;
                    (holding.claim, holding.ran) = (WriteState::None, true);
                }
            });
        }
        if let Some(life) = holding.late
            && (!holding.late_creates || absent)
        {
            self.plain(Move::LandLateClaim(p, x), |setup, state| {
                let epoch = state.next_epoch(setup, p, x);
                state.write_shard(setup, x, Hold::Held, Session { owner: p as u8, life });
                state.shards[x].epoch = epoch;
                state.procs[p].holding[x].late = None;
            });
        }
    }

    fn work(&mut self, p: usize, x: usize) {
        match self.from.procs[p].holding[x].work {
            WorkState::None => {}
            WorkState::Running if !self.setup.voluntary => {}
            WorkState::Running => self.plain(Move::TellToStop(p, x), |_, state| {
                state.procs[p].holding[x].work = WorkState::Stopping;
            }),
            WorkState::Stopping => self.plain(Move::Stopped(p, x), |_, state| {
                state.abandon_claim(p, x);
                state.procs[p].holding[x].work = WorkState::None;
            }),
        }
    }

    fn claim(&mut self, p: usize, x: usize) {
        let (proc, shard) = (self.from.procs[p], self.from.shards[x]);
        let (holding, knows_meta) = (proc.holding[x], self.setup.wipes == 0 || proc.incarnation != 0);
        let idle = holding.work == WorkState::None && holding.claim == WriteState::None;
        let fills = self.setup.holes > 0
            && holding.work == WorkState::Running
            && holding.claim == WriteState::None
            && shard.state == Hold::Absent;
        if fills {
            self.plain(Move::Repair(p, x), |_, state| {
                let holding = &mut state.procs[p].holding[x];
                (holding.claim, holding.creates) = (WriteState::Flying, true);
            });
        }
        if idle && knows_meta && self.from.may_claim(self.setup, p, x) {
            let again = self.from.holds(p, x) && holding.ran;
            let first = proc.published & (1 << x) != 0
                || !self.setup.publishes()
                || !self.setup.holds(Rule::PublishedBeforeTrust);
            let trusted = self.setup.tells_releases() && first && (again || shard.state == Hold::Vacant);
            self.plain(Move::SendClaim(p, x), |_, state| {
                state.procs[p].holding[x].trusted = trusted;
                let holding = &mut state.procs[p].holding[x];
                (holding.claim, holding.creates) = (WriteState::Flying, shard.state == Hold::Absent);
            });
        }
        let may_be_lost = self.from.wipes > 0 || self.from.holes > 0;
        let mut others = self.from.procs.iter().flat_map(|proc| &proc.holding);
        let alone = !others.any(|holding| holding.creates) && !self.from.has_late_creation();
        if idle && knows_meta && alone && may_be_lost && shard.state != Hold::Absent {
            self.plain(Move::SendCreate(p, x), |_, state| {
                let holding = &mut state.procs[p].holding[x];
                (holding.claim, holding.creates) = (WriteState::Flying, true);
            });
        }
    }

    fn hear(&mut self, p: usize, x: usize) {
        match self.from.procs[p].holding[x].claim {
            WriteState::None => {}
            WriteState::Applied if !self.from.may_start(self.setup, p, x) => {
                self.plain(Move::ForgetClaim(p, x), |_, state| state.abandon_claim(p, x));
            }
            WriteState::Flying => {
                self.plain(Move::GiveUpClaim(p, x), |_, state| state.abandon_claim(p, x));
                if !self.setup.holds(Rule::UnknownIsResolved) {
                    self.step(Move::AssumeClaim(p, x), |_, state| {
                        state.procs[p].holding[x].epoch = state.shards[x].epoch + 1;
                        state.abandon_claim(p, x);
                        state.begin(p, x)
                    });
                }
            }
            WriteState::Applied => {
                self.step(Move::HearClaim(p, x), |setup, state| state.hear_claim(setup, p, x));
                self.plain(Move::ForgetClaim(p, x), |_, state| state.abandon_claim(p, x));
            }
        }
    }

    fn release(&mut self, p: usize, x: usize) {
        if !self.from.holds(p, x) {
            return;
        }
        let stopped = self.from.procs[p].holding[x].work == WorkState::None;
        let holding = self.from.procs[p].holding[x];
        let looked = holding.ran || (holding.claim == WriteState::Applied && holding.trusted);
        let proper = looked || !self.setup.tells_releases() || !self.setup.holds(Rule::UnstartedIsNoRelease);
        if self.setup.voluntary && (stopped || !self.setup.holds(Rule::StopBeforeRelease)) {
            self.plain(Move::SendRelease(p, x), |_, state| {
                state.shards[x].release = if proper { Release::Proper } else { Release::Unstarted };
                state.abandon_claim(p, x);
            });
        }
        if stopped
            && self.from.shards[x].release != Release::None
            && !self.setup.holds(Rule::UnchangedIsUnknown)
        {
            self.plain(Move::Resume(p, x), |_, state| {
                let holding = &mut state.procs[p].holding[x];
                holding.work = WorkState::Running;
            });
        }
    }

    /// The store's side of a release.
    pub(crate) fn release_lands(&mut self, x: usize) {
        let shard = self.from.shards[x];
        if shard.release == Release::None || shard.state == Hold::Absent {
            return;
        }
        self.step(Move::LandRelease(x), |setup, state| {
            let owner = usize::from(shard.session.owner);
            let runs = state.holds(owner, x) && state.procs[owner].holding[x].work != WorkState::None;
            if setup.holds(Rule::RecordsStay) {
                let vacant = if shard.release == Release::Proper { Hold::Vacant } else { Hold::Unstarted };
                state.write_shard(setup, x, vacant, Session::default());
            } else {
                state.write_shard(setup, x, Hold::Absent, Session::default());
                state.shards[x].epoch = 0;
            }
            state.shards[x].release = Release::None;
            runs.then_some(Violation::ReleasedWhileRunning)
        });
    }
}

impl State {
    /// Whether `p` starts what it claimed, as soon as it hears of it: its record publishes the shard, and unless it
    /// replaced a release, no other live session does. (If `meta` is another, the same reading tells, and it detaches.)
    fn may_start(&self, setup: &Setup, p: usize, x: usize) -> bool {
        let (proc, bit) = (&self.procs[p], 1 << x);
        if !setup.publishes() {
            return true;
        }
        let published = proc.published & bit != 0 || !setup.holds(Rule::PublishBeforeStart);
        let looks = !proc.holding[x].trusted && setup.holds(Rule::NodesBeforeStart);
        let other = |n: &usize| *n != setup.name[p] && self.names[*n].publishes & bit != 0;
        let elsewhere = setup.holds(Rule::PublishedIsHeld) && (0..setup.names()).any(|n| other(&n));
        let there = self.holds(p, x) && self.shards[x].epoch == proc.holding[x].epoch;
        let gone = setup.holds(Rule::ClaimStillThere) && !there;
        published && !(looks && (elsewhere || gone) && !self.store_changed(setup, p))
    }

    /// Whether a reading of `meta` right now shows `p` another incarnation than it knows, or none.
    fn store_changed(&self, setup: &Setup, p: usize) -> bool {
        setup.wipes > 0 && (self.procs[p].incarnation != 1 || self.meta == Meta::Damaged)
    }

    /// Whether `p` may try to claim the shard as it is now.
    fn may_claim(&self, setup: &Setup, p: usize, x: usize) -> bool {
        let shard = self.shards[x];
        if shard.state != Hold::Held || self.holds(p, x) || !setup.holds(Rule::NeverStolen) {
            return true;
        }
        let (proc, n) = (&self.procs[p], setup.name[usize::from(shard.session.owner)]);
        let name = self.names[n];
        let waited = |for_ticks: u8| for_ticks > setup.wait();
        let fences = setup.holds(Rule::FenceBeforeTakeover) && setup.holds(Rule::FenceAfterFreshRead);
        let not_fenced = !fences && waited(proc.silent[n]);
        let absent = !setup.holds(Rule::AbsentIsNotDead) && name.state == Life::Absent;
        let another = !setup.holds(Rule::CreatedProvesNothing)
            && name.state != Life::Absent
            && name.session != shard.session;
        let seen = proc.roster[n];
        let not_in_roster = seen != 0 && seen != 2 + shard.session.owner * 8 + shard.session.life;
        not_fenced
            || absent
            || another
            || not_in_roster
            || self.dead(setup, x)
            || waited(proc.holding[x].orphaned)
    }

    /// Whether the node record of the shard's holder proves that its session is dead.
    pub(crate) fn dead(&self, setup: &Setup, x: usize) -> bool {
        let session = self.shards[x].session;
        let name = self.names[setup.name[usize::from(session.owner)]];
        match name.state {
            Life::Absent => false,
            Life::Left | Life::Fenced if name.session == session => true,
            Life::Active | Life::Left | Life::Fenced => name.session != session && name.proves,
        }
    }

    /// Whether there is a node record that says anything about the shard's holder, dead or alive; where there is no
    /// record at all, that absence can be fenced.
    pub(crate) fn spoken_for(&self, setup: &Setup, x: usize) -> bool {
        let session = self.shards[x].session;
        let name = self.names[setup.name[usize::from(session.owner)]];
        name.state == Life::Absent || name.session == session || name.proves
    }

    fn next_epoch(&self, setup: &Setup, p: usize, x: usize) -> u8 {
        let shard = self.shards[x];
        let knows_floor = setup.wipes == 0 || self.procs[p].incarnation == 1;
        let above = shard.epoch.max(if knows_floor { shard.floor } else { 0 });
        // A node that replaces a record that was lost takes an epoch above the time of day, which is above all.
        let lost = setup.holes > 0 && shard.state == Hold::Absent;
        let given_out = self.procs.iter().map(|proc| proc.holding[x].epoch).max().unwrap_or(0);
        let above = if lost { above.max(shard.started).max(given_out) } else { above };
        if setup.holds(Rule::EpochRises) { above + 1 } else { above.max(1) }
    }

    fn hear_claim(&mut self, setup: &Setup, p: usize, x: usize) -> Option<Violation> {
        let holding = &mut self.procs[p].holding[x];
        holding.claim = WriteState::None;
        holding.creates = false;
        let looks = !holding.trusted && setup.holds(Rule::NodesBeforeStart);
        if looks && self.store_changed(setup, p) {
            self.detach(setup, p);
            return None;
        }
        self.begin(p, x)
    }

    fn begin(&mut self, p: usize, x: usize) -> Option<Violation> {
        let life = self.procs[p].life;
        let holding = &mut self.procs[p].holding[x];
        let shard = &mut self.shards[x];
        holding.work = WorkState::Running;
        holding.ran = shard.state == Hold::Held
            && shard.session == Session { owner: p as u8, life }
            && shard.epoch == holding.epoch;
        let higher = holding.epoch > shard.started;
        shard.started = shard.started.max(holding.epoch);
        (!higher).then_some(Violation::EpochNotHigher)
    }

    /// The version of a shard record changed: whatever expected the former one can never be applied.
    pub(crate) fn write_shard(&mut self, setup: &Setup, x: usize, state: Hold, session: Session) {
        let shard = &mut self.shards[x];
        (shard.state, shard.session) = (state, session);
        if setup.holds(Rule::ReleaseIsSwap) {
            shard.release = Release::None;
        }
        for proc in &mut self.procs[..setup.procs] {
            let holding = &mut proc.holding[x];
            if holding.claim == WriteState::Flying && !holding.creates {
                holding.claim = WriteState::None;
            }
            if !holding.late_creates {
                holding.late = None;
            }
            (holding.orphaned, holding.ran) = (0, false);
        }
    }
}
