//! A store that loses a record or everything, and how the processes live through that.

use crate::moves::{Move, Steps};
use crate::setup::{Rule, Setup};
use crate::state::{Hold, Life, Meta, MetaWrite, Phase, Session, State};

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
                state.set_meta(setup, Meta::Absent);
                for n in 0..setup.names() {
                    state.write_name(setup, n, Life::Absent, Session::default());
                }
                for x in 0..setup.shards {
                    state.write_shard(setup, x, Hold::Absent, Session::default());
                    (state.shards[x].epoch, state.shards[x].floor) = (0, 0);
                }
                for proc in &mut state.procs[..setup.procs] {
                    proc.settling_for = 0;
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
                state.set_meta(setup, Meta::Damaged);
                state.procs[..setup.procs].iter_mut().for_each(|proc| proc.settling_for = 0);
            });
        }
    }

    /// A node that is sure that the store is the one that it knew writes `meta` back as it knew it; one that knows nothing begins a new incarnation.
    fn restore(&mut self, p: usize) {
        let proc = self.from.procs[p];
        let sure = proc.vouched || !self.setup.holds(Rule::RestoredByTheRenewed);
        let read = proc.read || !self.setup.holds(Rule::RestoredAsReadSince);
        if proc.incarnation != 0 && proc.phase == Phase::Attached && sure && read {
            let write = if proc.incarnation == 2 { MetaWrite::RestoreFormer } else { MetaWrite::Restore };
            self.write_meta(Move::RestoreMeta(p), write);
        }
        if proc.incarnation == 0 {
            self.write_meta(Move::ReplaceMeta(p), MetaWrite::Replace);
        }
    }

    /// A process writes `meta`: it lands at once, or is under way from now on.
    fn write_meta(&mut self, by: Move, write: MetaWrite) {
        self.plain(by, |setup, state| state.apply_meta(setup, write));
        if self.setup.late_meta && self.from.meta_write == MetaWrite::None {
            self.plain(Move::SendMeta(write), |_, state| state.meta_write = write);
        }
    }

    /// A write of `meta` lands that was under way.
    pub(crate) fn meta_lands(&mut self) {
        let write = self.from.meta_write;
        let expected = match write {
            MetaWrite::None => return,
            MetaWrite::Create => Meta::Absent,
            MetaWrite::Open => Meta::Settling,
            MetaWrite::Restore | MetaWrite::RestoreFormer | MetaWrite::Replace => Meta::Damaged,
        };
        if self.from.meta == expected || !self.setup.holds(Rule::MetaIsSwap) {
            self.plain(Move::LandMeta(write), |setup, state| {
                state.meta_write = MetaWrite::None;
                state.apply_meta(setup, write);
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
                self.write_meta(Move::CreateMeta(p), MetaWrite::Create);
            }
            Meta::Settling => {
                if proc.settling_for > self.setup.wait() || !self.setup.holds(Rule::SettleBeforeClaim) {
                    self.write_meta(Move::OpenMeta(p), MetaWrite::Open);
                }
            }
            Meta::Open => self.plain(Move::LearnMeta(p), |_, state| state.procs[p].incarnation = 1),
        }
    }
}

impl State {
    /// `meta` is another version: what was under way to a former one does nothing any more. "There is none" is no version, and can
    /// come again.
    fn set_meta(&mut self, setup: &Setup, meta: Meta) {
        self.meta = meta;
        // What a process knew before the store was emptied is the former incarnation now.
        if meta == Meta::Absent && self.meta_write == MetaWrite::Restore {
            self.meta_write = MetaWrite::RestoreFormer;
        }
        if setup.holds(Rule::MetaIsSwap) && self.meta_write != MetaWrite::Create {
            self.meta_write = MetaWrite::None;
        }
    }

    fn apply_meta(&mut self, setup: &Setup, write: MetaWrite) {
        match write {
            MetaWrite::None => {}
            MetaWrite::Open => {
                self.set_meta(setup, Meta::Open);
                self.procs[..setup.procs].iter_mut().for_each(|proc| proc.settling_for = 0);
            }
            MetaWrite::Restore => self.set_meta(setup, Meta::Open),
            MetaWrite::RestoreFormer => {
                self.set_meta(setup, Meta::Open);
                // What was is again, and what is was: that is what goes wrong if the store was emptied in between.
                for proc in &mut self.procs[..setup.procs] {
                    proc.incarnation = [0, 2, 1][usize::from(proc.incarnation)];
                }
                self.shards[..setup.shards].iter_mut().for_each(|shard| shard.floor = 0);
            }
            MetaWrite::Create | MetaWrite::Replace => {
                for proc in &mut self.procs[..setup.procs] {
                    if proc.incarnation == 1 {
                        proc.incarnation = 2;
                    }
                }
                self.begin_incarnation(setup);
            }
        }
    }

    /// A new incarnation begins, and settles: its epochs are above all that were.
    fn begin_incarnation(&mut self, setup: &Setup) {
        self.set_meta(setup, Meta::Settling);
        self.procs[..setup.procs].iter_mut().for_each(|proc| proc.settling_for = 1);
        for x in 0..setup.shards {
            let highest = self.procs.iter().map(|proc| proc.holding[x].epoch).max().unwrap_or(0);
            let shard = &mut self.shards[x];
            if setup.holds(Rule::FloorAboveAll) {
                shard.floor = highest.max(shard.started).max(shard.epoch) + 1;
            }
        }
    }
}
