//! Sessions: opening, renewing, leaving, watching others, fencing them.

use crate::moves::{Move, Steps};
use crate::setup::{Rule, Setup};
use crate::state::{Hold, Life, Meta, Phase, Session, State, WorkState, WriteState};

impl Steps<'_> {
    /// What a process does about its own session and about those of others.
    pub(crate) fn session(&mut self, p: usize) {
        self.own_requests(p);
        if self.from.procs[p].paused {
            return;
        }
        self.open(p);
        self.renew(p);
        self.leave(p);
        for n in 0..self.setup.names() {
            self.watch(p, n);
        }
        if !self.setup.holds(Rule::ProofAfterShard) {
            self.plain(Move::SeeRoster(p), |setup, state| {
                for n in 0..setup.names() {
                    let seen = state.alive(n).map_or(1, |s| 2 + s.owner * 8 + s.life);
                    state.procs[p].roster[n] = seen;
                }
            });
        }
    }

    /// The store's side of the renewal that the process waits for.
    fn own_requests(&mut self, p: usize) {
        let proc = self.from.procs[p];
        let n = self.setup.name[p];
        if proc.renewal != WriteState::Flying || (proc.creates && self.from.names[n].state != Life::Absent) {
            return;
        }
        self.plain(Move::LandRenewal(p), |setup, state| state.land_renewal(setup, p));
        if proc.creates && self.setup.can_vanish() && !self.from.has_late_creation() {
            self.plain(Move::LandRenewalCopied(p), |setup, state| {
                state.land_renewal(setup, p);
                state.names[n].join = Some(state.session(p));
                state.names[n].join_creates = true;
                state.names[n].late_publishes = state.names[n].publishes;
            });
        }
    }

    fn open(&mut self, p: usize) {
        let (proc, name) = (self.from.procs[p], self.from.names[self.setup.name[p]]);
        let ended = matches!(proc.phase, Phase::Fresh | Phase::Over);
        if ended && name.state != Life::Active {
            for plan in self.publications(p) {
                self.plain(Move::Open(p, plan), |_, state| {
                    let proc = &mut state.procs[p];
                    (proc.phase, proc.life, proc.publishing) = (Phase::Joining, 7, plan);
                    (proc.renewal, proc.age, proc.creates) =
                        (WriteState::Flying, 0, name.state == Life::Absent);
                });
            }
        }
        if ended && name.state == Life::Active && !self.setup.holds(Rule::FreshSession) {
            self.plain(Move::Adopt(p), |setup, state| state.adopt(setup, p));
        }
    }

    fn renew(&mut self, p: usize) {
        let (proc, name) = (self.from.procs[p], self.from.names[self.setup.name[p]]);
        let mine = self.from.alive(self.setup.name[p]) == Some(self.from.session(p));
        let known = !name.old || !self.setup.holds(Rule::OwnRecordNotOlder);
        let may = match proc.phase {
            Phase::Attached => mine && known,
            Phase::Joining => mine || name.state != Life::Active,
            _ => false,
        };
        if may && proc.renewal == WriteState::None {
            for publishing in self.publications(p) {
                self.plain(Move::SendRenewal(p, publishing), |_, state| {
                    let damaged = state.meta == Meta::Damaged;
                    let proc = &mut state.procs[p];
                    proc.asked = damaged;
                    (proc.renewal, proc.age, proc.creates) =
                        (WriteState::Flying, 0, name.state == Life::Absent);
                    (proc.publishing, proc.published) = (publishing, proc.published & publishing);
                });
            }
        }
        if proc.renewal != WriteState::None {
            self.plain(Move::GiveUpRenewal(p), |setup, state| state.abandon_renewal(setup, p));
        }
        if proc.renewal == WriteState::Applied {
            self.plain(Move::HearRenewal(p), |setup, state| state.hear_renewal(setup, p));
        }
    }

    /// What a renewal that is sent now may publish: what is claimed or runs, and beyond that what the plan may say.
    fn publications(&self, p: usize) -> Vec<u8> {
        if !self.setup.publishes() {
            return vec![0];
        }
        let holding = self.from.procs[p].holding;
        let claimed =
            |x: &usize| holding[*x].work != WorkState::None || holding[*x].claim != WriteState::None;
        let must = (0..self.setup.shards).filter(claimed).fold(0, |all, x| all | 1 << x);
        (0..1 << self.setup.shards).filter(|set| set & must == must).collect()
    }

    fn leave(&mut self, p: usize) {
        let proc = self.from.procs[p];
        let n = self.setup.name[p];
        let stopped = proc.phase == Phase::Over
            || (proc.phase == Phase::Lost && !self.setup.holds(Rule::LeftOnlyWhenStopped));
        if stopped && self.from.alive(n) == Some(self.from.session(p)) {
            self.plain(Move::SendLeave(p), |setup, state| {
                state.names[n].leave = true;
                if !setup.latecomers {
                    state.write_name(setup, n, Life::Left, state.session(p));
                }
            });
        }
    }

    fn watch(&mut self, p: usize, n: usize) {
        let (proc, name) = (self.from.procs[p], self.from.names[n]);
        let me = proc.phase != Phase::Fresh && self.from.alive(n) == Some(self.from.session(p));
        let orphans = self.from.holders_of(self.setup, n);
        let watched = match name.state {
            Life::Active => !me,
            Life::Absent => !orphans.is_empty(),
            Life::Left | Life::Fenced => false,
        };
        if watched && !self.setup.holds(Rule::FenceBeforeTakeover) {
            self.plain(Move::See(p, n), |_, state| state.procs[p].silent[n] = 1);
        }
        if !watched || proc.silent[n] <= self.setup.wait() {
            return;
        }
        let targets = if name.state == Life::Active { vec![name.session] } else { orphans };
        for target in targets {
            self.plain(Move::SendFence(p, n), |setup, state| {
                state.names[n].fence = Some(target);
                if !setup.latecomers {
                    state.write_name(setup, n, Life::Fenced, target);
                }
            });
        }
    }

    /// The store's side of what nobody waits for.
    pub(crate) fn name(&mut self, n: usize) {
        let name = self.from.names[n];
        if name.renewal && name.state != Life::Absent {
            self.plain(Move::LandLateRenewal(n), |setup, state| {
                state.write_name(setup, n, Life::Active, name.session);
                state.names[n].renewal = false;
                state.names[n].publishes = name.late_publishes;
            });
        }
        if name.leave {
            self.plain(Move::LandLeave(n), |setup, state| {
                state.write_name(setup, n, Life::Left, name.session);
            });
        }
        if let Some(target) = name.fence {
            self.plain(Move::LandFence(n), |setup, state| state.write_name(setup, n, Life::Fenced, target));
        }
        if let Some(session) = name.join
            && (!name.join_creates || name.state == Life::Absent)
        {
            self.plain(Move::LandLateJoin(n), |setup, state| {
                let owner = usize::from(session.owner);
                let seen_newer = state.procs[owner].phase != Phase::Joining;
                state.write_first_record(setup, n, session);
                state.names[n].join = None;
                state.names[n].publishes = name.late_publishes;
                state.names[n].old = seen_newer;
            });
        }
    }
}

impl State {
    /// The sessions of a name that shard records name as holders.
    pub(crate) fn holders_of(&self, setup: &Setup, n: usize) -> Vec<Session> {
        let held = self.shards[..setup.shards].iter().filter(|shard| shard.state == Hold::Held);
        held.map(|shard| shard.session).filter(|s| setup.name[usize::from(s.owner)] == n).collect()
    }

    /// A session's first record: over a dead session's, which proves that all former ones are dead if that one did;
    /// a fenced one was silent for so long that any former one is over as well.
    fn write_first_record(&mut self, setup: &Setup, n: usize, session: Session) {
        let former = self.names[n];
        self.write_name(setup, n, Life::Active, session);
        self.names[n].proves = match former.state {
            // The first of all, unless single records can vanish: then nobody can tell. After a wipe nobody claims
            // before all former sessions are over.
            Life::Absent => setup.vanishes == 0,
            Life::Left => former.proves,
            // Over a live record only where a renewal is no swap; a reader cannot tell.
            Life::Fenced | Life::Active => true,
        };
    }

    fn land_renewal(&mut self, setup: &Setup, p: usize) {
        let n = setup.name[p];
        let session = self.session(p);
        if self.alive(n) == Some(session) {
            self.write_name(setup, n, Life::Active, session);
        } else {
            self.write_first_record(setup, n, session);
        }
        self.procs[p].renewal = WriteState::Applied;
        self.names[n].publishes = self.procs[p].publishing;
    }

    fn hear_renewal(&mut self, setup: &Setup, p: usize) {
        // A node that reads the store at all reads `meta` with it, and most of all after it has joined.
        self.procs[p].read |= self.meta == Meta::Open && self.procs[p].incarnation == 1;
        let proc = &mut self.procs[p];
        let since = if setup.holds(Rule::DeadlineFromSending) { proc.age } else { 0 };
        let good_for = setup.ttl - since.min(setup.ttl);
        (proc.renewal, proc.published) = (WriteState::None, proc.publishing);
        proc.vouched |= std::mem::take(&mut proc.asked) && proc.phase == Phase::Attached;
        let revived = matches!(proc.phase, Phase::Lost | Phase::Over) && !setup.holds(Rule::LostIsForEver);
        match proc.phase {
            Phase::Attached => proc.left_for = proc.left_for.max(good_for),
            Phase::Joining if good_for > setup.margin => {
                (proc.phase, proc.left_for) = (Phase::Attached, good_for);
            }
            Phase::Lost | Phase::Over if revived && good_for > setup.margin => {
                (proc.phase, proc.left_for) = (Phase::Attached, good_for);
                for holding in proc.holding.iter_mut().filter(|h| h.work == WorkState::Stopping) {
                    holding.work = WorkState::Running;
                }
            }
            _ => {}
        }
    }

    /// What a process must never do: take over the session that its name had, and what it held.
    fn adopt(&mut self, setup: &Setup, p: usize) {
        let n = setup.name[p];
        let session = self.names[n].session;
        for x in 0..setup.shards {
            if self.shards[x].state == Hold::Held && self.shards[x].session == session {
                self.procs[p].holding[x].work = WorkState::Running;
                self.shards[x].session = Session { owner: p as u8, life: 7 };
            }
        }
        let proc = &mut self.procs[p];
        (proc.phase, proc.life, proc.left_for) = (Phase::Attached, 7, setup.ttl);
        let me = self.session(p);
        self.names[n].session = me;
        self.names[n].renewal = false;
    }
}
