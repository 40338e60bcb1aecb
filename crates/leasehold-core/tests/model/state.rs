//! One state of the model, in small integers, with everything left out that cannot matter any more.

use crate::setup::{PROCS, Rule, SHARDS, Setup};

/// Where a process stands. A process that crashed is one that has just started: until it acts there is no difference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Phase {
    /// It has just started and has no session.
    #[default]
    Fresh,
    /// It has chosen a session and tries to write its record.
    Joining,
    /// Its session is good until its clock says otherwise.
    Attached,
    /// Its session is over and its work is being stopped.
    Lost,
    /// Its session is over and its work has stopped.
    Over,
}

/// A request whose answer the process waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Request {
    /// There is none.
    #[default]
    None,
    /// On its way to the store, or lost; if it arrives it can still be applied.
    Flying,
    /// Applied; its answer is on the way, or lost.
    Applied,
}

/// The work of a shard in a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Work {
    /// Nothing runs.
    #[default]
    None,
    /// It runs.
    Running,
    /// It was told to stop and still runs.
    Stopping,
}

/// A session: which process, and which of its lives (numbered anew after every step, oldest first).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Session {
    pub(crate) owner: u8,
    pub(crate) life: u8,
}

/// What a process keeps per shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Holding {
    pub(crate) work: Work,
    pub(crate) claim: Request,
    /// The claim expects no record.
    pub(crate) creates: bool,
    /// The epoch of the claim that was applied and not heard of.
    pub(crate) epoch: u8,
    /// A claim that nobody waits for any more and that may yet land, by this life of the process.
    pub(crate) late: Option<u8>,
    /// That one expects no record.
    pub(crate) late_creates: bool,
    /// For how long the holder has been seen without a node record that speaks for it; 0 is not yet, then from 1.
    pub(crate) orphaned: u8,
}

/// One process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Proc {
    pub(crate) phase: Phase,
    pub(crate) paused: bool,
    pub(crate) life: u8,
    /// Ticks until its session ends, on its own clock.
    pub(crate) left_for: u8,
    /// Its renewal, or its first write.
    pub(crate) renewal: Request,
    /// The renewal expects no record.
    pub(crate) creates: bool,
    /// Ticks since the renewal was sent.
    pub(crate) age: u8,
    /// For how long each name's record has been seen unchanged; 0 is not yet, then from 1.
    pub(crate) silent: [u8; PROCS],
    /// The live session that a roster, read at some time, shows for each name: 0 no roster, 1 nobody, else 2 and up.
    /// Only kept where old rosters are believed.
    pub(crate) roster: [u8; PROCS],
    pub(crate) holding: [Holding; SHARDS],
    /// The incarnation that it knows: 0 none, 1 the one that is, 2 one that was.
    pub(crate) incarnation: u8,
    /// For how long it has seen the new incarnation settle; 0 is not yet, then from 1.
    pub(crate) settled: u8,
}

/// The state of a node record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Life {
    #[default]
    Absent,
    Active,
    Left,
    Fenced,
}

/// A node record, and the requests for it that nobody waits for and that may yet be applied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Name {
    pub(crate) state: Life,
    pub(crate) session: Session,
    /// It was swapped over the record of a dead session, and so on back to the first: all former ones are dead.
    pub(crate) proves: bool,
    /// It was written by a request older than what its session has seen since.
    pub(crate) old: bool,
    pub(crate) renewal: bool,
    pub(crate) leave: bool,
    pub(crate) fence: Option<Session>,
    pub(crate) join: Option<Session>,
    /// That join expects no record.
    pub(crate) join_creates: bool,
}

/// The state of a shard record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Hold {
    #[default]
    Absent,
    Vacant,
    Held,
}

/// A shard record. Epochs are numbered anew after every step; only their order counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shard {
    pub(crate) state: Hold,
    pub(crate) session: Session,
    pub(crate) epoch: u8,
    /// The floor for epochs of this incarnation.
    pub(crate) floor: u8,
    /// The highest epoch that any work was ever started under. Nobody in the model can see it.
    pub(crate) started: u8,
    /// A release that may yet land.
    pub(crate) release: bool,
}

/// The state of `meta`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Meta {
    Absent,
    Settling,
    #[default]
    Open,
}

/// One state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) procs: [Proc; PROCS],
    pub(crate) names: [Name; PROCS],
    pub(crate) shards: [Shard; SHARDS],
    pub(crate) meta: Meta,
    pub(crate) vanishes: u8,
    pub(crate) wipes: u8,
}

impl State {
    /// Every process has just started. The store is empty, or all names have been used before and all shards are
    /// vacant.
    pub(crate) fn start(setup: &Setup) -> State {
        let mut state = State { vanishes: setup.vanishes, wipes: setup.wipes, ..State::default() };
        for p in 0..setup.procs {
            state.procs[p].incarnation = u8::from(setup.wipes > 0);
            if setup.used_before {
                let name = &mut state.names[setup.name[p]];
                (name.state, name.session.owner, name.proves) = (Life::Left, p as u8, true);
            }
        }
        if setup.used_before {
            state.shards[..setup.shards].iter_mut().for_each(|shard| shard.state = Hold::Vacant);
        }
        state.normalise(setup);
        state
    }

    /// The session that process `p` has or had last.
    pub(crate) fn session(&self, p: usize) -> Session {
        Session { owner: p as u8, life: self.procs[p].life }
    }

    /// Whether the shard's record names the present session of process `p`.
    pub(crate) fn holds(&self, p: usize, x: usize) -> bool {
        let proc = &self.procs[p];
        self.shards[x].state == Hold::Held
            && proc.phase != Phase::Fresh
            && self.shards[x].session == self.session(p)
    }

    /// Whether the record of this name is that of a live session, and which.
    pub(crate) fn alive(&self, n: usize) -> Option<Session> {
        (self.names[n].state == Life::Active).then_some(self.names[n].session)
    }

    /// Forgets what cannot matter any more, and numbers lives and epochs anew.
    pub(crate) fn normalise(&mut self, setup: &Setup) {
        for proc in &mut self.procs[..setup.procs] {
            if proc.phase == Phase::Lost && proc.holding.iter().all(|holding| holding.work == Work::None) {
                proc.phase = Phase::Over;
            }
        }
        self.forget_creations(setup);
        if !setup.latecomers {
            self.forget_former_lives(setup);
        }
        for proc in &mut self.procs[..setup.procs] {
            proc.normalise();
        }
        for name in &mut self.names {
            if name.join.is_none() {
                name.join_creates = false;
            }
            if name.state == Life::Absent {
                (name.session, name.proves, name.old) = (Session::default(), false, false);
            }
        }
        for shard in &mut self.shards {
            if shard.state != Hold::Held {
                shard.session = Session::default();
            }
        }
        for p in 0..setup.procs {
            self.number_lives(setup, p);
        }
        for x in 0..setup.shards {
            self.number_epochs(setup, x);
        }
    }

    /// A request that expects no record can never be applied once the record is there and will not vanish again.
    fn forget_creations(&mut self, setup: &Setup) {
        for n in 0..setup.names() {
            if self.names[n].state == Life::Absent || self.vanishes > 0 || self.wipes > 0 {
                continue;
            }
            if self.names[n].join_creates {
                self.names[n].join = None;
            }
            for p in (0..setup.procs).filter(|p| setup.name[*p] == n) {
                let proc = &mut self.procs[p];
                if proc.renewal == Request::Flying && proc.creates {
                    proc.renewal = Request::None;
                }
            }
        }
        for x in 0..setup.shards {
            if self.shards[x].state == Hold::Absent || self.wipes > 0 || !setup.holds(Rule::RecordsStay) {
                continue;
            }
            for holding in self.procs.iter_mut().map(|proc| &mut proc.holding[x]) {
                if holding.claim == Request::Flying && holding.creates {
                    holding.claim = Request::None;
                }
                if holding.late_creates {
                    holding.late = None;
                }
            }
        }
    }

    /// Without latecomers: a process whose session is over and whose record is no longer its own is as good as fresh;
    /// a claim of a life that is over counts as lost; a shard that a dead session holds counts as vacant, unless a
    /// process still believes in that session.
    fn forget_former_lives(&mut self, setup: &Setup) {
        for p in 0..setup.procs {
            let mine = self.alive(setup.name[p]) == Some(self.session(p));
            let proc = &mut self.procs[p];
            if proc.phase == Phase::Over && !mine && setup.holds(Rule::LostIsForEver) {
                (proc.phase, proc.life) = (Phase::Fresh, 0);
            }
            let believes = matches!(proc.phase, Phase::Attached | Phase::Lost);
            for holding in &mut proc.holding {
                let kept = holding.late_creates && setup.wipes > 0;
                if holding.late.is_some_and(|life| !believes || life != proc.life) && !kept {
                    holding.late = None;
                }
            }
        }
        for x in 0..setup.shards {
            let shard = self.shards[x];
            if shard.state != Hold::Held || !setup.holds(Rule::LostIsForEver) || !self.dead(setup, x) {
                continue;
            }
            let owner = &self.procs[usize::from(shard.session.owner)];
            let believes =
                matches!(owner.phase, Phase::Attached | Phase::Lost) && owner.life == shard.session.life;
            if !believes {
                self.shards[x].state = Hold::Vacant;
                self.shards[x].release &= !setup.holds(Rule::ReleaseIsSwap);
            }
        }
    }

    /// Calls `on` with every session that anything still refers to.
    pub(crate) fn each_session(&mut self, setup: &Setup, mut on: impl FnMut(&mut Session)) {
        for p in 0..setup.procs {
            let proc = &mut self.procs[p];
            let mut with_life = |life: &mut u8| {
                let mut session = Session { owner: p as u8, life: *life };
                on(&mut session);
                *life = session.life;
            };
            if proc.phase != Phase::Fresh {
                with_life(&mut proc.life);
            }
            proc.holding.iter_mut().filter_map(|holding| holding.late.as_mut()).for_each(with_life);
        }
        for name in &mut self.names {
            if name.state != Life::Absent {
                on(&mut name.session);
            }
            name.fence.iter_mut().chain(name.join.iter_mut()).for_each(&mut on);
        }
        self.shards.iter_mut().filter(|shard| shard.state == Hold::Held).for_each(|s| on(&mut s.session));
        for p in 0..setup.procs {
            for seen in self.procs[p].roster.iter_mut().filter(|seen| **seen >= 2) {
                let mut session = Session { owner: (*seen - 2) / 8, life: (*seen - 2) % 8 };
                on(&mut session);
                *seen = 2 + session.owner * 8 + session.life;
            }
        }
    }

    fn number_lives(&mut self, setup: &Setup, p: usize) {
        let mut used = 0u16;
        self.each_session(setup, |session| {
            if usize::from(session.owner) == p {
                used |= 1 << session.life;
            }
        });
        assert!(used.count_ones() <= 7, "more lives at once than the model has room for");
        self.each_session(setup, |session| {
            if usize::from(session.owner) == p {
                session.life = (used & ((1 << session.life) - 1)).count_ones() as u8;
            }
        });
    }

    fn number_epochs(&mut self, setup: &Setup, x: usize) {
        let mut used = 1u32;
        self.each_epoch(setup, x, |epoch| used |= 1 << *epoch);
        self.each_epoch(setup, x, |epoch| *epoch = (used & ((1 << *epoch) - 1)).count_ones() as u8);
    }

    fn each_epoch(&mut self, setup: &Setup, x: usize, mut on: impl FnMut(&mut u8)) {
        let shard = &mut self.shards[x];
        on(&mut shard.epoch);
        on(&mut shard.floor);
        on(&mut shard.started);
        for proc in &mut self.procs[..setup.procs] {
            on(&mut proc.holding[x].epoch);
        }
    }
}

impl Proc {
    fn normalise(&mut self) {
        if self.phase == Phase::Fresh {
            self.life = 0;
        }
        if !matches!(self.phase, Phase::Attached | Phase::Lost) {
            self.left_for = 0;
        }
        if self.renewal == Request::None {
            (self.age, self.creates) = (0, false);
        }
        for holding in &mut self.holding {
            if holding.claim == Request::None {
                holding.creates = false;
            }
            if holding.late.is_none() {
                holding.late_creates = false;
            }
            if holding.claim != Request::Applied {
                holding.epoch = 0;
            }
        }
    }
}
