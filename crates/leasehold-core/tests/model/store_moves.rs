//! A store that loses a record or everything, and how the processes live through that.

use crate::moves::{Move, Steps};
use crate::setup::Rule;
use crate::state::{Hold, Life, Meta, Phase, Session};

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

    /// How a process notices, and how a new incarnation begins.
    pub(crate) fn meta(&mut self, p: usize) {
        let proc = self.from.procs[p];
        if self.setup.wipes == 0 || proc.paused {
            return;
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
            Meta::Absent => self.plain(Move::CreateMeta(p), |setup, state| {
                state.meta = Meta::Settling;
                state.procs[..setup.procs].iter_mut().for_each(|proc| proc.settled = 1);
                for x in 0..setup.shards {
                    let highest = state.procs.iter().map(|proc| proc.holding[x].epoch).max().unwrap_or(0);
                    let shard = &mut state.shards[x];
                    if setup.holds(Rule::FloorAboveAll) {
                        shard.floor = highest.max(shard.started).max(shard.epoch) + 1;
                    }
                }
            }),
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
