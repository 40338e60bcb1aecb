//! A store that loses a record or everything, and how the processes live through that.

use crate::moves::{Move, Steps};
use crate::setup::{Rule, Setup};
use crate::state::{Hold, Life, Meta, Phase, Session, State};

impl Steps<'_> {
    /// The store loses something.
    pub(crate) fn store_fails(&mut self) {
        if self.from.vanishes > 0 {
            for n in 0..self.setup.names() {
                if self.from.names[n].state != Life::Absent {
                    self.plain(Move::Vanish(n), |setup, state| {
                        state.vanishes -= 1;
                        state.write_name(setup, n, Life::Absent, Session::default());
                    });
                }
            }
        }
        if self.from.holes > 0 {
            for x in 0..self.setup.shards {
                if self.from.shards[x].state != Hold::Absent {
                    self.plain(Move::Hole(x), |setup, state| {
                        state.holes -= 1;
                        state.write_shard(setup, x, Hold::Absent, Session::default());
                        state.shards[x].epoch = 0;
                    });
                }
            }
        }
        if self.from.wipes > 0 {
            self.plain(Move::Wipe, |setup, state| {
                state.wipes -= 1;
                state.meta = Meta::Absent;
                for n in 0..setup.names() {
                    state.write_name(setup, n, Life::Absent, Session::default());
                }
                for x in 0..setup.shards {
                    state.write_shard(setup, x, Hold::Absent, Session::default());
                    (state.shards[x].epoch, state.shards[x].floor) = (0, 0);
                }
                for proc in &mut state.procs[..setup.procs] {
                    proc.settled = 0;
                    if proc.incarnation == 1 {
                        proc.incarnation = 2;
                    }
                }
            });
        }
    }

    /// `meta` is overwritten with garbage.
    pub(crate) fn meta_is_damaged(&mut self) {
        if self.from.damages > 0 && matches!(self.from.meta, Meta::Settling | Meta::Open) {
            self.plain(Move::DamageMeta, |setup, state| {
                state.damages -= 1;
                state.meta = Meta::Damaged;
                state.procs[..setup.procs].iter_mut().for_each(|proc| proc.settled = 0);
            });
        }
    }

    /// A node that is sure that the store is the one that it knew writes `meta` back as it knew it; one that knows nothing begins a new incarnation.
    fn restore(&mut self, p: usize) {
        let proc = self.from.procs[p];
        let sure = proc.vouched || !self.setup.holds(Rule::RestoredByTheRenewed);
        let read = proc.read || !self.setup.holds(Rule::RestoredAsReadSince);
        if proc.incarnation != 0 && proc.phase == Phase::Attached && sure && read {
            self.plain(Move::RestoreMeta(p), |setup, state| {
                state.meta = Meta::Open;
                // What was is again, and what is was: that is what goes wrong if the store was emptied in between.
                if state.procs[p].incarnation == 2 {
                    for proc in &mut state.procs[..setup.procs] {
                        proc.incarnation = [0, 2, 1][usize::from(proc.incarnation)];
                    }
                    state.shards[..setup.shards].iter_mut().for_each(|shard| shard.floor = 0);
                }
            });
        }
        if proc.incarnation == 0 {
            self.plain(Move::ReplaceMeta(p), |setup, state| {
                for proc in &mut state.procs[..setup.procs] {
                    if proc.incarnation == 1 {
                        proc.incarnation = 2;
                    }
                }
                state.begin_incarnation(setup);
            });
        }
    }

    /// How a process notices, and how a new incarnation begins.
    pub(crate) fn meta(&mut self, p: usize) {
        let proc = self.from.procs[p];
        if self.setup.wipes == 0 || proc.paused {
            return;
        }
        if self.from.meta == Meta::Damaged {
            return self.restore(p);
        }
        if proc.incarnation == 2 {
            self.plain(Move::NoticeWipe(p), |setup, state| {
                state.procs[p].incarnation = 0;
                if state.procs[p].phase == Phase::Attached {
                    state.detach(setup, p);
                }
            });
        }
        if proc.incarnation != 0 {
            return;
        }
        match self.from.meta {
            Meta::Damaged => {}
            Meta::Absent => {
                self.plain(Move::CreateMeta(p), |setup, state| state.begin_incarnation(setup));
            }
            Meta::Settling => {
                if proc.settled > self.setup.wait() || !self.setup.holds(Rule::SettleBeforeClaim) {
                    self.plain(Move::OpenMeta(p), |setup, state| {
                        state.meta = Meta::Open;
                        for proc in &mut state.procs[..setup.procs] {
                            proc.settled = 0;
                        }
                    });
                }
            }
            Meta::Open => self.plain(Move::LearnMeta(p), |_, state| state.procs[p].incarnation = 1),
        }
    }
}

impl State {
    /// A new incarnation begins, and settles: its epochs are above all that were.
    fn begin_incarnation(&mut self, setup: &Setup) {
        self.meta = Meta::Settling;
        self.procs[..setup.procs].iter_mut().for_each(|proc| proc.settled = 1);
        for x in 0..setup.shards {
            let highest = self.procs.iter().map(|proc| proc.holding[x].epoch).max().unwrap_or(0);
            let shard = &mut self.shards[x];
            if setup.holds(Rule::FloorAboveAll) {
                shard.floor = highest.max(shard.started).max(shard.epoch) + 1;
            }
        }
    }
}
