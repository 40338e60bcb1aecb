//! Leaves out of a state what cannot matter any more, so that states that behave alike are one.

use crate::setup::{Rule, Setup};
use crate::state::{Hold, Life, Meta, Phase, Proc, Release, Session, State, WorkState, WriteState};

impl State {
    /// Forgets what cannot matter any more, and renumbers lives and epochs.
    pub(crate) fn normalise(&mut self, setup: &Setup) {
        for proc in &mut self.procs[..setup.procs] {
            if proc.phase == Phase::Lost && proc.holding.iter().all(|holding| holding.work == WorkState::None)
            {
                proc.phase = Phase::Over;
            }
        }
        self.forget_creations(setup);
        if !setup.latecomers {
            self.forget_former_lives(setup);
        }
        for p in 0..setup.procs {
            // To confirm what is published, or to have something else published, is worth a renewal as well.
            let (proc, name) = (self.procs[p], self.names[setup.name[p]]);
            let news = proc.publishing != proc.published || proc.publishing != name.publishes;
            self.procs[p].normalise(setup, setup.publishes() && news);
        }
        if self.meta != Meta::Damaged {
            self.procs.iter_mut().for_each(|proc| (proc.asked, proc.vouched) = (false, false));
        }
        for name in &mut self.names {
            if name.join.is_none() {
                name.join_creates = false;
            }
            if name.state != Life::Active {
                name.publishes = 0;
            }
            if name.join.is_none() && !name.renewal {
                name.late_publishes = 0;
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
        for x in 0..setup.shards {
            let orphaned = self.shards[x].state == Hold::Held && !self.spoken_for(setup, x);
            for proc in &mut self.procs[..setup.procs] {
                let seen_for = &mut proc.holding[x].orphaned;
                *seen_for = if orphaned { (*seen_for).max(1) } else { 0 };
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
                if proc.renewal == WriteState::Flying && proc.creates {
                    proc.renewal = WriteState::None;
                }
            }
        }
        for x in 0..setup.shards {
            if self.shards[x].state == Hold::Absent
                || self.wipes > 0
                || self.holes > 0
                || !setup.holds(Rule::RecordsStay)
            {
                continue;
            }
            for holding in self.procs.iter_mut().map(|proc| &mut proc.holding[x]) {
                if holding.claim == WriteState::Flying && holding.creates {
                    holding.claim = WriteState::None;
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
                let kept = holding.late_creates && setup.tells_releases();
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
                self.shards[x].state = if setup.tells_releases() { Hold::Unstarted } else { Hold::Vacant };
                if setup.holds(Rule::ReleaseIsSwap) {
                    self.shards[x].release = Release::None;
                }
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
    fn normalise(&mut self, setup: &Setup, news: bool) {
        if setup.holds(Rule::DeadlineFromSending) && !news {
            self.forget_useless_renewal(setup);
        }
        if self.phase == Phase::Fresh {
            self.life = 0;
        }
        if !matches!(self.phase, Phase::Attached | Phase::Lost) {
            self.left_for = 0;
        }
        self.vouched &= self.phase == Phase::Attached;
        self.read &= self.phase == Phase::Attached && setup.damages > 0;
        if self.renewal == WriteState::None {
            (self.age, self.creates, self.asked) = (0, false, false);
            self.publishing = 0;
        }
        if self.phase != Phase::Attached {
            self.published = 0;
        }
        for holding in &mut self.holding {
            holding.ran &= self.phase == Phase::Attached;
            if holding.claim == WriteState::None {
                (holding.creates, holding.trusted) = (false, false);
            }
            if holding.late.is_none() {
                holding.late_creates = false;
            }
            if holding.claim != WriteState::Applied {
                holding.epoch = 0;
            }
        }
    }

    /// A renewal that could no longer move a deadline counts as lost. A first record stays, because it makes a session.
    fn forget_useless_renewal(&mut self, setup: &Setup) {
        let good_for = setup.ttl - self.age.min(setup.ttl);
        let useless = match self.phase {
            Phase::Attached => good_for <= self.left_for,
            _ => good_for <= setup.margin,
        };
        match self.renewal {
            WriteState::Applied if useless => self.renewal = WriteState::None,
            WriteState::Flying if useless && self.phase == Phase::Attached && !setup.latecomers => {
                self.renewal = WriteState::None;
            }
            WriteState::Flying if useless => self.age = setup.ttl,
            _ => {}
        }
    }
}
