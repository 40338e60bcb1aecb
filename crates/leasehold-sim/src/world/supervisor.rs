//! Supervises the work of a simulated process: [`leasehold_core::work::Works`], the code that the library runs too,
//! decides; the decisions are collected here as [`Effect`]s and carried out by the world. Also the watchdog and the
//! dead-man timer.

use leasehold_core::event::StopReason;
use leasehold_core::work::{Hands, SessionLost, SessionNo, SessionStatus, WatchdogAction, Works};
use leasehold_core::{Deadlines, Epoch, Moment, ShardId};

use crate::invariants::Violation;
use crate::oracle::Observation;
use crate::sabotage::{Duty, Sabotage};
use crate::workload::{WorkEvent, Worker};
use crate::world::process::Session;
use crate::world::scenario::DeadMan;
use crate::world::{Judged, World, WorldEvent};

/// Something that the world must do for a process.
enum Effect {
    Arm(Option<Moment>),
    Guard(SessionNo, Moment),
    Tell(usize),
    CutOff(usize, Moment),
    Close(usize),
}

/// Collects the decisions about one process, for one call.
pub(crate) struct Supervisor<'a> {
    now: Moment,
    sessions: &'a mut Vec<Session>,
    workers: &'a [Worker],
    mine: &'a [usize],
    sabotage: Option<Sabotage>,
    effects: Vec<Effect>,
}

impl Supervisor<'_> {
    fn broken(&self, duty: Duty) -> bool {
        self.sabotage == Some(Sabotage::Driver(duty))
    }

    fn session(&mut self, number: SessionNo) -> Option<&mut Session> {
        self.sessions.iter_mut().rev().find(|it| it.no == Some(number))
    }

    fn worker(&self, shard: &ShardId, epoch: Epoch) -> Option<usize> {
        let is_it = |worker: &usize| self.workers[*worker].is(shard, epoch);
        self.mine.iter().copied().find(is_it)
    }
}

impl Hands for Supervisor<'_> {
    fn arm(&mut self, at: Option<Moment>) -> Result<(), String> {
        self.effects.push(Effect::Arm(at));
        Ok(())
    }

    fn open(&mut self, session: SessionNo, deadlines: Deadlines) {
        if let Some(newest) = self.sessions.last_mut() {
            (newest.no, newest.deadlines) = (Some(session), deadlines);
            self.effects.push(Effect::Guard(session, deadlines.stop_at));
        }
    }

    fn extend(&mut self, session: SessionNo, deadlines: Deadlines) -> Result<(), SessionLost> {
        // This second line of defence would hide a broken rule of the core.
        let refuses = !matches!(self.sabotage, Some(Sabotage::Core(_)));
        if refuses && !self.holds(session) {
            self.lose(session);
            return Err(SessionLost);
        }
        self.session(session).ok_or(SessionLost)?.deadlines = deadlines;
        Ok(())
    }

    fn lose(&mut self, session: SessionNo) {
        if let Some(session) = self.session(session) {
            session.lost = true;
        }
    }

    fn holds(&mut self, session: SessionNo) -> bool {
        let (now, unchecked) = (self.now, self.broken(Duty::CheckBeforeStart));
        self.session(session).is_some_and(|it| unchecked || it.good_at(now))
    }

    fn run(&mut self, _: SessionNo, _: &ShardId, _: Epoch) -> usize {
        1
    }

    fn tell(&mut self, shard: &ShardId, epoch: Epoch, _: StopReason) {
        self.effects.extend(self.worker(shard, epoch).map(Effect::Tell));
    }

    fn cut_off_at(&mut self, shard: &ShardId, epoch: Epoch, at: Moment) {
        self.effects.extend(self.worker(shard, epoch).map(|worker| Effect::CutOff(worker, at)));
    }

    fn close(&mut self, shard: &ShardId, epoch: Epoch) -> bool {
        // Work that is gone is no longer among those that run.
        let is_it = |worker: &Worker| worker.is(shard, epoch);
        let Some(worker) = self.workers.iter().rposition(is_it) else { return true };
        let forgets = self.broken(Duty::OwnedWorkCounts) || self.broken(Duty::EndedMeansEnded);
        let closes = self.workers[worker].owned == 0 || forgets;
        if closes {
            self.effects.push(Effect::Close(worker));
        }
        closes
    }
}

impl World {
    /// Lets the shared code decide something about a process's work, and does what follows.
    pub(crate) fn decide<R>(
        &mut self,
        process: usize,
        call: impl FnOnce(&mut Works, &mut Supervisor<'_>) -> R,
    ) -> Result<R, Violation> {
        let now = self.now_of(process).at;
        let node = &mut self.processes[process];
        let mut supervisor = Supervisor {
            now,
            sessions: &mut node.sessions,
            workers: &self.workers,
            mine: &node.workers,
            sabotage: self.sabotage,
            effects: Vec::new(),
        };
        let answer = call(&mut node.works, &mut supervisor);
        for effect in supervisor.effects {
            self.apply_effect(process, effect)?;
        }
        Ok(answer)
    }

    fn apply_effect(&mut self, process: usize, effect: Effect) -> Judged {
        match effect {
            Effect::Arm(at) => self.arm(process, at),
            Effect::Guard(session, stop_at) => {
                self.processes[process].watchdog.guard(session);
                self.plan_guard(process, stop_at);
            }
            Effect::Tell(worker) => self.tell_worker(worker)?,
            Effect::CutOff(worker, at) => {
                self.processes[process].watchdog.cut_off_at(at, worker);
                self.plan_guard(process, at);
            }
            Effect::Close(worker) => self.workers[worker].closed = true,
        }
        Ok(())
    }

    fn arm(&mut self, process: usize, at: Option<Moment>) {
        self.processes[process].armed = at;
        self.plan_dead_man(process);
    }

    fn plan_dead_man(&mut self, process: usize) {
        let node = &self.processes[process];
        let (Some(armed), DeadMan::Armed) = (node.armed, self.scenario.dead_man) else { return };
        let at = self.slots[node.slot].clock.when(armed);
        if at < node.dead_man_at {
            self.processes[process].dead_man_at = at;
            self.put_at(at, WorldEvent::DeadManTimer { process });
        }
    }

    /// The kernel's timer may be due. It kills a process that has not moved it on, even a paused one.
    pub(crate) fn dead_man(&mut self, process: usize) -> Judged {
        let now = self.now_of(process).at;
        let node = &mut self.processes[process];
        if !node.alive || self.at < node.dead_man_at {
            return Ok(());
        }
        node.dead_man_at = crate::world::clock::Instant::MAX;
        // The kernel of a frozen machine does nothing either.
        if self.slots[node.slot].clock.frozen {
            return Ok(());
        }
        let Some(armed) = node.armed else { return Ok(()) };
        if now < armed {
            self.plan_dead_man(process);
            return Ok(());
        }
        let handlers = self.processes[process].workers.iter().any(|it| self.workers[*it].has_handler());
        let forgets = self.broken(Duty::TimerOutlastsHandlers) && !handlers;
        if forgets || self.broken(Duty::KillAtDeadline) {
            return Ok(());
        }
        self.tell_of(process, || "is killed by its dead-man timer".to_owned());
        self.die(process)?;
        let slot = self.processes[process].slot;
        self.put(crate::world::clock::SECOND, WorldEvent::Spawn { slot });
        Ok(())
    }

    fn plan_guard(&mut self, process: usize, next: Moment) {
        let node = &mut self.processes[process];
        let at = self.slots[node.slot].clock.when(next);
        if at < node.guard_at {
            node.guard_at = at;
            self.put_at(at, WorldEvent::Watchdog { process });
        }
    }

    /// The watchdog takes a turn. It needs no core, no store and no answer.
    pub(crate) fn guard(&mut self, process: usize) -> Judged {
        let now = self.now_of(process).at;
        let second_line = !matches!(self.sabotage, Some(Sabotage::Core(_)));
        let node = &mut self.processes[process];
        if self.at < node.guard_at {
            return Ok(());
        }
        node.guard_at = crate::world::clock::Instant::MAX;
        let (sessions, early) = (&node.sessions, node.kill_early);
        let look = |number: &SessionNo| {
            let it = sessions.iter().rev().find(|it| it.no == Some(*number)).expect("sessions stay");
            let kill_at = it.deadlines.kill_at - early;
            // Telling as well would hide a broken rule of the core, which has to.
            let stop_at = if second_line { it.deadlines.stop_at } else { kill_at };
            let good_until = (!it.lost && now < stop_at).then_some(stop_at);
            SessionStatus { good_until, told: it.lost, kill_at }
        };
        let mut due = Vec::new();
        let next = node.watchdog.turn(|| now, look, &mut due);
        self.plan_guard(process, next);
        for order in due {
            self.carry_out_watchdog(process, order)?;
        }
        Ok(())
    }

    fn carry_out_watchdog(&mut self, process: usize, order: WatchdogAction<SessionNo, usize>) -> Judged {
        match order {
            WatchdogAction::Lose(number) => {
                let sessions = &mut self.processes[process].sessions;
                let it = sessions.iter_mut().rev().find(|it| it.no == Some(number)).expect("sessions stay");
                it.lost = true;
                let session = it.number;
                self.observe(Observation::Lost { session })?;
                for worker in self.processes[process].workers.clone() {
                    if self.workers[worker].session == session {
                        self.tell_worker(worker)?;
                    }
                }
                Ok(())
            }
            WatchdogAction::Kill(_) if self.broken(Duty::KillAtDeadline) => Ok(()),
            WatchdogAction::Kill(number) => {
                let sessions = &self.processes[process].sessions;
                let it = sessions.iter().rev().find(|it| it.no == Some(number)).expect("sessions stay");
                let (session, within) = (it.number, self.processes[process].kill_takes);
                for worker in self.processes[process].workers.clone() {
                    if self.workers[worker].session == session {
                        let after = self.processes[process].work_rng.below(within.max(1));
                        self.kill_after(worker, after);
                    }
                }
                Ok(())
            }
            WatchdogAction::CutOff(worker) => self.work(worker, WorkEvent::Kill),
        }
    }
}
